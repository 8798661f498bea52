"""Simulated annealing of placements by moves of connected regions, compiled (numba).

No policy is involved. A move gives a region of units, which have one device and are connected, another device:
that of a neighbour half the time, else any. ``benchmarks/go.py`` takes the best of long searches for *best
known*, and :mod:`fastslow_placement.go.pretrain` learns from moves and ends of searches.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from fastslow_placement.base.search import Found
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.simulation import evaluate

_LARGEST = 32  # units of a region
_HOT, _COOLING = 0.003, 1e-2  # first temperature over the cost; last over first


class Moves(NamedTuple):
    """Decisions that differ from one decision by one region each.

    Args:
        decisions: (M, U) int64 the decisions.
        units: (M,) int64 unit from which the region grew.
        targets: (M,) int64 its new device.
    """

    decisions: np.ndarray
    units: np.ndarray
    targets: np.ndarray


class Neighbourhood:
    """The neighbours of each unit of a placement, as arrays.

    Args:
        problem: The placement.
    """

    def __init__(self, problem: PlacementProblem):
        self.problem = problem
        both = np.concatenate([problem.edges, problem.edges[:, ::-1]]).astype(np.int64)
        self.near = both[np.argsort(both[:, 0], kind="stable"), 1]
        sizes = np.bincount(both[:, 0], minlength=len(problem.choices))
        self.begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def moves(self, decision: np.ndarray, count: int, seed: int) -> Moves:
        """Return random moves of a decision (U,); their first units and devices are uniform."""
        return Moves(*_moves(decision, self.begins, self.near, self.problem.devices, count, seed))

    def search(
        self, start: np.ndarray, evaluations: int, seed: int, snapshots: int = 0, heat: float = _HOT
    ) -> tuple[Found, np.ndarray]:
        """Anneal from a valid decision.

        Args:
            start: (U,) first decision.
            evaluations: Number of decisions that are evaluated.
            seed: Seed of the moves.
            snapshots: Number S of current decisions to return, at times of a geometric sequence, which may repeat.
            heat: First temperature over the cost of the start; it falls to a thousandth.

        Returns:
            The best decision, and the current decisions at S times: (S, U).
        """
        problem, scheduler = self.problem, self.problem.scheduler
        if problem.devices == 1:
            evaluations = 1
        times = np.geomspace(1, evaluations, snapshots).astype(np.int64)
        best, cost, states, history = _anneal(
            *(scheduler.arrays, scheduler.rank, problem.units, problem.devices, problem.memory),
            *(self.begins, self.near, np.asarray(start, np.int64), evaluations, heat, seed, times),
        )
        return Found(best, float(cost), evaluations, [(int(n), float(c)) for n, c in history]), states


def anneal_regions(
    problem: PlacementProblem, evaluations: int, seed: int = 0, start: np.ndarray | None = None
) -> Found:
    """Return the best decision of :meth:`Neighbourhood.search`.

    Args:
        problem: The problem.
        evaluations: Number of decisions that are evaluated, the starts included.
        seed: Seed of the moves.
        start: (U,) first decision; by default the best of the problem's starts.
    """
    seen = 0
    if start is None:
        seen, costs = len(problem.starts), problem.evaluate(problem.starts).order
        start = problem.starts[costs.argmin()]
    found, _ = Neighbourhood(problem).search(start, max(evaluations - seen, 1), seed)
    history = [(count + seen, cost) for count, cost in found.history]
    return Found(found.decision, found.cost, found.evaluations + seen, history)


@njit(cache=True)
def _grow(decision, begins, near, unit, target, size, region, inside):
    """Give a connected region around a unit another device, in place; return its number of units."""
    own, count = decision[unit], 1
    region[0] = unit
    inside[:] = False
    inside[unit] = True
    rim = [np.int64(0) for _ in range(0)]
    newest = unit
    while count < size:
        for other in near[begins[newest] : begins[newest + 1]]:
            if not inside[other] and decision[other] == own:
                inside[other] = True
                rim.append(other)
        if len(rim) == 0:
            break
        pick = np.random.randint(len(rim))
        newest = rim[pick]
        rim[pick] = rim[-1]
        rim.pop()
        region[count] = newest
        count += 1
    for member in region[:count]:
        decision[member] = target
    return count


@njit(cache=True)
def _target(decision, begins, near, unit, devices, follow):
    """Return another device for a unit: a neighbour's with this chance, if one has another, else any."""
    own = decision[unit]
    if np.random.random() < follow:
        around = near[begins[unit] : begins[unit + 1]]
        others = around[decision[around] != own]
        if len(others):
            return decision[others[np.random.randint(len(others))]]
    return (own + 1 + np.random.randint(devices - 1)) % devices


@njit(cache=True)
def _moves(decision, begins, near, devices, count, seed):
    np.random.seed(seed)
    units, targets = np.empty(count, np.int64), np.empty(count, np.int64)
    decisions = np.empty((count, len(decision)), np.int64)
    region, inside = np.empty(_LARGEST, np.int64), np.zeros(len(decision), np.bool_)
    for row in range(count):
        decisions[row] = decision
        units[row] = np.random.randint(len(decision))
        targets[row] = _target(decision, begins, near, units[row], devices, 0.0)
        size = int(_LARGEST ** np.random.random())
        _grow(decisions[row], begins, near, units[row], targets[row], size, region, inside)
    return decisions, units, targets


@njit(cache=True)
def _anneal(
    arrays, rank, members, devices, limit, begins, near, start, evaluations, heat, seed, times
):
    np.random.seed(seed)
    current, candidate = start.copy(), start.copy()
    region, inside = np.empty(_LARGEST, np.int64), np.zeros(len(start), np.bool_)
    places = np.empty((1, len(members)), np.int64)
    states, kept = np.empty((len(times), len(start)), np.int64), 0
    places[0] = current[members]
    seconds, excess = evaluate(arrays, places, rank, devices, limit)
    cost = seconds[0] if excess[0] <= 0 else np.inf
    best, lowest, hot = current.copy(), cost, heat * cost
    history = [(1, cost)]
    for number in range(1, evaluations):
        candidate[:] = current
        unit = np.random.randint(len(start))
        target = _target(current, begins, near, unit, devices, 0.5)
        _grow(candidate, begins, near, unit, target, int(_LARGEST ** np.random.random()), region, inside)
        places[0] = candidate[members]
        seconds, excess = evaluate(arrays, places, rank, devices, limit)
        new = seconds[0] if excess[0] <= 0 else np.inf
        temperature = hot * _COOLING ** (number / evaluations)
        if new <= cost or np.random.random() < np.exp((cost - new) / temperature):
            current[:], cost = candidate, new
            if cost < lowest:
                best, lowest = current.copy(), cost
                history.append((number + 1, cost))
        while kept < len(times) and number >= times[kept]:
            states[kept] = current
            kept += 1
    while kept < len(times):
        states[kept] = current
        kept += 1
    return best, lowest, states, history
