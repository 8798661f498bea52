"""Simulated annealing of placements by moves of connected regions, compiled (numba).

No policy is involved. A move gives a region of units, which have one device and are connected, another
device: that of a neighbour half the time, else any. ``benchmarks/go.py`` takes the best of long searches for
*best known*.
"""

import numpy as np

from fastslow_placement.base.search import Found
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.simulation import evaluate, njit

_LARGEST = 32  # units of a region
_FOLLOW = 0.5  # how often the new device is that of a neighbour
_HOT, _COOLING = 0.003, 1e-2  # first temperature over the cost; last over first


def anneal_regions(
    problem: PlacementProblem,
    evaluations: int,
    seed: int = 0,
    start: np.ndarray | None = None,
    heat: float = _HOT,
) -> Found:
    """Return the best decision of an annealing of regions.

    Args:
        problem: The problem.
        evaluations: Number of decisions that are evaluated, the starts included.
        seed: Seed of the moves.
        start: (U,) first decision; by default the best of the problem's starts.
        heat: First temperature over the cost of the first decision; it falls to a hundredth.
    """
    seen = 0
    if start is None:
        seen, costs = len(problem.starts), problem.evaluate(problem.starts).order
        start = problem.starts[costs.argmin()]
    count = max(evaluations - seen, 1) if problem.devices > 1 else 1
    both = np.concatenate([problem.edges, problem.edges[:, ::-1]]).astype(np.int64)
    near = both[np.argsort(both[:, 0], kind="stable"), 1]
    sizes = np.bincount(both[:, 0], minlength=len(problem.choices))
    begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    scheduler = problem.scheduler
    best, cost, history = _anneal(
        *(scheduler.arrays, scheduler.rank, problem.units, problem.devices, problem.memory),
        *(begins, near, np.asarray(start, np.int64), count, heat, np.random.default_rng(seed)),
    )
    return Found(best, float(cost), seen + count, [(int(n) + seen, float(c)) for n, c in history])


@njit(cache=True)
def _grow(decision, begins, near, unit, target, size, region, inside, rng):
    """Give a connected region around a unit another device, in place."""
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
        pick = rng.integers(0, len(rim))
        newest = rim[pick]
        rim[pick] = rim[-1]
        rim.pop()
        region[count] = newest
        count += 1
    for member in region[:count]:
        decision[member] = target


@njit(cache=True)
def _target(decision, begins, near, unit, devices, rng):
    """Return another device for a unit: a neighbour's half the time, if one has another, else any."""
    own = decision[unit]
    if rng.random() < _FOLLOW:
        around = near[begins[unit] : begins[unit + 1]]
        others = around[decision[around] != own]
        if len(others):
            return decision[others[rng.integers(0, len(others))]]
    return (own + 1 + rng.integers(0, devices - 1)) % devices


@njit(cache=True)
def _anneal(arrays, rank, members, devices, limit, begins, near, start, evaluations, heat, rng):
    current, candidate = start.copy(), start.copy()
    region, inside = np.empty(_LARGEST, np.int64), np.zeros(len(start), np.bool_)
    places = np.empty((1, len(members)), np.int64)
    places[0] = current[members]
    seconds, excess = evaluate(arrays, places, rank, devices, limit)
    cost = seconds[0] if excess[0] <= 0 else np.inf
    best, lowest, hot = current.copy(), cost, heat * cost
    history = [(1, cost)]
    for number in range(1, evaluations):
        candidate[:] = current
        unit = rng.integers(0, len(start))
        target = _target(current, begins, near, unit, devices, rng)
        _grow(candidate, begins, near, unit, target, int(_LARGEST ** rng.random()), region, inside, rng)
        places[0] = candidate[members]
        seconds, excess = evaluate(arrays, places, rank, devices, limit)
        new = seconds[0] if excess[0] <= 0 else np.inf
        temperature = hot * _COOLING ** (number / evaluations)
        if new <= cost or rng.random() < np.exp((cost - new) / temperature):
            current[:], cost = candidate, new
            if cost < lowest:
                best, lowest = current.copy(), cost
                history.append((number + 1, cost))
    return best, lowest, history
