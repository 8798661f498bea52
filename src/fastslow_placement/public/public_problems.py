"""The public problem sets as decision problems: partitioning of DNNs and intra-operator sharding."""

import numpy as np

from fastslow.core.errors import SettingsError
from fastslow_placement.base.budget import Budget
from fastslow_placement.base.problem import (
    OPTION_FEATURES,
    Outcome,
    Problem,
    device_options,
    midpoints,
    scaled,
    unit_columns,
)
from fastslow_placement.partition.contiguous_split import ContiguousSplit
from fastslow_placement.partition.partition import Workload, excess_memory, latency
from fastslow_placement.partition.partition_loads import Loads, depth_first_order
from fastslow_placement.sharding.sharding import FORBIDDEN, Sharding
from fastslow_placement.sharding.sharding_search import ForestSearch

_FEW_ROUNDS = 10  # of pricing, for the default
_ROUNDS = 60  # of pricing before the policy decides
_PRICED_SHARE = 0.35  # of a budget goes to them


class PartitionProblem(Problem):
    """Which device runs each co-location class of a workload: an accelerator or, the last options, a CPU.

    For latency an accelerator runs one contiguous set, as in the published problem, and all CPUs are one
    option, as nodes on CPUs do not wait for each other there. The default is the best split of
    :func:`depth_first_order` into runs.

    Args:
        workload: The instance.
        objective: ``throughput`` (largest load) or ``latency``.

    Raises:
        SettingsError: A class fits on no device, so no split is valid.
    """

    task = "partition"

    def __init__(self, workload: Workload, objective: str = "throughput"):
        self.workload, self.objective, self.name = workload, objective, workload.name
        self.loads = Loads(workload)
        self.order = depth_first_order(workload)
        self._position_of = np.argsort(self.order)
        self.runs = ContiguousSplit(workload, objective)
        self.devices = workload.devices
        cpus = min(workload.cpus, 1) if objective == "latency" else workload.cpus
        count = self.loads.count
        size = np.bincount(workload.units, workload.size, count)
        work = np.bincount(workload.units, workload.accelerator, count)
        fits = (size <= workload.memory) & np.isfinite(work)
        if not cpus and (not fits.all() or size.sum() > workload.memory * workload.devices):
            bad = workload.labels[int((~fits[workload.units]).argmax())] if not fits.all() else "all classes"
            raise SettingsError(
                f"no valid split of {workload.name!r}: {bad!r} does not fit on {workload.devices}"
                f" accelerators of {workload.memory:.3g} bytes and there is no CPU; raise the limit"
            )
        self.choices = np.full(count, workload.devices + cpus, np.int64)
        self.kinds = np.zeros(count, np.int64)
        self.work = np.where(np.isfinite(work), work, 0)[self.order]
        pairs = self._position_of[workload.units[workload.edges]]
        transfer = workload.transfer[workload.edges[:, 0]]
        outside = pairs[:, 0] != pairs[:, 1]
        self.edges, inverse = np.unique(pairs[outside], axis=0, return_inverse=True)
        self.edges = self.edges.reshape(-1, 2)
        self.weight = np.bincount(inverse.ravel(), transfer[outside], len(self.edges))
        self.position = midpoints(self.work)
        self.features = unit_columns(
            self.edges,
            count,
            work=scaled(self.work),
            size=scaled(size[self.order]),
            position=self.position,
            cut=scaled(np.bincount(self.edges[:, 0], self.weight, count)),
            members=np.log1p(np.bincount(workload.units, minlength=count)[self.order]) / 5,
            backward=np.bincount(workload.units, workload.backward, count)[self.order] > 0,
        )
        self.default = contiguous_optimum(self)
        if not self.evaluate(self.default[None]).valid[0]:
            self.default = _filled(size[self.order], fits[self.order], workload)

    def split(self, decision: np.ndarray) -> np.ndarray:
        """Return the device of each unit in the numbering of the workload: (..., U)."""
        return np.asarray(decision)[..., self._position_of]

    def decision(self, split: np.ndarray) -> np.ndarray:
        """Return a split in the order of this problem's units: (..., U)."""
        return np.asarray(split)[..., self.order]

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return the objective and the bytes over the limit."""
        splits = self.split(decisions)
        loads, memory = self.loads.loads(splits)
        excess = excess_memory(self.workload, memory)
        if self.objective == "throughput":
            return Outcome(loads.max(1), excess)
        cost = [latency(self.workload, split, several=False) for split in splits]
        return Outcome(np.array(cost), excess)

    def guide(self, decisions: np.ndarray) -> np.ndarray:
        """Return a smooth form of the largest load, the 12-norm of all loads: it also sees the second
        largest.
        """
        if self.objective != "throughput":
            return self.evaluate(decisions).order
        loads, memory = self.loads.loads(self.split(decisions))
        smooth = ((loads / self.baseline) ** 12).sum(1) ** (1 / 12)
        return np.where(excess_memory(self.workload, memory) > 0, np.inf, smooth)

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every (class, device)."""
        table = probabilities.reshape(len(self.choices), -1)
        return device_options(table, self.position, self.work, self.edges, self.weight)

    @property
    def bound(self) -> float:
        """Throughput: all work spread evenly, and the largest class; latency: the longest path."""
        workload = self.workload
        fastest = np.minimum(workload.accelerator, workload.cpu)
        if self.objective == "throughput":
            largest = np.bincount(workload.units, fastest).max()
            return max(float(fastest.sum()) / (workload.devices + workload.cpus), float(largest))
        end = np.zeros(len(workload))
        for node, producers in enumerate(workload.producers):
            end[node] = fastest[node] + max((end[p] for p in producers), default=0.0)
        return float(end.max())


def contiguous_optimum(problem: PartitionProblem) -> np.ndarray:
    """Return the best split of the problem's order into runs: (U,)."""
    return problem.decision(problem.runs.split(problem.order))


def _filled(size: np.ndarray, fits: np.ndarray, workload: Workload) -> np.ndarray:
    """Return the greedy split of the authors: fill one accelerator after the other, the rest goes to a
    CPU.
    """
    device, used, split = 0, 0.0, np.zeros(len(size), np.int64)
    for unit, own in enumerate(size):
        if fits[unit] and used + own > workload.memory:
            device, used = device + 1, 0.0
        if fits[unit] and device < workload.devices:
            split[unit], used = device, used + own
        else:
            split[unit] = workload.devices
    return split


class ShardingProblem(Problem):
    """Which strategy each node of a sharding problem takes.

    Args:
        sharding: The instance.
        default: (N,) a valid decision to be better than; by default that of a few rounds of pricing.
        budget: What is left of it limits tying, pricing and repair; without it only their own ends do.

    Attributes:
        more: Whether there is time left of the budget.
    """

    task = "sharding"
    _state: ForestSearch | None = None

    def __init__(self, sharding: Sharding, default: np.ndarray | None = None, budget: Budget | None = None):
        self.sharding, self.name, self.choices = sharding, sharding.name, sharding.choices
        count = len(sharding)
        self.kinds = np.zeros(count, np.int64)
        self.edges = np.unique(sharding.edges, axis=0).reshape(-1, 2)
        starts = sharding.first[:-1]
        least = np.minimum.reduceat(sharding.usages, starts)
        most = np.maximum.reduceat(sharding.usages, starts)
        span = sharding.spans[:, 1] - sharding.spans[:, 0]
        costs = np.minimum(sharding.costs, FORBIDDEN / 1e6)
        self.features = unit_columns(
            self.edges,
            count,
            choices=np.log1p(self.choices) / 5,
            cost=scaled(np.add.reduceat(costs, starts) / self.choices),
            least=scaled(least),
            most=scaled(most),
            life=span / max(len(sharding.times), 1),
            begin=sharding.spans[:, 0] / max(len(sharding.times), 1),
        )
        budget = budget or Budget(np.inf)
        self.more = budget.share()
        if default is None:
            self._state = ForestSearch(sharding, more=self.more)
        self._more = budget.share(_PRICED_SHARE)
        self.default = self.priced(_FEW_ROUNDS).decided if default is None else np.asarray(default)

    def priced(self, rounds: int = _ROUNDS) -> ForestSearch:
        """Return the search of this problem after some rounds of pricing in all, fewer where time ends."""
        if self._state is None:
            self._state = ForestSearch(self.sharding, more=self.more)
        if rounds:
            self._state.begin(rounds, self._more)
        return self._state

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return the contest's cost, and bytes over the limit; a forbidden pair makes the cost infinite."""
        cost = self.sharding.cost(decisions)
        return Outcome(np.where(cost >= FORBIDDEN, np.inf, cost), self.sharding.excess(decisions))

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the previous probability as the only feature: the policy decides in
        :class:`fastslow_placement.public.hub_sharding.HubSharding`.
        """
        features = np.zeros((len(probabilities), OPTION_FEATURES), np.float32)
        features[:, 4] = probabilities
        return features

    @property
    def bound(self) -> float:
        """Every node and every edge at its own cheapest, or that of message passing if it is higher."""
        problem = self.sharding
        cheapest = np.minimum.reduceat(problem.costs, problem.first[:-1]).sum()
        cheapest += sum(matrix.min() for matrix in problem.matrices)
        return max(float(cheapest), self._state.bound if self._state else 0.0)
