"""What a runtime may be, the same for files, tables, commands and measurements."""

import numpy as np
from numpy.typing import ArrayLike

SHORTEST, LONGEST = 1e-30, 1e30
"""Bounds in any unit: the ratio of two runtimes and its square are normal float64 numbers, and the whole
int64 numbers of competition files are within."""
RUNTIME = f"a number from {SHORTEST:g} to {LONGEST:g}"
"""The rule in words, for messages."""


def are_runtimes(values: ArrayLike) -> np.ndarray:
    """Return whether each of these numbers can be a runtime; NaN and infinity are none.

    Whole numbers of any size are compared as they are: the largest have no float64.
    """
    numbers = np.asarray(values)
    with np.errstate(invalid="ignore"):  # of NaN beside a whole number without a float64
        return (numbers >= SHORTEST) & (numbers <= LONGEST)
