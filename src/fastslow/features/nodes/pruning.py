"""Pruning of a layout graph to its configurable nodes and their neighbourhood."""

from typing import NamedTuple

import numpy as np

WHOLE_GRAPH = -1


class Pruned(NamedTuple):
    """A subgraph with its own node numbers 0..N'-1, in the order of the old ones."""

    node_ids: np.ndarray  # (N',) int64, old number of each kept node, increasing
    edge_index: np.ndarray  # (E', 2) int64, every edge between kept nodes, new numbers, order kept
    config_index: np.ndarray  # (K,) int64, new number of each configurable node, in the order given


def hop_distance(
    edge_index: np.ndarray, num_nodes: int, start_ids: np.ndarray, hops: int, direction: str = "both"
) -> np.ndarray:
    """Compute every node's distance from the nearest start node by breadth-first search.

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        num_nodes: N.
        start_ids: ``(S,)`` nodes at distance 0.
        hops: Maximum distance; -1 (``WHOLE_GRAPH``) has none.
        direction: ``operands`` walks from consumer to operand, ``users`` from operand to consumer,
            ``both`` either way.

    Returns:
        ``(N,)`` int64 distances, -1 where not reached.
    """
    distance = np.full(num_nodes, -1, np.int64)
    distance[start_ids] = 0
    user, operand = edge_index[:, 0], edge_index[:, 1]
    step = 0
    while step != hops:
        last = distance == step
        reached = np.zeros(num_nodes, bool)
        if direction in ("both", "operands"):
            reached[operand[last[user]]] = True
        if direction in ("both", "users"):
            reached[user[last[operand]]] = True
        reached &= distance < 0
        if not reached.any():
            break
        step += 1
        distance[reached] = step
    return distance


def prune(edge_index: np.ndarray, num_nodes: int, node_config_ids: np.ndarray, hops: int) -> Pruned:
    """Prune a graph to the configurable nodes ``(K,)`` and every node within ``hops`` of one.

    The 1st place of the competition used one hop (13,502 nodes became 2,143 on average), the 16th three, the
    6th five. 0 hops keep only the configurable nodes, -1 (``WHOLE_GRAPH``) keeps everything. Other arguments
    as for :func:`hop_distance`.

    Returns:
        The induced subgraph with exact renumbering.
    """
    distance = hop_distance(edge_index, num_nodes, node_config_ids, hops)
    kept = np.ones(num_nodes, bool) if hops == WHOLE_GRAPH else distance >= 0
    number = np.cumsum(kept) - 1
    inside = kept[edge_index].all(1)
    return Pruned(np.flatnonzero(kept), number[edge_index[inside]], number[node_config_ids])
