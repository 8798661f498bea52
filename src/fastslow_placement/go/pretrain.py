"""Imitation: the policy learns from searches which changes improve a placement, and where a search ends.

A search without a policy (:mod:`fastslow_placement.programs.region_search`) is run on each problem, from its
default and from its best start. At some of the decisions that it passes, random regions change, and their
gains are evaluated. Two losses are summed for every pass of the policy at such a decision:

- *changes*: minus the log-probability of proposing (:func:`log_first`) a change that gains, weighted by gain;
- *ends*: minus the mean log-probability of the best decision of the search that passed here.

Both are expert iteration (Anthony et al., arXiv:1705.08439) with a search as the expert.
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from fastslow_placement.go.policy import Inputs, Policy
from fastslow_placement.go.proposals import Changes, log_first, log_probability
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.region_search import Neighbourhood

_STATES, _MOVES = 8, 256
_SHORT, _COLD = 800, 1e-4  # evaluations and first temperature of the search whose end a lesson holds


class Lesson(NamedTuple):
    """What a search taught at one decision.

    Args:
        state: (U,) the decision.
        end: (U,) the best decision of a short, cold search from there, its devices renamed to agree most.
        units: (M,) first unit of each change that gains.
        options: (M,) its new option.
        shares: (M,) as in :class:`~fastslow_placement.go.proposals.Change`.
        follow: (M,) likewise.
        weights: (M,) gains over their sum.
    """

    state: np.ndarray
    end: np.ndarray
    units: torch.Tensor
    options: torch.Tensor
    shares: torch.Tensor
    follow: torch.Tensor
    weights: torch.Tensor


def lessons(problem: PlacementProblem, evaluations: int, seed: int) -> list[Lesson]:
    """Return the lessons of a problem.

    Args:
        problem: The problem.
        evaluations: Length of each search.
        seed: Seed of the searches.
    """
    around, pool, found = Neighbourhood(problem), Changes(problem), []
    begins = [problem.default, problem.starts[problem.evaluate(problem.starts).order.argmin()]]
    for number, begin in enumerate(begins):
        states = around.search(begin, evaluations, seed + number, _STATES)[1]
        for state in np.unique(states, axis=0):
            best, _ = around.search(state, _SHORT, seed, heat=_COLD)
            moves = around.moves(state, _MOVES, seed)
            gains = 1 - problem.evaluate(moves.decisions).order / problem.evaluate(state[None]).order[0]
            good = np.flatnonzero(gains > 1e-6)
            units, options = moves.units[good], moves.targets[good]
            columns = [*map(torch.from_numpy, (units, options)), *pool.known(state, units, options)]
            weights = torch.from_numpy(gains[good] / max(gains[good].sum(), 1e-300)).float()
            found.append(Lesson(state, aligned(best.decision, state), *columns, weights))
    return found


def aligned(decision: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return a decision (U,) with its devices renamed so that most units agree with another decision (U,)."""
    count = int(max(decision.max(), other.max())) + 1
    together = np.zeros((count, count))
    np.add.at(together, (decision, other), 1)
    return linear_sum_assignment(together, maximize=True)[1][decision]


def loss(policy: Policy, inputs: Inputs, lesson: Lesson, movable: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses of a lesson, *changes* and *ends*, each the mean over the passes.

    Args:
        policy: The policy.
        inputs: The problem.
        lesson: What to learn.
        movable: (U,) whether a unit has more than one option.
    """
    passes, end = policy.passes(inputs, start=lesson.state), torch.from_numpy(lesson.end)[None]
    known = lesson.units, lesson.options, lesson.shares, lesson.follow, movable
    changes = [-(lesson.weights * log_first(logs, lesson.state, *known)).sum() for logs in passes]
    ends = [-log_probability(logs, end).mean() for logs in passes]
    return sum(changes) / len(passes), sum(ends) / len(passes)
