"""Tied choices: the groups of tensors whose layouts determine each other, and rows compared as numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition.tied_choices import distinct_rows
from helpers.factorised import factorise


def draw_codes(seed):
    """Codes of up to 4 nodes under up to 9 configurations, of few patterns."""
    rng = np.random.default_rng(seed)
    num_configs, num_nodes = rng.integers(1, 10), rng.integers(0, 5)
    patterns = rng.integers(0, rng.integers(1, 4), (num_configs, 4))
    names = np.array([rng.permutation(300)[:4] for _ in range(num_nodes * 3)], int).reshape(-1, 4)
    values = patterns[:, rng.integers(0, 4, num_nodes * 3)]
    codes = names[np.arange(num_nodes * 3), values].reshape(num_configs, num_nodes, 3)
    return codes.astype(np.uint16), rng


@given(st.integers(0, 10**6))
@settings(max_examples=60)
def test_groups_hold_the_tensors_that_determine_each_other(seed):
    codes, rng = draw_codes(seed)
    choices = factorise(codes)
    np.testing.assert_array_equal(choices.layout_codes(), codes)
    flat, group = codes.reshape(len(codes), codes[0].size), choices.group.ravel()
    for one, other in np.ndindex(len(group), len(group)):
        pairs = len({*zip(flat[:, one].tolist(), flat[:, other].tolist(), strict=True)})
        tied = pairs == len(np.unique(flat[:, one])) == len(np.unique(flat[:, other]))
        assert (group[one] == group[other]) == tied
    firsts = [group.tolist().index(g) for g in range(choices.num_groups)]
    assert firsts == sorted(firsts)
    for values, options in zip(choices.values.T, choices.options, strict=True):
        assert list(dict.fromkeys(values.tolist())) == list(range(options))
    assert ((choices.options > 1) == np.isin(np.arange(choices.num_groups), choices.varying)).all()
    if len(group):
        rows = rng.integers(0, len(codes), 7)
        part = choices.take(rows)
        np.testing.assert_array_equal(part.layout_codes([2, 1]), codes[rows[[2, 1]]])


@pytest.mark.parametrize("high", [1, 2, 1000, 2**31])
@pytest.mark.parametrize("columns", [0, 1, 70])
def test_distinct_rows_are_those_of_numpy(high, columns, rng):
    """Also where a row does not fit in one number: 70 columns of more than a bit each."""
    table = rng.integers(0, high, (40, columns))[rng.integers(0, 40, 100)]
    first, kind = distinct_rows(table.T, len(table))
    if columns:
        _, wanted, wanted_kind = np.unique(table, axis=0, return_index=True, return_inverse=True)
        np.testing.assert_array_equal(first, wanted)
        np.testing.assert_array_equal(kind, wanted_kind.ravel())
    else:
        assert (first.tolist(), kind.tolist()) == ([0], [0] * 100)


def test_without_tensors_there_is_nothing_to_choose():
    found = factorise(np.zeros((5, 0, 3), np.uint8))
    assert {name: (array.shape, array.dtype) for name, array in vars(found).items()} == {
        "values": ((5, 0), np.uint8),
        "group": ((0, 3), np.int32),
        "codes": ((0, 3, 1), np.uint16),
        "options": ((0,), np.int32),
    }
