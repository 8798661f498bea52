"""Partitioning as the policy decides it: where in the order each class stands; the cuts follow exactly.

A device for each of thousands of small operators, decided independently, cuts nearly every edge. Instead the
policy moves classes along the order of the network, to one of some levels, and the best split of the new
order into runs, one a device, is found by dynamic programming (``partition.contiguous_split``).
So the policy decides what stays together, and the programme where to cut. With at least as many levels as
devices every split can be had: classes of one device on one level.

It starts from the order of the best cut: the depth-first one, or one by spectral bisection
(:mod:`fastslow_placement.programs.spectral_order`), whose runs need not be contiguous in the graph.
"""

import numpy as np

from fastslow_placement.base.problem import Outcome, Problem, device_options, midpoints
from fastslow_placement.programs.cost_graph import topological_by
from fastslow_placement.programs.spectral_order import spectral_orders
from fastslow_placement.public.public_problems import PartitionProblem

_LEVELS_PER_DEVICE = 4


class OrderedSplit(Problem):
    """Which level of the order each class of a :class:`PartitionProblem` stands on.

    The order is by level, on a level as in the rule's order. For latency, where runs have to follow each
    other, that is topological, and a class stands no lower than what it needs.

    Attributes:
        rule: (U,) the rule's order: that of the best cut of :func:`start_orders`.

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
        orders = start_orders(splits)
        self.tried = len(orders)
        costs = splits.evaluate(np.stack([self._cut(order) for order in orders])).order
        self.rule = orders[int(costs.argmin())]
        self._needs = self._later_needs() if splits.objective == "latency" else []
        self.position = np.empty(count)
        self.position[self.rule] = midpoints(splits.work[self.rule])
        self.default = np.minimum((self.position * self.levels).astype(np.int64), self.levels - 1)

    def _later_needs(self) -> list[list[int]]:
        """Return pairs of places in the rule's order: a class, a later one that needs it; by the latter."""
        place = np.argsort(self.rule)[self.edges]
        place = place[place[:, 0] < place[:, 1]]
        return place[np.argsort(place[:, 1], kind="stable")].tolist()

    def _cut(self, order: np.ndarray) -> np.ndarray:
        """Return the best split of an order (U,) into runs: (U,)."""
        return self.splits.decision(self.splits.runs.split(self.splits.order[order]))

    def order(self, decision: np.ndarray) -> np.ndarray:
        """Return the units of the split in the order of a decision: (U,)."""
        level = np.asarray(decision)[self.rule]
        if self._needs:
            level = level.tolist()
            for before, after in self._needs:
                level[after] = max(level[after], level[before])
        return self.rule[np.argsort(level, kind="stable")]

    def decode(self, decision: np.ndarray) -> np.ndarray:
        """Return the split of a decision, as :class:`PartitionProblem` numbers units and devices: (U,)."""
        return self._cut(self.order(decision))

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return objective and excess of the splits."""
        return self.splits.evaluate(np.stack([self.decode(decision) for decision in decisions]))

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every (class, level)."""
        splits, table = self.splits, probabilities.reshape(len(self.choices), -1)
        return device_options(table, self.position, splits.work, splits.edges, splits.weight)

    @property
    def bound(self) -> float:
        """That of the splits."""
        return self.splits.bound


def start_orders(splits: PartitionProblem) -> list[np.ndarray]:
    """Return orders of a problem's classes that may be cut well, the depth-first one first: (U,) each.

    For latency they are topological: of the classes that are ready, the first of the order comes next.
    """
    orders = [np.arange(len(splits.choices))]
    for order in spectral_orders(splits.work, splits.edges, splits.weight):
        if splits.objective == "latency":
            order = topological_by(np.argsort(order), splits.edges)
        if len(order) == len(orders[0]):  # shorter where classes need each other in a circle
            orders.append(order)
    return orders
