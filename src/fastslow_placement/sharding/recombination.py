"""The best of two sharding decisions, part by part.

Where two decisions differ, the groups fall into parts that no link joins, so that the difference of their
costs is a sum over parts (partition crossover, Whitley et al. 2009). Each part takes the cheaper options
while memory allows. A search of a large graph then keeps what one try found here and another there.
"""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fastslow_placement.sharding.sharding import packed
from fastslow_placement.sharding.tied_strategies import TiedStrategies


class Recombination:
    """What recombines decisions of one problem.

    Args:
        groups: The groups of the problem.
    """

    def __init__(self, groups: TiedStrategies):
        self.groups, self.problem = groups, groups.problem
        self._pairs = np.array(
            [(g, o) for g, link in enumerate(groups.links) for o in link if g < o], np.int64
        ).reshape(-1, 2)
        self._tables, self._start, self._width = packed([groups.links[g][o] for g, o in self._pairs.tolist()])
        self._costs = np.concatenate(groups.costs)

    def best_of(self, base: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return a valid decision (G,) that costs no more than the valid one it starts from.

        Args:
            base: (G,) a valid decision; not changed.
            other: (G,) options to take where that is cheaper and fits; this decision need not be valid.
        """
        differs = base != other
        if not differs.any():
            return base
        part = self._parts(differs)
        change = self._change(base, other, part)
        cheaper = np.flatnonzero(change < 0)
        if not len(cheaper):
            return base
        cheaper = cheaper[np.argsort(change[cheaper], kind="stable")]
        kept = np.zeros(len(change), bool)
        kept[self._fitting(base, other, part, cheaper)] = True
        return np.where(differs & kept[part], other, base)

    def _parts(self, differs: np.ndarray) -> np.ndarray:
        """Return the part of each group; a group that is the same in both is a part of its own: (G,)."""
        u, v = self._pairs[differs[self._pairs].all(1)].T
        count = len(differs)
        return connected_components(coo_array((np.ones(len(u)), (u, v)), (count, count)), directed=False)[1]

    def _change(self, base: np.ndarray, other: np.ndarray, part: np.ndarray) -> np.ndarray:
        """Return how much more each part costs with the other decision's options."""
        first, (u, v) = self.groups.first[:-1], self._pairs.T
        change = np.bincount(part, self._costs[first + other] - self._costs[first + base])
        before, after = (self._tables[self._start + d[u] * self._width + d[v]] for d in (base, other))
        owner = part[np.where(base[u] != other[u], u, v)]
        return change + np.bincount(owner, after - before, len(change))

    def _fitting(self, base: np.ndarray, other: np.ndarray, part: np.ndarray, cheaper: np.ndarray) -> list:
        """Return those of some parts, in order, that fit in memory together with those before them."""
        problem, expand = self.problem, self.groups.expand
        first, limit = problem.first[:-1], problem.limit
        more = problem.usages[first + expand(other)] - problem.usages[first + expand(base)]
        usage = problem.usage(expand(base)[None])[0]
        nodes = np.flatnonzero((more != 0) & (problem.spans[:, 0] < problem.spans[:, 1]))
        of = part[self.groups.group_of[nodes]]
        nodes, of = nodes[by := np.argsort(of, kind="stable")], of[by]
        bounds = np.searchsorted(of, cheaper), np.searchsorted(of, cheaper, "right")
        kept = []
        for number, a, b in zip(cheaper.tolist(), *(bound.tolist() for bound in bounds), strict=True):
            if a == b:
                kept.append(number)
                continue
            begin, end = problem.spans[nodes[a:b]].T
            low, high = begin.min(), end.max()
            step = np.zeros(high - low + 1)
            np.add.at(step, begin - low, more[nodes[a:b]])
            np.add.at(step, end - low, -more[nodes[a:b]])
            used = usage[low:high] + step.cumsum()[:-1]
            if (used <= limit).all():
                usage[low:high] = used
                kept.append(number)
        return kept
