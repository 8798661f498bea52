"""Strides, bitcasts and FLOPs against NumPy arrays and hand counts."""

from dataclasses import replace
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition import node_columns
from fastslow.competition.catalog import ProgramFile, get_collection
from fastslow.features.build import build_graph
from fastslow.rankers.node_costs import is_bitcast, is_reordered, node_flops, strides
from fastslow.steps.features import FeatureSettings
from helpers.competition_files import layout_arrays, write_npz

shapes = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)


def padded(values, fill):
    return np.array([*values, *[fill] * (6 - len(values))])


def in_memory(dims, layout):
    """The row-major numbers of the elements in the order in which they lie in memory."""
    order = layout + [axis for axis in reversed(range(len(dims))) if axis not in layout]
    return np.arange(prod(dims)).reshape(dims).transpose(order[::-1]).ravel()


@st.composite
def tensors(draw, dims=shapes):
    dims = draw(dims)
    axes = draw(st.permutations(range(len(dims))))
    return dims, list(axes[: draw(st.integers(0, len(dims)))])


def arrays_of(tensor):
    dims, layout = tensor
    return padded(dims, 0)[None], padded(layout, -1)[None]


@given(tensors())
@settings(max_examples=60)
def test_strides_lead_to_every_element(tensor):
    dims, _ = tensor
    found = strides(*arrays_of(tensor))[0, : len(dims)]
    place = np.tensordot(np.indices(dims), found, (0, 0)).ravel()
    np.testing.assert_array_equal(np.argsort(place), in_memory(*tensor))
    moved = (in_memory(*tensor) != np.arange(prod(dims))).any()
    assert is_reordered(*arrays_of(tensor))[0] == moved


@st.composite
def reshapes(draw):
    """Two shapes of the same elements, with layouts."""
    first = draw(tensors())
    volume = prod(first[0])
    others = [
        dims
        for dims in (
            [volume],
            [1, volume],
            first[0],
            first[0][::-1],
            [2, volume // 2],
            [volume // 3, 3],
            [volume // 6, 2, 3],
        )
        if prod(dims) == volume
    ]
    return first, draw(tensors(st.sampled_from(others)))


@given(reshapes())
@settings(max_examples=200)
def test_a_bitcast_leaves_every_element_in_place(pair):
    before, after = pair
    stays = bool((in_memory(*before) == in_memory(*after)).all())
    told = bool(is_bitcast(*arrays_of(before), *arrays_of(after))[0])
    assert told == stays or (stays and not shares_digits(before[0], after[0]))


def shares_digits(dims, new_dims):
    """Whether the row-major strides of both shapes divide one another."""
    weights = sorted({prod(sizes[axis:]) for sizes in (dims, new_dims) for axis in range(len(sizes) + 1)})
    return all(b % a == 0 for a, b in zip(weights, weights[1:], strict=False))


def test_flops_of_dots_and_convolutions(tmp_path):
    collection = get_collection("layout:xla:random")
    path = write_npz(tmp_path / "a.npz", layout_arrays(seed=5))
    graph, _ = build_graph(ProgramFile(collection, "valid", path), FeatureSettings(hops=-1))
    sizes = graph.tensor_sizes[:, :, :2].tolist()
    assert node_flops(graph).tolist() == [2 * rows * inner * width for (rows, width), (_, inner), _ in sizes]

    def flops(opcode, output, lhs, rhs, **features):
        feat = graph.node_feat[graph.config_index[:1]].copy()
        for name, value in features.items():
            feat[0, getattr(node_columns, name)] = value
        single_node = replace(
            graph,
            node_feat=feat,
            node_opcode=np.array([opcode], np.uint8),
            config_index=np.array([0]),
            tensor_sizes=np.array([[padded(dims, 0) for dims in (output, lhs, rhs)]]),
        )
        return node_flops(single_node)[0]

    assert flops(34, [8, 16, 32], [8, 16, 64], [8, 64, 32]) == 2 * 8 * 16 * 64 * 32  # a batch of 8
    assert flops(34, [64, 32], [8, 128, 64], [8, 128, 32]) == 2 * 64 * 32 * 8 * 128  # two contracted
    convolution = ([2, 7, 7, 16], [2, 9, 9, 4], [3, 3, 4, 16])
    assert flops(26, *convolution, KERNEL_OUTPUT_FEATURE=3) == 2 * (2 * 7 * 7 * 16) * (3 * 3 * 4)
    assert flops(26, *convolution[:2], [], KERNEL_OUTPUT_FEATURE=3) == 0
    assert flops(75, [4, 4], [16], []) == 0
