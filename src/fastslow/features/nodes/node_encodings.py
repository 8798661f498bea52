"""Features of the nodes of a whole graph: place in it, attributes that only HLO has, lengths of lists."""

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.node_columns import LISTS
from fastslow.competition.opcodes import OPCODES
from fastslow.hlo.graph_arrays import EXTRA_NAMES

WHOLE_GRAPH = -1
"""Number of hops that has no maximum."""
DEPTH_NAMES = ("num_operands", "num_users", "from_outputs", "from_inputs")
EXTRA_COLUMNS = (*DEPTH_NAMES, *EXTRA_NAMES)
"""Names of the columns of ``Graph.node_extra``."""


def node_extras(edge_index: np.ndarray, num_nodes: int, attributes: np.ndarray | None) -> np.ndarray:
    """Return every column of :data:`EXTRA_COLUMNS` for the nodes of a whole graph, ``(N, Y)`` float32.

    The first four (:data:`DEPTH_NAMES`) are the numbers of operands and of users, and the hops from the
    nearest node that nothing uses and from the nearest that uses nothing (-1 where there is none).

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        num_nodes: N.
        attributes: ``(N, X)`` attributes of a protobuf, see ``hlo.graph_arrays.EXTRA_NAMES``; None: -1.
    """
    operands, users = (np.bincount(column, minlength=num_nodes) for column in edge_index.T)
    outputs = np.flatnonzero(users == 0)
    inputs = np.flatnonzero(operands == 0)
    depth = hop_distance(edge_index, num_nodes, outputs, WHOLE_GRAPH)
    height = hop_distance(edge_index[:, ::-1], num_nodes, inputs, WHOLE_GRAPH)
    if attributes is None:
        attributes = np.full((num_nodes, len(EXTRA_NAMES)), PADDING)
    return np.column_stack([operands, users, depth, height, attributes]).astype(np.float32)


def hop_distance(edges: np.ndarray, num_nodes: int, start_ids: np.ndarray, hops: int) -> np.ndarray:
    """Compute every node's distance from the nearest start node.

    Args:
        edges: ``(E, 2)``; row ``(u, v)``: a hop leads from u to v.
        num_nodes: N.
        start_ids: ``(S,)`` nodes at distance 0.
        hops: Maximum distance; :data:`WHOLE_GRAPH` has none.

    Returns:
        ``(N,)`` int64 distances, -1 where not reached.
    """
    distance = np.full(num_nodes, -1, np.int64)
    distance[start_ids] = 0
    origin, target = edges.T
    for step in range(num_nodes if hops == WHOLE_GRAPH else hops):
        reached = np.zeros(num_nodes, bool)
        reached[target[distance[origin] == step]] = True
        reached &= distance < 0
        if not reached.any():
            break
        distance[reached] = step + 1
    return distance


PADDING = -1.0
"""Value written after a list's end."""
UNKNOWN = -1
"""Length of a list that the npz does not determine."""

_TUPLE = node_columns.ELEMENT_TYPE.start + node_columns.ELEMENT_TYPES.index("tuple")
_CONVOLUTION = slice(node_columns.INPUT_BATCH, node_columns.OUTPUT_FEATURE + 1)
_OWN_RANK = [OPCODES[name] for name in ("transpose", "map")]
_ONE_AXIS_NAMES = """
concatenate iota sort all-gather all-gather-start reduce-scatter get-dimension-size set-dimension-size
"""
_ONE_AXIS = [OPCODES[name] for name in _ONE_AXIS_NAMES.split()]


def pad(node_feat: np.ndarray, node_opcode: np.ndarray, edge_index: np.ndarray) -> np.ndarray:
    """Replace the 0 after the end of each list of the node features by -1.

    A length may be known from a neighbour, also from one that is pruned later. Sums, products and counts are
    unchanged, and so is a list whose length is unknown.

    Args:
        node_feat: (N, 140) features of the npz.
        node_opcode: (N,) opcode ids.
        edge_index: (E, 2) rows (consumer, operand), in any order.

    Returns:
        (N, 140) float32 copy.
    """
    padded = np.array(node_feat, dtype=np.float32)
    for name, length in list_lengths(node_feat, node_opcode, edge_index).items():
        for block in LISTS[name]:
            position = np.arange(block.stop - block.start)
            ended = (position >= length[:, None]) & (length != UNKNOWN)[:, None]
            padded[:, block][ended] = PADDING
    return padded


def list_lengths(
    node_feat: np.ndarray, node_opcode: np.ndarray, edge_index: np.ndarray
) -> dict[str, np.ndarray]:
    """Compute how many of each list's columns are values rather than padding; arguments as :func:`pad`.

    Returns:
        For each name in ``LISTS`` (N,) int64: 0 to the number of its columns, or :data:`UNKNOWN`.
    """
    rank = _rank(node_feat)
    turned, unturned = node_columns.WINDOW_REVERSED, node_columns.WINDOW_NOT_REVERSED
    window = (node_feat[:, turned] + node_feat[:, unturned]).astype(int)
    convolution = node_feat[:, _CONVOLUTION].any(axis=1)
    has_layout = (rank < 2) | node_feat[:, node_columns.LAYOUT].any(axis=1)

    def of(opcode: str, length):
        return np.where(node_opcode == OPCODES[opcode], length, 0)

    lengths = {
        "shape": rank,
        "parameter_number": of("parameter", 1),
        "dimensions": _dimensions_length(node_feat, node_opcode, edge_index, rank),
        "window": window,
        "convolution": np.where(convolution, 2, 0),
        "convolution_spatial": np.where(convolution, window, 0),
        "feature_group_count": np.where(node_feat[:, node_columns.FEATURE_GROUP_COUNT] != 0, 1, 0),
        "batch_group_count": np.where(node_feat[:, node_columns.BATCH_GROUP_COUNT] != 0, 1, 0),
        "slice": of("slice", rank),
        "dynamic_slice": of("dynamic-slice", rank),
        "edge_padding": of("pad", rank),
        "is_stable": of("sort", 1),
        "layout": np.where(has_layout, rank, 0),
    }
    return {name: _settle(length, node_feat, LISTS[name]) for name, length in lengths.items()}


def _settle(length: np.ndarray, node_feat: np.ndarray, blocks: tuple[slice, ...]) -> np.ndarray:
    """Cut lengths to the number of columns; unknown where a column beyond the length is not 0."""
    length = np.minimum(length, blocks[0].stop - blocks[0].start)
    used = np.max([_used(node_feat[:, block]) for block in blocks], axis=0)
    return np.where(used > length, UNKNOWN, length)


def _used(values: np.ndarray) -> np.ndarray:
    """(N,) number of leading columns up to the last that is not 0."""
    return ((values != 0) * np.arange(1, values.shape[1] + 1)).max(axis=1)


def _rank(node_feat: np.ndarray) -> np.ndarray:
    """(N,) number of dimensions of each output tensor; 0 for a tuple, 7 for all that exceed the 6 columns."""
    shape, layout = node_feat[:, node_columns.SHAPE], node_feat[:, node_columns.LAYOUT]
    rank = _used(shape)
    is_empty = node_feat[:, node_columns.SHAPE_PRODUCT] == 0
    rank = np.where(is_empty, np.maximum(rank, layout.max(axis=1).astype(int) + 1), rank)
    has_more = node_feat[:, node_columns.SHAPE_SUM] != shape.sum(axis=1, dtype=np.float64).astype(np.float32)
    return np.where(has_more, shape.shape[1] + 1, rank)


def _dimensions_length(
    node_feat: np.ndarray, node_opcode: np.ndarray, edge_index: np.ndarray, rank: np.ndarray
) -> np.ndarray:
    """(N,) length of the ``dimensions`` attribute."""
    consumer_ids, operand_ids = edge_index[:, 0], edge_index[:, 1]
    # The largest rank among a reduce's operands is its inputs': initial values and reducer are scalars.
    operand_rank = _largest(rank[operand_ids], consumer_ids, len(rank))
    unpacks = node_opcode[consumer_ids] == OPCODES["get-tuple-element"]
    element_rank = _largest(rank[consumer_ids[unpacks]], operand_ids[unpacks], len(rank))
    is_tuple = node_feat[:, _TUPLE] != 0
    result_rank = np.where(is_tuple, element_rank, rank)

    axes = node_feat[:, node_columns.DIMENSIONS]
    is_known = (result_rank != UNKNOWN) & (operand_rank >= result_rank) & (operand_rank <= axes.shape[1])
    reduced = np.where(is_known, operand_rank - result_rank, _distinct_axes(axes))

    length = np.zeros(len(rank), dtype=np.int64)
    for opcodes, value in (
        (_ONE_AXIS, 1),
        (_OWN_RANK, rank),
        (OPCODES["broadcast"], operand_rank),
        (OPCODES["all-to-all"], np.where(is_tuple, 0, 1)),
        (OPCODES["reduce"], reduced),
        (OPCODES["reverse"], _distinct_axes(axes)),
        (0, UNKNOWN),
    ):
        length = np.where(np.isin(node_opcode, opcodes), value, length)
    return length


def _largest(values: np.ndarray, node_ids: np.ndarray, nodes: int) -> np.ndarray:
    """(nodes,) maximum of the values given for each node; :data:`UNKNOWN` where none is."""
    largest = np.full(nodes, UNKNOWN, dtype=np.int64)
    np.maximum.at(largest, node_ids, values)
    return largest


def _distinct_axes(axes: np.ndarray) -> np.ndarray:
    """(N,) length of a list of at least one axis, no axis twice, as far as its values determine it."""
    used = _used(axes)
    holds_zero = ((axes == 0) & (np.arange(axes.shape[1]) < used[:, None])).any(axis=1)
    return np.where(used == 0, 1, np.where(holds_zero, used, UNKNOWN))
