"""Simulated annealing and local search over any problem, both counted in evaluations."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fastslow_placement.base.budget import unlimited
from fastslow_placement.base.problem import Problem

_COOLING = 1e-3  # last temperature over the first
_BATCH = 32


@dataclass
class Found:
    """The best decision of a search.

    Args:
        decision: (U,).
        cost: Its cost; infinite if no valid one was seen.
        evaluations: How many decisions were evaluated.
        history: Pairs (evaluations, best cost so far), one per improvement.
    """

    decision: np.ndarray
    cost: float
    evaluations: int
    history: list[tuple[int, float]]

    @classmethod
    def of(cls, problem: Problem, decision: np.ndarray) -> "Found":
        """Return one evaluated decision."""
        cost = float(problem.evaluate(np.asarray(decision)[None]).order[0])
        return cls(np.asarray(decision).copy(), cost, 1, [(1, cost)])

    def see(self, decisions: np.ndarray, costs: np.ndarray) -> None:
        """Count evaluated decisions (B, U) with costs (B,), infinite where invalid."""
        best = int(costs.argmin())
        self.evaluations += len(costs)
        if costs[best] < self.cost:
            self.cost, self.decision = float(costs[best]), decisions[best].copy()
            self.history.append((self.evaluations, self.cost))


def anneal(
    problem: Problem,
    evaluations: int,
    seed: int = 0,
    start: np.ndarray | None = None,
    more: Callable[[], bool] = unlimited,
) -> Found:
    """Return the best decision of simulated annealing (Kirkpatrick et al. 1983).

    A move gives one unit another option. The first temperature is the mean step uphill of the first moves,
    then
    it falls geometrically to a thousandth.

    Args:
        problem: The problem.
        evaluations: Budget.
        seed: Seed of the moves.
        start: (U,) first decision; by default the problem's.
        more: Whether there is time for another move.
    """
    rng = np.random.default_rng(seed)
    found = Found.of(problem, problem.default if start is None else start)
    movable = np.flatnonzero(problem.choices > 1)
    current, cost = found.decision.copy(), found.cost
    if not len(movable):
        return found
    tries = _neighbours(problem, current, movable, min(_BATCH, evaluations), rng)
    costs = problem.evaluate(tries).order
    found.see(tries, costs)
    uphill = costs[np.isfinite(costs) & (costs > cost)] - cost
    first = (
        float(uphill.mean()) if len(uphill) and np.isfinite(cost) else 1e-3 * max(problem.baseline, 1e-300)
    )
    while found.evaluations < evaluations and more():
        temperature = first * _COOLING ** (found.evaluations / evaluations)
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


def improve(problem: Problem, start: np.ndarray, evaluations: int, seed: int = 0) -> Found:
    """Return the best decision of a local search from a start.

    Batches of moves: one unit takes another option, a run of neighbouring units follows the unit beside it,
    or
    two units exchange options. The best of a batch is taken if it is no worse by the problem's guide.

    Args:
        problem: The problem.
        start: (U,) first decision.
        evaluations: Budget.
        seed: Seed of the moves.
    """
    rng = np.random.default_rng(seed)
    found = Found.of(problem, start)
    movable = np.flatnonzero(problem.choices > 1)
    if not len(movable):
        return found
    current = found.decision.copy()
    value = problem.guide(current[None])[0]
    while found.evaluations < evaluations:
        count = min(_BATCH, evaluations - found.evaluations)
        third = count // 3
        moves = [_neighbours(problem, current, movable, count - 2 * third, rng)]
        if third:
            moves += [_runs(problem, current, third, rng), _exchanges(problem, current, third, rng)]
        candidates = np.concatenate(moves)
        found.see(candidates, problem.evaluate(candidates).order)
        values = problem.guide(candidates)
        best = int(values.argmin())
        if values[best] <= value:
            current, value = candidates[best], values[best]
    return found


def _runs(problem: Problem, decision: np.ndarray, count: int, rng) -> np.ndarray:
    """Return copies in which a run of units takes the option of the unit before or after it."""
    copies, units = np.repeat(decision[None], count, 0), len(decision)
    for copy in copies:
        length = int(rng.integers(1, max(2, min(12, units // 4 + 1))))
        begin = int(rng.integers(0, max(units - length, 1)))
        beside = begin - 1 if rng.random() < 0.5 else begin + length
        run = slice(begin, begin + length)
        copy[run] = np.minimum(decision[int(np.clip(beside, 0, units - 1))], problem.choices[run] - 1)
    return copies


def _exchanges(problem: Problem, decision: np.ndarray, count: int, rng) -> np.ndarray:
    """Return copies in which two units have exchanged their options."""
    copies = np.repeat(decision[None], count, 0)
    pairs = rng.integers(0, len(decision), (count, 2))
    for copy, (one, other) in zip(copies, pairs, strict=True):
        copy[one] = min(decision[other], problem.choices[one] - 1)
        copy[other] = min(decision[one], problem.choices[other] - 1)
    return copies
