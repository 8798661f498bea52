"""Degrees, depths and random walks against loops over paths and matrix powers, on any graph."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.features.nodes.node_encodings import (
    DEPTH_NAMES,
    EXTRA_COLUMNS,
    WALK_LENGTHS,
    WALK_NAMES,
    depth_encodings,
    node_extras,
    walk_encodings,
)
from helpers.random_graphs import structures


def shortest(starts, neighbours, num_nodes):
    """Hops from the nearest start to each node, -1 where there is no path: one hop of a set at a time."""
    hops, reached, last = np.full(num_nodes, -1), set(starts), set(starts)
    for step in range(num_nodes + 1):
        hops[[*last]] = step
        last = {n for node in last for n in neighbours[node]} - reached
        reached |= last
        if not last:
            break
    return hops


@given(structures(max_nodes=9))
@settings(max_examples=80)
def test_depths_are_shortest_paths_from_outputs_and_inputs(structure):
    edges, num_nodes = structure[:2]
    operands = [[v for u, v in edges.tolist() if u == node] for node in range(num_nodes)]
    users = [[u for u, v in edges.tolist() if v == node] for node in range(num_nodes)]
    outputs = [node for node in range(num_nodes) if not users[node]]
    inputs = [node for node in range(num_nodes) if not operands[node]]
    expected = [
        [*map(len, operands)],
        [*map(len, users)],
        shortest(outputs, operands, num_nodes),
        shortest(inputs, users, num_nodes),
    ]
    np.testing.assert_array_equal(depth_encodings(edges, num_nodes), np.stack(expected, 1))


@given(structures(max_nodes=9))
@settings(max_examples=50)
def test_walks_are_diagonals_of_powers_of_the_transition_matrix(structure):
    edges, num_nodes = structure[:2]
    adjacency = np.eye(num_nodes)
    for u, v in edges:
        adjacency[u, v] = adjacency[v, u] = 1
    transition = adjacency / adjacency.sum(1, keepdims=True)
    powers = [np.linalg.matrix_power(transition, steps).diagonal() for steps in WALK_LENGTHS]
    walks = walk_encodings(edges, num_nodes)
    assert walks.dtype == np.float32
    np.testing.assert_allclose(walks, np.stack(powers, 1), atol=2e-6)
    np.testing.assert_array_equal(walk_encodings(np.concatenate([edges, edges[:, ::-1]]), num_nodes), walks)


@given(structures(max_nodes=9), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_numbering_of_the_nodes_does_not_matter(structure, random):
    edges, num_nodes = structure[:2]
    number = np.array(random.sample(range(num_nodes), num_nodes))
    extras = node_extras(edges, num_nodes, None, random_walks=True)
    moved = node_extras(number[edges][::-1], num_nodes, None, random_walks=True)
    np.testing.assert_allclose(moved[number], extras, atol=1e-6)


@pytest.mark.parametrize("block", [1, 37])
def test_a_large_graph_is_computed_block_by_block(monkeypatch, block, rng):
    edges = np.stack([np.arange(1, 60), rng.integers(0, np.arange(1, 60))], 1)
    whole = walk_encodings(edges, 60)
    monkeypatch.setattr("fastslow.features.nodes.node_encodings._BLOCK", 60 * block)
    np.testing.assert_allclose(walk_encodings(edges, 60), whole, atol=1e-6)


def test_what_is_not_known_is_minus_one_and_what_is_not_wanted_is_zero():
    extras = node_extras(np.array([[1, 0]]), 2, None, random_walks=False)
    first = len(DEPTH_NAMES) + len(WALK_NAMES)
    assert extras.shape == (2, len(EXTRA_COLUMNS)) and extras.dtype == np.float32
    assert (extras[:, len(DEPTH_NAMES) : first] == 0).all() and (extras[:, first:] == -1).all()
    attributes = np.arange(2 * (len(EXTRA_COLUMNS) - first), dtype=np.float32).reshape(2, -1)
    np.testing.assert_array_equal(
        node_extras(np.array([[1, 0]]), 2, attributes, False)[:, first:], attributes
    )
