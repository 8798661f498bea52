"""Features of a tile configuration: its bounds against the sizes of the tensors they cut."""

import numpy as np

from fastslow import columns
from fastslow.opcodes import CONVOLUTION, DOT
from fastslow.tensors import config_tensors

GROUPS = ("kernel", "output", "input")  # order of the three groups of eight columns in config_feat
_WIDTH = 8  # six bounds, their sum, their product


def root_shape(node_feat: np.ndarray) -> np.ndarray:
    """Sizes of the kernel's output, ``(6,)`` int64, 0-padded.

    Called computations come before the fused one, so the last root with a tensor is the output.
    """
    shapes = node_feat[:, columns.SHAPE].astype(np.int64)
    roots = np.flatnonzero((node_feat[:, columns.IS_ROOT] == 1) & (shapes[:, 0] > 0))
    return shapes[roots[-1]] if len(roots) else np.zeros(6, np.int64)


def tensor_shapes(
    node_feat: np.ndarray, node_opcode: np.ndarray, edge_index: np.ndarray
) -> dict[str, np.ndarray]:
    """Sizes of the tensors that the bounds of each group cut, ``(6,)`` int64 each, 0-padded.

    Kernel and input are the operands of the last convolution or dot of the fused kernel; where there is
    none their sizes are 0.
    """
    shapes = {group: np.zeros(6, np.int64) for group in GROUPS}
    shapes["output"] = root_shape(node_feat)
    products = np.flatnonzero((node_opcode == CONVOLUTION) | (node_opcode == DOT))
    if len(products):
        tensors = config_tensors(node_feat, node_opcode, edge_index, products[-1:])
        shapes["input"], shapes["kernel"] = tensors.dims[0, 1], tensors.dims[0, 2]
    return shapes


def tile_features(
    node_feat: np.ndarray, node_opcode: np.ndarray, edge_index: np.ndarray, config_feat: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Features of every tile configuration of one kernel.

    For each of kernel, output and input bounds: the six bounds and their sum as log(1 + x); the log of
    the product over given bounds (the published product is 0 for an empty list); each bound over the
    tensor's size in that dimension; the number of tiles in that dimension as log; the volume of a tile
    over the tensor's; the share of the padded volume that is waste.

    Args:
        node_feat: ``(N, 140)``, as published.
        node_opcode: ``(N,)``.
        edge_index: ``(E, 2)``.
        config_feat: ``(C, 24)``, as published.

    Returns:
        ``(C, V)`` float32 and the V column names.
    """
    shapes = tensor_shapes(node_feat, node_opcode, edge_index)
    values: list[np.ndarray] = []
    names: list[str] = []
    for position, group in enumerate(GROUPS):
        part = config_feat[:, position * _WIDTH : (position + 1) * _WIDTH].astype(np.float64)
        bounds = part[:, :6]
        given = bounds > 0
        volume = np.where(given, bounds, 1).prod(1)
        sizes = shapes[group].astype(np.float64)[None]
        cut = given & (sizes > 0)
        safe = np.where(cut, bounds, 1)
        tiles = np.where(cut, np.ceil(sizes / safe), 1)
        padded = np.where(cut, tiles * safe / np.maximum(sizes, 1), 1).prod(1)
        columns_of_group = [
            (np.log1p(bounds), [f"{group}_bound_{d}_log" for d in range(6)]),
            (np.log1p(part[:, 6]), [f"{group}_bound_sum_log"]),
            (np.log(volume), [f"{group}_bound_product_log"]),
            (
                np.where(cut, bounds / np.maximum(sizes, 1), 0),
                [f"{group}_bound_{d}_over_size" for d in range(6)],
            ),
            (np.log(tiles), [f"{group}_tiles_{d}_log" for d in range(6)]),
            (np.log(tiles.prod(1)), [f"{group}_tiles_log"]),
            (volume / max(np.where(sizes > 0, sizes, 1).prod(), 1), [f"{group}_volume_over_size"]),
            (1 - 1 / padded, [f"{group}_waste"]),
        ]
        for block, block_names in columns_of_group:
            values.append(block.reshape(len(config_feat), -1))
            names.extend(block_names)
    return np.concatenate(values, 1).astype(np.float32), names
