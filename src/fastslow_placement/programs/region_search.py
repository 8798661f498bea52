"""Simulated annealing of placements by moves of connected regions, compiled (numba).

A move gives a region of units, which have one device and are connected, another device: half the time a
neighbour's, else any. ``benchmarks/placement.py`` takes the best of long searches for *best known*.
"""

import numpy as np

from fastslow_placement.base.search import Found, best_of
from fastslow_placement.programs import simulation
from fastslow_placement.programs.problems import PlacementProblem

_HOT = 0.003  # first temperature over the cost


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
        heat: First temperature over the cost of the first valid decision; it falls to a hundredth.
    """
    seen = 0
    if start is None:
        first = best_of(problem, problem.starts[:evaluations])
        seen, start = first.evaluations, first.decision
        if seen == evaluations:
            return first
    count = evaluations - seen if problem.devices > 1 else 1  # nothing can move
    begins, near, _ = problem.adjacency
    scheduler = problem.scheduler
    best, cost, history = simulation.walk_regions(
        scheduler.arrays,
        scheduler.rank,
        problem.units,
        problem.devices,
        problem.memory,
        begins,
        near,
        np.asarray(start, np.int64),
        count,
        heat,
        np.random.default_rng(seed),
    )
    return Found(best, float(cost), seen + count, [(int(n) + seen, float(c)) for n, c in history])
