"""Repair of sharding decisions that exceed the memory limit, the cheapest change per byte first.

Prices of changes mostly rise while a decision is repaired, as fewer bytes are left to save, so that a heap
of prices that are brought up to date when they come to the top (lazy greedy, Minoux 1978) finds the change
that a look at all groups would. A change costs what its own group and its neighbours need, whatever the size
of the graph.
"""

import heapq
from collections.abc import Callable

import numpy as np

from fastslow_placement.base.search import unlimited
from fastslow_placement.sharding.tied_strategies import TiedStrategies

_MANY = 64  # a neighbour of more links waits until it comes to the top of the heap
_RARE = 1e-9  # of the mean cost of a group: the least that a change counts as


class MemoryRepair:
    """What repairs decisions of one problem.

    Args:
        groups: The groups of the problem.
    """

    def __init__(self, groups: TiedStrategies):
        self.groups, self.problem = groups, groups.problem
        self._spans = [self.problem.spans[nodes].tolist() for nodes in groups.nodes]
        self._window = [(min(a for a, _ in own), max(b for _, b in own)) for own in self._spans]

    def repaired(self, chosen: np.ndarray, more: Callable[[], bool] = unlimited) -> np.ndarray:
        """Return a decision (G,) changed until it fits, no change lowers the excess or time is over.

        The excess is the sum over times of the bytes over the limit; every change lowers it.

        Args:
            chosen: (G,) options; not changed.
            more: Whether there is time for another change; there are at most four for each group.
        """
        self._chosen = chosen.copy()
        self._usage = self.problem.usage(self.groups.expand(chosen)[None])[0]
        cost = float(self.problem.cost(self.groups.expand(chosen)[None])[0])
        self._least = max(cost / len(self.groups), 1e-300) * _RARE
        left = 4 * len(self.groups)
        while left > 0:
            made = self._round(left, more)
            left -= made
            if not made:
                break
        return self._chosen

    def _round(self, left: int, more: Callable[[], bool]) -> int:
        """Make changes until none of those that helped at the beginning does; return their number."""
        over = np.maximum(self._usage - self.problem.limit, 0)
        sums = np.concatenate([[0.0], np.cumsum(over)])
        toll = sums[self.problem.spans[:, 1]] - sums[self.problem.spans[:, 0]]
        alive = np.unique(self.groups.group_of[toll > 0]).tolist()
        heap = [one for one in (self._offer(g, toll[self.groups.nodes[g]]) for g in alive) if one]
        heapq.heapify(heap)
        made = 0
        while heap and made < left and more():
            group = heap[0][1]
            offer = self._offer(group)
            if offer is None or (len(heap) > 1 and offer[0] > min(heap[1:3])[0]):
                heapq.heapreplace(heap, offer) if offer else heapq.heappop(heap)
            elif self._take(*offer[1:]):
                made += 1
                heapq.heappop(heap)
                beside = [o for o in self.groups.links[group] if len(self.groups.links[o]) <= _MANY]
                for other in (group, *beside):
                    if (again := self._offer(other)) is not None:
                        heapq.heappush(heap, again)
            else:
                heapq.heappop(heap)
        return made

    def _offer(self, group: int, toll: np.ndarray | None = None) -> tuple[float, int, int] | None:
        """Return cost per byte, group and option of the cheapest change that saves memory; None if none does.

        Args:
            group: The group.
            toll: (nodes,) sum of the excess over the lifetime of each of its nodes; found by default.
        """
        if toll is None:
            low, high = self._window[group]
            over = np.maximum(self._usage[low:high] - self.problem.limit, 0)
            toll = np.array([over[a - low : b - low].sum() for a, b in self._spans[group]])
        memory = toll @ self.groups.memory[group]
        own = int(self._chosen[group])
        saved = memory[own] - memory
        if saved.max() <= 0:
            return None
        cost = self.groups.costs[group]
        for other, table in self.groups.links[group].items():
            cost = cost + table[:, self._chosen[other]]
        more = np.maximum(cost - cost[own], self._least)
        price = np.divide(more, saved, out=np.full(len(saved), np.inf), where=saved > 0)
        option = int(price.argmin())
        return float(price[option]), group, option

    def _take(self, group: int, option: int) -> bool:
        """Change a group's option if that lowers the excess; return whether it did."""
        low, high = self._window[group]
        memory = self.groups.memory[group]
        change = memory[:, option] - memory[:, self._chosen[group]]
        usage = self._usage[low:high].copy()
        for (a, b), own in zip(self._spans[group], change.tolist(), strict=True):
            usage[a - low : b - low] += own
        limit = self.problem.limit
        before = np.maximum(self._usage[low:high] - limit, 0).sum()
        if np.maximum(usage - limit, 0).sum() >= before:
            return False
        self._usage[low:high] = usage
        self._chosen[group] = option
        return True
