"""Nodes of a sharding problem whose strategies are tied, as one group that chooses once.

Most forbidden pairs say that two nodes must be sharded alike: each strategy of one allows a single strategy
of the other. Such nodes are joined, strategies that are forbidden or have no allowed partner are dropped, and
so on until nothing changes. On the contest's graphs no forbidden pair is left between groups, and a third of
the nodes. Nothing valid is lost: each valid decision is one of the groups.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastslow.core.errors import SettingsError
from fastslow_placement.base.search import unlimited
from fastslow_placement.sharding.compiled import priced
from fastslow_placement.sharding.sharding import FORBIDDEN, Sharding, packed


class GroupArrays(NamedTuple):
    """The groups of a problem as arrays, for what is compiled. Each pair of neighbours is two links.

    Args:
        first: (G + 1,) group g has the options first[g] to first[g + 1] - 1.
        costs: (S,) cost of each option.
        begins: (G + 1,) where the links of each group begin.
        other: (L,) the neighbour.
        back: (L,) the same link as the neighbour's.
        starts: (L,) where its costs begin in ``tables``: (own options, neighbour's options), row by row.
        tables: Costs of all links.
        members: (G + 1,) where the nodes of each group begin.
        nodes: (N,) nodes by group.
        held: (G,) where the memory of each group begins in ``memory``: (nodes, options), row by row.
        memory: Memory of all groups.
        spans: (N, 2) lifetime of each node, as positions of times.
    """

    first: np.ndarray
    costs: np.ndarray
    begins: np.ndarray
    other: np.ndarray
    back: np.ndarray
    starts: np.ndarray
    tables: np.ndarray
    members: np.ndarray
    nodes: np.ndarray
    held: np.ndarray
    memory: np.ndarray
    spans: np.ndarray


def begins(counts) -> np.ndarray:
    """Return where each of several lists begins in one array, and where the last one ends: (count + 1,)."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


class TiedStrategies:
    """The groups of one problem; options of all groups are numbered through.

    Attributes:
        arrays: What follows, as arrays.
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
        members = joined.members()
        self.nodes = [np.array([*members[root]]) for root in roots]
        self._chosen = [np.stack([*members[root].values()]) for root in roots]  # (nodes, options)
        self.choices = np.array([len(joined.costs[root]) for root in roots])
        self.arrays = self._arrays_of(joined, roots)
        self.first = first = self.arrays.first
        self.costs = np.split(self.arrays.costs, first[1:-1])
        sizes = [chosen.shape for chosen in self._chosen]
        self.memory = [
            self.arrays.memory[start : start + count * options].reshape(count, options)
            for start, (count, options) in zip(self.arrays.held.tolist(), sizes, strict=True)
        ]
        self.links = self._views()
        self._flat = np.concatenate([chosen.ravel() for chosen in self._chosen])
        self.group_of, self._start = (np.zeros(len(problem), np.int64) for _ in range(2))
        self.group_of[self.arrays.nodes] = np.repeat(np.arange(len(roots)), np.diff(self.arrays.members))
        entries = self.choices[self.group_of[self.arrays.nodes]]
        self._start[self.arrays.nodes] = np.cumsum(entries) - entries

    def _arrays_of(self, joined: "_Joining", roots: list[int]) -> GroupArrays:
        """Return the groups as arrays."""
        problem, number = self.problem, {root: group for group, root in enumerate(roots)}
        costs, links = [joined.costs[root] for root in roots], [joined.links[root] for root in roots]
        other = [[number[theirs] for theirs in link] for link in links]
        links_at = begins([len(own) for own in other])
        position = {(g, o): links_at[g] + k for g, own in enumerate(other) for k, o in enumerate(own)}
        back = np.array([position[o, g] for g, own in enumerate(other) for o in own], np.int64)
        tables, starts, _ = packed([table for link in links for table in link.values()])
        pairs = zip(self.nodes, self._chosen, strict=True)
        memory = [problem.usages[problem.first[nodes][:, None] + chosen].ravel() for nodes, chosen in pairs]
        return GroupArrays(
            first=begins(self.choices),
            costs=np.concatenate(costs),
            begins=links_at,
            other=np.array([o for own in other for o in own], np.int64),
            back=back,
            starts=starts,
            tables=tables,
            members=begins([len(nodes) for nodes in self.nodes]),
            nodes=np.concatenate(self.nodes).astype(np.int64),
            held=begins([len(own) for own in memory])[:-1],
            memory=np.concatenate(memory),
            spans=np.ascontiguousarray(problem.spans, np.int64),
        )

    def _views(self) -> list[dict[int, np.ndarray]]:
        arrays, choices = self.arrays, self.choices.tolist()
        at, other, starts = (own.tolist() for own in (arrays.begins, arrays.other, arrays.starts))
        return [
            {
                other[k]: arrays.tables[starts[k] : starts[k] + own * choices[other[k]]].reshape(own, -1)
                for k in range(at[group], at[group + 1])
            }
            for group, own in enumerate(choices)
        ]

    def __len__(self) -> int:
        return len(self.nodes)

    def expand(self, decisions: np.ndarray) -> np.ndarray:
        """Return the strategies of all nodes: (..., N), for options of all groups (..., G)."""
        return self._flat[self._start + np.asarray(decisions)[..., self.group_of]]

    def compress(self, decision: np.ndarray) -> np.ndarray:
        """Return for each group the option that agrees with a decision (N,) on most members: (G,)."""
        pairs = zip(self.nodes, self._chosen, strict=True)
        return np.array([(chosen == decision[nodes][:, None]).sum(0).argmax() for nodes, chosen in pairs])

    def priced(self, toll: np.ndarray) -> np.ndarray:
        """Return the costs of all groups' options where a node pays a toll (N,) per byte: (S,)."""
        return priced(self.arrays, toll)


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
