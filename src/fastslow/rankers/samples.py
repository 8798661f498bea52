"""Rows, labels and weights that trees learn from, whatever library grows them."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sample:
    """Rows to learn from, with the same total weight for every graph.

    Args:
        rows: Of each graph ``(n, F)`` float32; n may be 0.
        labels: ``(sum of n,)`` float32; where ``binary`` 1 for a pair whose first configuration is slower.
        weights: ``(sum of n,)`` float64.
        columns: Names of the F columns.
        binary: Whether labels are 0 or 1, which the trees predict as log-odds; else they predict the labels.
    """

    rows: list[np.ndarray]
    labels: np.ndarray
    weights: np.ndarray
    columns: list[str]
    binary: bool
