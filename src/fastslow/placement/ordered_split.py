"""Partitioning as the policy decides it: where in the order each class stands; the cuts follow exactly.

A device for each of thousands of small operators, decided independently, cuts nearly every edge. Instead the
policy moves classes along the order of the network, to one of some levels, and the best split of the new
order into runs, one a device, is found by dynamic programming (:mod:`fastslow.placement.contiguous_split`).
So the policy decides what stays together, and the programme where to cut. With at least as many levels as
devices every split can be had: classes of one device on one level.
"""

import numpy as np

from fastslow.placement.problem import Outcome, Problem, device_options
from fastslow.placement.public_problems import PartitionProblem

_LEVELS_PER_DEVICE = 4


class OrderedSplit(Problem):
    """Which level of the order each class of a :class:`PartitionProblem` stands on.

    The order is by level, on a level as in the depth-first order. For latency, where runs have to follow each
    other, a class stands no lower than what it needs.

    Args:
        splits: The problem.
    """

    task = "partition"

    def __init__(self, splits: PartitionProblem):
        self.splits, self.name = splits, splits.name
        count = len(splits.choices)
        self.levels = _LEVELS_PER_DEVICE * int(splits.choices[0])
        self.choices = np.full(count, self.levels, np.int64)
        self.kinds, self.features, self.edges = splits.kinds, splits.features, splits.edges
        self._topological = splits.objective == "latency"
        self.default = np.minimum((splits.position * self.levels).astype(np.int64), self.levels - 1)

    def order(self, decision: np.ndarray) -> np.ndarray:
        """Return the units of the split in the order of a decision: (U,)."""
        level = np.asarray(decision)
        if self._topological:
            level = level.tolist()
            for before, after in self.edges[np.argsort(self.edges[:, 1], kind="stable")].tolist():
                if before < after:
                    level[after] = max(level[after], level[before])
        return np.argsort(level, kind="stable")

    def decode(self, decision: np.ndarray) -> np.ndarray:
        """Return the split of a decision, as :class:`PartitionProblem` numbers units and devices: (U,)."""
        return self.splits.decision(self.splits.runs.split(self.splits.order[self.order(decision)]))

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return objective and excess of the splits."""
        return self.splits.evaluate(np.stack([self.decode(decision) for decision in decisions]))

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every (class, level)."""
        splits, table = self.splits, probabilities.reshape(len(self.choices), -1)
        return device_options(table, splits.position, splits.work, splits.edges, splits.weight)

    @property
    def bound(self) -> float:
        """That of the splits."""
        return self.splits.bound
