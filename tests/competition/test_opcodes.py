"""Distances of programs: as counted by hand, node by node."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.competition.opcodes import distance, opcode_shares

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
