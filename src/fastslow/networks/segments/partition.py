"""Division of the nodes of a graph into segments of bounded size."""

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from fastslow.competition.node_columns import IS_ROOT
from fastslow.features.store import Graph

_UNBALANCED = 1.03  # METIS makes parts up to 3 % larger than others


def partition(graph: Graph, edge_index: np.ndarray, how: str, max_nodes: int, seed: int) -> np.ndarray:
    """Divide the nodes of a graph into segments.

    - ``contiguous``: ranges of the node order, which is topological.
    - ``computations``: whole HLO computations as far as they fit. A computation ends with its root in node
      order; the published ``node_splits`` are some of these ends (a single one in the files of nlp).
    - ``metis``: few edges between segments (Karypis and Kumar 1998), by pymetis.
    - ``random``: nodes at random, the control.
    - ``configurable``: each node with its nearest configurable node, in edges.

    Args:
        graph: The graph.
        edge_index: ``(E, 2)`` edges that messages pass along, in both directions.
        how: One of :data:`~fastslow.networks.settings.segment_settings.PARTITIONS`.
        max_nodes: Maximum number of nodes of a segment.
        seed: Seed of ``random``.

    Returns:
        ``(N,)`` int64 segment of each node, 0 to J - 1; each has a node, none more than ``max_nodes``.
    """
    nodes = np.arange(graph.num_nodes)
    if how == "random":
        nodes = np.random.default_rng(seed).permutation(graph.num_nodes)
    cells = np.zeros(graph.num_nodes, np.int64)
    if graph.num_nodes > max_nodes and how in _CELLS:
        cells = _CELLS[how](graph, edge_index, max_nodes)
    segment = np.empty(graph.num_nodes, np.int64)
    order = nodes[np.argsort(cells[nodes], kind="stable")]
    segment[order] = _fill(np.unique(cells, return_counts=True)[1], max_nodes)
    return segment


def _computations(graph: Graph, edge_index: np.ndarray, max_nodes: int) -> np.ndarray:
    ends = graph.node_feat[:, IS_ROOT] > 0
    return np.concatenate([[0], np.cumsum(ends)[:-1]])


def _metis(graph: Graph, edge_index: np.ndarray, max_nodes: int) -> np.ndarray:
    import pymetis  # optional: segment_settings.check has looked for it

    near = _near(graph, edge_index)
    parts = int(np.ceil(_UNBALANCED * graph.num_nodes / max_nodes))
    _, part = pymetis.part_graph(parts, pymetis.CSRAdjacency(near.indptr, near.indices))
    return np.asarray(part, np.int64)


def _nearest(graph: Graph, edge_index: np.ndarray, max_nodes: int) -> np.ndarray:
    centres = np.unique(graph.config_index)
    if not len(centres):
        return np.zeros(graph.num_nodes, np.int64)
    options = {"indices": centres, "min_only": True, "unweighted": True, "return_predecessors": True}
    distance, _, nearest = csgraph.dijkstra(_near(graph, edge_index), **options)
    return np.where(np.isfinite(distance), nearest, graph.num_nodes)  # those that none reaches at the end


_CELLS = {"computations": _computations, "metis": _metis, "configurable": _nearest}


def _near(graph: Graph, edge_index: np.ndarray) -> sparse.csr_matrix:
    """Return the adjacency ``(N, N)`` in both directions, without self-loops."""
    ones, shape = np.ones(len(edge_index)), (graph.num_nodes, graph.num_nodes)
    matrix = sparse.coo_matrix((ones, edge_index.T), shape=shape)
    near = sparse.csr_matrix(matrix + matrix.T)
    near.setdiag(0)
    near.eliminate_zeros()
    return near


def _fill(sizes: np.ndarray, max_nodes: int) -> np.ndarray:
    """Return the segment of each node of cells in order: neighbouring cells together while they fit.

    A cell that is larger than a segment is divided evenly.
    """
    segments: list[int] = []
    for size in sizes.tolist():
        parts = -(-size // max_nodes)
        for piece in np.diff(np.arange(parts + 1) * size // parts).tolist():
            if segments and parts == 1 and segments[-1] + piece <= max_nodes:
                segments[-1] += piece
            else:
                segments.append(piece)
    return np.repeat(np.arange(len(segments)), segments)
