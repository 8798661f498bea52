"""Fusion, placement and scheduling of one program decided together: GO's multi-task setting."""

import numpy as np

from fastslow_placement.base.problem import Outcome, Problem
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.fusion import contract, fuse, ordered_clusters
from fastslow_placement.programs.problems import FusionProblem, PlacementProblem, SchedulingProblem
from fastslow_placement.programs.roofline import Device
from fastslow_placement.programs.schedule import Scheduler, refined


class JointProblem(Problem):
    """Priorities of fusion, devices and priorities of the schedule, for every operator.

    The cost is the runtime. A decision has 3 N entries: fusion, placement, scheduling. Operators are fused by
    priority. A cluster goes where its first operator was placed, with everything that must be on one device
    with it. It is scheduled at the highest priority of its operators, the longest path first among equals.

    Args:
        graph: Operators before fusion.
        devices: Number of devices.
        device: Constants of a device and its links.
        memory: Limit of a device in bytes; by default the device's memory.
    """

    task = "joint"

    def __init__(self, graph: CostGraph, devices: int, device: Device, memory: float = 0.0):
        self.graph, self.devices, self.device, self.name = graph, devices, device, graph.name
        self.memory = memory or device.memory
        count = len(graph)
        place = PlacementProblem(graph, devices, device, memory)
        self._placement = place
        self._fusion = FusionProblem(graph, device)
        self._schedule = SchedulingProblem(graph, place.place(place.default), devices, device)
        self.features, self.edges = self._schedule.features, self._schedule.edges
        self.kinds = self._schedule.kinds
        self.choices = np.concatenate([self._fusion.choices, np.full(count, devices), self._schedule.choices])
        fused = np.ones(count, np.int64)
        self.default = np.concatenate([fused, place.place(place.default), np.zeros(count, np.int64)])

    @property
    def parts(self) -> list[tuple[str, slice]]:
        """Fusion, placement, scheduling: each sees the actions of those before."""
        count = len(self.graph)
        names = ("fusion", "placement", "scheduling")
        return [(name, slice(i * count, (i + 1) * count)) for i, name in enumerate(names)]

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return runtime in seconds and bytes over the limit."""
        rows = [self._one(*decision.reshape(3, -1)) for decision in decisions]
        cost, excess = zip(*rows, strict=True)
        return Outcome(np.array(cost), np.array(excess))

    def _one(self, fusion: np.ndarray, placement: np.ndarray, priority: np.ndarray) -> tuple[float, float]:
        of = ordered_clusters(self.graph, np.array(fuse(self.graph, fusion, self.device).of))
        fused = contract(self.graph, self.device, of)
        first = np.full(len(fused), len(self.graph))
        np.minimum.at(first, of, np.arange(len(self.graph)))
        leader = np.full(int(fused.groups.max()) + 1, len(self.graph))
        np.minimum.at(leader, fused.groups, first)
        chosen = placement[leader[fused.groups]]
        highest = np.zeros(len(fused), np.int64)
        np.maximum.at(highest, of, priority)
        scheduler = Scheduler(fused, self.devices, self.device)
        seconds, excess = scheduler.evaluate(chosen[None], self.memory, refined(fused, highest))
        return float(seconds[0]), float(excess[0])

    def unit_names(self) -> list[str]:
        """Return opcode and number of each operator, once for each task."""
        return self._fusion.unit_names() * 3

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every option of the three tasks: (sum of choices, 8) float32."""
        count = len(self.graph)
        place = self._placement
        first = int(self._fusion.choices.sum())
        fusion, placement, schedule = np.split(probabilities, [first, first + count * self.devices])
        groups = np.zeros((len(place.choices), self.devices))
        np.add.at(groups, place.units, placement.reshape(count, -1))
        groups /= np.bincount(place.units)[:, None]
        of_groups = place.options(groups).reshape(len(place.choices), self.devices, -1)
        of_operators = of_groups[place.units].reshape(count * self.devices, -1)
        return np.concatenate([self._fusion.options(fusion), of_operators, self._schedule.options(schedule)])

    @property
    def bound(self) -> float:
        """FLOPs at peak rate spread over the devices, and one launch."""
        return self._fusion.bound / self.devices
