"""Names of columns and opcodes, distances of programs by opcodes, sizes of tensors."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.competition import node_columns
from fastslow.competition.layouts import minor_dimension, num_elements, tensor_bytes
from fastslow.competition.opcodes import distance, opcode_shares


def test_every_constant_names_its_columns():
    names = node_columns.COLUMN_NAMES
    assert len(set(names)) == len(names) == 140
    for constant, value in vars(node_columns).items():
        if constant.isupper() and isinstance(value, int | slice):
            column_names = names[value] if isinstance(value, slice) else [names[value]]
            assert all(name.startswith(constant.lower()) for name in column_names), constant
    lists = {
        "parameter_number": "parameter_number",
        "window": "window_ base_dilation",
        "convolution": "input_batch input_feature kernel_ output_",
        "convolution_spatial": "input_spatial kernel_spatial",
        "edge_padding": "edge_padding_low edge_padding_high",
    }
    for name, blocks in node_columns.LISTS.items():
        columns = [column for block in blocks for column in names[block]]
        assert all(column.startswith(tuple(lists.get(name, name).split())) for column in columns), name
        assert not any(column.endswith(("_sum", "_product")) for column in columns), name
        assert len({block.stop - block.start for block in blocks}) == 1, name


graphs = st.lists(
    st.lists(st.sampled_from([0, 7, 63, 120, 255]), min_size=1, max_size=9), min_size=1, max_size=4
)


def by_hand(one, other):
    """The share of nodes of copies of equal size that find no partner of the same opcode."""
    ours, theirs = Counter(one * len(other)), Counter(other * len(one))
    return 1 - (ours & theirs).total() / ours.total()


@given(graphs, graphs)
def test_the_distance_is_the_share_of_nodes_without_a_partner(some, others):
    shares, those = (opcode_shares(np.array(g, np.uint8) for g in group) for group in (some, others))
    found = distance(shares, those)
    assert found == pytest.approx(np.array([[by_hand(a, b) for b in others] for a in some]))
    assert distance(those, shares) == pytest.approx(found.T)


def test_no_graphs_have_no_distances():
    one = opcode_shares([np.array([1], np.uint8)])
    assert distance(one, opcode_shares([])).shape == (1, 0) and distance(opcode_shares([]), one).shape == (
        0,
        1,
    )


DIMS = np.array([[8, 4, 2, 0, 0, 0], [7, 1, 0, 0, 0, 0], [0] * 6])
LAYOUTS = np.array([[-1] * 6, [0, 2, 1, -1, -1, -1], [1, 0, -1, -1, -1, -1]])


def test_elements_and_bytes():
    assert num_elements(DIMS).tolist() == [64, 7, 1]
    assert tensor_bytes(DIMS, np.array([2, 4, 4])).tolist() == [128, 28, 0]


def test_the_product_of_six_sizes_does_not_overflow():
    dims = np.full((1, 1, 6), 1000, np.int64)
    assert tensor_bytes(dims, np.array([[8]])).tolist() == [[8 * math.prod(dims.ravel().tolist())]]


def test_the_minor_dimension_is_the_first_of_the_layout_or_the_last_of_the_shape():
    assert minor_dimension(DIMS[:2, None], LAYOUTS).tolist() == [[2, 0, 1], [1, 0, 1]]
    assert minor_dimension(DIMS[2], LAYOUTS[0]) == -1
