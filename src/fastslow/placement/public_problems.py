"""The public problem sets as decision problems: partitioning of DNNs and intra-operator sharding."""

import numpy as np

from fastslow.core.errors import ConfigError
from fastslow.placement.partition import Workload, excess_memory, latency
from fastslow.placement.partition_loads import Loads, contiguous_order
from fastslow.placement.problem import (
    OPTION_FEATURES,
    Outcome,
    Problem,
    contiguous,
    device_options,
    midpoints,
    scaled,
    unit_columns,
)
from fastslow.placement.sharding import FORBIDDEN, Sharding
from fastslow.placement.sharding_search import greedy, local_costs

_SCALE = 1e-9  # of the smallest difference that counts


class PartitionProblem(Problem):
    """Which accelerator runs each co-location class of a workload; a CPU is the last option where it is of
    use.

    It is of use for latency, and for throughput where an accelerator does not support a node.

    Args:
        workload: The instance.
        objective: ``throughput`` (largest load) or ``latency``.

    Raises:
        ConfigError: A class fits on no device, so no split is valid.
    """

    task = "partition"

    def __init__(self, workload: Workload, objective: str = "throughput"):
        self.workload, self.objective, self.name = workload, objective, workload.name
        self.loads = Loads(workload)
        self.order = contiguous_order(workload)  # units in the order of their first node
        self._position_of = np.argsort(self.order)
        use_cpu = workload.cpus > 0 and (
            objective == "latency" or not np.isfinite(workload.accelerator).all()
        )
        self.devices = workload.devices + use_cpu
        count = self.loads.count
        size = np.bincount(workload.units, workload.size, count)
        work = np.bincount(workload.units, workload.accelerator, count)
        fits = (size <= workload.memory) & np.isfinite(work)
        if not use_cpu and (not fits.all() or size.sum() > workload.memory * workload.devices):
            bad = workload.labels[int((~fits[workload.units]).argmax())] if not fits.all() else "all classes"
            raise ConfigError(
                f"no valid split of {workload.name!r}: {bad!r} does not fit on {workload.devices}"
                f" accelerators of {workload.memory:.3g} bytes and there is no CPU; raise the limit"
            )
        self.choices = np.full(count, self.devices, np.int64)
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
        self.default = contiguous(self.work, workload.devices)
        if objective == "latency" or not self.evaluate(self.default[None]).valid[0]:
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
        return Outcome(np.array([latency(self.workload, split) for split in splits]), excess)

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
        default: (N,) a valid decision to be better than; by default that of the greedy rule.
    """

    task = "sharding"

    def __init__(self, sharding: Sharding, default: np.ndarray | None = None):
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
        self.default = greedy(sharding) if default is None else np.asarray(default)

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return the contest's cost, and bytes over the limit; a forbidden pair makes the cost infinite."""
        cost = self.sharding.cost(decisions)
        return Outcome(np.where(cost >= FORBIDDEN, np.inf, cost), self.sharding.excess(decisions))

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every strategy.

        Its cost, its cost with what the neighbours did before, its memory and that memory where memory is
        scarce, each relative to the best of the node's strategies, and its previous probability.
        """
        problem, starts = self.sharding, self.sharding.first[:-1]
        owners = self.owners
        local = local_costs(problem, probabilities)
        usage = np.add.reduceat(problem.usages * probabilities, starts)
        change = np.zeros(len(problem.times) + 1)
        np.add.at(change, problem.spans[:, 0], usage)
        np.add.at(change, problem.spans[:, 1], -usage)
        pressure = change.cumsum()[:-1] / problem.limit if np.isfinite(problem.limit) else np.zeros(1)
        peak = np.array([pressure[a:b].max() if a < b else 0.0 for a, b in problem.spans])
        features = np.zeros((len(owners), OPTION_FEATURES), np.float32)
        features[:, 0] = _relative(problem.costs, starts, owners)
        features[:, 1] = _relative(local, starts, owners)
        features[:, 2] = _relative(problem.usages, starts, owners)
        features[:, 3] = features[:, 2] * np.clip(peak - 0.8, 0, 2)[owners]
        features[:, 4] = probabilities
        features[:, 5] = peak[owners] - 1
        features[:, 6] = local >= FORBIDDEN * 1e-3
        return features

    @property
    def bound(self) -> float:
        """Every node and every edge at its own cheapest."""
        problem = self.sharding
        return float(
            np.minimum.reduceat(problem.costs, problem.first[:-1]).sum()
            + sum(m.min() for m in problem.matrices)
        )


def _relative(values: np.ndarray, starts: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Return log(1 + excess over the node's smallest value / the median of such) / 8, cut at 2."""
    over = values - np.minimum.reduceat(values, starts)[owners]
    positive = over[(over > _SCALE) & (over < FORBIDDEN * 1e-3)]
    scale = np.median(positive) if len(positive) else 1.0
    return np.minimum(np.log1p(over / scale) / 8, 2)
