from collections import deque

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.features.build import prune
from fastslow.features.nodes.node_encodings import WHOLE_GRAPH, hop_distance
from helpers.random_graphs import structures

HOPS = (0, 1, 2, WHOLE_GRAPH)


def breadth_first(edge_index, num_nodes, start_ids, ways=(1, -1)):
    """Distance of each node that can be reached, by a queue, one node at a time."""
    neighbours = {node: [] for node in range(num_nodes)}
    for edge in np.asarray(edge_index).tolist():
        for way in ways:
            origin, target = edge[::way]
            neighbours[origin].append(target)
    distance = {int(node): 0 for node in start_ids}
    queue = deque(distance)
    while queue:
        node = queue.popleft()
        for other in neighbours[node]:
            if other not in distance:
                distance[other] = distance[node] + 1
                queue.append(other)
    return distance


@given(structures(max_nodes=9, max_configs=1), st.sampled_from((1, -1)), st.sampled_from((*HOPS, 3, 20)))
@settings(max_examples=80)
def test_hop_distance_is_that_of_a_breadth_first_search(structure, way, hops):
    edge_index, num_nodes, start_ids, _ = structure
    far = breadth_first(edge_index, num_nodes, start_ids, [way])
    within = {n: d for n, d in far.items() if hops == WHOLE_GRAPH or d <= hops}
    wanted = [within.get(node, -1) for node in range(num_nodes)]
    assert hop_distance(edge_index[:, ::way], num_nodes, start_ids, hops).tolist() == wanted


@given(structures(max_nodes=9, max_configs=1), st.sampled_from(HOPS))
@settings(max_examples=80)
def test_pruning_keeps_exactly_the_neighbourhood_and_the_edges_in_it(structure, hops):
    edge_index, num_nodes, config_ids, _ = structure
    node_ids, edges, config_index = prune(edge_index, num_nodes, config_ids, hops)
    far = breadth_first(edge_index, num_nodes, config_ids)
    if hops == WHOLE_GRAPH:
        kept = list(range(num_nodes))
    else:
        kept = sorted(node for node, distance in far.items() if distance <= hops)
    assert node_ids.tolist() == kept
    # every edge between kept nodes, in the old order, under new numbers; and no other
    induced = [edge for edge in edge_index.tolist() if set(edge) <= set(kept)]
    assert node_ids[edges].tolist() == induced
    assert node_ids[config_index].tolist() == config_ids.tolist()
    assert all(a.dtype == np.int64 for a in (node_ids, edges, config_index))
