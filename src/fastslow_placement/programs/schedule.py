"""Runtime of a placed program: list scheduling on devices and links, and memory by liveness.

Model: a device runs one operator at a time; when it is free it starts the ready operator of highest priority,
ties in topological order. An output is sent once to every other device that has a consumer, over one serial
link per ordered pair of devices, first come first served. Compute and transfers overlap. Eager devices start
operators in the order in which they are ready, and their transfers wait for no other.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastslow.core.errors import SettingsError
from fastslow_placement.programs import simulation
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
    """Times of all operators and transfers.

    Args:
        arrays: The graph.
        placement: (N,) device of each operator.
        devices: Number of devices.
        start: (N,) seconds.
        finish: (N,) seconds.
        order: (N,) operators in the order in which they start.
        routes: (T, 3) producer, source and target of each transfer, in the order in which they are queued.
        times: (T, 2) start and finish of each transfer in seconds.
    """

    arrays: simulation.Arrays
    placement: np.ndarray
    devices: int
    start: np.ndarray
    finish: np.ndarray
    order: np.ndarray
    routes: np.ndarray
    times: np.ndarray

    @cached_property
    def transfers(self) -> list[Transfer]:
        """The transfers in the order in which they are queued."""
        rows = zip(self.routes.tolist(), self.times.tolist(), strict=True)
        return [Transfer(*route, *times) for route, times in rows]

    @property
    def seconds(self) -> float:
        """Runtime: the end of the last operator."""
        return float(self.finish.max())

    @cached_property
    def latest(self) -> tuple[np.ndarray, np.ndarray]:
        """Latest starts of operators (N,) and transfers (T,), in seconds, that keep the end.

        Devices and links keep their order. The difference to the start is the slack, 0 on critical paths
        (Kelley and Walker 1959).
        """
        return simulation.latest(
            self.arrays, self.placement, self.finish, self.order, self.routes, self.times, self.devices
        )


class Scheduler:
    """List scheduler of one graph on identical devices.

    Args:
        graph: The operators.
        devices: Number of devices.
        device: Constants of a device and its links.
    """

    def __init__(self, graph: CostGraph, devices: int, device: Device):
        if devices < 1:
            raise SettingsError("devices", f"{devices} is not 1 or more")
        self.devices = devices
        send = device.transfer_seconds(graph.output_bytes)
        self.arrays = simulation.arrays_of(graph, send, device.eager)
        self.rank = ranked(graph.upward_rank)

    def run(self, placement: np.ndarray, priority: np.ndarray | None = None) -> Timeline:
        """Return the timeline of a placement.

        Args:
            placement: (N,) devices.
            priority: (N,) numbers; a higher one runs first. By default the longest path to the end.
        """
        place = np.ascontiguousarray(placement, np.int64)
        rank = self.rank if priority is None else ranked(priority)
        return Timeline(
            self.arrays, place, self.devices, *simulation.simulate(self.arrays, place, rank, self.devices)
        )

    def evaluate(
        self, placements: np.ndarray, limit: float, priority: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return runtimes in seconds (B,) and bytes over the limit of each device, summed (B,).

        Args:
            placements: (B, N) devices.
            limit: Bytes that a device can hold.
            priority: As for :meth:`run`.
        """
        places = np.ascontiguousarray(placements, np.int64)
        rank = self.rank if priority is None else ranked(priority)
        return simulation.evaluate(self.arrays, places, rank, self.devices, float(limit))


def ranked(priority: np.ndarray) -> np.ndarray:
    """Return positions by decreasing priority (N,), ties in topological order: (N,) int64."""
    rank = np.empty(len(priority), np.int64)
    rank[np.lexsort((np.arange(len(priority)), -np.asarray(priority)))] = np.arange(len(priority))
    return rank


def refined(graph: CostGraph, levels: np.ndarray) -> np.ndarray:
    """Return priorities of levels (N,), the longest path to the end first within a level: (N,) int64."""
    _, path = np.unique(graph.upward_rank, return_inverse=True)
    return np.asarray(levels) * len(graph) + path


def memory_profile(timeline: Timeline) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the memory in use over time per device, as seconds ``(n,)`` and bytes ``(n,)`` from then on.

    Parameters are resident from the start; :func:`simulation.occupancy` describes when outputs are held.
    """
    arrays, place, devices = timeline.arrays, timeline.placement, timeline.devices
    first, last = simulation.occupancy(
        arrays, place, timeline.start, timeline.finish, timeline.routes, timeline.times, devices
    )
    resident = np.bincount(place, arrays.parameters, devices)
    profiles = []
    for device in range(devices):
        here = np.flatnonzero(np.isfinite(first[:, device]))
        when = np.concatenate([[0.0], first[here, device], last[here, device]])
        sizes = np.concatenate([[0.0], arrays.output[here], -arrays.output[here]])
        times, which = np.unique(when, return_inverse=True)
        profiles.append((times, resident[device] + np.cumsum(np.bincount(which, sizes, len(times)))))
    return profiles


def peak_memory(timeline: Timeline) -> np.ndarray:
    """Return the largest memory in use per device in bytes: (devices,) float64."""
    return np.array([sizes.max() for _, sizes in memory_profile(timeline)])


def lower_bound(graph: CostGraph, devices: int) -> float:
    """Return a lower bound of the runtime: the longest path, and all work spread evenly over the devices."""
    return max(graph.critical_path, float(graph.seconds.sum()) / devices)
