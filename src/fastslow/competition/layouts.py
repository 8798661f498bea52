"""A layout: the order of a tensor's dimensions in memory, as TpuGraphs writes it and as one number."""

from collections.abc import Iterable

import numpy as np

ROLES = ("output", "input", "kernel")  # the tensors of a configurable node, in the order of node_config_feat
LAYOUT_WIDTH = 6  # a layout names at most six dimensions, minor-most first, -1 padded
MAX_DIMENSION = LAYOUT_WIDTH - 1

ENTRY_VALUES = MAX_DIMENSION + 2  # values of an entry of a layout, -1 to 5
PLACE_VALUES = ENTRY_VALUES ** np.arange(LAYOUT_WIDTH, dtype=np.int32)
"""A layout's number: its entries + 1 as digits of base 7, so that the all -1 layout has number 0."""


def layouts_of(numbers: np.ndarray) -> np.ndarray:
    """Return the layouts ``(n, 6)`` int8, minor to major, -1 padded, that have the numbers ``(n,)``.

    A number is the sum of ``(entry + 1) * PLACE_VALUES``, from 0 to 7**6 - 1.
    """
    return (numbers[:, None] // PLACE_VALUES % ENTRY_VALUES - 1).astype(np.int8)


LEFT_TO_COMPILER = "compiler"
"""In place of a layout that the compiler chooses."""


def num_elements(dims: np.ndarray) -> np.ndarray:
    """Return the number of elements ``(...)`` of tensors of sizes ``(..., 6)``; 1 where all sizes are 0."""
    count: np.ndarray = np.where(dims > 0, dims, 1).prod(-1)
    return count


def tensor_bytes(dims: np.ndarray, element_bytes: np.ndarray) -> np.ndarray:
    """Return the bytes ``(...)`` of tensors of sizes ``(..., 6)``, without padding to the TPU's tiles.

    A scalar, which has no layout to choose, and no tensor have 0.
    """
    size: np.ndarray = num_elements(dims) * (dims[..., 0] > 0) * element_bytes
    return size


def minor_dimension(dims: np.ndarray, layouts: np.ndarray) -> np.ndarray:
    """Return the minor-most dimension of tensors under layouts.

    Args:
        dims: (..., 6) sizes.
        layouts: (..., 6) layouts; all -1 (left to the compiler) counts as row-major.

    Returns:
        (...) dimension, 0 to 5, of the broadcast leading shape; -1 for a scalar left to the compiler.
    """
    return np.where(layouts[..., 0] < 0, (dims > 0).sum(-1) - 1, layouts[..., 0])


def format_layout(layout: Iterable[int]) -> str:
    """Return a layout as HLO text has it, ``{1,0}``; :data:`LEFT_TO_COMPILER` where it names no axis."""
    named = ",".join(str(axis) for axis in layout if axis >= 0)
    return f"{{{named}}}" if named else LEFT_TO_COMPILER
