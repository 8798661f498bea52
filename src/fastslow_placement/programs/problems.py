"""Placement, scheduling and fusion of a cost graph as decision problems."""

from functools import cached_property

import numpy as np

from fastslow.core.errors import SettingsError
from fastslow_placement.base.problem import (
    Outcome,
    Problem,
    adjacent,
    contiguous,
    midpoints,
    unit_pairs,
)
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.fusion import fuse
from fastslow_placement.programs.list_placement import learned_weights, list_placements, m_etf
from fastslow_placement.programs.roofline import Device
from fastslow_placement.programs.schedule import Scheduler, Timeline, lower_bound, refined
from fastslow_placement.programs.spectral_order import spectral_orders

LEVELS = 8  # priorities to choose from
_ANCHOR = 16_384  # bytes of weights from which on a unit marks a layer
_AVERAGED = 40  # times that units without weights move to the mean of their neighbours


class GraphProblem(Problem):
    """A problem on a cost graph.

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
        self.choices = np.full(len(first), options, np.int64)

    def unit_names(self) -> list[str]:
        """Return the name of the first operator of each unit."""
        return [self.graph.names[node] for node in self.first]


class PlacementProblem(GraphProblem):
    """A device for each co-location group; the cost is the runtime of the list schedule.

    Args:
        graph: The operators, usually contracted (:func:`fastslow_placement.programs.fusion.contract`).
        devices: Number of devices.
        device: Constants of a device and its links.
        memory: Limit of a device in bytes; by default the device's memory.
        learned: Whether the placements of the learned list scheduler are starts.

    Raises:
        SettingsError: A co-location group's parameters are larger than the limit, so no placement is valid.
    """

    task = "placement"

    def __init__(
        self, graph: CostGraph, devices: int, device: Device, memory: float = 0.0, learned: bool = True
    ):
        super().__init__(graph, device, graph.groups, devices)
        self.devices = devices
        self.memory = memory or device.memory
        self.learned = learned
        self.scheduler = Scheduler(graph, devices, device)
        self.work = self._sum(graph.seconds)
        send = device.transfer_seconds(graph.output_bytes)
        sent = np.stack([graph.edges[:, 0], self.units[graph.edges[:, 1]]], 1)
        producers, consumers = np.unique(sent, axis=0).reshape(-1, 2).T  # an output is sent once to a unit
        pairs = np.stack([self.units[producers], consumers], 1)
        self.edges, self.weight = unit_pairs(pairs, send[producers])
        self.sequence = self._layers()
        parameters = self._sum(graph.parameter_bytes)
        if parameters.max() > self.memory or parameters.sum() > self.memory * devices:
            problem = f"{parameters.max():.3g} bytes of one group, {parameters.sum():.3g} of all"
            raise SettingsError(
                "memory",
                f"no placement of {graph.name!r} on {devices} devices of {self.memory:.3g} bytes is"
                f" valid, its parameters take {problem}; raise memory or devices",
            )
        self.default = contiguous(self.sequence, self.work, devices)
        if not self.evaluate(self.default[None]).valid[0]:
            held = self._sum(graph.parameter_bytes + graph.output_bytes)
            self.default = contiguous(self.sequence, held, devices)

    def _sum(self, column: np.ndarray) -> np.ndarray:
        """Return the sum of a column (N,) over the operators of each unit: (U,)."""
        return np.bincount(self.units, column, len(self.first))

    def _layers(self) -> np.ndarray:
        """Return the units in the order of the layers that they belong to: (U,) int64.

        Units with weights stand where they are used first, and all others at the mean of their neighbours, so
        that the backward pass of a layer stands beside its forward pass. Without weights: topological order.
        """
        count = len(self.first)
        earliest = self.graph.earliest_start[self.first]
        fixed = self._sum(self.graph.parameter_bytes) >= _ANCHOR
        if not fixed.any():
            return np.arange(count)
        place = np.where(fixed, earliest, earliest[fixed].mean())
        one, other = (np.concatenate([self.edges[:, side], self.edges[:, 1 - side]]) for side in (0, 1))
        total = np.maximum(np.bincount(one, minlength=count), 1)
        for _ in range(_AVERAGED):
            place = np.where(fixed, earliest, np.bincount(one, place[other], count) / total)
        return np.lexsort((self.first, place))

    @property
    def starts(self) -> np.ndarray:
        """The placements of rules and, if wanted, the learned ones: (24 or 14, U)."""
        return np.concatenate([self.rule_starts, self.learned_starts]) if self.learned else self.rule_starts

    @cached_property
    def rule_starts(self) -> np.ndarray:
        """The split by layers, twelve of spectral bisection in runs of equal work, and m-ETF: (14, U)."""
        runs = (contiguous(order, self.work, self.devices) for order in self._bisections)
        return np.stack([self.default, *runs, m_etf(self)])

    @cached_property
    def learned_starts(self) -> np.ndarray:
        """The placements of the learned list scheduler: (10, U)."""
        return list_placements(self, learned_weights())

    @cached_property
    def adjacency(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The neighbours of all units, see :func:`~fastslow_placement.base.problem.adjacent`."""
        return adjacent(self.edges, self.weight, len(self.choices))

    @cached_property
    def _bisections(self) -> list[np.ndarray]:
        return spectral_orders(self.work, self.edges, self.weight)

    @cached_property
    def positions(self) -> tuple[np.ndarray, np.ndarray]:
        """(U,) position of each unit, 0 to 1, in the order of layers and in one by spectral bisection."""
        return self._midpoints(self.sequence), self._midpoints(self._bisections[1])

    def _midpoints(self, order: np.ndarray) -> np.ndarray:
        """Return the share of all work that is done when half of a unit is, in an order (U,) of units."""
        position = np.empty(len(order))
        position[order] = midpoints(self.work[order])
        return position

    def place(self, decision: np.ndarray) -> np.ndarray:
        """Return the device of each operator: (N,)."""
        return np.asarray(decision)[self.units]

    def timeline(self, decision: np.ndarray) -> Timeline:
        """Return the schedule of one decision."""
        return self.scheduler.run(self.place(decision))

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return runtime in seconds and bytes over the limit, summed over devices."""
        return Outcome(*self.scheduler.evaluate(np.asarray(decisions)[:, self.units], self.memory))

    @property
    def bound(self) -> float:
        """The longest path, and all work spread evenly."""
        return lower_bound(self.graph, self.devices)


class SchedulingProblem(GraphProblem):
    """A priority for each operator in the list schedule, at a fixed placement.

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
        self.placement = np.asarray(placement)
        self.scheduler = Scheduler(graph, devices, device)
        self.default = np.zeros(len(graph), np.int64)  # all alike: longest path first

    def timeline(self, decision: np.ndarray) -> Timeline:
        """Return the schedule of one decision."""
        return self.scheduler.run(self.placement, refined(self.graph, decision))

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return runtime in seconds; every decision is valid."""
        return Outcome(np.array([self.timeline(d).seconds for d in decisions]), np.zeros(len(decisions)))

    @property
    def bound(self) -> float:
        """The longest path, and the work of the busiest device."""
        busiest = np.bincount(self.placement, self.graph.seconds).max()
        return max(self.graph.critical_path, float(busiest))


class FusionProblem(GraphProblem):
    """A priority for each operator in fusion; the cost is the summed roofline time of the clusters.

    The default is greedy: each operator in topological order is fused where that saves most time. The lowest
    of the priorities, 0, leaves an operator alone unless a neighbour takes it.

    Args:
        graph: Operators before fusion.
        device: Constants of a device.
    """

    task = "fusion"

    def __init__(self, graph: CostGraph, device: Device):
        super().__init__(graph, device, np.arange(len(graph)), LEVELS)
        self.default = np.ones(len(graph), np.int64)  # every operator is visited, in topological order

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return the time of all clusters in seconds; every decision is valid."""
        cost = [fuse(self.graph, decision, self.device).total_seconds() for decision in decisions]
        return Outcome(np.array(cost), np.zeros(len(decisions)))

    @property
    def bound(self) -> float:
        """FLOPs at peak rate, and one launch: what no fusion can avoid."""
        return float(self.graph.flops.sum()) / self.device.flops_per_second + self.device.launch_seconds
