"""Repair of sharding decisions that exceed the memory limit, the cheapest changes per byte first."""

from collections.abc import Callable

import numpy as np

from fastslow_placement.base.search import unlimited
from fastslow_placement.sharding.tied_strategies import TiedStrategies

_AT_ONCE = 0.1  # share of the offers that are taken before all are priced again
_RARE = 1e-9  # of the mean cost of a group: the least that a change counts as


def repaired(
    groups: TiedStrategies, decision: np.ndarray, more: Callable[[], bool] = unlimited
) -> np.ndarray:
    """Return a decision (G,) changed until it fits, no change lowers the excess or time is over.

    The excess is the sum over times of the bytes over the limit; every change lowers it.

    Args:
        groups: The groups of the problem.
        decision: (G,) options; not changed.
        more: Whether there is time for another change.
    """
    problem, chosen = groups.problem, decision.copy()
    usage = problem.usage(groups.expand(chosen)[None])[0]
    least = _RARE * max(float(problem.cost(groups.expand(chosen)[None])[0]) / len(groups), 1e-290)
    changed = True
    while changed and more():
        toll = problem.tolls(np.maximum(usage - problem.limit, 0))
        alive = np.unique(groups.group_of[toll > 0]).tolist()
        offers = sorted(filter(None, (_offer(groups, chosen, group, toll, least) for group in alive)))
        left, changed = max(int(len(offers) * _AT_ONCE), 1), False
        for _, group, option in offers:
            after = _usage_after(groups, chosen, group, option, usage)
            if np.maximum(after - problem.limit, 0).sum() < np.maximum(usage - problem.limit, 0).sum():
                usage, chosen[group], changed, left = after, option, True, left - 1
            if not left or not more():
                break
    return chosen


def _offer(groups: TiedStrategies, chosen: np.ndarray, group: int, toll: np.ndarray, least: float):
    """Return cost per byte, group and option of the cheapest change that saves memory; None if none does."""
    own = int(chosen[group])
    memory = toll[groups.nodes[group]] @ groups.memory[group]
    saved = memory[own] - memory
    if saved.max() <= 0:
        return None
    cost = groups.costs[group]
    for other, table in groups.links[group].items():
        cost = cost + table[:, chosen[other]]
    price = np.full(len(saved), np.inf)
    np.divide(np.maximum(cost - cost[own], least), saved, out=price, where=saved > 0)
    return float(price.min()), group, int(price.argmin())


def _usage_after(groups: TiedStrategies, chosen, group: int, option: int, usage: np.ndarray) -> np.ndarray:
    """Return the memory in use over time after a group has changed its option."""
    usage, memory = usage.copy(), groups.memory[group]
    added = (memory[:, option] - memory[:, chosen[group]]).tolist()
    for (begin, end), more in zip(groups.problem.spans[groups.nodes[group]], added, strict=True):
        usage[begin:end] += more
    return usage
