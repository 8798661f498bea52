"""What the 140 columns do not say of a node: where it is in its graph, and attributes that only HLO has.

Of the whole graph, before it is pruned. Nothing of it depends on the configuration, so it adds no states to a
network.
"""

import numpy as np
from scipy import sparse

from fastslow.features.nodes.list_padding import PADDING
from fastslow.features.nodes.pruning import WHOLE_GRAPH, hop_distance
from fastslow.xla.graph_arrays import EXTRA_NAMES

WALK_LENGTHS = range(2, 18)
"""Steps of the random walks. The 3rd place of the competition takes 2 to 113."""
DEPTH_NAMES = ("num_operands", "num_users", "from_outputs", "from_inputs")
WALK_NAMES = tuple(f"walk_{steps}" for steps in WALK_LENGTHS)
EXTRA_COLUMNS = (*DEPTH_NAMES, *WALK_NAMES, *EXTRA_NAMES)
"""Names of the columns of ``Graph.node_extra``."""
_BLOCK = 1 << 22  # numbers that are held at once


def node_extras(
    edge_index: np.ndarray, num_nodes: int, attributes: np.ndarray | None, random_walks: bool
) -> np.ndarray:
    """Return every column of :data:`EXTRA_COLUMNS` for the nodes of a whole graph.

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        num_nodes: N.
        attributes: ``(N, X)`` attributes of a protobuf, see ``xla.graph_arrays.EXTRA_NAMES``; None: -1.
        random_walks: Whether random walks are wanted; else these columns are 0.

    Returns:
        ``(N, Y)`` float32.
    """
    walks = np.zeros((num_nodes, len(WALK_NAMES)), np.float32)
    if random_walks:
        walks = walk_encodings(edge_index, num_nodes)
    if attributes is None:
        attributes = np.full((num_nodes, len(EXTRA_NAMES)), PADDING, np.float32)
    return np.concatenate([depth_encodings(edge_index, num_nodes), walks, attributes], 1)


def depth_encodings(edge_index: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return degrees and depths of nodes.

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        num_nodes: N.

    Returns:
        ``(N, 4)`` float32, see :data:`DEPTH_NAMES`: number of operands and of users, hops from the nearest
        node that nothing uses and from the nearest that uses nothing (-1 where there is none, in a cycle).
    """
    operands, users = (np.bincount(column, minlength=num_nodes) for column in edge_index.T)
    outputs, inputs = np.flatnonzero(users == 0), np.flatnonzero(operands == 0)
    depth = hop_distance(edge_index, num_nodes, outputs, WHOLE_GRAPH, "operands")
    height = hop_distance(edge_index, num_nodes, inputs, WHOLE_GRAPH, "users")
    return np.stack([operands, users, depth, height], 1).astype(np.float32)


def walk_encodings(edge_index: np.ndarray, num_nodes: int) -> np.ndarray:
    r"""Return the probabilities that a random walk is back where it started (3rd place; arXiv 2110.07875).

    .. math:: p_{n,k} = (P^k)_{nn}, \quad P = D^{-1} A

    with A the adjacency of the undirected graph without parallel edges, plus the identity. P has the diagonal
    of :math:`S = D^{-1/2} A D^{-1/2}`, which is symmetric, so
    :math:`(S^{a+b})_{nn} = \sum_m (S^a)_{nm} (S^b)_{nm}`: half the steps suffice. Exact; time grows with
    N x E.

    Args:
        edge_index: ``(E, 2)``, in either direction.
        num_nodes: N.

    Returns:
        ``(N, 16)`` float32, 0 to 1, for :data:`WALK_LENGTHS`.
    """
    ones, shape = np.ones(len(edge_index), np.float32), (num_nodes, num_nodes)
    edges = sparse.csr_array((ones, (edge_index[:, 0], edge_index[:, 1])), shape=shape)
    adjacency = sparse.csr_array(edges + edges.T + sparse.eye_array(num_nodes, dtype=np.float32))
    adjacency.data[:] = 1
    scale = sparse.diags_array(1 / np.sqrt(adjacency.sum(1)))
    step = sparse.csr_array(scale @ adjacency @ scale).astype(np.float32)
    found = np.empty((num_nodes, len(WALK_LENGTHS)), np.float32)
    size = max(1, _BLOCK // max(1, num_nodes))
    for start in range(0, num_nodes, size):
        rows = slice(start, min(start + size, num_nodes))
        below = step[:, rows].toarray()  # columns of S^j, which are its rows
        for place in range(0, len(WALK_LENGTHS), 2):
            above = step @ below
            found[rows, place] = np.einsum("mn,mn->n", below, below)
            found[rows, place + 1] = np.einsum("mn,mn->n", below, above)
            below = above
    return found
