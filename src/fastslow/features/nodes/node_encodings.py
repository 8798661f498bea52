"""Features of a node beside the 140 columns: its place in the graph, and attributes that only HLO has.

Of the whole graph, before it is pruned. Nothing of it depends on the configuration, so it adds no states to a
network.
"""

import numpy as np

from fastslow.features.nodes.list_padding import PADDING
from fastslow.features.nodes.pruning import WHOLE_GRAPH, hop_distance
from fastslow.hlo.graph_arrays import EXTRA_NAMES

DEPTH_NAMES = ("num_operands", "num_users", "from_outputs", "from_inputs")
EXTRA_COLUMNS = (*DEPTH_NAMES, *EXTRA_NAMES)
"""Names of the columns of ``Graph.node_extra``."""


def node_extras(edge_index: np.ndarray, num_nodes: int, attributes: np.ndarray | None) -> np.ndarray:
    """Return every column of :data:`EXTRA_COLUMNS` for the nodes of a whole graph, ``(N, Y)`` float32.

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        num_nodes: N.
        attributes: ``(N, X)`` attributes of a protobuf, see ``hlo.graph_arrays.EXTRA_NAMES``; None: -1.
    """
    if attributes is None:
        attributes = np.full((num_nodes, len(EXTRA_NAMES)), PADDING, np.float32)
    return np.concatenate([depth_encodings(edge_index, num_nodes), attributes], 1)


def depth_encodings(edge_index: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return degrees and depths of nodes.

    Args:
        edge_index: ``(E, 2)`` consumer and operand.
        num_nodes: Number N of nodes.

    Returns:
        ``(N, 4)`` float32, columns :data:`DEPTH_NAMES`: numbers of operands and of users, hops from the
        nearest node that nothing uses and from the nearest that uses nothing (-1 where there is none, in a
        cycle).
    """
    operands, users = (np.bincount(column, minlength=num_nodes) for column in edge_index.T)
    outputs = np.flatnonzero(users == 0)
    inputs = np.flatnonzero(operands == 0)
    depth = hop_distance(edge_index, num_nodes, outputs, WHOLE_GRAPH, "operands")
    height = hop_distance(edge_index, num_nodes, inputs, WHOLE_GRAPH, "users")
    return np.stack([operands, users, depth, height], 1).astype(np.float32)
