"""Fit of a configuration's layouts to the TPU's 8 x 128 tiles and to the compiler's own choice.

The violation ratio is the share of configurable tensors whose largest dimension is not the minor-most one,
hence not along the 128-wide side of a tile (Harvard report on TpuGraphs, section 5.2). The "first" dimension
of the report is entry 0 of a minor-to-major layout.

Tensors with a known shape and at least one dimension are counted, unless a layout names an axis that the
tensor does not have: then the shape found is not its own.

The outputs of all configurable nodes have columns of their own, for they decide the runtime: on the
measured AlexNet the layouts of inputs and kernels change nothing. Weighted by the node's work, the gradient
of a filter counts by its cost, not by its few elements.

A tensor is *off default* where it is given another layout than the compiler would choose, so that data may
have to be moved. :mod:`fastslow.features.configs.default_layouts` finds the compiler's choice.
"""

import numpy as np

from fastslow.competition.layouts import num_elements
from fastslow.competition.opcodes import CONFIGURED
from fastslow.features.configs.config_tensors import roles_of
from fastslow.features.configs.default_layouts import is_off_default
from fastslow.features.configs.layout_states import LayoutStates, tensor_positions
from fastslow.features.configs.tpu_tiling import tile
from fastslow.features.graph import Graph

_RATIOS = {
    "violation_ratio": ("violation", "counted"),
    "padded_over_volume": ("padded_volume", "volume"),
    "left_share": ("left", "counted"),
    "violation_ratio_by_volume": ("violating_volume", "volume"),
    "minor_unaligned_share": ("minor_unaligned", "counted"),
    "second_minor_unaligned_share": ("second_minor_unaligned", "counted"),
    "off_default_share": ("off_default", "counted"),
}
"""Numerator and denominator of each ratio: sums of the terms of :func:`_terms`."""
_WEIGHTED_RATIOS = {
    "violation_ratio_by_bytes": ("violation_by_bytes", "bytes"),
    "violation_ratio_by_work": ("violation_by_work", "work"),
    "padding_by_bytes": ("padding_by_bytes", "bytes"),
    "padding_by_work": ("padding_by_work", "work"),
    "off_default_by_bytes": ("off_default_by_bytes", "bytes"),
    "off_default_by_work": ("off_default_by_work", "work"),
}
_CELL_RATIOS = ("violation_ratio", "padded_over_volume", "left_share", "off_default_share")
_OUTPUT_RATIOS = ("violation_ratio", "padded_over_volume", "off_default_share", *_WEIGHTED_RATIOS)


def violation_features(graph: Graph) -> tuple[np.ndarray, list[str]]:
    """Compute the violation ratio and its refinements for every configuration of a layout graph.

    Returns:
        (C, V) float32 features, 0 where no tensor is counted, and their V names, the same for every program:
        ratios of all tensors, of each operation kind by tensor role, and of all outputs.
    """
    kinds = graph.node_opcode[graph.config_index]
    weights = _node_weights(graph)
    cells: dict[str, dict[str, np.ndarray]] = {}
    for kind, opcode in CONFIGURED.items():
        for role, name in enumerate(roles_of(kind)):
            nodes = np.flatnonzero((kinds == opcode) & (graph.tensor_sizes[:, role, 0] > 0))
            states = LayoutStates(graph.choices, tensor_positions(nodes, role)[:, None])
            terms = _terms(graph, nodes[states.item], role, graph.layouts[states.codes[:, 0]], weights)
            sums = states.sum(np.stack(list(terms.values()), 1, dtype=np.float64))
            cells[f"{kind}_{name}"] = dict(zip(terms, sums.T, strict=True))
    total = _add(list(cells.values()))
    outputs = _add([sums for cell, sums in cells.items() if cell.endswith("_output")])
    columns = {name: _ratio(total, name) for name in _RATIOS}
    columns["log_padded_bytes"] = np.log1p(total["padded_bytes"])
    for cell, cell_sums in cells.items():
        columns |= {f"{cell}_{name}": _ratio(cell_sums, name) for name in _CELL_RATIOS}
    columns |= {f"output_{name}": _ratio(outputs, name) for name in _OUTPUT_RATIOS}
    return np.stack(list(columns.values()), 1, dtype=np.float32, casting="same_kind"), list(columns)


def _node_weights(graph: Graph) -> dict[str, np.ndarray]:
    """Return the weights of the configurable nodes by name: the bytes of a node's tensors, and its work.

    Work is the square root of the product of the tensors' elements. For the ``m x k`` and ``k x n`` operands
    of a dot these are its ``m n k`` multiplications. For a convolution, also one that computes a small
    filter's gradient, the work grows with its multiplications.

    Returns:
        ``(K,)`` int64 each, fractions of the largest in units of 2**-36.
    """
    elements = np.where(graph.tensor_bytes > 0, num_elements(graph.tensor_sizes.astype(np.float64)), 0.0)
    size = (elements * graph.tensor_bytes).sum(1)
    # an operand may be unknown
    work = np.where((elements > 0).all(1), np.sqrt(elements.prod(1)), elements[:, 0])
    weights = {"bytes": size, "work": work}
    largest = {name: max(weight.max(initial=0), 1) for name, weight in weights.items()}
    return {name: np.ceil(weights[name] / largest[name] * 2**36).astype(np.int64) for name in weights}


def _terms(
    graph: Graph, nodes: np.ndarray, role: int, layouts: np.ndarray, weights: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the terms ``(S,)`` of one tensor of nodes ``(S,)`` under layouts ``(S, 6)``.

    They are whole numbers, whose float64 sums are exact: features do not depend on the order of summation.
    """
    tiling = tile(graph.tensor_sizes[nodes, role], layouts)
    off_default = is_off_default(layouts, graph.default_layouts[nodes, role])
    terms = {
        "left": tiling.is_left,
        "counted": np.ones_like(tiling.volume),
        "off_default": off_default,
        "violation": tiling.violates,
        "minor_unaligned": tiling.minor_unaligned,
        "second_minor_unaligned": tiling.second_unaligned,
        "volume": tiling.volume,
        "violating_volume": tiling.violates * tiling.volume,
        "padded_volume": tiling.padded_volume,
        "padded_bytes": tiling.padded_volume * graph.tensor_bytes[nodes, role],
    }
    for name, of_node in weights.items():
        weight = of_node[nodes]
        terms[name] = weight
        terms[f"violation_by_{name}"] = weight * tiling.violates
        terms[f"padding_by_{name}"] = np.rint(weight * (tiling.padded_volume / tiling.volume))
        terms[f"off_default_by_{name}"] = weight * off_default
    return {name: values * tiling.fits for name, values in terms.items()}


def _add(sums: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Add the sums ``(C,)`` of several cells, term by term."""
    return {term: np.sum([each[term] for each in sums], 0) for term in sums[0]}


def _ratio(sums: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Return one of the ratios from sums of terms, (C,); 0 where the denominator is 0."""
    numerator, denominator = (_RATIOS | _WEIGHTED_RATIOS)[name]
    below = sums[denominator]
    return np.divide(sums[numerator], below, out=np.zeros(len(below)), where=below > 0)
