"""Fit of a configuration's layouts to the TPU's 8 x 128 tiles and to the compiler's own choice.

The violation ratio is the share of configurable tensors whose largest dimension is not the minor-most one,
hence not along the 128-wide side of a tile (Harvard report on TpuGraphs, section 5.2). The "first" dimension
of the report is the one with contiguous elements, entry 0 of a minor-to-major layout. A minor-most dimension
as large as the largest is no violation.

Tensors with a known shape and at least one dimension are counted. A one-dimensional tensor is counted though
it has only one layout (never a violation); a scalar and a tensor of unknown shape are not. Nor is a tensor
whose layout names an axis that it does not have: then the shape found is not the tensor's own.

The outputs of all configurable nodes have columns of their own, for they decide the runtime: on the
measured AlexNet the layouts of inputs and kernels change nothing. Weighted by the node's work, the gradient
of a filter counts by its cost, not by its few elements.

A tensor is *off default* where it is given another layout than the compiler would choose, so that data may
have to be moved. :mod:`fastslow.features.configs.default_layouts` finds the compiler's choice.
"""

import numpy as np

from fastslow.competition.layouts import ROLES
from fastslow.competition.opcodes import CONVOLUTION, DOT, RESHAPE
from fastslow.competition.tensors import num_elements
from fastslow.competition.tied_choices import Choices
from fastslow.features.configs.config_tensors import ConfigTensors
from fastslow.features.configs.default_layouts import is_off_default
from fastslow.features.configs.layout_states import choice_sums, tensor_positions
from fastslow.features.configs.tpu_tiling import LANES, tile

CELLS = tuple(
    (f"{kind}_{role}", opcode, position)
    for kind, opcode in (("convolution", CONVOLUTION), ("dot", DOT), ("reshape", RESHAPE))
    for position, role in enumerate(ROLES)
    if (kind, role) != ("reshape", "kernel")
)
"""(name, opcode, position in ``ROLES``) of the groups of tensors: operation kind by tensor role."""

_TERMS = (
    "left",
    "counted",
    "off_default",
    "violation",
    "minor_unaligned",
    "second_minor_unaligned",
    "volume",
    "violating_volume",
    "padded_volume",
    "padded_bytes",
)
_RATIOS = {
    "violation_ratio": ("violation", "counted"),
    "padded_over_volume": ("padded_volume", "volume"),
    "left_share": ("left", "counted"),
    "violation_ratio_by_volume": ("violating_volume", "volume"),
    "minor_unaligned_share": ("minor_unaligned", "counted"),
    "second_minor_unaligned_share": ("second_minor_unaligned", "counted"),
    "off_default_share": ("off_default", "counted"),
}
_CELL_RATIOS = ("violation_ratio", "padded_over_volume", "left_share", "off_default_share")
_OUTPUT_RATIOS = ("violation_ratio", "padded_over_volume", "off_default_share")
_WEIGHTS = ("bytes", "work")
_WEIGHTED = ("count", "violation", "padding", "off_default")
_WEIGHTED_TERMS = tuple(f"{what}_by_{weight}" for weight in _WEIGHTS for what in _WEIGHTED)
_WEIGHTED_RATIOS = {
    f"{ratio}_by_{weight}": (f"{what}_by_{weight}", f"count_by_{weight}")
    for ratio, what in zip(("violation_ratio", "padding", "off_default"), _WEIGHTED[1:], strict=True)
    for weight in _WEIGHTS
}
VIOLATION_NAMES = (
    *_RATIOS,
    "log_padded_bytes",
    *(f"{cell}_{ratio}" for cell, _, _ in CELLS for ratio in _CELL_RATIOS),
    *(f"output_{ratio}" for ratio in (*_OUTPUT_RATIOS, *_WEIGHTED_RATIOS)),
)
"""Column names of :func:`violation_features`, the same for every program: all tensors, then each cell, then
all outputs."""


def violation_features(
    tensors: ConfigTensors,
    kinds: np.ndarray,
    layouts: np.ndarray,
    choices: Choices,
    defaults: np.ndarray | None = None,
) -> tuple[np.ndarray, list[str]]:
    """Compute the violation ratio and its refinements for every configuration.

    Args:
        tensors: The tensors of K configurable nodes.
        kinds: (K,) opcode ids of these nodes.
        layouts: (L, 6) distinct layouts, minor to major, -1 padded; all -1 leaves the layout to the compiler,
            which counts as row-major.
            A layout of fewer axes than the tensor is completed by the others in row-major order.
        choices: The C configurations; codes are positions in ``layouts``.
        defaults: (K, 3, 6) the compiler's own layout of each tensor, -1 where it is not known; by default of
            none.

    Returns:
        (C, V) float32 features, 0 where no tensor is counted, and their V names (``VIOLATION_NAMES``).
    """
    if defaults is None:
        defaults = np.full(tensors.dims.shape, -1)
    sums = []
    of_role = [_shape_rows(tensors, role, defaults) for role in range(len(ROLES))]
    for _, opcode, role in CELLS:
        nodes = np.flatnonzero(
            (np.asarray(kinds) == opcode) & tensors.known[:, role] & (tensors.rank[:, role] > 0)
        )
        # One row of terms per distinct (shape, layout), shared by the many tensors of one shape.
        shapes, shape_index = np.unique(of_role[role][nodes], axis=0, return_inverse=True)
        table = _terms_of_shapes(shapes, np.asarray(layouts, np.int64))

        def terms(items, codes, table=table, shape_index=shape_index):
            return table[shape_index.ravel()[items], codes[:, 0]]

        sums.append(choice_sums(choices, tensor_positions(nodes, role)[:, None], terms))
    return _features_of_sums(sums), list(VIOLATION_NAMES)


def _shape_rows(tensors: ConfigTensors, role: int, defaults: np.ndarray) -> np.ndarray:
    """Return what the terms of each node's tensor depend on.

    It is six sizes, bytes per element, the compiler's own layout, and the weights of an output's node. The
    weights are the bytes of the node's tensors, and its work: the square root of the product of their
    elements. For the ``m x k`` and ``k x n`` operands of a dot these are its ``m n k`` multiplications. For a
    convolution, also one that computes a small filter's gradient, the work grows with its multiplications.

    Returns:
        ``(K, 13)`` or ``(K, 15)`` int64; the weights are fractions of the largest, in units of 2**-36.
    """
    rows = np.column_stack([tensors.dims[:, role], tensors.element_bytes[:, role], defaults[:, role]])
    if role:
        return rows
    elements = np.where(tensors.known, num_elements(tensors.dims.astype(np.float64)), 0.0)
    work = np.where(
        (elements > 0).all(1), np.sqrt(elements.prod(1)), elements[:, 0]
    )  # an operand may be unknown
    weights = np.stack([(elements * tensors.element_bytes).sum(1), work], 1)
    shares = np.ceil(weights / np.maximum(weights.max(0, initial=0), 1) * 2**36)
    return np.column_stack([rows, shares.astype(np.int64)])


def _terms_of_shapes(shapes: np.ndarray, layouts: np.ndarray) -> np.ndarray:
    """Return the terms ``(S, L, terms)``, whole numbers, of a tensor of each shape under each layout."""
    dims, element_bytes, default, weights = np.split(shapes, [6, 7, 13], 1)
    tiling = tile(dims[:, None], layouts[None])
    terms = {
        "counted": np.ones_like(tiling.volume),
        "violation": tiling.violates,
        "minor_unaligned": tiling.minor_size % LANES != 0,
        "second_minor_unaligned": tiling.second_padded != tiling.second_size,
        "volume": tiling.volume,
        "violating_volume": tiling.violates * tiling.volume,
        "padded_volume": tiling.padded_volume,
        "padded_bytes": tiling.padded_volume * element_bytes,
    }
    terms = {name: value * tiling.fits for name, value in terms.items()}
    terms["left"] = tiling.fits & tiling.is_left
    terms["off_default"] = tiling.fits & is_off_default(layouts, default[:, None])
    columns = [terms[name] for name in _TERMS]
    for weight in weights.T[:, :, None]:
        padded = np.rint(weight * (tiling.padded_volume / np.maximum(tiling.volume, 1)))
        columns += [weight * tiling.fits, weight * terms["violation"], padded * tiling.fits]
        columns.append(weight * terms["off_default"])
    # Whole numbers: their float64 sums are exact, so features do not depend on the order of summation.
    return np.stack(columns, axis=2).astype(np.float64)


def _features_of_sums(cell_sums: list[np.ndarray]) -> np.ndarray:
    """Return the columns ``(C, V)`` float32 from the sums of terms ``(C, terms)`` of each cell."""
    total: np.ndarray = sum(sums[:, : len(_TERMS)] for sums in cell_sums)
    outputs = sum(sums for (_, _, role), sums in zip(CELLS, cell_sums, strict=True) if role == 0)
    columns = [_ratio(total, name) for name in _RATIOS]
    columns.append(np.log1p(total[:, _TERMS.index("padded_bytes")]))
    columns += [_ratio(sums, name) for sums in cell_sums for name in _CELL_RATIOS]
    columns += [_ratio(outputs, name) for name in (*_OUTPUT_RATIOS, *_WEIGHTED_RATIOS)]
    return np.stack(columns, axis=1, dtype=np.float32, casting="same_kind")


def _ratio(sums: np.ndarray, name: str) -> np.ndarray:
    """One of the ratios from (C, terms) sums, (C,); 0 where the denominator is 0."""
    terms = _TERMS + _WEIGHTED_TERMS
    numerator, denominator = (sums[:, terms.index(t)] for t in (_RATIOS | _WEIGHTED_RATIOS)[name])
    return np.divide(numerator, denominator, out=np.zeros(len(sums)), where=denominator > 0)
