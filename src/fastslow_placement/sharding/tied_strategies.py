"""Nodes of a sharding problem whose strategies are tied, as one group that chooses once.

Most forbidden pairs say that two nodes must be sharded alike: each strategy of one allows a single strategy
of the other. Such nodes are joined, strategies that are forbidden or have no allowed partner are dropped, and
so on until nothing changes. On the contest's graphs no forbidden pair is left between groups, and a third of
the nodes. Nothing valid is lost: each valid decision is one of the groups.
"""

from collections import deque
from collections.abc import Callable

import numpy as np

from fastslow.core.errors import SettingsError
from fastslow_placement.base.search import unlimited
from fastslow_placement.sharding.sharding import FORBIDDEN, Sharding


class TiedStrategies:
    """The groups of one problem; options of all groups are numbered through.

    Attributes:
        first: (G + 1,) group g has the options first[g] to first[g + 1] - 1.
        costs: For each group the cost of its options, that of edges inside the group included.
        links: For each group its neighbours and the costs (own options, neighbour's options) between them.
        nodes: For each group its nodes.
        group_of: (N,) group of each node.
        memory: For each group the memory (nodes, options) that a node uses in an option.

    Args:
        problem: The problem.
        more: Whether there is time to go on. What is not joined then stays apart, and forbidden pairs are
            left between groups; by default there is time.

    Raises:
        SettingsError: Forbidden pairs leave a node without strategy, so that no decision is valid.
    """

    def __init__(self, problem: Sharding, more: Callable[[], bool] = unlimited):
        self.problem = problem
        joined = _Joining(problem)
        joined.run(more)
        roots = [node for node in range(len(problem)) if node not in joined.into]
        number = {root: group for group, root in enumerate(roots)}
        self.costs = [joined.costs[root] for root in roots]
        self.choices = np.array([len(own) for own in self.costs])
        self.first = np.concatenate([[0], np.cumsum(self.choices)]).astype(np.int64)
        self.links = [
            {number[other]: np.ascontiguousarray(table) for other, table in joined.links[root].items()}
            for root in roots
        ]
        members = joined.members()
        self.nodes = [np.array([*members[root]]) for root in roots]
        self._chosen = [np.stack([*members[root].values()]) for root in roots]  # (nodes, options)
        used = zip(self.nodes, self._chosen, strict=True)
        self.memory = [problem.usages[problem.first[nodes][:, None] + chosen] for nodes, chosen in used]
        self._flat = np.concatenate([chosen.ravel() for chosen in self._chosen])
        self.group_of, self._start = (np.zeros(len(problem), np.int64) for _ in range(2))
        entries = np.concatenate([np.full(len(n), c) for n, c in zip(self.nodes, self.choices, strict=True)])
        every = np.concatenate(self.nodes)
        self.group_of[every] = np.repeat(np.arange(len(roots)), [len(nodes) for nodes in self.nodes])
        self._start[every] = np.cumsum(entries) - entries

    def __len__(self) -> int:
        return len(self.nodes)

    def tables(self, ceiling: float = np.inf) -> list[dict[int, np.ndarray]]:
        """Return the links with the other group first, (neighbour's options, own options).

        Args:
            ceiling: Larger costs count as this; tables without any are not copied.
        """

        def bounded(table: np.ndarray) -> np.ndarray:
            return table if table.max() <= ceiling else np.minimum(table, ceiling)

        return [
            {other: bounded(self.links[other][group]) for other in link}
            for group, link in enumerate(self.links)
        ]

    def expand(self, decisions: np.ndarray) -> np.ndarray:
        """Return the strategies of all nodes: (..., N), for options of all groups (..., G)."""
        return self._flat[self._start + np.asarray(decisions)[..., self.group_of]]

    def compress(self, decision: np.ndarray) -> np.ndarray:
        """Return for each group the option that agrees with a decision (N,) on most members: (G,)."""
        pairs = zip(self.nodes, self._chosen, strict=True)
        return np.array([(chosen == decision[nodes][:, None]).sum(0).argmax() for nodes, chosen in pairs])

    def priced(self, toll: np.ndarray) -> list[np.ndarray]:
        """Return for each group the costs of its options where a node pays a toll (N,) per byte."""
        parts = zip(self.costs, self.nodes, self.memory, strict=True)
        return [costs + toll[nodes] @ memory for costs, nodes, memory in parts]


class _Joining:
    """Groups while nodes are joined; a group has the number of the node whose strategies are its options.

    Only pairs whose costs changed are looked at again, and of two groups that determine each other the one
    with fewer neighbours is joined to the other, so that the work grows with the pairs times a logarithm.
    """

    def __init__(self, problem: Sharding):
        self.problem, self.links = problem, [{} for _ in range(len(problem))]
        bounds = list(zip(problem.first, problem.first[1:], strict=False))
        self.own = [np.flatnonzero(problem.costs[a:b] < FORBIDDEN) for a, b in bounds]
        self.costs = [problem.costs[a:b][own] for (a, b), own in zip(bounds, self.own, strict=True)]
        self.into: dict[int, tuple[int, np.ndarray]] = {}  # group and own strategy for each of its, by node
        self._todo: deque[tuple[int, int]] = deque()
        for node in range(len(problem)):
            self._drop(node, np.ones(len(self.own[node]), bool))
        for (u, v), matrix in zip(problem.edges.tolist(), problem.matrices, strict=True):
            self._link(u, v, matrix[np.ix_(self.own[u], self.own[v])])

    def run(self, more: Callable[[], bool]) -> None:
        """Drop and join until nothing changes or time is over."""
        while self._todo and more():
            u, v = self._todo.popleft()
            if v in self.links[u]:
                self._settle(u, v)

    def members(self) -> dict[int, dict[int, np.ndarray]]:
        """Return by group the strategies of its nodes in each of its options."""
        root = {node: node for node in range(len(self.own)) if node not in self.into}
        found = {node: {node: self.own[node]} for node in root}
        for node, (group, strategies) in reversed(self.into.items()):  # a group was joined after its nodes
            root[node] = top = root[group]
            found[top][node] = strategies[found[top][group]]
        return found

    def _link(self, u: int, v: int, table: np.ndarray) -> None:
        """Add the costs between two groups, (own, other), or within one."""
        if u == v:
            self.costs[u] = self.costs[u] + np.diagonal(table)
            self._drop(u, np.ones(len(self.own[u]), bool))
            return
        table = self.links[u][v] + table if v in self.links[u] else table
        self.links[u][v], self.links[v][u] = table, table.T
        self._todo.append((u, v))

    def _settle(self, u: int, v: int) -> None:
        """Drop options without an allowed partner in a pair; join the groups where one follows."""
        allowed = self.links[u][v] < FORBIDDEN
        if allowed.all():
            if 1 not in allowed.shape:
                return
        elif not (allowed.any(1).all() and allowed.any(0).all()):
            self._drop(u, allowed.any(1))
            self._drop(v, allowed.any(0))
            return
        determines = (allowed.sum(1) == 1).all()
        determined = (allowed.sum(0) == 1).all()
        if determines and not (determined and len(self.links[u]) < len(self.links[v])):
            self._join(u, v, allowed.argmax(1))
        elif determined:
            self._join(v, u, allowed.argmax(0))

    def _drop(self, group: int, keep: np.ndarray) -> None:
        """Keep some options of a group, without the forbidden ones."""
        keep = keep & (self.costs[group] < FORBIDDEN)
        if keep.all() and len(keep):
            return
        if not keep.any():
            raise SettingsError(
                f"{self.problem.name!r} has no valid decision: every strategy of node {group} is forbidden,"
                " or every partner of it; correct those pairs"
            )
        self.costs[group], self.own[group] = self.costs[group][keep], self.own[group][keep]
        for other, table in self.links[group].items():
            table = table[keep]
            self.links[group][other], self.links[other][group] = table, table.T
            self._todo.append((group, other))

    def _join(self, group: int, other: int, follows: np.ndarray) -> None:
        """Join a neighbour whose option follows from the group's."""
        strategies = np.full(self.problem.choices[group], -1)
        strategies[self.own[group]] = self.own[other][follows]
        self.into[other] = group, strategies
        table = self.links[group].pop(other)
        del self.links[other][group]
        links, self.links[other] = self.links[other], {}
        for third, costs in links.items():
            del self.links[third][other]
            self._link(group, third, costs[follows])
        added = self.costs[other][follows] + table[np.arange(len(follows)), follows]
        self.costs[group] = self.costs[group] + added
        self._drop(group, np.ones(len(follows), bool))
