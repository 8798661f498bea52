"""Placement rules that learn nothing: one device, by hand, METIS, and Baechi's m-TOPO, m-ETF and m-SCT.

Baechi: Jeon et al., SoCC 2020. Its rules place operators one after the other; a co-location group goes where
its
first operator goes. Communication costs latency + bytes / bandwidth, as in the environment, without waiting
for
links.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from fastslow.core.errors import SettingsError
from fastslow_placement.base.budget import unlimited
from fastslow_placement.base.local_search import Found
from fastslow_placement.base.problem import Problem
from fastslow_placement.programs.compiler_problems import PlacementProblem

_BATCH = 32  # random decisions evaluated at once
_FAVOURITE = 0.1  # an edge whose variable is below this joins a node with its favourite child


def one_device(problem: Problem) -> np.ndarray:
    """Return the decision that gives every unit the first option."""
    return np.zeros(len(problem.choices), np.int64)


def by_hand(problem: Problem) -> np.ndarray:
    """Return the contiguous split into runs of equal work, as an engineer splits by layers."""
    return problem.default


def best_random(
    problem: Problem, evaluations: int, rng: np.random.Generator, more: Callable[[], bool] = unlimited
) -> Found:
    """Return the best of random decisions; the first where none is valid.

    Args:
        problem: The problem.
        evaluations: Number of decisions, 1 or more.
        rng: Where randomness comes from.
        more: Whether there is time for another batch of decisions.
    """
    found = None
    for begin in range(0, evaluations, _BATCH):
        decisions = problem.draw(min(_BATCH, evaluations - begin), rng)
        found = found or Found(decisions[0].copy(), np.inf, 0, [])
        found.see(decisions, problem.evaluate(decisions).order)
        if not more():
            break
    return found


def metis(problem: Any) -> np.ndarray:
    """Return METIS' k-way partition: vertices weigh their work, edges their transfer time.

    Args:
        problem: A problem whose units choose devices, with attributes ``devices``, ``work`` and ``weight``.

    Raises:
        SettingsError: pymetis is not installed.
    """
    try:
        import pymetis
    except ImportError:
        raise SettingsError("pymetis is not installed: pip install -e '.[placement]'") from None
    count, parts = len(problem.choices), problem.devices
    weights: list[dict[int, float]] = [{} for _ in range(count)]
    for (u, v), weight in zip(problem.edges.tolist(), problem.weight, strict=True):
        for one, other in ((u, v), (v, u)):
            weights[one][other] = weights[one].get(other, 0.0) + weight
    starts = np.cumsum([0, *map(len, weights)]).tolist()
    neighbours = [other for own in weights for other in own]
    scale = 1000 / max(max(problem.weight, default=0.0), 1e-300)
    edges = [1 + int(weight * scale) for own in weights for weight in own.values()]
    work = 1 + (problem.work * 1000 / max(problem.work.max(), 1e-300)).astype(int)
    if parts == 1 or not neighbours:
        return np.arange(count) % parts
    options = pymetis.Options(seed=0)
    adjacency = pymetis.CSRAdjacency(starts, neighbours)
    _, found = pymetis.part_graph(parts, adjacency, vweights=work.tolist(), eweights=edges, options=options)
    return np.array(found, np.int64)


def m_topo(problem: PlacementProblem) -> np.ndarray:
    """Return m-TOPO: fill a device in topological order up to its share of memory and the largest unit."""
    memory = np.bincount(problem.units, problem.graph.parameter_bytes + problem.graph.output_bytes)
    limit = memory.sum() / problem.devices + memory.max()
    decision, device, used = np.zeros(len(memory), np.int64), 0, 0.0
    for unit, size in enumerate(memory):
        if used + size > limit and device < problem.devices - 1:
            device, used = device + 1, 0.0
        decision[unit], used = device, used + size
    return decision


def m_etf(problem: PlacementProblem, favourite: np.ndarray | None = None) -> np.ndarray:
    """Return m-ETF: repeatedly the ready operator and device with the earliest start, among those with
    memory.

    Args:
        problem: The problem.
        favourite: (N,) for each operator the producer whose device it prefers, -1 for none (m-SCT).
    """
    graph, k = problem.graph, problem.devices
    transfer = problem.device.transfer_seconds(graph.output_bytes)
    memory = np.bincount(problem.units, graph.parameter_bytes + graph.output_bytes)
    left = np.full(k, problem.memory)
    decision = np.full(len(problem.choices), -1)
    free, finish, arrived = np.zeros(k), np.zeros(len(graph)), np.zeros((len(graph), k))
    spared = np.zeros((len(graph), k))  # what the favourite's device saves
    waiting = [len(p) for p in graph.producers]
    ready = np.flatnonzero(np.array(waiting) == 0)
    while len(ready):
        units = problem.units[ready]
        start = np.maximum(free, arrived[ready])
        ranked = start - spared[ready]
        own = decision[units][:, None]
        allowed = np.where(own >= 0, own == np.arange(k), left >= memory[units][:, None])
        device = np.where(allowed, ranked, np.inf).argmin(1)
        keys = ranked[np.arange(len(ready)), device]
        ties = np.flatnonzero(keys == keys.min())
        row = ties[np.lexsort((ready[ties], -graph.upward_rank[ready[ties]]))[0]]
        node, unit, chosen = int(ready[row]), units[row], int(device[row])
        if decision[unit] < 0:
            decision[unit] = chosen
            left[chosen] -= memory[unit]
        free[chosen] = finish[node] = start[row, chosen] + graph.seconds[node]
        released = [consumer for consumer in graph.consumers[node] if _last_input(waiting, consumer)]
        for consumer in released:
            arrived[consumer] = _arrival(problem, consumer, decision, finish, transfer)
            parent = -1 if favourite is None else int(favourite[consumer])
            if parent >= 0:
                spared[consumer, decision[problem.units[parent]]] = transfer[parent]
        ready = np.concatenate([np.delete(ready, row), np.array(released, np.int64)])
    return decision


def _last_input(waiting: list[int], node: int) -> bool:
    """Count one input of an operator as there; return whether it was the last."""
    waiting[node] -= 1
    return not waiting[node]


def _arrival(problem: PlacementProblem, node: int, decision, finish, transfer) -> np.ndarray:
    """Return when all inputs of an operator are on each device: (devices,)."""
    arrived = np.zeros(problem.devices)
    for producer in problem.graph.producers[node]:
        there = np.full(problem.devices, finish[producer] + transfer[producer])
        there[decision[problem.units[producer]]] = finish[producer]
        np.maximum(arrived, there, out=arrived)
    return arrived


def m_sct(problem: PlacementProblem) -> np.ndarray:
    """Return m-SCT: earliest task first, guided by favourite children from a linear program.

    The program (Hanen and Munier 1995) chooses for each operator one consumer, and for each one producer,
    whose
    transfer is spared, such that the longest path is shortest.
    """
    graph, edges = problem.graph, problem.graph.edges
    nodes, count = len(graph), len(edges)
    if not count:
        return m_etf(problem)
    transfer = problem.device.transfer_seconds(graph.output_bytes)[edges[:, 0]]
    rows, every = np.arange(count), np.arange(nodes)
    # variables: start of each node, an edge's share of its transfer, the makespan
    entries = [
        (rows, edges[:, 0], 1.0),
        (rows, edges[:, 1], -1.0),
        (rows, nodes + rows, transfer),
        (count + every, every, 1.0),
        (count + every, np.full(nodes, nodes + count), -1.0),
    ]
    limits = [-graph.seconds[edges[:, 0]], -graph.seconds]
    last = count + nodes
    for side in (0, 1):
        entries.append((last + edges[:, side], nodes + rows, -1.0))
        limits.append(np.minimum(1 - np.bincount(edges[:, side], minlength=nodes), 0))
        last += nodes
    values = np.concatenate([np.broadcast_to(value, len(row)) for row, _, value in entries])
    positions = tuple(np.concatenate([entry[side] for entry in entries]) for side in (0, 1))
    table = coo_array((values, positions), shape=(last, nodes + count + 1)).tocsr()
    goal = np.zeros(nodes + count + 1)
    goal[-1] = 1
    bounds = [(0, None)] * nodes + [(0, 1)] * count + [(0, None)]
    solved = linprog(goal, table, np.concatenate(limits), bounds=bounds, method="highs")
    favourite = np.full(nodes, -1)
    if solved.success:
        spared = solved.x[nodes:-1] < _FAVOURITE
        favourite[edges[spared, 1]] = edges[spared, 0]
    return m_etf(problem, favourite)


PLACEMENT_RULES: dict[str, Callable[[PlacementProblem], np.ndarray]] = {
    "one device": one_device,
    "human": by_hand,
    "METIS": metis,
    "m-TOPO": m_topo,
    "m-ETF": m_etf,
    "m-SCT": m_sct,
}
