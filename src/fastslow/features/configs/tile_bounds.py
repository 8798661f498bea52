"""Features of a tile configuration: its bounds against the extents of the tensors that they divide.

The bounds follow a tensor's order in memory, major to minor, and count rows of 8 and lanes of 128 in the two
minor-most dimensions. The competition does not document this. Under this reading no bound exceeds its tensor
in the sample and in the published file tried; in the order of the program many do.
"""

from collections.abc import Sequence

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.layouts import ROLES
from fastslow.competition.opcodes import CONVOLUTION, DOT, OPCODES
from fastslow.competition.schema import TILE_DIMENSIONS, TILE_ROLES, TILE_WIDTH
from fastslow.features.configs.config_tensors import config_tensors
from fastslow.features.configs.tpu_tiling import LANES, SUBLANES
from fastslow.features.scaling import signed_log1p

_UNITS = (LANES, SUBLANES)  # of the minor-most dimension and the next


def output_node(node_feat: np.ndarray, node_opcode: np.ndarray, edge_index: np.ndarray) -> int:
    """Return the node whose output is divided by the output bounds; arguments as :func:`tile_features`.

    It is the last convolution or dot of the kernel. Where there is none it is the last root (called
    computations come first); of a tuple the largest element, and of a reduction the largest operand.
    """
    products = np.flatnonzero(np.isin(node_opcode, (CONVOLUTION, DOT)))
    if len(products):
        return int(products[-1])
    roots = np.flatnonzero(node_feat[:, node_columns.IS_ROOT] == 1)
    node = int(roots[-1]) if len(roots) else len(node_opcode) - 1
    for opcode in (OPCODES["tuple"], OPCODES["reduce"]):
        operand_ids = edge_index[edge_index[:, 0] == node, 1]
        if node_opcode[node] == opcode and len(operand_ids):
            node = int(operand_ids[np.argmax(node_feat[operand_ids, node_columns.SHAPE_PRODUCT])])
    return node


def extents(dims: np.ndarray, minor_to_major: np.ndarray) -> np.ndarray:
    """Return the extents of a tensor in the order and the units of bounds.

    Args:
        dims: ``(6,)`` sizes in the order of the program, 0 beyond the rank.
        minor_to_major: ``(6,)`` the tensor's layout, read up to the rank.

    Returns:
        ``(6,)`` int64, major to minor, the second to last in rows of 8 and the last in lanes of 128, rounded
        up; 0 beyond the rank, and everywhere for a tensor without a layout.
    """
    rank = np.count_nonzero(dims)
    order = minor_to_major[:rank].astype(np.int64)
    sizes = np.zeros(TILE_DIMENSIONS, np.int64)
    if sorted(order.tolist()) == list(range(rank)):
        units = np.array([*_UNITS, 1, 1, 1, 1])[:rank]
        sizes[:rank] = (-(-dims[order] // units))[::-1]  # rounded up
    return sizes


def tensor_extents(
    node_feat: np.ndarray,
    node_opcode: np.ndarray,
    edge_index: np.ndarray,
    operands: Sequence[Sequence[int]] | None = None,
) -> dict[str, np.ndarray]:
    """Return the extents of the tensors that the bounds divide; arguments as :func:`tile_features`.

    Returns:
        For each of ``layouts.ROLES`` ``(6,)`` int64, see :func:`extents`; 0 where there is no such tensor.
    """
    node = output_node(node_feat, node_opcode, edge_index)
    tensors = config_tensors(node_feat, node_opcode, edge_index, np.array([node]), operands)
    layouts = node_feat[tensors.source_ids[0], node_columns.LAYOUT]
    return {role: extents(tensors.dims[0, i], layouts[i]) for i, role in enumerate(ROLES)}


def tile_features(
    node_feat: np.ndarray,
    node_opcode: np.ndarray,
    edge_index: np.ndarray,
    config_feat: np.ndarray,
    operands: Sequence[Sequence[int]] | None = None,
) -> tuple[np.ndarray, list[str]]:
    """Compute the features of every tile configuration of one kernel; ``features/README.md`` lists them.

    Features that need an unknown extent are 0.

    Args:
        node_feat: ``(N, 140)``, as published.
        node_opcode: ``(N,)`` opcode ids.
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        config_feat: ``(C, 24)``, as published.
        operands: As for :func:`fastslow.features.configs.config_tensors.config_tensors`.

    Returns:
        ``(C, V)`` float32 and the V column names.
    """
    sizes = tensor_extents(node_feat, node_opcode, edge_index, operands)
    values: list[np.ndarray] = []
    names: list[str] = []
    for position, role in enumerate(TILE_ROLES):
        part = config_feat[:, position * TILE_WIDTH : (position + 1) * TILE_WIDTH].astype(np.float64)
        for name, value in _group_features(part, sizes[role].astype(np.float64)).items():
            values.append(value)
            names.append(f"{role}_{name}")
    return np.stack(values, 1).astype(np.float32), names


def _group_features(part: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
    """Features by name, (C,) each, of the eight columns of one group against one tensor's extents."""
    bounds = part[:, :TILE_DIMENSIONS]
    cut = (bounds > 0) & (sizes > 0)
    over_size = np.divide(bounds, sizes, out=np.zeros_like(bounds), where=cut)
    tiles = np.ceil(np.divide(sizes, bounds, out=np.ones_like(bounds), where=cut))
    # whole numbers: their products are exact
    volume, tile, padded = (np.where(cut, v, 1).prod(1) for v in (sizes, bounds, tiles * bounds))
    by_dimension = {
        "bound_{}_log": signed_log1p(bounds),
        "bound_{}_over_size": over_size,
        "tiles_{}_log": np.log(tiles),
    }
    each = {name.format(d): v[:, d] for name, v in by_dimension.items() for d in range(TILE_DIMENSIONS)}
    return {
        **each,
        "bound_sum_log": signed_log1p(part[:, TILE_DIMENSIONS]),
        "bound_product_log": np.log(np.where(bounds > 0, bounds, 1)).sum(1),
        "tiles_log": np.log(tiles).sum(1),
        "volume_over_size": np.where(cut.any(1), tile / volume, 0),
        "waste": 1 - volume / padded,
    }
