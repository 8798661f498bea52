"""Runtime of a placed program: list scheduling on devices and links, and memory by liveness.

Model: a device runs one operator at a time; when it is free it starts the ready operator of highest priority,
ties in topological order. An output is sent once to every other device that has a consumer, over one serial
link per ordered pair of devices, first come first served. Compute and transfers overlap.
"""

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastslow.core.errors import SettingsError
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.roofline import Device


class Transfer(NamedTuple):
    """One transfer of an output: the producer, the two devices, and when it starts and ends in seconds."""

    producer: int
    source: int
    target: int
    start: float
    finish: float


@dataclass(frozen=True)
class Timeline:
    """When everything happens.

    Args:
        placement: (N,) device of each operator.
        start: (N,) seconds.
        finish: (N,) seconds.
        transfers: Transfers in order of their start.
        devices: Number of devices.
        order: (N,) operators in the order in which they start.
    """

    placement: np.ndarray
    start: np.ndarray
    finish: np.ndarray
    transfers: list[Transfer]
    devices: int
    order: np.ndarray

    @property
    def seconds(self) -> float:
        """Runtime: the end of the last operator."""
        return float(self.finish.max())


class Scheduler:
    """List scheduler of one graph on identical devices.

    Args:
        graph: The operators.
        devices: Number of devices.
        device: Constants of a device and its links.
    """

    def __init__(self, graph: CostGraph, devices: int, device: Device):
        if devices < 1:
            raise SettingsError(f"devices: {devices} is not 1 or more")
        self.graph, self.devices, self.device = graph, devices, device
        self._seconds = graph.seconds.tolist()
        self._transfer = np.asarray(device.transfer_seconds(graph.output_bytes), float).tolist()
        self._inputs = [len(p) for p in graph.producers]

    def run(self, placement: np.ndarray, priority: np.ndarray | None = None) -> Timeline:
        """Return the timeline of a placement.

        Args:
            placement: (N,) devices.
            priority: (N,) numbers; a higher one runs first. By default the longest path to the end.
        """
        graph, count = self.graph, len(self.graph)
        place = np.asarray(placement).tolist()
        priority = graph.upward_rank if priority is None else np.asarray(priority)
        rank = np.empty(count, np.int64)  # position by decreasing priority, ties in topological order
        rank[np.lexsort((np.arange(count), -priority))] = np.arange(count)
        order, rank = np.argsort(rank).tolist(), rank.tolist()
        start, finish, begun = [0.0] * count, [0.0] * count, []
        waiting = self._inputs.copy()
        ready: list[list[int]] = [[] for _ in range(self.devices)]
        for node in range(count):
            if not waiting[node]:
                heapq.heappush(ready[place[node]], rank[node])
        idle, links, transfers = [True] * self.devices, {}, []
        events: list[tuple[float, int, int, int]] = []  # time, kind, node, device; kind 0: done, 1: arrived
        now, consumers, seconds = 0.0, graph.consumers, self._seconds
        touched = set(range(self.devices))
        while True:
            for device in touched:
                if idle[device] and ready[device]:
                    node = order[heapq.heappop(ready[device])]
                    idle[device] = False
                    begun.append(node)
                    start[node] = now
                    finish[node] = now + seconds[node]
                    heapq.heappush(events, (finish[node], 0, node, device))
            if not events:
                break
            now, touched = events[0][0], set()
            while events and events[0][0] == now:
                _, kind, node, device = heapq.heappop(events)
                touched.add(device)
                if kind == 0:
                    idle[device] = True
                    self._send(node, device, now, place, links, transfers, events)
                for consumer in consumers[node]:
                    if place[consumer] == device:
                        waiting[consumer] -= 1
                        if not waiting[consumer]:
                            heapq.heappush(ready[device], rank[consumer])
        times = np.array(start), np.array(finish)
        return Timeline(np.asarray(placement), *times, transfers, self.devices, np.array(begun, np.int64))

    def _send(self, node, device, now, place, links, transfers, events) -> None:
        """Queue the node's output on the links to the other devices of its consumers."""
        targets = {place[consumer] for consumer in self.graph.consumers[node]}
        for target in sorted(targets - {device}):
            begin = max(now, links.get((device, target), 0.0))
            end = links[device, target] = begin + self._transfer[node]
            transfers.append(Transfer(node, device, target, begin, end))
            heapq.heappush(events, (end, 1, node, target))


def refined(graph: CostGraph, levels: np.ndarray) -> np.ndarray:
    """Return priorities of levels (N,), the longest path to the end first within a level: (N,) int64."""
    _, path = np.unique(graph.upward_rank, return_inverse=True)
    return np.asarray(levels) * len(graph) + path


def memory_profile(graph: CostGraph, timeline: Timeline) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the memory in use over time per device, as (seconds, bytes from then on).

    Parameters are resident from the start. An output is held where it is produced from the start of its
    operator to the end of its last local consumer and last transfer, and where it is sent from the start of
    the transfer to the end of the last consumer there; an output without consumers stays to the end.
    """
    place, end = timeline.placement, timeline.seconds
    last = {}  # (node, device): end of use
    for node in range(len(graph)):
        last[node, int(place[node])] = timeline.finish[node] if graph.consumers[node] else end
    for producer, consumer in graph.edges.tolist():
        key = producer, int(place[consumer])
        last[key] = max(last.get(key, 0.0), timeline.finish[consumer])
    begin = {(node, int(place[node])): timeline.start[node] for node in range(len(graph))}
    for transfer in timeline.transfers:
        key = transfer.producer, transfer.source
        last[key] = max(last[key], transfer.finish)
        begin[transfer.producer, transfer.target] = transfer.start
    changes: list[list[tuple[float, float]]] = [[] for _ in range(timeline.devices)]
    for (node, device), first in begin.items():
        size = graph.output_bytes[node]
        changes[device] += [(first, size), (last[node, device], -size)]
    resident = np.bincount(place, graph.parameter_bytes, timeline.devices)
    profiles = []
    for device, events in enumerate(changes):
        rows = np.array([(0.0, 0.0), *events]).reshape(-1, 2)
        times, which = np.unique(rows[:, 0], return_inverse=True)
        profiles.append((times, resident[device] + np.cumsum(np.bincount(which, rows[:, 1], len(times)))))
    return profiles


def peak_memory(graph: CostGraph, timeline: Timeline) -> np.ndarray:
    """Return the largest memory in use per device in bytes: (devices,) float64."""
    return np.array([sizes.max() for _, sizes in memory_profile(graph, timeline)])


def excess_memory(graph: CostGraph, timeline: Timeline, limit: float) -> float:
    """Return the bytes over the limit of a device, summed over the devices' peaks."""
    held = np.bincount(timeline.placement, graph.parameter_bytes + graph.output_bytes, timeline.devices)
    for transfer in timeline.transfers:
        held[transfer.target] += graph.output_bytes[transfer.producer]
    if (held <= limit).all():  # all that is ever there, held all the time
        return 0.0
    return float(np.maximum(peak_memory(graph, timeline) - limit, 0).sum())


def lower_bound(graph: CostGraph, devices: int) -> float:
    """Return a lower bound of the runtime: the longest path, and all work spread evenly over the devices."""
    return max(graph.critical_path, float(graph.seconds.sum()) / devices)
