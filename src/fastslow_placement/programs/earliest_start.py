"""Baechi's m-ETF (Jeon et al., SoCC 2020): operators one after the other, where they can start first.

A co-location group goes where its first operator goes. Communication costs latency + bytes / bandwidth, as in
the schedule, without waiting for links.
"""

from typing import Any

import numpy as np


def m_etf(problem: Any) -> np.ndarray:
    """Return m-ETF: repeatedly the ready operator and device with the earliest start, where it fits: (U,).

    Args:
        problem: A :class:`~fastslow_placement.programs.problems.PlacementProblem`.
    """
    graph, k = problem.graph, problem.devices
    transfer = problem.device.transfer_seconds(graph.output_bytes)
    memory = np.bincount(problem.units, graph.parameter_bytes + graph.output_bytes)
    left = np.full(k, problem.memory)
    decision = np.full(len(problem.choices), -1)
    free, finish, arrived = np.zeros(k), np.zeros(len(graph)), np.zeros((len(graph), k))
    waiting = [len(p) for p in graph.producers]
    ready = np.flatnonzero(np.array(waiting) == 0)
    while len(ready):
        units = problem.units[ready]
        start = np.maximum(free, arrived[ready])
        own = decision[units][:, None]
        allowed = np.where(own >= 0, own == np.arange(k), left >= memory[units][:, None])
        device = np.where(allowed, start, np.inf).argmin(1)
        keys = start[np.arange(len(ready)), device]
        ties = np.flatnonzero(keys == keys.min())
        row = ties[np.lexsort((ready[ties], -graph.upward_rank[ready[ties]]))[0]]
        node, unit, chosen = int(ready[row]), units[row], int(device[row])
        if decision[unit] < 0:
            decision[unit] = chosen
            left[chosen] -= memory[unit]
        free[chosen] = finish[node] = start[row, chosen] + graph.seconds[node]
        for consumer in graph.consumers[node]:
            waiting[consumer] -= 1
        released = [consumer for consumer in graph.consumers[node] if not waiting[consumer]]
        for consumer in released:
            arrived[consumer] = _arrival(problem, consumer, decision, finish, transfer)
        ready = np.concatenate([np.delete(ready, row), np.array(released, np.int64)])
    return decision


def _arrival(problem: Any, node: int, decision, finish, transfer) -> np.ndarray:
    """Return when all inputs of an operator are on each device: (devices,)."""
    arrived = np.zeros(problem.devices)
    for producer in problem.graph.producers[node]:
        there = np.full(problem.devices, finish[producer] + transfer[producer])
        there[decision[problem.units[producer]]] = finish[producer]
        np.maximum(arrived, there, out=arrived)
    return arrived
