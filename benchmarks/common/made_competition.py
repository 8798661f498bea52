"""A small competition made up by a seed: the same bytes on every machine, whatever becomes of the sample.

A layout program is a chain of dots, each followed by a tanh. The cost of a configuration is the padded size
of every tensor (8 rows x 128 lanes, of the two minor-most dimensions) and a copy wherever the input of a dot
is not laid out as the output before it. A tile kernel is one dot; its cost is the number of tiles times the
padded work and a fixed cost of each. Both get noise of a few percent.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.catalog import COLLECTIONS, SPLITS, TEST, Collection
from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.schema import NODE_FEATURES, TILE_ROLES, TILE_WIDTH

SIZES = {"train": 8, "valid": 3, "test": 4}
"""Programs of each split."""
_NOISE = 0.03
_TILE = np.array([8, 128])  # rows and lanes
_EXTENTS = (96, 128, 160, 256, 320, 512)
_LAYOUTS = np.array([[1, 0], [0, 1], [-1, -1]])  # minor to major; the last is left to the compiler: row-major
_SHAPE, _LAYOUT = node_columns.SHAPE.start, node_columns.LAYOUT.start
_PRODUCTS = [i for i, name in enumerate(node_columns.COLUMN_NAMES) if name.endswith("_product")]


def write_competition(root: Path, sizes: dict[str, int] = SIZES, configs: int = 96, seed: int = 0) -> Path:
    """Write the npz files of all five collections and ``solution.csv``.

    Args:
        root: Folder to write into.
        sizes: Number of programs of each split.
        configs: Configurations of a program.
        seed: Seed of everything.

    Returns:
        The folder.
    """
    lines = ["ID,config_index,runtime"]
    for number, collection in enumerate(COLLECTIONS):
        for split in SPLITS:
            for program in range(sizes[split]):
                rng = np.random.default_rng([seed, number, SPLITS.index(split), program])
                name = f"{collection.slug}-{split}-{program}"
                lines += _write_program(root, collection, split, name, configs, rng)
    (root / "solution.csv").write_text("".join(f"{line}\n" for line in lines))
    return root


def _write_program(
    root: Path, collection: Collection, split: str, name: str, configs: int, rng: np.random.Generator
) -> Iterator[str]:
    """Write a program and return its lines of the solution."""
    arrays = _layout_program(rng, configs) if collection.kind == "layout" else _tile_kernel(rng, configs)
    runtime = arrays["config_runtime"]
    if split == TEST:
        arrays["config_runtime"] = np.zeros_like(runtime)
    path = collection.folder(root, split) / f"{name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return [f"{collection.name}:{name},{i},{t}" for i, t in enumerate(runtime)] if split == TEST else []


def _noisy(cost: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (100 + cost * np.exp(_NOISE * rng.standard_normal(len(cost)))).astype(np.int64)


def _graph(nodes: list[tuple[str, tuple[int, int]]], edges: list[tuple[int, int]]) -> dict[str, np.ndarray]:
    """Return the arrays of a graph of float32 tensors of two dimensions, laid out row-major."""
    feat = np.zeros((len(nodes), NODE_FEATURES), np.float32)
    feat[:, _PRODUCTS] = 1  # of an empty list
    feat[-1, node_columns.IS_ROOT] = 1
    feat[:, node_columns.ELEMENT_TYPE.start + node_columns.ELEMENT_TYPES.index("f32")] = 1
    dims = np.array([dims for _, dims in nodes])
    feat[:, _SHAPE : _SHAPE + 2] = dims
    feat[:, node_columns.SHAPE_SUM], feat[:, node_columns.SHAPE_PRODUCT] = dims.sum(1), dims.prod(1)
    feat[:, _LAYOUT : _LAYOUT + 2] = [1, 0]
    opcodes = np.array([OPCODES[name] for name, _ in nodes], np.uint8)
    return {"node_feat": feat, "node_opcode": opcodes, "edge_index": np.array(sorted(edges), np.int64)}


def _layout_program(rng: np.random.Generator, configs: int) -> dict[str, np.ndarray]:
    extents = rng.choice(_EXTENTS, rng.integers(4, 8))
    batch = int(rng.choice([8, 24, 100]))
    nodes, edges, ids, last = [("parameter", (batch, extents[0]))], [], [], 0
    for rows, width in zip(extents, extents[1:], strict=False):
        dot = len(nodes) + 1
        nodes += [("parameter", (rows, width)), ("dot", (batch, width)), ("tanh", (batch, width))]
        edges += [(dot, last), (dot, dot - 1), (dot + 1, dot)]
        ids.append(dot)
        last = dot + 1
    tensors = np.array([[(batch, w), (batch, r), (r, w)] for r, w in zip(extents, extents[1:], strict=False)])
    codes = rng.choice(len(_LAYOUTS), (configs, len(ids), len(ROLES)), p=[0.4, 0.4, 0.2])
    layouts = np.full((*codes.shape, LAYOUT_WIDTH), -1, np.float32)
    layouts[..., :2] = _LAYOUTS[codes]
    turned = (codes == 1)[..., None]
    padded = np.ceil(np.where(turned, tensors[..., ::-1], tensors) / _TILE) * _TILE
    copied = turned[:, 1:, 1, 0] != turned[:, :-1, 0, 0]  # an input against the output before it
    cost = padded.prod(-1).sum((1, 2)) + 3 * (copied * tensors[1:, 1].prod(-1)).sum(1)
    return {
        **_graph(nodes, edges),
        "node_config_ids": np.array(ids, np.int64),
        "node_config_feat": layouts.reshape(configs, len(ids), -1),
        "config_runtime": _noisy(cost / 100, rng),
        "node_splits": np.array([[0, len(nodes)]], np.int64),
    }


def _tile_kernel(rng: np.random.Generator, configs: int) -> dict[str, np.ndarray]:
    rows, inner, width = 8 * rng.integers(8, 64), 128 * rng.integers(1, 8), 128 * rng.integers(2, 16)
    nodes = [("parameter", (rows, inner)), ("parameter", (inner, width)), ("dot", (rows, width))]
    units = np.array([rows, width]) // _TILE
    tile = np.stack([rng.integers(1, unit + 1, configs) for unit in units], 1)
    bounds = np.zeros((configs, len(TILE_ROLES), TILE_WIDTH), np.float32)
    bounds[:, :2, :2] = tile[:, None]  # of kernel and output
    bounds[..., -2] = bounds[..., :-2].sum(-1)
    bounds[:, :2, -1] = tile.prod(1)[:, None]
    work = tile.prod(1) * inner
    slow = np.where(work > 4_000, 1.5, 1.0)  # beyond what fits
    cost = np.ceil(units / tile).prod(1) * (300 + work * slow)
    return {
        **_graph(nodes, [(2, 0), (2, 1)]),
        "config_feat": bounds.reshape(configs, -1),
        "config_runtime": _noisy(cost / 10, rng),
        "config_runtime_normalizers": np.full(configs, 1_000, np.int64),
    }
