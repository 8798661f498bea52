"""What the policy decides, and the search that follows it, for each kind of problem."""

from collections.abc import Callable

import numpy as np

from fastslow_placement.base.budget import Budget
from fastslow_placement.base.local_search import Found, improve
from fastslow_placement.base.problem import Problem
from fastslow_placement.public.hub_sharding import HubSharding
from fastslow_placement.public.ordered_split import OrderedSplit
from fastslow_placement.public.public_problems import PartitionProblem, ShardingProblem
from fastslow_placement.public.split_search import anneal_split
from fastslow_placement.sharding.sharding_search import search

CANDIDATES = {"throughput": 100, "latency": 2}
"""Splits that the annealing looks at in about the time of one other evaluation."""


def decision_space(problem: Problem, more: Callable[[], bool] | None = None) -> Problem:
    """Return the problem as the policy decides it; its ``decode`` gives decisions of ``problem``.

    Args:
        problem: The problem.
        more: Whether there is time to decode a decision of iopddl at length; by default that of the problem.
    """
    if isinstance(problem, PartitionProblem):
        return OrderedSplit(problem)
    return HubSharding(problem, more) if isinstance(problem, ShardingProblem) else problem


def refine(problem: Problem, start: np.ndarray, evaluations: int, budget: Budget, seed: int = 0) -> Found:
    """Return the best decision of the search that fits the problem, from a start; no worse than a valid one.

    Args:
        problem: The problem.
        start: (U,) first decision.
        evaluations: Budget; splits of a workload come ``CANDIDATES`` times as often.
        budget: Time on a sharding problem instead; what is left of it is spent.
        seed: Seed.
    """
    if isinstance(problem, PartitionProblem):
        return anneal_split(problem, start, evaluations * CANDIDATES[problem.objective], seed)
    if isinstance(problem, ShardingProblem):
        state = search(problem.sharding, budget, seed, start, problem.priced(0))
        if state.best is None:
            return Found.of(problem, start)
        return Found(state.best, state.best_cost, state.evaluations, state.history)
    return improve(problem, start, evaluations, seed)
