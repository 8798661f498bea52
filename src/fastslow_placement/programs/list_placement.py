"""Placement by a list scheduler whose weights were learned on other programs.

Operators are placed one after the other, as HEFT (Topcuoglu et al. 2002) and Baechi's m-ETF (Jeon et al.,
SoCC 2020) do: the ready operator of the lowest priority number goes to the device of the lowest cost. Both
numbers are sums of features that are known at that moment, times :data:`WEIGHTS`. m-ETF is one set of
weights. Ten sets in ``list_placement.json`` were learned together: each program takes the best of its ten
placements. ``benchmarks/list_placement.py`` learns them.

Of more than :data:`LOOKED_AT` operators that are ready, the others wait until one of these is placed, so that
a step does not take longer in a program of many. No program of GO's table has as many.
"""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastslow.core.files import read_json
from fastslow_placement.base.jit import njit

WEIGHTS = ("start", "rank", "device start", "load", "neighbours", "layers", "bisection", "memory")
"""The first two belong to the priority: the earliest start on any device, and the longest path to the end
(lower for a longer one). The others belong to a device's cost. They are the start there, the device's load
with the fair share as unit, and the share of the unit's neighbours there by their exchange (lower for more).
Then come the squared distance from a split by layers and from one by spectral bisection, and the device's
share of memory in use. Times are relative to the bound of the runtime."""
LOOKED_AT = 1500
"""Ready operators that a step compares at most."""
M_ETF = np.array([1.0, 0, 1, 0, 0, 0, 0, 0])
_LEARNED = Path(__file__).with_suffix(".json")
_FAR = 9.0  # a squared distance from a split counts up to this


@cache
def learned_weights() -> np.ndarray:
    """Return the learned sets of weights: (10, 8)."""
    return np.array(read_json(_LEARNED)["weights"])


def m_etf(problem: Any) -> np.ndarray:
    """Return m-ETF: repeatedly the ready operator and device with the earliest start, where it fits: (U,)."""
    return list_placements(problem, M_ETF[None])[0]


def list_placements(problem: Any, weights: np.ndarray) -> np.ndarray:
    """Return the placement of each set of weights.

    A co-location group goes where its first operator goes, among the devices where it fits, if there are any.
    Communication costs latency + bytes / bandwidth, as in the schedule, without waiting for links.

    Args:
        problem: A :class:`~fastslow_placement.programs.problems.PlacementProblem`.
        weights: (B, 8) in the order of :data:`WEIGHTS`.

    Returns:
        (B, U) int64.
    """
    graph = problem.graph
    slots = np.arange(problem.devices) + 0.5
    layers, bisection = (
        np.minimum((p[:, None] * problem.devices - slots) ** 2, _FAR) for p in problem.positions
    )
    begins, near, exchange = problem.adjacency
    units = _Units(
        of=problem.units.astype(np.int64),
        begins=begins,
        near=near,
        exchange=exchange,
        work=problem.work,
        held=np.bincount(problem.units, graph.parameter_bytes + graph.output_bytes),
        layers=layers,
        bisection=bisection,
    )
    limits = problem.devices, float(problem.memory), max(graph.critical_path, 1e-300)
    given = problem.scheduler.arrays, units, graph.upward_rank, *limits
    return np.stack([_place(*given, pair) for pair in np.asarray(weights, np.float64)])


class _Units(NamedTuple):
    """The U units of N operators, and the k devices, as arrays.

    Args:
        of: (N,) int64 unit of each operator.
        begins: (U + 1,) where the neighbours of each unit begin.
        near: Neighbours of all units.
        exchange: Exchange with each of them.
        work: (U,) seconds.
        held: (U,) bytes.
        layers: (U, k) squared distance from a split by layers.
        bisection: (U, k) that from a split by spectral bisection.
    """

    of: np.ndarray
    begins: np.ndarray
    near: np.ndarray
    exchange: np.ndarray
    work: np.ndarray
    held: np.ndarray
    layers: np.ndarray
    bisection: np.ndarray


@njit(cache=True)
def _place(arrays, units, rank, devices, limit, longest, weights):
    """Return the device of each unit, see :func:`list_placements`."""
    count = len(units.of)
    fair = max(units.work.sum() / devices, 1e-300)
    bound = max(longest, fair)
    decision = np.full(len(units.work), -1, np.int64)
    waiting = arrays.inputs.copy()
    free = np.zeros(devices)
    load = np.zeros(devices)
    left = np.full(devices, limit)
    arrived = np.zeros((count, devices))
    there = np.empty(devices)
    ready = np.empty(count, np.int64)
    number = 0
    start = np.zeros(count)  # the earliest of a ready operator
    where = np.full(count, -1, np.int64)
    for node in range(count):
        if waiting[node] == 0:
            ready[number] = node
            number += 1
    unit = device = -1
    while number:
        row, lowest = 0, np.inf
        for place in range(min(number, LOOKED_AT)):
            node = ready[place]
            if where[node] < 0 or where[node] == device or units.of[node] == unit:  # changed by the last step
                where[node] = _soonest(units, node, decision, free, arrived, left)
                start[node] = max(free[where[node]], arrived[node, where[node]])
            cost = weights[0] * start[node] / bound - weights[1] * rank[node] / longest
            if cost < lowest or cost == lowest and _first(rank, node, ready[row]):
                row, lowest = place, cost
        node = ready[row]
        number -= 1
        ready[row] = ready[number]
        unit = units.of[node]
        if decision[unit] < 0:
            begin = np.maximum(free, arrived[node]) / bound
            share = _shares(units, unit, decision, there)
            device = _cheapest(units, unit, begin, load / fair, share, left, limit, weights)
            decision[unit] = device
            left[device] -= units.held[unit]
            load[device] += units.work[unit]
        device = decision[unit]
        free[device] = max(free[device], arrived[node, device]) + arrays.seconds[node]
        for consumer in arrays.consumers[arrays.begins[node] : arrays.begins[node + 1]]:
            for other in range(devices):
                finish = free[device] + (0.0 if other == device else arrays.send[node])
                arrived[consumer, other] = max(arrived[consumer, other], finish)
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                ready[number] = consumer
                number += 1
    return decision


@njit(cache=True)
def _shares(units, unit, decision, there):
    """Return the share of a unit's exchange that is with neighbours on each device, written to ``there``."""
    there[:], total = 0.0, 1e-300
    for edge in range(units.begins[unit], units.begins[unit + 1]):
        total += units.exchange[edge]
        if decision[units.near[edge]] >= 0:
            there[decision[units.near[edge]]] += units.exchange[edge]
    there /= total
    return there


@njit(cache=True)
def _cheapest(units, unit, begin, load, share, left, limit, weights):
    """Return the device of the lowest cost, of those where a unit fits; the first where it fits nowhere."""
    best, lowest = 0, np.inf
    for device in range(len(left)):
        cost = weights[2] * begin[device] + weights[3] * load[device] - weights[4] * share[device]
        cost += weights[5] * units.layers[unit, device] + weights[6] * units.bisection[unit, device]
        cost += weights[7] * (limit - left[device]) / limit
        if left[device] >= units.held[unit] and cost < lowest:
            best, lowest = device, cost
    return best


@njit(cache=True)
def _soonest(units, node, decision, free, arrived, left):
    """Return the device on which a ready operator can start first, of those where its unit fits."""
    unit, best, start = units.of[node], 0, np.inf
    if decision[unit] >= 0:
        return decision[unit]
    for device in range(len(free)):
        if left[device] >= units.held[unit] and max(free[device], arrived[node, device]) < start:
            best = device
            start = max(free[device], arrived[node, device])
    return best


@njit(cache=True)
def _first(rank, node, other):
    """Return whether an operator comes before another of the same priority."""
    return rank[node] > rank[other] or rank[node] == rank[other] and node < other
