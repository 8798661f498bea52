"""Tied choices of a stream: known options are recognised by their bytes, anything else is looked at."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition import choice_stream
from fastslow.competition.choice_stream import ChoiceFinder, Patterns
from fastslow.competition.layouts import LAYOUT_WIDTH, layouts_of


@given(st.integers(0, 10**6), st.sampled_from([np.int8, np.float32, np.int64]), st.sampled_from([1, 1 << 16]))
@settings(max_examples=40)
def test_patterns_match_exactly_what_the_finder_knows(seed, dtype, most_states):
    """Also where a node has too many combinations for one table."""
    rng = np.random.default_rng(seed)
    num_nodes, num_groups = rng.integers(1, 4), rng.integers(1, 4)
    options = rng.integers(0, 7**LAYOUT_WIDTH, (num_nodes * 3, 4))
    group = rng.integers(0, num_groups, num_nodes * 3)
    picked = rng.integers(0, rng.integers(1, 5, num_groups), (12, num_groups))[:, group]
    rows = options[np.arange(num_nodes * 3), picked].astype(np.int32)
    finder = ChoiceFinder(num_nodes)
    values, new = finder.explain(rows)
    assert new
    finder.add(values)
    assert finder.held == len(rows) * len(finder.first)  # a byte for each choice
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice_stream, "_MAX_STATES", most_states)
        patterns = Patterns(finder, np.dtype(dtype))
    chunk = layouts_of(rows.ravel()).astype(dtype).reshape(len(rows), num_nodes, -1)
    again = rng.permutation(len(rows))
    np.testing.assert_array_equal(patterns.match(chunk[again]), values[again])
    other = chunk.copy()
    place = tuple(rng.integers(0, other.shape))
    other[place] = 9  # no layout has it
    assert patterns.match(other) is None
