"""Nodes of a sharding problem whose strategies are tied, as one group that chooses once.

Most forbidden pairs say that two nodes must be sharded alike: each strategy of one allows a single strategy
of the other. Such nodes are joined, strategies that are forbidden or have no allowed partner are dropped, and
so on until nothing changes. On the contest's graphs no forbidden pair is left between groups, and a third of
the nodes. Nothing valid is lost: each valid decision is one of the groups.
"""

import numpy as np

from fastslow.core.errors import ConfigError
from fastslow.placement.sharding import FORBIDDEN, Sharding


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

    Raises:
        ConfigError: Forbidden pairs leave a node without strategy, so that no decision is valid.
    """

    def __init__(self, problem: Sharding):
        self.problem = problem
        joined = _Joining(problem)
        joined.run()
        roots = [root for root, members in enumerate(joined.members) if members]
        number = {root: group for group, root in enumerate(roots)}
        self.costs = [joined.costs[root] for root in roots]
        self.choices = np.array([len(own) for own in self.costs])
        self.first = np.concatenate([[0], np.cumsum(self.choices)]).astype(np.int64)
        self.links = [
            {number[other]: np.ascontiguousarray(table) for other, table in joined.links[root].items()}
            for root in roots
        ]
        self.nodes = [np.array([*joined.members[root]]) for root in roots]
        self._chosen = [np.stack([*joined.members[root].values()]) for root in roots]  # (nodes, options)
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
    """Groups while nodes are joined; a node that was joined to another has no members left."""

    def __init__(self, problem: Sharding):
        self.problem, self.links = problem, [{} for _ in range(len(problem))]
        bounds = list(zip(problem.first, problem.first[1:], strict=False))
        allowed = [np.flatnonzero(problem.costs[a:b] < FORBIDDEN) for a, b in bounds]
        self.costs = [problem.costs[a:b][own] for (a, b), own in zip(bounds, allowed, strict=True)]
        self.members = [{node: own} for node, own in enumerate(allowed)]
        for (u, v), matrix in zip(problem.edges.tolist(), problem.matrices, strict=True):
            self._link(u, v, matrix[np.ix_(allowed[u], allowed[v])])

    def run(self) -> None:
        """Drop and join until nothing changes."""
        todo = set(range(len(self.members)))
        while todo:
            group = todo.pop()
            if self.members[group]:
                todo |= self._drop(group)
                todo |= self._join(group)

    def _link(self, u: int, v: int, table: np.ndarray) -> None:
        """Add the costs between two groups, (own, other), or within one."""
        if u == v:
            self.costs[u] = self.costs[u] + np.diagonal(table)
            return
        for one, other, own in ((u, v, table), (v, u, table.T)):
            self.links[one][other] = self.links[one][other] + own if other in self.links[one] else own

    def _drop(self, group: int) -> set[int]:
        """Drop options that are forbidden; return the groups that have to be looked at again."""
        keep = self.costs[group] < FORBIDDEN
        for table in self.links[group].values():
            keep &= (table < FORBIDDEN).any(1)
        if keep.all() and len(keep):
            return set()
        if not keep.any():
            raise ConfigError(
                f"{self.problem.name!r} has no valid decision: every strategy of node"
                f" {min(self.members[group])} is forbidden, or every partner of it; correct those pairs"
            )
        self.costs[group] = self.costs[group][keep]
        self.members[group] = {node: chosen[keep] for node, chosen in self.members[group].items()}
        for other in self.links[group]:
            self.links[group][other] = self.links[group][other][keep]
            self.links[other][group] = self.links[other][group][:, keep]
        return {group, *self.links[group]}

    def _join(self, group: int) -> set[int]:
        """Join one neighbour whose option follows from the group's; return what to look at again."""
        tied = (o for o, t in self.links[group].items() if ((t < FORBIDDEN).sum(1) == 1).all())
        other = next(tied, None)
        if other is None:
            return set()
        table = self.links[group][other]
        follows = (table < FORBIDDEN).argmax(1)
        self.costs[group] = (
            self.costs[group] + self.costs[other][follows] + table[np.arange(len(follows)), follows]
        )
        for node, chosen in self.members[other].items():
            self.members[group][node] = chosen[follows]
        self.members[other] = {}
        del self.links[group][other], self.links[other][group]
        for third, costs in self.links[other].items():
            del self.links[third][other]
            self._link(group, third, costs[follows])
        self.links[other] = {}
        return {group, *self.links[group]}
