"""A layout: the order of a tensor's dimensions in memory, as TpuGraphs writes it and as one number."""

import numpy as np

ROLES = ("output", "input", "kernel")  # the tensors of a configurable node, in the order of node_config_feat
LAYOUT_WIDTH = 6  # a layout names at most six dimensions, minor-most first, -1 padded
MAX_DIMENSION = LAYOUT_WIDTH - 1

ENTRY_VALUES = MAX_DIMENSION + 2  # values of an entry of a layout, -1 to 5
PLACE_VALUES = ENTRY_VALUES ** np.arange(LAYOUT_WIDTH, dtype=np.int32)
"""A layout's number: its entries + 1 as digits of base 7, so that the all -1 layout has number 0."""


def layouts_of(numbers: np.ndarray) -> np.ndarray:
    """Return the layouts ``(n, 6)`` int8 of these numbers ``(n,)``."""
    return (numbers[:, None] // PLACE_VALUES % ENTRY_VALUES - 1).astype(np.int8)
