import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.networks import config_states as states_module
from fastslow.networks.config_states import build_states, select_states
from helpers.dense_reference import brute_force_states, mean_matrices, state_table
from helpers.random_graphs import structures

DEPTHS = range(5)


def same_partition(a, b):
    """Whether two numberings of the same pairs split them into the same classes."""
    joint = len(set(zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)))
    return joint == len(np.unique(a)) == len(np.unique(b))


def tables(structure):
    """The states of each depth, and the (C, N) table of each."""
    built = [build_states(*structure, depth) for depth in DEPTHS]
    return built, [state_table(states) for states in built]


@given(structures())
@settings(max_examples=60, deadline=None)
def test_the_partition_of_pairs_is_that_of_brute_force_at_every_level(structure):
    for depth, table in zip(DEPTHS, tables(structure)[1], strict=True):
        assert same_partition(table, brute_force_states(*structure, depth))


@given(structures())
@settings(max_examples=40, deadline=None)
def test_pairs_of_a_node_share_a_state_exactly_if_the_codes_within_reach_agree(structure):
    edge_index, num_nodes, config_index, codes = structure
    near = np.eye(num_nodes, dtype=int)
    near[edge_index[:, 0], edge_index[:, 1]] = near[edge_index[:, 1], edge_index[:, 0]] = 1
    for depth, table in zip(DEPTHS, tables(structure)[1], strict=True):
        reach = np.linalg.matrix_power(near, depth) > 0
        for node in range(num_nodes):
            seen = codes[:, reach[node, config_index]].reshape(len(codes), -1)
            agree = (seen[:, None] == seen[None, :]).all(2)
            assert np.array_equal(table[:, node][:, None] == table[:, node][None, :], agree)


@given(structures())
@settings(max_examples=40, deadline=None)
def test_every_state_belongs_to_one_node_and_multiplicities_count_its_configurations(structure):
    num_nodes, num_configs = structure[1], len(structure[3])
    for states, table in zip(*tables(structure), strict=True):
        level = states.levels[-1]
        assert np.array_equal(level.node_ids[table], np.tile(np.arange(num_nodes), (num_configs, 1)))
        assert np.array_equal(level.multiplicity, np.bincount(table.ravel(), minlength=len(level.node_ids)))
        assert np.array_equal(
            np.bincount(level.node_ids, level.multiplicity, num_nodes), [num_configs] * num_nodes
        )
        assert (level.multiplicity > 0).all()
        assert (states.num_nodes, states.num_configs) == (num_nodes, num_configs)


@given(structures())
@settings(max_examples=40, deadline=None)
def test_constant_states_stand_last_and_pooling_counts_the_others_once_a_configuration(structure):
    for states in tables(structure)[0]:
        node_ids = states.levels[-1].node_ids
        num_varying = len(node_ids) - states.num_constant
        constant = node_ids[num_varying:]
        assert len(np.unique(constant)) == states.num_constant
        assert not np.isin(constant, node_ids[:num_varying]).any()
        assert (states.levels[-1].multiplicity[num_varying:] == states.num_configs).all()
        dense = states.pooling.toarray()
        assert dense.shape == (states.num_configs, len(node_ids))
        assert set(np.unique(dense)) <= {0.0, 1.0}
        assert not dense[:, num_varying:].any()
        assert (dense.sum(1) == states.num_nodes - states.num_constant).all()


@given(structures())
@settings(max_examples=40, deadline=None)
def test_level_0_names_a_configuration_and_a_row_that_have_the_codes(structure):
    config_index, codes = structure[2:]
    states = build_states(*structure, 2)
    table = state_table(build_states(*structure, 0))
    for node in range(structure[1]):
        rows = np.flatnonzero(config_index == node)
        for config, state in enumerate(table[:, node]):
            assert states.config_row[state] == (rows[0] if len(rows) else -1)
            if len(rows):
                assert np.array_equal(codes[states.state_config[state], rows[0]], codes[config, rows[0]])


@given(structures())
@settings(max_examples=40, deadline=None)
def test_own_and_aggregation_equal_the_dense_mean_over_neighbours(structure):
    edge_index, num_nodes, _, _ = structure
    built, table = tables(structure)
    means = mean_matrices(edge_index, num_nodes)
    for depth in DEPTHS[1:]:
        level, below = built[-1].levels[depth], table[depth - 1]
        pairs = [(c, n) for c in range(len(below)) for n in range(num_nodes)]
        assert all(level.own[table[depth][pair]] == below[pair] for pair in pairs)
        for matrix, mean in zip((level.operands, level.users), means, strict=True):
            dense = matrix.toarray()
            assert dense.shape == (len(level.node_ids), len(built[-1].levels[depth - 1].node_ids))
            for c, n in pairs:
                wanted = np.zeros(dense.shape[1])
                wanted[below[c]] = mean[n]
                np.testing.assert_allclose(dense[table[depth][c, n]], wanted, rtol=1e-6)


@given(structures(), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_more_depth_leaves_the_levels_below_as_they_were(structure, depth):
    deep, shallow = build_states(*structure, 4), build_states(*structure, depth)
    assert len(deep.levels) == 5 and len(shallow.levels) == depth + 1
    for one, other in zip(deep.levels, shallow.levels, strict=False):
        assert np.array_equal(one.node_ids, other.node_ids)
        assert np.array_equal(one.multiplicity, other.multiplicity)
        assert np.array_equal(one.own, other.own)


@given(structures(), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_selected_states_are_those_built_anew(structure, depth, random):
    """But for the numbers of a node's states; the sparse matrices must follow those of the tables."""
    num_configs = len(structure[3])
    configs = np.array(random.choices(range(num_configs), k=random.randint(1, num_configs)))
    selected = select_states(build_states(*structure, depth), configs)
    anew = build_states(*structure[:3], structure[3][configs], depth)
    assert (selected.num_configs, selected.num_constant) == (anew.num_configs, anew.num_constant)
    renumber = np.zeros(0, np.int64)
    for level, other in zip(selected.levels, anew.levels, strict=True):
        below, size = renumber, len(level.node_ids)
        renumber = np.arange(size)
        renumber[level.table] = other.table
        assert size == len(other.node_ids) and len(np.unique(renumber)) == size
        assert np.array_equal(level.node_ids, other.node_ids[renumber])
        assert np.array_equal(level.multiplicity, other.multiplicity[renumber])
        if level.operands is None:
            assert level is selected.levels[0]
            continue
        assert np.array_equal(below[level.own], other.own[renumber])
        for side in ("operands", "users"):
            wanted = getattr(other, side).toarray()[renumber][:, below]
            assert np.array_equal(getattr(level, side).toarray(), wanted)
    assert np.array_equal(selected.pooling.toarray(), anew.pooling.toarray()[:, renumber])


@given(structures(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_selected_states_of_level_0_name_a_configuration_that_has_them(structure, random):
    codes = structure[3]
    configs = np.array(random.choices(range(len(codes)), k=random.randint(1, len(codes))))
    states = select_states(build_states(*structure, 1), configs)
    base = select_states(build_states(*structure, 0), configs)
    for node, row in enumerate(structure[2]):
        for position, state in enumerate(state_table(base)[:, row]):
            assert states.config_row[state] == node
            chosen = configs[states.state_config[state]]
            assert np.array_equal(codes[chosen, node], codes[configs[position], node])


@pytest.mark.parametrize("weak", [{0}, {1}, {2}, {0, 4}, {1, 5}])
def test_a_hash_collision_is_noticed_and_hashed_anew(monkeypatch, weak):
    # nodes 0 and 2 are configurable, 1 consumes both; every pair of codes occurs
    codes = np.zeros((4, 2, 3), np.uint8)
    codes[:, :, 0] = [[0, 0], [0, 1], [1, 0], [1, 1]]
    structure = np.array([[1, 0], [1, 2]]), 3, np.array([0, 2]), codes
    mix, salts = states_module._mix, set()

    def weak_mix(values, salt):
        salts.add(salt)
        return np.zeros_like(mix(values, salt)) if salt in weak else mix(values, salt)

    monkeypatch.setattr(states_module, "_mix", weak_mix)
    for depth in range(3):
        assert same_partition(
            state_table(build_states(*structure, depth)), brute_force_states(*structure, depth)
        )
    assert max(salts) > 5  # a second attempt was made


def test_wide_codes_do_not_run_into_each_other():
    codes = np.array([[[0, 1, 0]], [[0, 0, 256]], [[1, 0, 0]], [[0, 256, 0]], [[65535, 0, 0]]], np.uint16)
    states = build_states(np.zeros((0, 2), np.int64), 1, np.array([0]), codes, 0)
    assert len(states.levels[0].node_ids) == 5


def test_a_graph_without_edges_and_configurable_nodes_has_one_state_a_node():
    states = build_states(
        np.zeros((0, 2), np.int64), 3, np.zeros(0, np.int64), np.zeros((2, 0, 3), np.uint8), 2
    )
    assert states.num_constant == 3
    assert [level.multiplicity.tolist() for level in states.levels] == [[2, 2, 2]] * 3


def test_few_states_where_a_change_is_far_away():
    """A chain of 50 nodes with one configurable end: at depth 2 only three nodes have more than one state."""
    chain = np.stack([np.arange(49), np.arange(1, 50)], 1)
    codes = np.repeat(np.arange(100, dtype=np.uint8), 3).reshape(100, 1, 3)
    states = build_states(chain, 50, np.array([0]), codes, 2)
    assert len(states.levels[0].node_ids) == 100 + 49
    assert len(states.levels[2].node_ids) == 3 * 100 + 47
