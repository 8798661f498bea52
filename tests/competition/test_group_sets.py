"""Classes of configurations under sets of groups, held against plain loops."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from fastslow.competition import tied_choices
from fastslow.competition.tied_choices import GroupSets


def draw(seed, num_sets=9, num_groups=90, num_configs=12, most=2):
    """Members, options and values; all groups have up to ``most`` options, and some of the sets are equal."""
    rng = np.random.default_rng(seed)
    members = rng.random((num_sets, num_groups)) < rng.choice([0, 0.05, 0.5, 1], (num_sets, 1))
    members[1] = True
    members[-1] = members[0]
    options = rng.integers(min(most, 2), most + 1, num_groups)
    options[rng.random(num_groups) < rng.choice([0, 0.5])] = 1
    # pairs of configurations differ in few groups
    values = np.repeat((rng.random((num_configs // 4, num_groups)) * options).astype(np.uint16), 4, 0)
    columns = rng.integers(0, num_groups, num_configs)
    values[np.arange(num_configs), columns] = (rng.random(num_configs) * options[columns]).astype(np.uint16)
    return members, options, values


@given(
    st.integers(0, 10**6),
    st.sampled_from([59, 90]),  # choices of two options fill one word of 57 bits and a part of the next
    st.sampled_from([1, 2, 3, 700, 65_536]),
    st.sampled_from([1, 30, 1 << 20]),
)
@example(0, 59, 2, 1 << 20)
@settings(max_examples=60)
def test_configurations_share_a_class_exactly_if_they_agree_on_the_set(seed, groups, most, block):
    members, options, values = draw(seed, num_groups=groups, most=most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tied_choices, "_BLOCK", block)
        sets = GroupSets(sparse.csr_matrix(members), options)
        classes = sets.classes(values)
    for member, index in zip(members, classes.index[sets.index], strict=True):
        seen = values[:, member & (options > 1)]
        agree = (seen[:, None] == seen[None]).all(2)
        np.testing.assert_array_equal(index[:, None] == index[None], agree)
    for row, start, size in zip(classes.index, classes.start[:-1], classes.size, strict=True):
        assert sorted(set(row.tolist())) == list(range(start, start + size))
    np.testing.assert_array_equal(classes.count, np.bincount(classes.index.ravel()))
    rows = np.repeat(np.arange(sets.num_sets), classes.size)
    np.testing.assert_array_equal(classes.index[rows, classes.config], np.arange(len(classes)))
    picks = classes.picks(slice(1, 4)).toarray()
    assert picks.shape == (3, len(classes)) and set(np.unique(picks)) <= {0, 1}
    assert all(picks[c, classes.index[:, c + 1]].all() for c in range(3))
    assert (picks.sum(1) == sets.num_sets).all()
    table = np.random.default_rng(seed).integers(0, 9, (len(classes), 2)).astype(float)
    for chunk_bytes in (1, 1 << 26):
        np.testing.assert_array_equal(classes.sum(table, chunk_bytes=chunk_bytes), classes.picks() @ table)
