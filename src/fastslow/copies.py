"""Copies implied by a configuration: neighbours that want one tensor in two layouts.

Where a configurable node's output is, directly or through element-wise nodes, the input or kernel of another
one and the two layouts given differ, the compiler has to copy the tensor in between. (The number of copied
elements is a feature of the 11th place's LightGBM model.)
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from fastslow import columns
from fastslow.opcodes import OPCODES
from fastslow.tensors import ConfigTensors, config_chunks

_ELEMENT_WISE = """
abs add and atan2 bitcast-convert cbrt ceil clamp compare complex convert copy cosine count-leading-zeros
divide exponential exponential-minus-one floor imag is-finite log log-plus-one logistic maximum minimum
multiply negate not or popcnt power real reduce-precision remainder round-nearest-afz round-nearest-even
rsqrt select shift-left shift-right-arithmetic shift-right-logical sign sine sqrt stochastic-convert subtract
tan tanh xor
"""
ELEMENT_WISE = tuple(OPCODES[name] for name in _ELEMENT_WISE.split())
"""Opcode ids of operations whose output and equally shaped operands share a layout without a copy."""

COPY_NAMES = (
    "copies",
    "log_copied_elements",
    "log_copied_bytes",
    "copy_share",
    "half_default_pairs",
)
"""Column names of :func:`copy_features`, the same for every program."""


@dataclass(frozen=True)
class CopyPairs:
    """P pairs of configurable tensors that are one tensor to the program.

    Args:
        producer_index: (P,) position in ``node_config_ids`` of the node whose output it is.
        consumer_index: (P,) position of the node that reads it.
        consumer_role: (P,) 1 input, 2 kernel.
        elements: (P,) int64 elements of the tensor.
        element_bytes: (P,) int64 bytes per element, as the consumer reads it.
    """

    producer_index: np.ndarray
    consumer_index: np.ndarray
    consumer_role: np.ndarray
    elements: np.ndarray
    element_bytes: np.ndarray


def copy_pairs(
    node_feat: np.ndarray,
    node_opcode: np.ndarray,
    edge_index: np.ndarray,
    node_config_ids: np.ndarray,
    tensors: ConfigTensors,
    through: int = 1,
) -> CopyPairs:
    """Pairs of a configurable node's output and another's input or kernel that hold the same tensor.

    Tensors with fewer than two dimensions have one layout only and form no pair. A pair joined by several
    paths counts once; a node that reads one tensor as both input and kernel forms two pairs.

    Args:
        node_feat: (N, 140) raw features (0-padded) of the whole graph.
        node_opcode: (N,) opcode ids.
        edge_index: (E, 2) rows (u, v): u consumes v's output.
        node_config_ids: (K,) configurable nodes.
        tensors: Their tensors.
        through: Most element-wise nodes of the same shape between the two; 0 pairs direct neighbours only.

    Returns:
        The pairs, sorted by consumer, role and producer.
    """
    nodes = np.asarray(node_config_ids, dtype=np.int64)
    num_nodes = len(node_opcode)
    consumer, role = np.nonzero(tensors.known & (tensors.rank >= 2) & (np.arange(3) > 0))
    step = _same_tensor_steps(node_feat, node_opcode, edge_index)
    # Row i: the nodes whose output is consumer tensor i, or becomes it element by element.
    frontier = reached = _incidence(
        np.arange(len(consumer)), tensors.source_ids[consumer, role], (len(consumer), num_nodes)
    )
    for _ in range(through):
        frontier = frontier @ step
        if not frontier.nnz:
            break
        reached = reached + frontier
    tensor, producer = reached.tocsr()[:, nodes].sorted_indices().nonzero()

    consumer, role = consumer[tensor], role[tensor]
    return CopyPairs(
        producer_index=producer.astype(np.int64),
        consumer_index=consumer,
        consumer_role=role,
        elements=np.where(tensors.dims > 0, tensors.dims, 1).prod(2)[consumer, role],
        element_bytes=tensors.element_bytes[consumer, role],
    )


def _same_tensor_steps(node_feat, node_opcode, edge_index) -> sparse.csr_array:
    """(N, N) steps from an element-wise node to its operands of the same shape."""
    shape = np.asarray(node_feat)[:, columns.SHAPE]
    user, operand = np.asarray(edge_index, dtype=np.int64).reshape(-1, 2).T
    passes = np.isin(node_opcode, ELEMENT_WISE)[user] & (shape[user] == shape[operand]).all(1)
    return _incidence(user[passes], operand[passes], (len(shape), len(shape)))


def _incidence(rows, cols, shape) -> sparse.csr_array:
    return sparse.csr_array((np.ones(len(rows), dtype=bool), (rows, cols)), shape=shape)


def copy_features(
    pairs: CopyPairs, layouts: np.ndarray, codes: np.ndarray, chunk_bytes: int = 1 << 27
) -> tuple[np.ndarray, list[str]]:
    """What the copies of every configuration come to.

    A pair needs a copy where both layouts are given and differ in an entry that both name (a layout may name
    only its minor-most axes). A side left to the compiler counts as no copy: the compiler may adapt it.

    Args:
        pairs: The P pairs of a program.
        layouts: (L, 6) distinct layouts, minor to major, -1 padded; all -1 leaves the layout to the compiler.
        codes: (C, K, 3) index into ``layouts`` of every tensor; may be memory-mapped, read in chunks.
        chunk_bytes: Working memory for one chunk of configurations; changes no value.

    Returns:
        (C, 5) float32 features, 0 where there is no pair, and their names (``COPY_NAMES``).
    """
    layouts = np.asarray(layouts)
    given = layouts[:, 0] >= 0
    both_name = (layouts[:, None] >= 0) & (layouts[None] >= 0)
    disagree = ((layouts[:, None] != layouts[None]) & both_name).any(2)
    weights = np.stack(
        [np.ones_like(pairs.elements), pairs.elements, pairs.elements * pairs.element_bytes], 1
    )
    weights = weights.astype(np.float64)
    copied = np.zeros((len(codes), 3))
    both, half = np.zeros(len(codes)), np.zeros(len(codes))
    for chunk in config_chunks(len(codes), 24 * len(pairs.elements), chunk_bytes):
        block = codes[chunk]
        producer = block[:, pairs.producer_index, 0]
        consumer = block[:, pairs.consumer_index, pairs.consumer_role]
        # Whole numbers: their float64 sums are exact, so no order of summation shows in a feature.
        copied[chunk] = disagree[producer, consumer].astype(np.float64) @ weights
        both[chunk] = (given[producer] & given[consumer]).sum(1)
        half[chunk] = (given[producer] ^ given[consumer]).sum(1)
    count, elements, size = copied.T
    share = np.divide(count, both, out=np.zeros(len(codes)), where=both > 0)
    values = np.stack([count, np.log1p(elements), np.log1p(size), share, half], axis=1)
    return values.astype(np.float32), list(COPY_NAMES)
