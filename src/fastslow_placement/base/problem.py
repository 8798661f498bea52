"""The common interface of all decision problems over a graph, for the rules and the searches."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np


class Outcome(NamedTuple):
    """Costs of decisions.

    Args:
        cost: (B,) cost to minimise, in seconds.
        excess: (B,) excess over a limit; 0 for a valid decision.
    """

    cost: np.ndarray
    excess: np.ndarray

    @property
    def valid(self) -> np.ndarray:
        """(B,) bool."""
        return (self.excess <= 0) & np.isfinite(self.cost)

    @property
    def order(self) -> np.ndarray:
        """(B,) cost where valid, infinite where not."""
        return np.where(self.valid, self.cost, np.inf)


class Problem(ABC):
    """One choice among a few options for each of U units (operators or co-location groups of operators).

    Subclasses set these attributes:

    Attributes:
        name: Name of the instance.
        task: ``placement``, ``scheduling``, ``fusion`` or ``joint``.
        choices: (U,) int64 number of options of each unit.
        default: (U,) int64 the decision that others are compared with; a valid one.
        bound: A lower bound of the cost; 0 if none is known.
    """

    name: str
    task: str
    choices: np.ndarray
    default: np.ndarray
    bound: float
    _baseline: float | None = None

    @abstractmethod
    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return cost and excess of each decision, for (B, U) integers."""

    def unit_names(self) -> list[str]:
        """Return a name for each of the U units, for tables and pictures."""
        return [f"unit {unit}" for unit in range(len(self.choices))]

    @property
    def baseline(self) -> float:
        """Cost of the default decision."""
        if self._baseline is None:
            self._baseline = float(self.evaluate(self.default[None]).cost[0])
        return self._baseline

    @property
    def starts(self) -> np.ndarray:
        """Decisions that a search may start from, the default first: (S, U)."""
        return np.asarray(self.default)[None]


def contiguous(order: np.ndarray, work: np.ndarray, parts: int) -> np.ndarray:
    """Return the split of an order of units into runs of about equal work, as by hand: (U,) int64.

    Args:
        order: (U,) units.
        work: (U,) work of each unit.
        parts: Number of runs.
    """
    split = np.empty(len(order), np.int64)
    split[order] = np.minimum((midpoints(work[order]) * parts).astype(np.int64), parts - 1)
    return split


def midpoints(work: np.ndarray) -> np.ndarray:
    """Return the share of the total work that is done when half of an element is.

    Args:
        work: ``(n,)`` work of each element, 0 or more, in the order in which they are done.

    Returns:
        ``(n,)``, 0 to 1: 0.125, 0.5 and 0.875 for work 1, 2 and 1.
    """
    total = max(float(work.sum()), 1e-300)
    return (np.cumsum(work) - work / 2) / total


def unit_pairs(pairs: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct pairs of different units, (M, 2), and their summed weight, (M,).

    Args:
        pairs: (P, 2) units that an edge joins.
        weight: (P,) weight of each.
    """
    outside = pairs[:, 0] != pairs[:, 1]
    distinct, which = np.unique(pairs[outside], axis=0, return_inverse=True)
    return distinct.reshape(-1, 2), np.bincount(which.ravel(), weight[outside], len(distinct))


def adjacent(edges: np.ndarray, weight: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where the neighbours of each unit begin (U + 1,), these one unit after the other (2M,), and what
    is exchanged with each (2M,).

    Args:
        edges: (M, 2) distinct pairs of units.
        weight: (M,) what each pair exchanges.
        count: Number of units U.
    """
    one, other = np.concatenate([edges, edges[:, ::-1]]).astype(np.int64).T
    order = np.argsort(one, kind="stable")
    begins = np.append(0, np.cumsum(np.bincount(one, minlength=count)))
    return begins.astype(np.int64), other[order], np.tile(weight, 2)[order].astype(np.float64)
