"""Partitioning as a decision problem, and as the policy decides it.

A device for each of thousands of small operators, decided independently, cuts nearly every edge. Instead the
policy moves classes along an order of the network, to one of some levels, and the best split of the new order
into runs, one a device, is found by dynamic programming (``contiguous_split``). So the policy decides what
stays together, and the programme where to cut. With at least as many levels as devices every split can be
had: classes of one device on one level.
"""

import numpy as np

from fastslow.core.errors import SettingsError
from fastslow_placement.base.problem import (
    Outcome,
    Problem,
    device_options,
    midpoints,
    scaled,
    unit_columns,
    unit_pairs,
)
from fastslow_placement.partition.contiguous_split import contiguous_split
from fastslow_placement.partition.workload import Workload
from fastslow_placement.programs.spectral_order import spectral_orders

_LEVELS_PER_DEVICE = 4


class PartitionProblem(Problem):
    """Which device runs each co-location class of a workload: an accelerator or, the last options, a CPU.

    The default is the best split of the depth-first order of the classes into runs.

    Args:
        workload: The instance; its units are renumbered in depth-first order.

    Raises:
        SettingsError: A class fits on no device, so no split is valid.
    """

    task = "partition"

    def __init__(self, workload: Workload):
        self.workload = workload = workload.in_depth_first_order()
        self.name, self.devices = workload.name, workload.devices
        time, cpu, size = workload.of_units
        fits, count = (size <= workload.memory) & np.isfinite(time), len(size)
        if not workload.cpus and (not fits.all() or size.sum() > workload.memory * workload.devices):
            bad = workload.labels[int((~fits[workload.units]).argmax())] if not fits.all() else "all classes"
            raise SettingsError(
                f"no valid split of {workload.name!r}: {bad!r} does not fit on {workload.devices}"
                f" accelerators of {workload.memory:.3g} bytes and there is no CPU; raise the limit"
            )
        self.choices = np.full(count, workload.devices + workload.cpus, np.int64)
        self.kinds = np.zeros(count, np.int64)
        self.work = np.where(np.isfinite(time), time, 0)
        self.edges, self.weight = unit_pairs(
            workload.units[workload.edges], workload.transfer[workload.edges[:, 0]]
        )
        position = midpoints(self.work)
        self.features = unit_columns(
            self.edges,
            count,
            work=scaled(self.work),
            size=scaled(size),
            position=position,
            cut=scaled(np.bincount(self.edges[:, 0], self.weight, count)),
            members=np.log1p(np.bincount(workload.units)) / 5,
            backward=np.bincount(workload.units, workload.backward) > 0,
        )
        fastest = np.minimum(workload.accelerator, workload.cpu)
        spread = float(fastest.sum()) / (workload.devices + workload.cpus)
        self.bound = max(spread, float(np.bincount(workload.units, fastest).max()))
        self.default = contiguous_split(workload, np.arange(count))
        if not self.evaluate(self.default[None]).valid[0]:
            self.default = self._filled(size, fits)

    def _filled(self, size: np.ndarray, fits: np.ndarray) -> np.ndarray:
        """Return the authors' greedy split: fill one accelerator after the other, the rest goes to a CPU."""
        device, used, split = 0, 0.0, np.full(len(size), self.devices)
        for unit in np.flatnonzero(fits):
            if used + size[unit] > self.workload.memory:
                device, used = device + 1, 0.0
            if device < self.devices:
                split[unit], used = device, used + size[unit]
        return split

    def space(self) -> "OrderedSplit":
        """Return the problem as the policy decides it."""
        return OrderedSplit(self)

    def unit_names(self) -> list[str]:
        """Return the name of the first node of each class."""
        first = np.unique(self.workload.units, return_index=True)[1]
        return [self.workload.labels[node] for node in first]

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return the largest load, and the bytes over the limit summed over the accelerators."""
        loads, memory = self.workload.loads(decisions)
        return Outcome(loads.max(1), np.maximum(memory - self.workload.memory, 0).sum(1))

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every (class, device)."""
        return device_options(probabilities, midpoints(self.work), self.work, self.edges, self.weight)


def best_run_split(problem: PartitionProblem) -> np.ndarray:
    """Return the best split of the depth-first order into runs: (U,)."""
    return contiguous_split(problem.workload, np.arange(len(problem.choices)))


class OrderedSplit(Problem):
    """Which level of the order each class of a :class:`PartitionProblem` stands on.

    The order is by level, on a level as in the rule's order: the one of best cut among the depth-first order
    and twelve by spectral bisection, whose runs need not be contiguous in the graph.

    Attributes:
        rule: (U,) the rule's order.

    Args:
        splits: The problem.
    """

    task = "partition"

    def __init__(self, splits: PartitionProblem):
        self.splits, self.name, self.bound = splits, splits.name, splits.bound
        count = len(splits.choices)
        levels = _LEVELS_PER_DEVICE * int(splits.choices[0])
        self.choices = np.full(count, levels, np.int64)
        self.kinds, self.features, self.edges = splits.kinds, splits.features, splits.edges
        orders = [np.arange(count), *spectral_orders(splits.work, splits.edges, splits.weight)]
        cuts = np.stack([contiguous_split(splits.workload, order) for order in orders])
        self.tried, self.rule = len(orders), orders[int(splits.evaluate(cuts).order.argmin())]
        self.position = np.empty(count)
        self.position[self.rule] = midpoints(splits.work[self.rule])
        self.default = np.minimum((self.position * levels).astype(np.int64), levels - 1)

    def decode(self, decision: np.ndarray) -> np.ndarray:
        """Return the split of a decision, as :class:`PartitionProblem` numbers units and devices: (U,)."""
        order = self.rule[np.argsort(np.asarray(decision)[self.rule], kind="stable")]
        return contiguous_split(self.splits.workload, order)

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return objective and excess of the splits."""
        return self.splits.evaluate(np.stack([self.decode(decision) for decision in decisions]))

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every (class, level)."""
        splits = self.splits
        return device_options(probabilities, self.position, splits.work, splits.edges, splits.weight)
