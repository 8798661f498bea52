"""Layers and positions of a drawing: operands first, no overlap, few crossings."""

import graphlib
import itertools

import numpy as np
import pytest

from fastslow.programs.layered_drawing import assign_layers, place, split_long_edges
from helpers.cases import cases

NONE = np.zeros(0, int)


def random_edges(rng, num_nodes=30, num_edges=60):
    """Return edges from later to earlier nodes, with shuffled node numbers."""
    pairs = np.sort(rng.choice(num_nodes, (num_edges, 2)), axis=1)[:, ::-1]
    edges = np.unique(pairs[pairs[:, 0] > pairs[:, 1]], axis=0)
    return rng.permutation(num_nodes)[edges]


@cases("seed", range(20))
def test_operands_come_before_their_users(seed):
    rng = np.random.default_rng(seed)
    edges = random_edges(rng)
    layer = assign_layers(edges, 30, rng.choice(30, 5))
    assert (layer[edges[:, 0]] > layer[edges[:, 1]]).all()
    assert layer.min() == 0 and set(layer) == set(range(layer.max() + 1))


def test_a_weight_stands_beside_its_user_and_so_does_what_is_made_of_it():
    chain = [(node, node - 1) for node in range(1, 6)]  # 0 to 5
    weight = [(5, 7), (7, 6)]  # 6 is a weight, 7 made of it, used at the end of the chain
    layer = assign_layers(np.array(chain + weight), 8, NONE)
    assert layer.tolist() == [0, 1, 2, 3, 4, 5, 3, 4]


def test_what_is_ready_early_and_used_late_stays_early():
    edges = np.array([(1, 0), (2, 1), (3, 2), (4, 3), (5, 0), (5, 6), (4, 5)])  # 5: of 0, used at the end
    assert assign_layers(edges, 7, NONE)[5] == 1


def test_a_shared_constant_draws_nobody_to_its_place():
    edges = np.array([(2, 1), (3, 2), (4, 3), (5, 6), (5, 0), (4, 5), (2, 0)])  # 5: weight 6 by constant 0
    assert assign_layers(edges, 7, NONE)[5] == 1
    assert assign_layers(edges, 7, np.array([0]))[5] == 2


def test_a_cycle_is_refused():
    with pytest.raises(graphlib.CycleError):
        assign_layers(np.array([(0, 1), (1, 0)]), 2, NONE)


def test_no_nodes_and_no_edges():
    assert assign_layers(np.zeros((0, 2), int), 0, NONE).tolist() == []
    assert assign_layers(np.zeros((0, 2), int), 3, NONE).tolist() == [0, 0, 0]


@cases("seed", range(5))
def test_long_edges_bend_once_a_layer(seed):
    edges = random_edges(np.random.default_rng(seed))
    layer = assign_layers(edges, 30, NONE)
    steps, layers, routes = split_long_edges(edges, layer)
    assert (layers[:30] == layer).all() and (layers[steps[:, 0]] - layers[steps[:, 1]] == 1).all()
    for (user, operand), route in zip(edges, routes, strict=True):
        assert (route[0], route[-1]) == (user, operand)
        assert layers[route].tolist() == list(range(layer[user], layer[operand] - 1, -1))
    assert len(steps) == sum(len(route) - 1 for route in routes)


def crossings(edges, layer, x):
    """Return the number of pairs of edges between the same two layers that cross, by definition."""
    count = 0
    for (a, b), (c, d) in itertools.combinations(edges.tolist(), 2):
        if (layer[a], layer[b]) == (layer[c], layer[d]):
            count += (x[a] - x[c]) * (x[b] - x[d]) < 0
    return count


@cases("seed", range(5))
def test_nodes_do_not_overlap_and_edges_cross_less(seed):
    rng = np.random.default_rng(seed)
    edges = random_edges(rng)
    steps, layer, _ = split_long_edges(edges, assign_layers(edges, 30, NONE))
    width, weight = rng.uniform(0.1, 2, len(layer)), np.ones(len(layer))
    x = place(steps, layer, width, weight)
    for number in range(layer.max() + 1):
        row = np.flatnonzero(layer == number)
        row = row[np.argsort(x[row])]
        assert (np.diff(x[row]) >= (width[row][1:] + width[row][:-1]) / 2 - 1e-9).all()
    unsorted = place(steps, layer, width, weight, sweeps=0)
    assert crossings(steps, layer, x) < 0.7 * crossings(steps, layer, unsorted)


def test_a_chain_is_straight_and_a_fork_is_symmetric():
    chain = np.array([(1, 0), (2, 1), (3, 2)])
    assert np.ptp(place(chain, np.arange(4), np.ones(4), np.ones(4))) == pytest.approx(0, abs=1e-9)
    fork = np.array([(1, 0), (2, 0)])
    x = place(fork, np.array([0, 1, 1]), np.ones(3), np.ones(3))
    assert sorted(x[1:] - x[0]) == pytest.approx([-0.5, 0.5])
