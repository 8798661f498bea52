from random import Random

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastslow.networks.segments.part_states import PartReach
from fastslow.networks.states.config_states import Reach
from helpers.dense_reference import brute_force_states, mean_matrices, state_table
from helpers.factorised import factorise
from helpers.random_graphs import structures

DEPTHS = range(5)


def same_partition(a, b):
    """Whether two numberings of the same pairs split them into the same classes."""
    joint = len(set(zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)))
    return joint == len(np.unique(a)) == len(np.unique(b))


def build(structure, depth):
    """States of a structure, from its codes."""
    choices = factorise(structure[3])
    return Reach(*structure[:3], choices, depth).states(choices.values)


def tables(structure):
    """The states of each depth, and the (C, N) table of each."""
    built = [build(structure, depth) for depth in DEPTHS]
    return built, [state_table(states) for states in built]


@given(structures())
@settings(max_examples=30)
def test_the_partition_of_pairs_is_that_of_brute_force_at_every_level(structure):
    for depth, table in zip(DEPTHS, tables(structure)[1], strict=True):
        assert same_partition(table, brute_force_states(*structure, depth))


@given(structures())
@settings(max_examples=20)
def test_a_level_counts_names_and_pools_the_states_of_its_nodes(structure):
    num_nodes, num_configs = structure[1], len(structure[3])
    for states, table in zip(*tables(structure), strict=True):
        level = states[-1]
        assert np.array_equal(level.node_ids[table], np.tile(np.arange(num_nodes), (num_configs, 1)))
        assert np.array_equal(level.multiplicity, np.bincount(table.ravel(), minlength=len(level)))
        assert (np.diff(level.node_ids) >= 0).all() and (level.multiplicity > 0).all()
        assert np.array_equal(table[level.config, level.node_ids], np.arange(len(level)))
        classes, members = level.pooling()
        dense, wanted = (classes @ members).toarray(), np.zeros((num_configs, len(level)))
        np.put_along_axis(wanted, table, 1, 1)
        np.testing.assert_array_equal(dense, wanted)
        assert classes.nnz <= dense.sum() and members.nnz == dense.shape[1]


@given(structures())
@settings(max_examples=20)
def test_own_and_aggregation_equal_the_dense_mean_over_neighbours(structure):
    edge_index, num_nodes, _, _ = structure
    built, table = tables(structure)
    means = mean_matrices(edge_index, num_nodes)
    for depth in DEPTHS[1:]:
        level, below = built[-1][depth], table[depth - 1]
        pairs = [(c, n) for c in range(len(below)) for n in range(num_nodes)]
        assert all(level.itself[table[depth][pair]] == below[pair] for pair in pairs)
        for matrix, mean in zip((level.operands, level.users), means, strict=True):
            dense = matrix.toarray()
            assert dense.shape == (len(level), len(built[-1][depth - 1]))
            for c, n in pairs:
                wanted = np.zeros(dense.shape[1])
                wanted[below[c]] = mean[n]
                np.testing.assert_allclose(dense[table[depth][c, n]], wanted, rtol=1e-6)


@given(structures(), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_states_of_some_configurations_are_those_of_a_file_of_these_alone(structure, depth, random):
    """But for the numbers of a node's states: a smaller file has other ties."""
    num_configs = len(structure[3])
    configs = np.array(random.choices(range(num_configs), k=random.randint(1, num_configs)))
    choices = factorise(structure[3])
    states = Reach(*structure[:3], choices, depth).states(choices.values[configs])
    anew = build((*structure[:3], structure[3][configs]), depth)
    nodes, each, renumber = np.arange(structure[1]), np.arange(len(configs))[:, None], np.zeros(0, np.int64)
    for level, other in zip(states, anew, strict=True):
        below, size = renumber, len(level)
        renumber = np.arange(size)
        renumber[level.state(nodes, each)] = other.state(nodes, each)
        assert size == len(other) and len(np.unique(renumber)) == size
        assert np.array_equal(level.node_ids, other.node_ids[renumber])
        assert np.array_equal(level.multiplicity, other.multiplicity[renumber])
        if level.operands is None:
            assert level is states[0]
            continue
        assert np.array_equal(below[level.itself], other.itself[renumber])
        for side in ("operands", "users"):
            wanted = getattr(other, side).toarray()[renumber][:, below]
            assert np.array_equal(getattr(level, side).toarray(), wanted)


CHAIN = np.stack([np.arange(7), np.arange(1, 8)], 1)
BITS = (np.arange(16)[:, None] >> np.arange(8) % 4 & 1).astype(np.uint8).repeat(3, 1).reshape(16, 8, 3)


@given(structures(), st.sampled_from([None, 0, 1, 2]), st.randoms(use_true_random=False))
@example((CHAIN, 8, np.arange(8), BITS), None, Random(31))  # one end
@settings(max_examples=30)
def test_a_part_has_the_states_of_its_nodes_and_of_those_they_depend_on(structure, num_layers, random):
    choices, num_nodes = factorise(structure[3]), structure[1]
    reach = Reach(*structure[:3], choices, 3)
    nodes = np.array(sorted(random.sample(range(num_nodes), random.randint(1, num_nodes))))
    part, whole = PartReach(reach, nodes, num_layers), reach.states(choices.values)
    levels, each, number = part.states(choices.values), np.arange(len(structure[3]))[:, None], None
    assert len(levels) == (4 if num_layers is None else num_layers + 1)
    assert np.array_equal(part.nodes[-1], nodes)
    for level, other, node_ids in zip(levels, whole, part.nodes, strict=False):
        below, number = number, np.full(len(level), -1)
        table = level.state(np.arange(len(node_ids)), each)
        number[table] = other.state(node_ids, each)
        assert np.array_equal(number[table], other.state(node_ids, each)) and len(set(number)) == len(number)
        if below is None:
            assert level.itself is level.operands is level.users is None
            continue
        assert np.array_equal(below[level.itself], other.itself[number])
        for side in ("operands", "users"):
            found, wanted = (getattr(one, side).toarray() for one in (level, other))
            assert np.array_equal(found, wanted[number][:, below])
            np.testing.assert_allclose(found.sum(1), wanted[number].sum(1))


def test_wide_codes_do_not_run_into_each_other():
    codes = np.array([[[0, 1, 0]], [[0, 0, 256]], [[1, 0, 0]], [[0, 256, 0]], [[65535, 0, 0]]], np.uint16)
    states = build((np.zeros((0, 2), np.int64), 1, np.array([0]), codes), 0)
    assert len(states[0]) == 5


def test_nodes_that_see_the_same_groups_share_their_classes():
    """A star of 40 configurable nodes, tied in two groups, and a hub: three sets, then one."""
    edges = np.stack([np.full(40, 40), np.arange(40)], 1)
    choice = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 0]], np.uint8)
    codes = np.repeat(choice[:, np.arange(40) % 2, None], 3, 2)
    states = build((edges, 41, np.arange(40), codes), 2)
    assert [level.classes.index.shape[0] for level in states] == [3, 3, 1]
    assert [len(level.classes) for level in states] == [2 + 2 + 1, 2 + 2 + 4, 4]
    assert [len(level) for level in states] == [2 * 40 + 1, 2 * 40 + 4, 4 * 41]
