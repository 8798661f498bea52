"""The tensors that a layout configuration arranges: shape, element size and producer of each.

A configuration gives a layout to up to three tensors of a configurable node: its output, its input
(operand 0) and, for convolution and dot, its kernel (operand 1). ``edge_index`` is sorted, which loses the
operands' order. It is recovered from the shapes, of which ``node_feat`` has a node's own output: the order is
the one for which HLO's shape rules give the output.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.layouts import ROLES
from fastslow.competition.opcodes import CONFIGURED, CONVOLUTION, DOT, RESHAPE

_OPERANDS = {CONVOLUTION: 2, DOT: 2, RESHAPE: 1}


def roles_of(kind: str) -> tuple[str, ...]:
    """Return which tensors of an operation of this kind a configuration arranges, of ``layouts.ROLES``."""
    return ROLES[: 1 + _OPERANDS[CONFIGURED[kind]]]


@dataclass(frozen=True)
class ConfigTensors:
    """Output, input and kernel tensor (axis 1, in the order of ``layouts.ROLES``) of K configurable nodes.

    A tensor is not known where it is the kernel of a reshape, a tuple, without elements, of more than six
    dimensions or of one of 2**31 or more, or an operand that fits the node in neither order.
    """

    dims: np.ndarray  # (K, 3, 6) int64 sizes in the program's order, 0 beyond the rank and where not known
    rank: np.ndarray  # (K, 3) int64 number of dimensions, 0 to 6
    element_bytes: np.ndarray  # (K, 3) int64 bytes per element, 0 to 16
    source_ids: np.ndarray  # (K, 3) int64 node that produces it, of the output the node itself; -1: none
    known: np.ndarray  # (K, 3) bool
    ambiguous: np.ndarray  # (K,) bool; the operands fit in both orders, and a heuristic decided


def config_tensors(
    node_feat: np.ndarray,
    node_opcode: np.ndarray,
    edge_index: np.ndarray,
    node_config_ids: np.ndarray,
    operands: Sequence[Sequence[int]] | None = None,
) -> ConfigTensors:
    """Find the shapes and producers of the tensors of every configurable node.

    HLO's shape rules are tried in both orders of the operands. Where both fit, a dot is assumed to have the
    usual form ``x @ w`` (the input contracts its last dimensions, and the kernel's free dimensions are its
    last) if exactly one order has it. Otherwise the operand with the lower node number is taken as the input:
    HLO lists operands before their users, depth first, so operand 0 usually has the lower number.

    Args:
        node_feat: (N, 140) raw features (0-padded) of the whole graph.
        node_opcode: (N,) opcode ids.
        edge_index: (E, 2) rows (u, v): u consumes v's output; any order, each pair once.
        node_config_ids: (K,) configurable nodes.
        operands: For each of the N nodes its operands in order, where that is known
            (:func:`fastslow.hlo.graph_arrays.operand_nodes`): then nothing is ambiguous.

    Returns:
        The tensors, in the order of ``node_config_ids``.
    """
    nodes = np.asarray(node_config_ids, dtype=np.int64)
    kinds = node_opcode[nodes]
    dims, rank, sized = _node_shapes(node_feat)
    source_ids = np.full((len(nodes), 3), -1, dtype=np.int64)
    source_ids[:, 0] = nodes
    ambiguous = np.zeros(len(nodes), dtype=bool)
    if operands is None:
        source_ids[:, 1:], ambiguous = _find_operands(node_feat, edge_index, nodes, kinds, dims, rank, sized)
    else:
        for index, node in enumerate(nodes):
            if len(operands[node]) == _OPERANDS.get(int(kinds[index])):
                source_ids[index, 1 : 1 + len(operands[node])] = operands[node]

    known = (source_ids >= 0) & sized[source_ids]
    return ConfigTensors(
        dims=np.where(known[:, :, None], dims[source_ids], 0),
        rank=np.where(known, rank[source_ids], 0),
        element_bytes=np.where(known, _element_bytes(node_feat)[source_ids], 0),
        source_ids=source_ids,
        known=known,
        ambiguous=ambiguous,
    )


def _find_operands(node_feat, edge_index, nodes, kinds, dims, rank, sized) -> tuple[np.ndarray, np.ndarray]:
    """Operands from the shapes: (K, 2) int64 input and kernel, -1 where unknown; (K,) bool ambiguous."""
    first, last, count = _operands(edge_index, nodes)
    operands = np.full((len(nodes), 2), -1, dtype=np.int64)
    reshape = (kinds == RESHAPE) & (count == 1)
    operands[reshape, 0] = first[reshape]

    ambiguous = np.zeros(len(nodes), dtype=bool)
    two_operands = np.isin(kinds, (CONVOLUTION, DOT)) & np.isin(count, (1, 2))
    pairs = np.flatnonzero(two_operands & sized[nodes] & sized[first] & sized[last])
    forward, backward = (
        _fit(node_feat, dims, rank, kinds[pairs], np.stack([nodes[pairs], lhs[pairs], rhs[pairs]], 1))
        for lhs, rhs in ((first, last), (last, first))
    )
    fits = np.maximum(forward, backward) > 0
    swap = backward > forward
    operands[pairs, 0] = np.where(fits, np.where(swap, last[pairs], first[pairs]), -1)
    operands[pairs, 1] = np.where(fits, np.where(swap, first[pairs], last[pairs]), -1)
    ambiguous[pairs] = (np.minimum(forward, backward) > 0) & (first[pairs] != last[pairs])
    return operands, ambiguous


def _node_shapes(node_feat: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the shape of every node's output: (N, 6) sizes, (N,) rank, and (N,) whether they are complete.

    They are for a tensor with at least one element and at most six dimensions, each below 2**31.
    """
    dims = node_feat[:, node_columns.SHAPE].astype(np.int64)
    rank = (dims > 0).sum(1)
    total = node_feat[:, node_columns.SHAPE_SUM].astype(np.float64)
    # A seventh dimension shows in the sum only, which float32 rounds beyond 2**24.
    complete = np.abs(total - dims.sum(1)) < 0.5 + 1e-6 * total
    has_elements = (dims > 0).cumprod(1).sum(1) == rank
    has_elements &= (node_feat[:, node_columns.SHAPE_PRODUCT] != 0) & (dims < 2**31).all(1)
    return dims, rank, complete & has_elements & (_element_bytes(node_feat) > 0)


def _element_bytes(node_feat: np.ndarray) -> np.ndarray:
    """Bytes per element of every node's output, (N,) int64; 0 for a tuple and for types without elements."""
    sizes = np.array(list(node_columns.ELEMENT_BYTES.values()))
    return node_feat[:, node_columns.ELEMENT_TYPE].astype(np.int64) @ sizes


def _operands(edge_index: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lowest and highest operand of each node, (K,) each (0 where it has none), and their number (K,)."""
    edges = edge_index[np.lexsort((edge_index[:, 1], edge_index[:, 0]))]
    start, stop = (np.searchsorted(edges[:, 0], nodes, side) for side in ("left", "right"))
    operand = np.append(edges[:, 1], 0)
    none = stop == start
    return np.where(none, 0, operand[start]), np.where(none, 0, operand[stop - 1]), stop - start


def _fit(node_feat, dims, rank, kinds, triples) -> np.ndarray:
    """Return how well (output, input, kernel) node triples (n, 3) fit, as :func:`dot_fit`."""
    fit = np.zeros(len(triples), dtype=np.int64)
    convolution = kinds == CONVOLUTION
    fit[convolution] = _convolution_fits(node_feat, dims, rank, triples[convolution])
    for index in np.flatnonzero(~convolution):
        shapes = dims[triples[index]].tolist()
        fit[index] = dot_fit(*(tuple(size for size in shape if size) for shape in shapes))
    return fit


def _convolution_fits(node_feat, dims, rank, triples) -> np.ndarray:
    """Whether HLO's convolution shape rules hold for (output, input, kernel) node triples (n, 3).

    The output's spatial sizes are not checked: node_feat lacks their axes, and the other rules suffice.
    """
    node, lhs, rhs = triples.T
    feat = node_feat[node].astype(np.int64)

    def size(tensor, column):
        return np.take_along_axis(dims[tensor], feat[:, np.r_[column]].clip(0, 5), axis=1)

    spatial = np.arange(4) < rank[node, None] - 2
    window = feat[:, node_columns.WINDOW_SIZE][:, :4]
    feature_groups = feat[:, [node_columns.FEATURE_GROUP_COUNT]].clip(1)
    batch_groups = feat[:, [node_columns.BATCH_GROUP_COUNT]].clip(1)
    rules = (
        (rank[[lhs, rhs]] == rank[node]).T,
        size(rhs, node_columns.KERNEL_OUTPUT_FEATURE) == size(node, node_columns.OUTPUT_FEATURE),
        size(rhs, node_columns.KERNEL_INPUT_FEATURE) * feature_groups
        == size(lhs, node_columns.INPUT_FEATURE),
        size(node, node_columns.OUTPUT_BATCH) * batch_groups == size(lhs, node_columns.INPUT_BATCH),
        (size(rhs, node_columns.KERNEL_SPATIAL) == window) | ~spatial,
    )
    return np.asarray(np.concatenate(rules, axis=1).all(1))


@lru_cache(1024)  # programs repeat their layers
def dot_fit(output: tuple[int, ...], lhs: tuple[int, ...], rhs: tuple[int, ...]) -> int:
    """Check whether operands of sizes ``lhs`` and ``rhs`` can give a dot of sizes ``output``.

    The output has the batch axes, then the free axes of lhs, then of rhs. ``node_feat`` does not tell which
    axes are batch and which are contracting: any choice is accepted.

    Returns:
        0: no choice of axes gives the output; 1: one does; 2: one does in which lhs contracts its last axes
        and rhs's free axes are its last.
    """
    fit = 0
    for batch in range(min(len(lhs), len(rhs), len(output)) + 1):
        # len(lhs) + len(rhs) = 2 batch + 2 contracting + free, and len(output) = batch + free.
        contracting, odd = divmod(len(lhs) + len(rhs) - len(output) - batch, 2)
        lhs_free = len(lhs) - batch - contracting
        rhs_free = len(rhs) - batch - contracting
        if odd or contracting < 0 or lhs_free < 0 or rhs_free < 0:
            continue
        kept, kept_rhs = output[batch : batch + lhs_free], output[batch + lhs_free :]
        shared = Counter(lhs) - Counter(kept)
        if not (_is_subsequence(kept, lhs) and _is_subsequence(kept_rhs, rhs)):
            continue
        if shared != Counter(rhs) - Counter(kept_rhs) or Counter(output[:batch]) - shared:
            continue
        contracted = shared - Counter(output[:batch])
        free, last = lhs[: len(lhs) - contracting], lhs[len(lhs) - contracting :]
        usual = Counter(last) == contracted and _is_subsequence(kept, free)
        usual = usual and rhs[len(rhs) - rhs_free :] == kept_rhs
        fit = max(fit, 1 + usual)
    return fit


def _is_subsequence(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether ``part`` is what remains of ``whole`` after removing entries."""
    remaining = iter(whole)
    return all(entry in remaining for entry in part)
