"""Copies implied by a configuration: producer and consumer request different layouts of one tensor.

Where a configurable node's output is, directly or through element-wise nodes and transposes, the input or
kernel of another one and the two layouts given differ, the compiler has to copy the tensor in between (11th
place of the competition). A transpose moves no byte where the layout of its output is the layout of its input
with the axes renamed. A reshape is itself configurable and ends the path.
"""

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.layouts import LAYOUT_WIDTH, num_elements
from fastslow.competition.opcodes import OPCODES
from fastslow.features.configs.config_tensors import ConfigTensors
from fastslow.features.configs.layout_states import LayoutStates, tensor_positions
from fastslow.features.graph import Graph

_ELEMENT_WISE = """
abs add and atan2 bitcast-convert cbrt ceil clamp compare complex convert copy cosine count-leading-zeros
divide exponential exponential-minus-one floor imag is-finite log log-plus-one logistic maximum minimum
multiply negate not or popcnt power real reduce-precision remainder round-nearest-afz round-nearest-even
rsqrt select shift-left shift-right-arithmetic shift-right-logical sign sine sqrt stochastic-convert subtract
tan tanh xor
"""
ELEMENT_WISE = tuple(OPCODES[name] for name in _ELEMENT_WISE.split())
"""Opcode ids of operations whose output and equally shaped operands share a layout without a copy."""

COPIES_THROUGH = 8  # element-wise nodes and transposes between two nodes whose layouts are compared, at most
COPY_NAMES = ("copies", "log_copied_elements", "log_copied_bytes", "copy_share", "half_default_pairs")
"""Column names of :func:`copy_features`, the same for every program."""


def copy_pairs(
    node_feat: np.ndarray,
    node_opcode: np.ndarray,
    edge_index: np.ndarray,
    node_config_ids: np.ndarray,
    tensors: ConfigTensors,
    through: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the pairs of a configurable node's output and another's input or kernel that are the same tensor.

    Tensors with fewer than two dimensions have only one layout and form no pair. A pair joined by several
    paths counts once, by a shortest one; a node that reads one tensor as both input and kernel forms two.

    Args:
        node_feat: (N, 140) raw features (0-padded) of the whole graph.
        node_opcode: (N,) opcode ids.
        edge_index: (E, 2) rows (u, v): u consumes v's output.
        node_config_ids: (K,) configurable nodes.
        tensors: The tensors of these nodes.
        through: Maximum number of element-wise nodes of the same shape and transposes between the two; 0
            pairs direct neighbours only.

    Returns:
        ``Graph.pairs`` ``(P, 3)`` int32, sorted by consumer, role and producer, and ``Graph.pair_axes``
        ``(P, 6)`` int8.
    """
    consumer, role = np.nonzero(tensors.known & (tensors.rank >= 2) & (np.arange(3) > 0))
    steps = _same_tensor_steps(node_feat, node_opcode, edge_index)
    tensor, node, axes = _walk(tensors.source_ids[consumer, role], steps, len(node_opcode), through)

    position = np.full(len(node_opcode), -1)
    position[node_config_ids] = np.arange(len(node_config_ids))
    readers = np.flatnonzero(position[node] >= 0)
    readers = readers[np.lexsort((position[node[readers]], tensor[readers]))]
    consumer, role = consumer[tensor[readers]], role[tensor[readers]]
    pairs = np.stack([position[node[readers]], consumer, role], 1)
    return pairs.astype(np.int32), axes[readers].astype(np.int8)


def _walk(source_ids, steps, num_nodes: int, through: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Follow tensors (T,) back from the nodes that produce them, by at most ``through`` of the steps.

    Returns:
        (R,) tensors; (R,) nodes whose output they are, each pair once; (R, 6) the node's axis of each axis.
    """
    user, operand, step_axes = steps
    first = np.searchsorted(user, np.arange(num_nodes + 1))
    tensor = np.arange(len(source_ids))
    node = source_ids
    axes = np.tile(np.arange(LAYOUT_WIDTH), (len(source_ids), 1))
    reached = [(tensor, node, axes)]
    keys = tensor * num_nodes + node
    for _ in range(through):
        count = first[node + 1] - first[node]
        step = np.repeat(first[node] - np.cumsum(count) + count, count) + np.arange(count.sum())
        new, origin = np.unique(np.repeat(tensor, count) * num_nodes + operand[step], return_index=True)
        origin = origin[~np.isin(new, keys)]
        if not len(origin):
            break
        before = np.repeat(np.arange(len(tensor)), count)[origin]
        tensor, node = tensor[before], operand[step[origin]]
        axes = np.take_along_axis(step_axes[step[origin]], axes[before], axis=1)
        reached.append((tensor, node, axes))
        keys = np.union1d(keys, new)
    tensor, node, axes = (np.concatenate(parts) for parts in zip(*reached, strict=True))
    return tensor, node, axes


def _same_tensor_steps(node_feat, node_opcode, edge_index) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (M,) nodes, sorted, (M,) operands that hold the same tensor, and (M, 6) the axes that agree."""
    user, operand = edge_index[np.lexsort((edge_index[:, 1], edge_index[:, 0]))].T.astype(np.int64)
    shape = node_feat[:, node_columns.SHAPE]
    same = np.isin(node_opcode, ELEMENT_WISE)[user] & (shape[user] == shape[operand]).all(1)
    transposed = node_opcode[user] == OPCODES["transpose"]
    dimensions = node_feat[user][:, node_columns.DIMENSIONS].astype(np.int64).clip(0)
    in_order = np.arange(LAYOUT_WIDTH)
    # Beyond the rank the columns hold no axis.
    axes = np.where(transposed[:, None] & (shape[user] > 0), dimensions, in_order)
    passes = same | transposed
    return user[passes], operand[passes], axes[passes]


class PairStates(LayoutStates):
    """The S states of a graph's pairs of tensors.

    Args:
        graph: A layout graph.

    Attributes:
        pairs: ``(S, 3)`` pair of each state, a row of ``Graph.pairs``.
        layouts: ``(S, 2, 6)`` int8, the producer's layout and the consumer's.
        copied: ``(S,)`` bool, whether the two name different axes in the same entry. An entry that only one
            of the two names does not count, nor does a pair with a side that is left to the compiler.
    """

    def __init__(self, graph: Graph):
        producer, consumer, role = graph.pairs.T
        tensors = [tensor_positions(producer, 0), tensor_positions(consumer, role)]
        super().__init__(graph.choices, np.stack(tensors, 1))
        self.pairs = graph.pairs[self.item]
        self.layouts = graph.layouts[self.codes]
        given, wanted = self.layouts[:, 0], self.layouts[:, 1]
        renamed = np.take_along_axis(graph.pair_axes[self.item], wanted.clip(0), 1)
        self.copied = ((given != renamed) & (given >= 0) & (wanted >= 0)).any(1)


def copy_features(graph: Graph) -> tuple[np.ndarray, list[str]]:
    """Compute the features of every configuration's copies: of the pairs whose two layouts disagree.

    Returns:
        (C, 5) float32 features, 0 where there is no pair, and their names (``COPY_NAMES``).
    """
    states = PairStates(graph)
    _, consumer, role = states.pairs.T
    elements = num_elements(graph.tensor_sizes[consumer, role].astype(np.int64))
    size = elements * graph.tensor_bytes[consumer, role]
    given = states.layouts[:, :, 0] >= 0
    # whole numbers, so their sums are exact
    terms = [states.copied, states.copied * elements, states.copied * size, given.all(1), given.sum(1) == 1]
    count, elements, size, both, half = states.sum(np.stack(terms, 1, dtype=np.float64)).T
    share = np.divide(count, both, out=np.zeros(len(count)), where=both > 0)
    values = np.stack([count, np.log1p(elements), np.log1p(size), share, half], axis=1)
    return values.astype(np.float32), list(COPY_NAMES)
