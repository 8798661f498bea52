"""The registry of libraries of boosted trees: rankers learn, predict, explain and are stored through one."""

from pathlib import Path
from typing import Protocol, Self

import numpy as np

from fastslow.rankers.lightgbm_trees import LightGBMTrees
from fastslow.rankers.options import RankerOptions
from fastslow.rankers.samples import Sample


class Trees(Protocol):
    """Boosted trees that one library grows. Its import belongs into the methods: it may take a second."""

    @classmethod
    def begin(cls, train: Sample, bins: Sample, options: RankerOptions, num_threads: int = 0) -> Self:
        """Return an ensemble without trees.

        Args:
            train: Rows to learn from.
            bins: Rows of all train graphs, few of each, for a library that makes bins of the columns.
            options: Learning rate, leaves, and so on, as far as the library has them.
            num_threads: Threads; 0 takes OMP_NUM_THREADS or, where that is not set, every core.
        """

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the trees that :meth:`save` wrote; DataError where the file cannot be read."""

    @property
    def columns(self) -> list[str]:
        """Names of the F columns that the trees read."""

    def grow(self) -> bool:
        """Grow one tree; return whether none could be grown, which ends the training.

        Where rows and columns are drawn, a draw that holds no split is not the end: others are tried.
        """

    def predict(self, rows: np.ndarray, start: int, count: int) -> np.ndarray:
        """Return the sum ``(n,)`` float64 of ``count`` trees from ``start`` on for rows ``(n, F)``, n and
        count at least 1: labels, or log-odds of binary ones. Sums of consecutive trees add up."""

    def contributions(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Return the contribution of each column to the sum of the first ``count`` trees, ``(n, F)``."""

    def gain(self, count: int) -> np.ndarray:
        """Return by column (F,) the sum, 0 or more, by which splits of ``count`` trees lower the loss."""

    def save(self, path: Path, count: int) -> None:
        """Write the first ``count`` trees to a file."""


LIBRARIES: dict[str, type[Trees]] = {"lightgbm": LightGBMTrees}
"""Libraries by the name that settings have; one more is a module like ``lightgbm_trees`` and a line here."""
