"""Spaces: what is drawn and proposed is allowed, new, and near what was wished."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow_programs.tuning.search import space as space_module
from fastslow_programs.tuning.search.space import Choice, Space
from helpers.search_spaces import choices


@pytest.fixture
def free(monkeypatch):
    """A space of which nothing is listed."""
    monkeypatch.setattr(space_module, "ENUMERATED", 0)
    return Space(choices(2, 3, 24, 2))


def test_a_small_space_is_listed_whole_and_a_configuration_told_in_words():
    space = Space(choices(2, 3))
    assert sorted(map(tuple, space.listed.tolist())) == [(a, b) for a in range(2) for b in range(3)]
    assert space.size == 6 and space.rows(space.listed).tolist() == list(range(6))
    assert space.in_words(space.default) == "as the default"
    assert space.in_words([0, 2]) == "dot.0: output {0} instead of {1}"


def test_a_choice_of_two_tensors_and_one_of_the_user_in_words():
    """It said: output and input {0} and compiler instead of compiler and compiler."""
    compiler = "compiler and compiler"
    tensors = Choice("dot.1: output and input", ("{0} and compiler", compiler), 1)
    flag = Choice("pass: fusion and copies", ("on", "off"), 0)
    told = Space([tensors, flag, Choice("tile and unroll", ("1", "2"), 0)]).in_words([0, 1, 1])
    assert told.split("; ") == [
        "dot.1: output {0} instead of left to the compiler",
        "pass: fusion and copies off instead of on",
        "tile and unroll 2 instead of 1",
    ]


def test_draws_follow_the_weights(free, rng):
    weighted = Space([*choices(*[2] * 12), Choice("x", ("a", "b", "c"), 0, (1.0, 2.0, 1.0))])
    drawn = weighted.draw(4000, rng)[:, -1]
    np.testing.assert_allclose(np.bincount(drawn) / 4000, [0.25, 0.5, 0.25], atol=0.03)
    assert (free.draw(500, rng).max(0) == free.options - 1).all()


@given(seed=st.integers(0, 99))
def test_neighbours_are_all_that_differ_in_one_choice(seed):
    space = Space(choices(2, 3, 4, 2))
    codes = space.draw(1, np.random.default_rng(seed))[0]
    expected = [row for row in space.listed.tolist() if (np.array(row) != codes).sum() == 1]
    assert sorted(space.neighbours(codes).tolist()) == sorted(expected)


@given(seed=st.integers(0, 50), count=st.integers(1, 12))
def test_what_is_proposed_of_a_list_is_new_and_the_nearest(seed, count):
    rng = np.random.default_rng(seed)
    listed = np.unique(rng.integers(0, [2, 3, 4], (9, 3)), axis=0)
    space = Space(choices(2, 3, 4), listed)
    taken = set(space.keys(listed[:2]))
    wishes = rng.integers(0, [2, 3, 4], (count, 3))
    found = space.fresh(wishes, taken, count, rng)
    keys = space.keys(found)
    assert len(set(keys)) == len(keys) == min(count, len(listed) - 2) and not taken & set(keys)
    distance = (listed[2:] != wishes[0]).sum(1)
    assert (found[0] != wishes[0]).sum() == distance.min()


def test_of_a_free_space_only_new_wishes_are_proposed(free, rng):
    wishes = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
    taken = set(free.keys(wishes[:1]))
    assert free.fresh(wishes, taken, 9, rng).tolist() == [[1, 0, 0, 0], [1, 1, 1, 1]]
