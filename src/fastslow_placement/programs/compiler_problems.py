"""Placement, scheduling and fusion of a cost graph as decision problems."""

from functools import cached_property

import numpy as np

from fastslow.competition.opcodes import OPCODES
from fastslow.core.errors import SettingsError
from fastslow_placement.base.problem import (
    Outcome,
    Problem,
    contiguous,
    device_options,
    midpoints,
    scaled,
    unit_columns,
)
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.criticality import device_feedback
from fastslow_placement.programs.fusion import contract, fuse, single_consumer_clusters
from fastslow_placement.programs.roofline import Device
from fastslow_placement.programs.schedule import Scheduler, Timeline, lower_bound, peak_memory, refined
from fastslow_placement.programs.spectral_order import spectral_orders

LEVELS = 8  # priorities to choose from
ANCHOR = 16_384  # bytes of weights from which on a unit marks a layer


class _OfGraph(Problem):
    """What the three problems on a cost graph share: features of units.

    Args:
        graph: The operators.
        device: Constants of a device.
        units: (N,) unit of each operator.
        options: Number of options of every unit.
    """

    def __init__(self, graph: CostGraph, device: Device, units: np.ndarray, options: int):
        self.graph, self.device, self.name = graph, device, graph.name
        first = np.full(int(units.max()) + 1, len(graph))
        np.minimum.at(first, units, np.arange(len(graph)))
        self.first = np.sort(first)  # units in order of their first operator
        self.units = np.argsort(np.argsort(first))[units]
        count = len(first)
        self.choices = np.full(count, options, np.int64)
        self.work = np.bincount(self.units, graph.seconds, count)
        self.kinds = self._heaviest_kinds(count)
        pairs = self.units[graph.edges]
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        self.edges = np.unique(pairs, axis=0).reshape(-1, 2)
        seconds = device.transfer_seconds(graph.output_bytes)
        rows = np.unique(np.stack([graph.edges[:, 0], self.units[graph.edges[:, 1]]], 1), axis=0).reshape(
            -1, 2
        )
        keys = self.units[rows[:, 0]] * count + rows[:, 1]
        weights = np.bincount(keys, seconds[rows[:, 0]], count * count) if count < 3000 else None
        code = self.edges[:, 0] * count + self.edges[:, 1]
        self.weight = weights[code] if weights is not None else seconds[self.first[self.edges[:, 0]]]
        self.sequence = self._layers()
        self.position = np.empty(count)
        self.position[self.sequence] = midpoints(self.work[self.sequence])
        late = 1 - (graph.earliest_start + graph.upward_rank) / max(graph.critical_path, 1e-300)
        self.slack = np.bincount(self.units, late * graph.seconds, count) / np.maximum(self.work, 1e-300)
        self.features = self._features(count)

    def _layers(self, rounds: int = 40) -> np.ndarray:
        """Return the units in the order of the layers that they belong to: (U,) int64.

        Units with weights stand where they are used first, and all others at the mean of their neighbours, so
        that the backward pass of a layer stands beside its forward pass. Without weights: topological order.
        """
        graph, count = self.graph, len(self.first)
        begin = graph.earliest_start
        fixed = np.bincount(self.units, graph.parameter_bytes, count) >= ANCHOR
        own = begin[self.first]
        if not fixed.any():
            return np.arange(count)
        place = np.where(fixed, own, own[fixed].mean())
        one, other = (np.concatenate([self.edges[:, side], self.edges[:, 1 - side]]) for side in (0, 1))
        total = np.maximum(np.bincount(one, minlength=count), 1)
        for _ in range(rounds):
            place = np.where(fixed, own, np.bincount(one, place[other], count) / total)
        return np.lexsort((self.first, place))

    def _heaviest_kinds(self, count: int) -> np.ndarray:
        """Return the opcode number of each unit's longest operator."""
        order = np.argsort(self.graph.seconds, kind="stable")
        kinds = np.zeros(count, np.int64)
        codes = np.array([OPCODES.get(opcode, 0) for opcode in self.graph.opcodes])
        kinds[self.units[order]] = codes[order]  # the last write, the longest, remains
        return kinds

    def _features(self, count: int) -> np.ndarray:
        graph, of = self.graph, self.units
        rank, level = graph.upward_rank, graph.level
        dimensions = np.log1p(graph.shapes[self.first][:, :3]) / 10
        return unit_columns(
            self.edges,
            count,
            work=scaled(self.work),
            output=scaled(np.bincount(of, graph.output_bytes, count)),
            parameters=scaled(np.bincount(of, graph.parameter_bytes, count)),
            flops=scaled(np.bincount(of, graph.flops, count)),
            position=self.position,
            rank=rank[self.first] / max(rank.max(), 1e-300),
            level=level[self.first] / max(level.max(), 1),
            transfer=np.log1p(self.device.transfer_seconds(graph.output_bytes[self.first]) / self._mean())
            / 4,
            members=np.log1p(np.bincount(of, minlength=count)) / 5,
            slack=self.slack,
            **{f"dimension_{d}": dimensions[:, d] for d in range(3)},
        )

    def _mean(self) -> float:
        return max(float(self.graph.seconds.mean()), 1e-300)

    def _options(self, probabilities: np.ndarray, position: np.ndarray) -> np.ndarray:
        table = probabilities.reshape(len(self.choices), -1)
        return device_options(table, position, self.work, self.edges, self.weight, self.slack)


class PlacementProblem(_OfGraph):
    """Which device runs each co-location group; the cost is the runtime of the list schedule.

    Args:
        graph: The operators, usually contracted (:func:`fastslow_placement.programs.fusion.contract`).
        devices: Number of devices.
        device: Constants of a device and its links.
        memory: Limit of a device in bytes; by default the device's memory.
        priority: (N,) priorities of the schedule; by default the longest path to the end.

    Raises:
        SettingsError: A co-location group's parameters are larger than the limit, so no placement is valid.
    """

    task = "placement"

    def __init__(self, graph: CostGraph, devices: int, device: Device, memory: float = 0.0, priority=None):
        super().__init__(graph, device, graph.groups, devices)
        self.devices, self.memory, self.priority = devices, memory or device.memory, priority
        self.scheduler = Scheduler(graph, devices, device)
        parameters = np.bincount(self.units, graph.parameter_bytes)
        if parameters.max() > self.memory or parameters.sum() > self.memory * devices:
            problem = f"{parameters.max():.3g} bytes of one group, {parameters.sum():.3g} of all"
            raise SettingsError(
                f"memory: no placement of {graph.name!r} on {devices} devices of {self.memory:.3g} bytes is"
                f" valid, its parameters take {problem}; raise memory or devices"
            )
        self.default = _runs(self.sequence, self.work, devices)
        if not self.evaluate(self.default[None]).valid[0]:
            held = np.bincount(self.units, graph.parameter_bytes + graph.output_bytes)
            self.default = _runs(self.sequence, held, devices)

    @cached_property
    def starts(self) -> np.ndarray:
        """The split by layers, and the orders of spectral bisection in runs of equal work: (13, U)."""
        orders = spectral_orders(self.work, self.edges, self.weight)
        return np.stack([self.default, *(_runs(order, self.work, self.devices) for order in orders)])

    def place(self, decision: np.ndarray) -> np.ndarray:
        """Return the device of each operator: (N,)."""
        return np.asarray(decision)[self.units]

    def timeline(self, decision: np.ndarray) -> Timeline:
        """Return the schedule of one decision."""
        return self.scheduler.run(self.place(decision), self.priority)

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return runtime in seconds and bytes over the limit, summed over devices."""
        cost, excess = np.zeros(len(decisions)), np.zeros(len(decisions))
        for row, decision in enumerate(decisions):
            timeline = self.timeline(decision)
            cost[row] = timeline.seconds
            if self._may_exceed(timeline):
                excess[row] = np.maximum(peak_memory(self.graph, timeline) - self.memory, 0).sum()
        return Outcome(cost, excess)

    def _may_exceed(self, timeline: Timeline) -> bool:
        """Return whether all that is ever on some device, held all the time, is over the limit."""
        graph = self.graph
        held = np.bincount(timeline.placement, graph.parameter_bytes + graph.output_bytes, self.devices)
        for transfer in timeline.transfers:
            held[transfer.target] += graph.output_bytes[transfer.producer]
        return bool((held > self.memory).any())

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every (group, device)."""
        return self._options(probabilities, self.position)

    def feedback(self, decision: np.ndarray) -> np.ndarray:
        """Return whether each group would fit into the schedule on each device."""
        send = self.device.transfer_seconds(self.graph.output_bytes)
        return device_feedback(self.graph, self.timeline(decision), self.units, send)

    @property
    def bound(self) -> float:
        """The longest path, and all work spread evenly."""
        return lower_bound(self.graph, self.devices)


def _runs(order: np.ndarray, work: np.ndarray, parts: int) -> np.ndarray:
    """Return the split of an order of units (U,) into runs of equal work: (U,)."""
    decision = np.empty(len(work), np.int64)
    decision[order] = contiguous(work[order], parts)
    return decision


class SchedulingProblem(_OfGraph):
    """Which priority each operator has in the list schedule, at a fixed placement.

    Within a priority the longest path to the end is first, so that this is the default.

    Args:
        graph: The operators.
        placement: (N,) device of each operator.
        devices: Number of devices.
        device: Constants of a device and its links.
        levels: Number of priorities.
    """

    task = "scheduling"

    def __init__(
        self, graph: CostGraph, placement: np.ndarray, devices: int, device: Device, levels: int = LEVELS
    ):
        super().__init__(graph, device, np.arange(len(graph)), levels)
        self.placement, self.scheduler = np.asarray(placement), Scheduler(graph, devices, device)
        self.default = np.zeros(len(graph), np.int64)  # all alike: longest path first
        self._rank = graph.upward_rank / max(graph.critical_path, 1e-300)

    def timeline(self, decision: np.ndarray) -> Timeline:
        """Return the schedule of one decision."""
        return self.scheduler.run(self.placement, refined(self.graph, decision))

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return runtime in seconds; every decision is valid."""
        return Outcome(np.array([self.timeline(d).seconds for d in decisions]), np.zeros(len(decisions)))

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every (operator, priority)."""
        return self._options(probabilities, self._rank)

    @property
    def bound(self) -> float:
        """The longest path, and the work of the busiest device."""
        busiest = np.bincount(self.placement, self.graph.seconds).max()
        return max(self.graph.critical_path, float(busiest))


class FusionProblem(_OfGraph):
    """Which priority each operator has in fusion; the cost is the summed roofline time of the clusters.

    Args:
        graph: Operators before fusion.
        device: Constants of a device.
        levels: Number of priorities; 0 leaves an operator alone unless a neighbour takes it.
    """

    task = "fusion"

    def __init__(self, graph: CostGraph, device: Device, levels: int = LEVELS):
        super().__init__(graph, device, np.arange(len(graph)), levels)
        self.default = np.zeros(len(graph), np.int64)
        self._saving = self._possible_savings()

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return the time of all clusters in seconds; every decision is valid."""
        cost = [fuse(self.graph, decision, self.device).total_seconds() for decision in decisions]
        return Outcome(np.array(cost), np.zeros(len(decisions)))

    def compiler_like(self) -> float:
        """Return the cost of joining every operator with its only consumer, as compilers do."""
        return float(contract(self.graph, single_consumer_clusters(self.graph), self.device).seconds.sum())

    def _possible_savings(self) -> np.ndarray:
        """Return each operator's rank, 0 to 1, by the bytes that it moves."""
        graph = self.graph
        moved = graph.output_bytes.copy()
        np.add.at(moved, graph.edges[:, 1], graph.output_bytes[graph.edges[:, 0]])
        return np.argsort(np.argsort(moved)) / max(len(graph) - 1, 1)

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every (operator, priority)."""
        return self._options(probabilities, self._saving)

    @property
    def bound(self) -> float:
        """FLOPs at peak rate, and one launch: what no fusion can avoid."""
        return float(self.graph.flops.sum()) / self.device.flops_per_second + self.device.launch_seconds
