"""Slack and idle time of a schedule: the operators that may be later, and the devices where they fit."""

import numpy as np

from fastslow_placement.base.problem import FEEDBACK_FEATURES
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.schedule import Timeline

_SCALE = 0.1  # share of the runtime at which a slack counts as tanh(1)


def device_feedback(graph: CostGraph, timeline: Timeline, units: np.ndarray, send: np.ndarray) -> np.ndarray:
    """Return features of every unit on every device from the schedule of a placement: (U * k, 4) float32.

    All other units stay where they are. Column 1 is whether the unit fits there: the smaller of the next two.
    Column 2 is the slack between its inputs' arrival and the time when its outputs are due. Column 3 is the
    idle time of the device in between, less the work. Column 4 is the device's idle share. The first three
    describe the unit's worst operator, in tenths of the runtime within a hyperbolic tangent. They are at most
    0 where the end would be later.

    Args:
        graph: The operators.
        timeline: The schedule of the placement.
        units: (N,) unit of each operator.
        send: (N,) seconds of a transfer of each output.
    """
    early, late = _windows(graph, timeline, units, send)
    seconds, end = graph.seconds[:, None], timeline.seconds
    slack = late - early - seconds
    elsewhere = timeline.placement[:, None] != np.arange(timeline.devices)
    room = np.empty_like(slack)
    idle = np.empty(timeline.devices)
    for device in range(timeline.devices):
        times, free = _idle(timeline, device)
        first = np.minimum(early[:, device], end)
        last = np.maximum(late[:, device], 0)
        room[:, device] = np.interp(last, times, free) - np.interp(first, times, free)
        idle[device] = free[-1] / max(end, 1e-300)
    room -= seconds * elsewhere
    busy = graph.seconds > 0  # others fit everywhere
    worst = np.full((2, int(units.max()) + 1, timeline.devices), end)
    for table, values in zip(worst, (slack, room), strict=True):
        np.minimum.at(table, units[busy], values[busy])
    scaled = np.tanh(np.stack([worst.min(0), *worst], -1) / max(_SCALE * end, 1e-300))
    idle = np.broadcast_to(idle[:, None], (*scaled.shape[:2], 1))
    return np.concatenate([scaled, idle], -1).reshape(-1, FEEDBACK_FEATURES).astype(np.float32)


def _windows(
    graph: CostGraph, timeline: Timeline, units: np.ndarray, send: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return when each operator could start on each device for its inputs, and must end for its consumers.

    Both (N, k). A transfer that is not in the schedule waits for no other; units move as a whole.
    """
    place, devices = timeline.placement, timeline.devices
    starts, _ = timeline.latest
    arrival = np.repeat((timeline.finish + send)[:, None], devices, 1)
    arrival[timeline.routes[:, 0], timeline.routes[:, 2]] = timeline.times[:, 1]
    arrival[np.arange(len(place)), place] = timeline.finish
    producer, consumer = graph.edges[:, 0], graph.edges[:, 1]
    inside = units[producer] == units[consumer]
    there = inside[:, None] | (place[consumer][:, None] == np.arange(devices))
    early = np.zeros((len(place), devices))
    late = np.full((len(place), devices), timeline.seconds)
    arriving = np.where(inside[:, None], timeline.finish[producer][:, None], arrival[producer])
    np.maximum.at(early, consumer, arriving)
    np.minimum.at(late, producer, starts[consumer][:, None] - np.where(there, 0.0, send[producer][:, None]))
    return early, late


def _idle(timeline: Timeline, device: int) -> tuple[np.ndarray, np.ndarray]:
    """Return times, and how long a device was idle up to each of them, linear in between."""
    nodes = timeline.order[timeline.placement[timeline.order] == device]
    times = np.stack([timeline.start[nodes], timeline.finish[nodes]], 1).ravel()
    times = np.concatenate([[0.0], times, [timeline.seconds]])
    steps = np.diff(times)
    steps[1::2] = 0.0  # busy
    return times, np.concatenate([[0.0], np.cumsum(steps)])
