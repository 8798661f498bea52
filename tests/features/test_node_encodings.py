"""Degrees and depths against loops over paths, on any graph."""

import numpy as np
from hypothesis import given, settings

from fastslow.features.nodes.node_encodings import DEPTH_NAMES, EXTRA_COLUMNS, node_extras
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
    np.testing.assert_array_equal(node_extras(edges, num_nodes, None)[:, :4], np.stack(expected, 1))


def test_attributes_that_are_not_known_are_minus_one():
    extras = node_extras(np.array([[1, 0]]), 2, None)
    first = len(DEPTH_NAMES)
    assert extras.shape == (2, len(EXTRA_COLUMNS)) and extras.dtype == np.float32
    assert (extras[:, first:] == -1).all()
    attributes = np.arange(2 * (len(EXTRA_COLUMNS) - first), dtype=np.float32).reshape(2, -1)
    np.testing.assert_array_equal(node_extras(np.array([[1, 0]]), 2, attributes)[:, first:], attributes)
