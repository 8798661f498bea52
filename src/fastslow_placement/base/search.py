"""Searches over any problem, counted in evaluations."""

from dataclasses import dataclass, field

import numpy as np

from fastslow_placement.base.problem import Problem

_COOLING = 1e-3  # last temperature over the first
_BATCH = 32


@dataclass
class Found:
    """The best decision of a search.

    Args:
        decision: (U,).
        cost: Its cost; infinite if no valid one was seen.
        evaluations: Number of decisions that were evaluated.
        history: Pairs (evaluations, best cost so far), one per improvement.
    """

    decision: np.ndarray
    cost: float = np.inf
    evaluations: int = 0
    history: list[tuple[int, float]] = field(default_factory=list)

    def see(self, decisions: np.ndarray, costs: np.ndarray) -> None:
        """Count evaluated decisions (B, U) with costs (B,), infinite where invalid."""
        best = int(costs.argmin())
        self.evaluations += len(costs)
        if costs[best] < self.cost:
            self.cost = float(costs[best])
            self.decision = decisions[best].copy()
            self.history.append((self.evaluations, self.cost))


def best_of(problem: Problem, decisions: np.ndarray) -> Found:
    """Return the cheapest valid one of some decisions (B, U) of a problem; the first where none is valid."""
    found = Found(decisions[0].copy())
    found.see(decisions, problem.evaluate(decisions).order)
    return found


def anneal(problem: Problem, evaluations: int, seed: int = 0, start: np.ndarray | None = None) -> Found:
    """Return the best decision of simulated annealing (Kirkpatrick et al. 1983).

    A move gives one unit another option. The first temperature is the mean step uphill of the first moves. It
    falls geometrically to a thousandth.

    Args:
        problem: The problem.
        evaluations: Number of decisions that are evaluated, the starts included.
        seed: Seed of the moves.
        start: (U,) first decision; by default the best of the problem's starts.
    """
    rng = np.random.default_rng(seed)
    found = best_of(problem, problem.starts[:evaluations] if start is None else np.asarray(start)[None])
    movable = np.flatnonzero(problem.choices > 1)
    current = found.decision.copy()
    cost = found.cost
    left = evaluations - found.evaluations
    if not len(movable) or left < 1:
        return found
    tries = _neighbours(problem, current, movable, min(_BATCH, left), rng)
    costs = problem.evaluate(tries).order
    found.see(tries, costs)
    uphill = costs[np.isfinite(costs) & (costs > cost)] - cost
    first = float(uphill.mean()) if len(uphill) and np.isfinite(cost) else 1e-3 * problem.baseline
    while found.evaluations < evaluations:
        temperature = max(first, 1e-300) * _COOLING ** (found.evaluations / evaluations)
        candidate = _neighbours(problem, current, movable, 1, rng)
        new = float(problem.evaluate(candidate).order[0])
        found.see(candidate, np.array([new]))
        if new <= cost or rng.random() < np.exp((cost - new) / temperature):
            current, cost = candidate[0], new
    return found


def _neighbours(problem: Problem, decision: np.ndarray, movable: np.ndarray, count: int, rng) -> np.ndarray:
    """Return copies of a decision with another option for one unit each: (count, U)."""
    copies = np.repeat(decision[None], count, 0)
    units = rng.choice(movable, count)
    shift = 1 + (rng.random(count) * (problem.choices[units] - 1)).astype(np.int64)
    copies[np.arange(count), units] = (decision[units] + shift) % problem.choices[units]
    return copies
