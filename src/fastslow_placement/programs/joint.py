"""Fusion, placement and scheduling of one program decided together."""

import numpy as np

from fastslow_placement.base.problem import Outcome, Problem
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.fusion import contract, fuse, ordered_clusters
from fastslow_placement.programs.problems import LEVELS, FusionProblem, PlacementProblem
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
        self._fusion = FusionProblem(graph, device)
        self.choices = np.repeat([LEVELS, devices, LEVELS], count)
        self._placement = PlacementProblem(graph, devices, device, memory)
        self.default = self._placed(self._placement.default)

    def _placed(self, placement: np.ndarray) -> np.ndarray:
        """Return the decision with a placement (U,), greedy fusion and the longest path first: (3 N,)."""
        longest_first = np.zeros(len(self.graph), np.int64)
        return np.concatenate([self._fusion.default, self._placement.place(placement), longest_first])

    @property
    def starts(self) -> np.ndarray:
        """The placements that a placement starts from, each with greedy fusion: (24, 3 N)."""
        return np.stack([self._placed(placement) for placement in self._placement.starts])

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

    @property
    def bound(self) -> float:
        """FLOPs at peak rate spread over the devices, and one launch."""
        return self._fusion.bound / self.devices
