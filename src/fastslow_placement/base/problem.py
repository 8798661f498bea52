"""The common interface of all decision problems over a graph, for the policy and the searches."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

INVALID_REWARD = -10.0
NODE_FEATURES = 16
OPTION_FEATURES = 8
FEEDBACK_FEATURES = 4
_CERTAIN = 0.9  # probability of a decision that the policy starts from


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
        kinds: (U,) int64 opcode number, 0 where there is none.
        features: (U, 16) float32, about 0 to 1.
        edges: (M, 2) int64 distinct pairs of units (producer, consumer).
        default: (U,) int64 the decision whose cost rewards are relative to; a valid one.
        bound: A lower bound of the cost; 0 if none is known.
    """

    name: str
    task: str
    choices: np.ndarray
    kinds: np.ndarray
    features: np.ndarray
    edges: np.ndarray
    default: np.ndarray
    bound: float
    _baseline: float | None = None

    @abstractmethod
    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return cost and excess of each decision, for (B, U) integers."""

    @abstractmethod
    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every option, given the previous decision: (sum of choices, 8) float32.

        Args:
            probabilities: (sum of choices,) of each option, which sum to 1 over a unit's options.
        """

    def feedback(self, decision: np.ndarray) -> np.ndarray:
        """Return how the outcome of a decision (U,) rates every option: (sum of choices, 4) float32.

        Columns are about -1 to 1, larger where the option promises more; zeros where nothing is known.
        """
        return np.zeros((int(self.choices.sum()), FEEDBACK_FEATURES), np.float32)

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
        """Decisions that training may start from, the default first: (S, U)."""
        return np.asarray(self.default)[None]

    @property
    def parts(self) -> list[tuple[str, slice]]:
        """Tasks that are decided one after the other: name, and slice of the decision. By default one."""
        return [(self.task, slice(0, len(self.choices)))]

    @property
    def owners(self) -> np.ndarray:
        """(sum of choices,) unit of each option."""
        return np.repeat(np.arange(len(self.choices)), self.choices)

    def chances(self, decision: np.ndarray) -> np.ndarray:
        """Return a probability of each option, (sum of choices,), that is nearly 1 for a decision's (U,)."""
        rest = np.repeat((1 - _CERTAIN) / self.choices, self.choices)
        rest[np.cumsum(self.choices) - self.choices + np.asarray(decision)] += _CERTAIN
        return rest

    def rewards(self, outcome: Outcome) -> np.ndarray:
        """Return -sqrt(cost / baseline), and -10 for what is invalid (GO, arXiv:2010.12438): (B,)."""
        ratio = np.where(outcome.valid, outcome.cost, 0) / max(self.baseline, 1e-300)
        return np.where(outcome.valid, -np.sqrt(ratio), INVALID_REWARD)

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Return ``count`` random decisions (count, U) int64: any option of a unit is equally likely."""
        return (rng.random((count, len(self.choices))) * self.choices).astype(np.int64)


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


def scaled(values: np.ndarray) -> np.ndarray:
    """Return log(1 + value / mean of the positive values) / 4, ``(...)`` as the values: about 0 to 1."""
    positive = values[values > 0]
    mean = positive.mean() if len(positive) else 1.0
    return np.log1p(values / mean) / 4


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


def unit_columns(edges: np.ndarray, count: int, **columns: np.ndarray) -> np.ndarray:
    """Return node features: degrees and position, then the given columns, filled up with 0: (U, 16) float32.

    Args:
        edges: (M, 2) pairs (producer, consumer).
        count: Number of units U.
        **columns: (U,) each.
    """
    produced, consumed = (np.bincount(side, minlength=count) for side in (edges[:, 0], edges[:, 1]))
    rows = [np.log1p(produced) / 3, np.log1p(consumed) / 3, np.linspace(0, 1, count), *columns.values()]
    features = np.zeros((count, NODE_FEATURES), np.float32)
    features[:, : len(rows)] = np.stack(rows, 1)
    return features


def device_options(
    probabilities: np.ndarray,
    position: np.ndarray,
    work: np.ndarray,
    pairs: np.ndarray,
    weight: np.ndarray,
    slack: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Return option features where every unit chooses one of k devices or levels: (U * k, 8) float32.

    The eight columns are the signed and the squared distance of the unit's position from the option's slot of
    k equal slots, the share of the unit's neighbours there by weight, and the work there relative to the
    mean. Then come the previous probability, the relative work times the unit's own, and distance and
    neighbours times the unit's slack.

    Args:
        probabilities: (U * k,) of the previous decision.
        position: (U,) 0 to 1.
        work: (U,) work of each unit.
        pairs: (M, 2) neighbours.
        weight: (M,) weight of each pair.
        slack: (U,) share of the longest path by which a unit may be late, 0 to 1.
    """
    units = len(work)
    probabilities = probabilities.reshape(units, -1)
    k = probabilities.shape[1]
    distance = position[:, None] * k - (np.arange(k) + 0.5)
    affinity = np.zeros((units, k))
    total = np.full(units, 1e-12)
    for one, other in ((0, 1), (1, 0)):
        np.add.at(affinity, pairs[:, one], weight[:, None] * probabilities[pairs[:, other]])
        np.add.at(total, pairs[:, one], weight)
    load = work @ probabilities
    relative = (load - work[:, None] * probabilities) * k / max(work.sum(), 1e-300)
    features = np.zeros((units, k, OPTION_FEATURES), np.float32)
    features[..., 0] = distance / k
    features[..., 1] = np.minimum(distance**2, 9)
    features[..., 2] = affinity / total[:, None]
    features[..., 3] = relative - 1
    features[..., 4] = probabilities
    features[..., 5] = (work * k / max(work.sum(), 1e-300))[:, None] * features[..., 3]
    late = np.broadcast_to(slack, units)[:, None]
    features[..., 6] = late * features[..., 1]
    features[..., 7] = late * features[..., 2]
    return features.reshape(units * k, OPTION_FEATURES)
