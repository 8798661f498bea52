"""Fit of a configuration's layouts to the TPU's 8 x 128 tiles: violation ratio, padding, alignment.

The violation ratio is the share of configurable tensors whose largest dimension is not the minor-most one,
hence not along the 128-wide side of a tile (Harvard report on TpuGraphs, section 5.2; its "first" dimension
is the one with contiguous elements, entry 0 of a minor-to-major layout). A minor-most dimension as large as
the largest is no violation.

Tensors with a known shape and at least one dimension are counted. A one-dimensional tensor is counted though
it has only one layout (never a violation); a scalar and a tensor of unknown shape are not. Nor is a tensor
whose layout names an axis that it does not have: then the shape found is not the tensor's own.
"""

import functools

import numpy as np

from fastslow.competition.opcodes import CONVOLUTION, DOT, RESHAPE
from fastslow.competition.schema import ROLES
from fastslow.competition.tied_choices import Choices
from fastslow.core.errors import ConfigError
from fastslow.features.choice_sums import choice_sums
from fastslow.features.config_tensors import ConfigTensors
from fastslow.features.tpu_tiling import LANES, tile

DEFAULT_LAYOUTS = ("row_major", "leave_out")

CELLS = tuple(
    (f"{kind}_{role}", opcode, position)
    for kind, opcode in (("convolution", CONVOLUTION), ("dot", DOT), ("reshape", RESHAPE))
    for position, role in enumerate(ROLES)
    if (kind, role) != ("reshape", "kernel")
)
"""(name, opcode, position in ``ROLES``) of the groups of tensors: operation kind by tensor role."""

_TERMS = (
    "tensors",
    "default",
    "counted",
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
    "default_share": ("default", "tensors"),
    "violation_ratio_by_volume": ("violating_volume", "volume"),
    "minor_unaligned_share": ("minor_unaligned", "counted"),
    "second_minor_unaligned_share": ("second_minor_unaligned", "counted"),
}
_CELL_RATIOS = ("violation_ratio", "padded_over_volume", "default_share")
VIOLATION_NAMES = (
    *_RATIOS,
    "log_padded_bytes",
    *(f"{cell}_{ratio}" for cell, _, _ in CELLS for ratio in _CELL_RATIOS),
)
"""Column names of :func:`violation_features`, the same for every program: all tensors, then each cell."""


def violation_features(
    tensors: ConfigTensors,
    kinds: np.ndarray,
    layouts: np.ndarray,
    choices: Choices,
    default_layout: str = "row_major",
) -> tuple[np.ndarray, list[str]]:
    """Compute the violation ratio and its refinements for every configuration.

    Args:
        tensors: The tensors of K configurable nodes.
        kinds: (K,) opcode ids of these nodes.
        layouts: (L, 6) distinct layouts, minor to major, -1 padded; all -1 leaves the layout to the compiler.
            A layout of fewer axes than the tensor is completed by the others in row-major order.
        choices: The C configurations; codes are positions in ``layouts``.
        default_layout: ``row_major`` counts a tensor left to the compiler as row-major; ``leave_out`` counts
            it in ``default_share`` only.

    Returns:
        (C, V) float32 features, 0 where no tensor is counted, and their V names (``VIOLATION_NAMES``).

    Raises:
        ConfigError: ``default_layout`` is neither of the two.
    """
    if default_layout not in DEFAULT_LAYOUTS:
        raise ConfigError(f"default_layout: {default_layout!r} is none of {', '.join(DEFAULT_LAYOUTS)}")
    sums = []
    for _, opcode, role in CELLS:
        nodes = np.flatnonzero(
            (np.asarray(kinds) == opcode) & tensors.known[:, role] & (tensors.rank[:, role] > 0)
        )
        # One row of terms per distinct (shape, layout), shared by the many tensors of one shape.
        rows = np.column_stack([tensors.dims[nodes, role], tensors.element_bytes[nodes, role]])
        shapes, shape_index = np.unique(rows, axis=0, return_inverse=True)
        table = terms_of_shapes(shapes[:, :6], shapes[:, 6], np.asarray(layouts, np.int64), default_layout)
        terms = functools.partial(_look_up, table, shape_index.ravel())
        sums.append(choice_sums(choices, nodes[:, None], np.full((len(nodes), 1), role), terms))
    return features_of_sums(sums), list(VIOLATION_NAMES)


def terms_of_shapes(dims, element_bytes, layouts, default_layout) -> np.ndarray:
    """Return the terms of a tensor of each shape ``(S, 6)`` under each layout ``(L, 6)``.

    Returns:
        ``(S, L, terms)`` float64, whole numbers; what a configuration's columns are made of, once summed.
    """
    tiling = tile(dims[:, None], layouts[None])
    counted = tiling.fits & ~(tiling.is_default & (default_layout == "leave_out"))
    terms = {
        "counted": np.ones_like(tiling.volume),
        "violation": tiling.violates,
        "minor_unaligned": tiling.minor_size % LANES != 0,
        "second_minor_unaligned": tiling.second_padded != tiling.second_size,
        "volume": tiling.volume,
        "violating_volume": tiling.violates * tiling.volume,
        "padded_volume": tiling.padded_volume,
        "padded_bytes": tiling.padded_volume * element_bytes[:, None],
    }
    terms = {name: value * counted for name, value in terms.items()}
    terms |= {"tensors": tiling.fits, "default": tiling.fits & tiling.is_default}
    # Whole numbers: their float64 sums are exact, so features do not depend on the order of summation.
    return np.stack([terms[name] for name in _TERMS], axis=2).astype(np.float64)


def _look_up(table, shape_index, items, codes) -> np.ndarray:
    """Terms of tensors (R,) under layouts (R, 1), from the terms of their shapes: (R, terms)."""
    return table[shape_index[items], codes[:, 0]]


def features_of_sums(cell_sums: list[np.ndarray]) -> np.ndarray:
    """Return the columns of ``VIOLATION_NAMES`` ``(C, V)`` float32 from the sums of each cell.

    Args:
        cell_sums: For each cell ``(C, terms)`` of :func:`terms_of_shapes`, summed over its tensors.
    """
    total = sum(cell_sums)
    columns = [_ratio(total, name) for name in _RATIOS]
    columns.append(np.log1p(total[:, _TERMS.index("padded_bytes")]))
    columns += [_ratio(sums, name) for sums in cell_sums for name in _CELL_RATIOS]
    return np.stack(columns, axis=1, dtype=np.float32, casting="same_kind")


def _ratio(sums: np.ndarray, name: str) -> np.ndarray:
    """One of ``_RATIOS`` from (C, terms) sums, (C,); 0 where the denominator is 0."""
    numerator, denominator = (sums[:, _TERMS.index(term)] for term in _RATIOS[name])
    return np.divide(numerator, denominator, out=np.zeros(len(sums)), where=denominator > 0)
