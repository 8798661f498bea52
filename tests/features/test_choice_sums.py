"""Sums over tied choices are those of plain loops over tensors."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.features.configs.layout_states import LayoutStates, tensor_positions
from helpers.factorised import factorise


@given(seed=st.integers(0, 10**6), width=st.integers(1, 2))
@settings(max_examples=100)
def test_sums_are_those_of_plain_loops(seed, width):
    """Items of one tensor, and of two; constant tensors, no items and 300 options among them."""
    rng = np.random.default_rng(seed)
    num_configs, num_nodes = rng.integers(1, 12), 4
    pattern = rng.integers(0, rng.integers(1, 4), (num_configs, rng.integers(1, 4)))
    if seed % 10 == 0:
        pattern = np.arange(300)[:, None]
    tied = rng.integers(0, pattern.shape[1], num_nodes * 3)
    codes = (pattern[:, tied] * rng.integers(0, 2, num_nodes * 3)).reshape(-1, num_nodes, 3)
    items = rng.integers(0, 9)
    nodes, roles = rng.integers(0, num_nodes, (items, width)), rng.integers(0, 3, (items, width))
    table = rng.integers(0, 10**9, (items, 300, 2)).astype(float)

    def terms(item, layout_codes):
        return table[item, layout_codes.sum(1) % 300]

    states = LayoutStates(factorise(codes), tensor_positions(nodes, roles))
    sums = states.sum(terms(states.item, states.codes))
    wanted = [sum((terms(np.array([i]), c[nodes[i], roles[i]][None])[0] for i in range(items)), np.zeros(2))
              for c in codes]  # fmt: skip
    np.testing.assert_array_equal(sums, wanted)
