"""Placement by a list scheduler whose weights were learned on other programs.

Operators are placed one after the other, as HEFT (Topcuoglu et al. 2002) and Baechi's m-ETF (Jeon et al.,
SoCC 2020) do: the ready operator of the lowest priority number goes to the device of the lowest cost. Both
numbers are sums of what is known at that moment, times :data:`WEIGHTS`. m-ETF is one set of weights. Ten sets
in ``list_placement.json`` were learned together: each program takes the best of its ten placements.
``benchmarks/list_placement.py`` learns them.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.core.files import read_json
from fastslow_placement.base.jit import njit

WEIGHTS = ("start", "rank", "device start", "load", "neighbours", "layers", "bisection", "memory")
"""Of the priority: the earliest start on any device, and the longest path to the end (lower for a longer
one). Of a device's cost: the start there; its load with the fair share as unit; the share of the unit's
neighbours there by what they exchange (lower for more); the squared distance from a split by layers and from
one by spectral bisection; and its share of memory in use. Times are relative to the bound of the runtime."""
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
    graph, count = problem.graph, len(problem.choices)
    both = np.concatenate([problem.edges, problem.edges[:, ::-1]]).astype(np.int64)
    order = np.argsort(both[:, 0], kind="stable")
    begins = np.concatenate([[0], np.cumsum(np.bincount(both[:, 0], minlength=count))]).astype(np.int64)
    slots = np.arange(problem.devices) + 0.5
    splits = (np.minimum((p[:, None] * problem.devices - slots) ** 2, _FAR) for p in problem.positions)
    inputs: tuple[Any, ...] = (
        *(problem.scheduler.arrays, problem.units.astype(np.int64), begins, both[order, 1]),
        *(np.concatenate([problem.weight, problem.weight])[order].astype(np.float64), problem.work),
        *(np.bincount(problem.units, graph.parameter_bytes + graph.output_bytes), *splits),
        *(graph.upward_rank, max(graph.critical_path, 1e-300), problem.devices, float(problem.memory)),
    )
    return np.stack([_place(*inputs, weights=own) for own in np.asarray(weights, np.float64)])


@njit(cache=True)
def _place(
    arrays,
    units,
    begins,
    near,
    exchange,
    work,
    held,
    layers,
    bisection,
    rank,
    longest,
    devices,
    limit,
    weights,
):
    """Return the device of each unit, see :func:`list_placements`."""
    count, fair = len(units), max(work.sum() / devices, 1e-300)
    bound = max(longest, fair)
    decision, waiting = np.full(len(work), -1, np.int64), arrays.inputs.copy()
    free, load, left = np.zeros(devices), np.zeros(devices), np.full(devices, limit)
    arrived, there = np.zeros((count, devices)), np.empty(devices)
    ready, number = np.empty(count, np.int64), 0
    start, where = np.zeros(count), np.full(count, -1, np.int64)  # the earliest of a ready operator
    for node in range(count):
        if waiting[node] == 0:
            ready[number] = node
            number += 1
    unit = device = -1
    while number:
        row, lowest = 0, np.inf
        for place in range(number):
            node = ready[place]
            if where[node] < 0 or where[node] == device or units[node] == unit:  # the last step changed it
                where[node] = _soonest(node, units, decision, free, arrived, left, held)
                start[node] = max(free[where[node]], arrived[node, where[node]])
            own = weights[0] * start[node] / bound - weights[1] * rank[node] / longest
            if own < lowest or own == lowest and _first(rank, node, ready[row]):
                row, lowest = place, own
        node = ready[row]
        number -= 1
        ready[row] = ready[number]
        unit = units[node]
        if decision[unit] < 0:
            there[:], total = 0.0, 1e-300
            for edge in range(begins[unit], begins[unit + 1]):
                total += exchange[edge]
                if decision[near[edge]] >= 0:
                    there[decision[near[edge]]] += exchange[edge]
            chosen, cost = 0, np.inf
            for device in range(devices):
                own = weights[2] * max(free[device], arrived[node, device]) / bound
                own += weights[3] * load[device] / fair - weights[4] * there[device] / total
                own += weights[5] * layers[unit, device] + weights[6] * bisection[unit, device]
                own += weights[7] * (limit - left[device]) / limit
                if left[device] >= held[unit] and own < cost:
                    chosen, cost = device, own
            decision[unit] = chosen
            left[chosen] -= held[unit]
            load[chosen] += work[unit]
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
def _soonest(node, units, decision, free, arrived, left, held):
    """Return the device on which a ready operator can start first, of those where its unit fits."""
    unit, found, start = units[node], 0, np.inf
    if decision[unit] >= 0:
        return decision[unit]
    for device in range(len(free)):
        if left[device] >= held[unit] and max(free[device], arrived[node, device]) < start:
            found, start = device, max(free[device], arrived[node, device])
    return found


@njit(cache=True)
def _first(rank, node, other):
    """Return whether an operator comes before another of the same priority."""
    return rank[node] > rank[other] or rank[node] == rank[other] and node < other
