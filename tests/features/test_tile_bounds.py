"""Tile features, held against values worked out by hand and against loops written from the definitions."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition.schema import TILE_ROLES
from fastslow.features.configs.tile_bounds import extents, output_node, tensor_extents, tile_features
from helpers.cases import cases
from helpers.competition_files import REAL, ROOT, graph_arrays, npz_program

FILES = [
    path
    for root in (ROOT / "data" / "sample", REAL)
    for path in sorted((root / "npz_all" / "npz" / "tile").rglob("*.npz"))[:: 1 if root == REAL else 8]
]
DOT = graph_arrays(
    [("parameter", (200, 70)), ("parameter", (70, 300)), ("dot", (200, 300), (0, 1), True)], [(2, 0), (2, 1)]
)


def features(graph, bounds):
    """Features by name, ``(C,)`` each, of bounds ``(C, 3, 6)``; sums and products as published."""
    bounds = np.asarray(bounds, np.float32)
    totals = np.stack(
        [bounds.sum(-1), np.where(bounds.any(-1), np.where(bounds > 0, bounds, 1).prod(-1), 0)], -1
    )
    config_feat = np.concatenate([bounds, totals], -1).reshape(len(bounds), 24)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values, names = tile_features(**graph, config_feat=config_feat)
    assert values.shape == (len(bounds), len(names)) and values.dtype == np.float32
    assert len(set(names)) == len(names)
    assert np.isfinite(values).all()
    return dict(zip(names, values.T, strict=True))


@given(dims=st.lists(st.integers(1, 2000), max_size=6), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_extents_match_a_loop(dims, seed):
    order = np.random.default_rng(seed).permutation(len(dims)).tolist()
    major_to_minor = [dims[axis] for axis in reversed(order)]
    units = [1] * (len(dims) - 2) + [8, 128][-len(dims) :] if dims else []
    expected = [math.ceil(size / unit) for size, unit in zip(major_to_minor, units, strict=True)]
    padded = [*dims, *[0] * (6 - len(dims))], [*order, *[0] * (6 - len(dims))]
    assert extents(*map(np.array, padded)).tolist() == [*expected, *[0] * (6 - len(dims))]


def test_the_tensors_of_a_dot():
    sizes = tensor_extents(**DOT)
    assert {group: size[:3].tolist() for group, size in sizes.items()} == {
        "output": [38, 2, 0],  # column-major: 300 rows of 8, 200 lanes of 128
        "input": [25, 1, 0],
        "kernel": [9, 3, 0],
    }


def test_nothing_given_is_nothing_but_zeros():
    for values in features(DOT, np.zeros((2, 3, 6))).values():  # as in kernels with two configurations
        np.testing.assert_array_equal(values, 0)


def loop_features(sizes, bounds):
    """Features of one group and configuration from their definitions."""
    cut = [b > 0 and s > 0 for b, s in zip(bounds, sizes, strict=True)]
    tiles = [math.ceil(s / b) if c else 1 for b, s, c in zip(bounds, sizes, cut, strict=True)]
    share = math.prod(b / s for b, s, c in zip(bounds, sizes, cut, strict=True) if c)
    values = {"bound_sum_log": math.log1p(sum(bounds)), "tiles_log": math.log(math.prod(tiles))}
    values["bound_product_log"] = math.log(math.prod(b for b in bounds if b))
    values["volume_over_size"] = share if any(cut) else 0
    values["waste"] = 1 - 1 / (math.prod(tiles) * share)
    for d in range(6):
        values[f"bound_{d}_log"] = math.log1p(bounds[d])
        values[f"bound_{d}_over_size"] = bounds[d] / sizes[d] if cut[d] else 0
        values[f"tiles_{d}_log"] = math.log(tiles[d])
    return values


@given(seed=st.integers(0, 10**6))
@settings(max_examples=30)
def test_features_match_a_loop(seed):
    rng = np.random.default_rng(seed)
    bounds = rng.integers(0, 50, (4, 3, 6)) * (rng.random((4, 3, 6)) < 0.7)
    got, sizes = features(DOT, bounds), tensor_extents(**DOT)
    names = set()
    for config in range(4):
        for position, group in enumerate(TILE_ROLES):
            wanted = loop_features(sizes[group].tolist(), bounds[config, position].tolist())
            for name, value in wanted.items():
                assert got[f"{group}_{name}"][config] == pytest.approx(value, rel=1e-5, abs=1e-6), name
                names.add(f"{group}_{name}")
    assert names == got.keys()


ROOT_ADD, REDUCE, SQUARE = ("add", (), None, True), ("reduce", (8,), None, True), (9, 9)
TUPLE = ("tuple", (), None, True, "tuple")


@cases(
    "nodes, edges, node",
    [
        # no convolution: the last root, also after a called computation's
        ([ROOT_ADD, ("parameter", SQUARE), ("copy", SQUARE, (0, 1), True)], [(2, 1)], 2),
        # a tuple: its largest element
        ([("tanh", (4, 4)), ("tanh", (40, 4)), ("constant", ()), TUPLE], [(3, 0), (3, 1), (3, 2)], 1),
        # a reduction: what it reduces
        ([ROOT_ADD, ("tanh", (8, 64)), ("constant", ()), REDUCE], [(3, 0), (3, 1), (3, 2)], 1),
        # a tuple of reductions
        (
            [("tanh", (8, 64)), ("constant", ()), ("reduce", (8,)), ("reduce", (64,)), TUPLE],
            [(2, 0), (2, 1), (3, 0), (3, 1), (4, 2), (4, 3)],
            0,
        ),
        # with a convolution or dot: the last, whatever follows
        (
            [("parameter", SQUARE), ("dot", SQUARE), ("dot", SQUARE), ("tanh", SQUARE), TUPLE],
            [(1, 0), (2, 1), (3, 2), (4, 3), (4, 0)],
            2,
        ),
        ([TUPLE], [], 0),  # an empty tuple
        ([("parameter", SQUARE), ("copy", SQUARE)], [(1, 0)], 1),  # no root at all
    ],
)
def test_the_output_of_a_kernel(nodes, edges, node):
    graph = graph_arrays(nodes, edges)
    assert output_node(**graph) == node
    features(graph, np.ones((2, 3, 6)))


@pytest.mark.skipif(not FILES, reason="no tile files")
def test_no_bound_of_a_tile_file_exceeds_its_tensor():
    """The claim about order and units of the bounds, on the genuine files and some of the sample."""
    for path in FILES:
        file = npz_program(path, "tile")
        graph = {key: getattr(file, key) for key in ("node_feat", "node_opcode", "edge_index")}
        sizes = tensor_extents(**graph)
        for position, group in enumerate(TILE_ROLES):
            bounds = file.config_feat[:, position * 8 : position * 8 + 6]
            if bounds.any() and sizes[group].any():
                assert (np.count_nonzero(bounds, axis=1) == np.count_nonzero(sizes[group])).all(), path
                assert (bounds <= sizes[group]).all(), path
        values, names = tile_features(**graph, config_feat=file.config_feat)
        assert np.isfinite(values).all()
        for name, column in zip(names, values.T, strict=True):
            assert column.min() >= 0, (path, name)
            if name.endswith(("_over_size", "_waste")):
                assert column.max() <= 1, (path, name)
