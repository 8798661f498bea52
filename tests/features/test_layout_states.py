"""States of nodes and their sums, held against plain loops."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.features.configs.layout_states import LayoutStates, tensor_positions
from helpers.factorised import factorise

LAYOUTS = 4


EVERY = tensor_positions(np.arange(3)[:, None], np.arange(3))


def draw_codes(seed, configs=7, nodes=3):
    """Codes of which about half the tensors follow another, under other layouts."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, LAYOUTS, (configs, nodes * 3))
    tied = rng.integers(0, nodes * 3, nodes * 3)
    return ((codes[:, tied] + np.arange(nodes * 3)) % LAYOUTS).reshape(configs, nodes, 3).astype(np.uint8)


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_sums_are_those_of_plain_loops(seed):
    codes = draw_codes(seed)
    states = LayoutStates(factorise(codes), EVERY)
    wanted = sorted({(n, *codes[c, n].tolist()) for c in range(7) for n in range(3)})
    assert list(zip(states.item.tolist(), *states.codes.T.tolist(), strict=True)) == wanted
    table = np.random.default_rng(seed).integers(0, 9, (len(states.item), 2)).astype(float)
    wanted_sums = [sum(table[wanted.index((n, *config[n].tolist()))] for n in range(3)) for config in codes]
    np.testing.assert_array_equal(states.sum(table), wanted_sums)
    for number, config in enumerate(codes):
        item_states = [wanted.index((n, *config[n].tolist())) for n in range(3)]
        assert set(states.class_index[item_states]) == set(states.classes.index[:, number])


def test_items_of_the_same_groups_share_their_classes():
    codes = np.zeros((4, 60, 3), np.uint8)
    codes[:] = np.array([0, 1, 2, 1])[:, None, None]
    codes[:, ::2, 1] = np.array([1, 0, 1, 1])[:, None]
    states = LayoutStates(factorise(codes), tensor_positions(np.arange(60)[:, None], np.arange(3)))
    assert len(states.item) == 30 * 3 + 30 * 4 and len(states.classes) == 3 + 4


@given(st.integers(0, 10**6))
@settings(max_examples=15)
def test_states_of_pairs_of_tensors(seed):
    codes = draw_codes(seed)
    producer, consumer, role = np.array([0, 2]), np.array([1, 0]), np.array([1, 2])
    both = np.stack([tensor_positions(producer, 0), tensor_positions(consumer, role)], 1)
    states = LayoutStates(factorise(codes), both)
    wanted = sorted(
        {(p, c[producer[p], 0].item(), c[consumer[p], role[p]].item()) for c in codes for p in range(2)}
    )
    assert list(zip(states.item.tolist(), *states.codes.T.tolist(), strict=True)) == wanted
    assert (states.sum(np.ones((len(states.item), 1))) == 2).all()
