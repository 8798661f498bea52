"""Sequential tree-reweighted message passing (TRW-S, Kolmogorov 2006) for sharding problems.

Messages along the edges approximate what the rest of the graph costs, given a node's strategy. They give a
lower
bound, and a decision that sees far more of the graph than a local move: on graphs that are close to trees it
is
close to the optimum. Memory enters through prices, as in :mod:`fastslow.placement.sharding_search`.
"""

import numpy as np

from fastslow.placement.sharding import Sharding

CEILING = 1e14  # forbidden pairs count as this, which double precision can still add up


class MessagePassing:
    """Messages of one problem.

    Args:
        problem: The problem.
        links: For each node its neighbours and the matrices (neighbour's strategies, own strategies).
    """

    def __init__(self, problem: Sharding, links: list[dict[int, np.ndarray]]):
        self.problem = problem
        first = problem.first
        self._own = [np.minimum(problem.costs[a:b], CEILING) for a, b in zip(first, first[1:], strict=False)]
        self._use = [problem.usages[a:b] for a, b in zip(first, first[1:], strict=False)]
        self._links = [{o: np.minimum(m, CEILING) for o, m in link.items()} for link in links]
        self._messages = [
            {other: np.zeros(len(own)) for other in link} for own, link in zip(self._own, links, strict=True)
        ]
        self._weight = [
            1.0 / max(1, sum(o > node for o in link), sum(o < node for o in link))
            for node, link in enumerate(links)
        ]

    def sweep(self, toll: np.ndarray, noise: np.ndarray | None = None) -> tuple[np.ndarray, float]:
        """Pass messages forward and back; return a decision and a lower bound of the priced cost.

        Args:
            toll: (N,) price of a byte over each node's lifetime.
            noise: (S,) added to the strategies' costs, for other decisions; the bound is then that of the
                changed problem.
        """
        own = self._priced(toll, noise)
        self._forward(own)
        bound = self._backward(own)
        return self._decide(own), bound

    def _priced(self, toll: np.ndarray, noise: np.ndarray | None) -> list[np.ndarray]:
        priced = [cost + use * t for cost, use, t in zip(self._own, self._use, toll.tolist(), strict=True)]
        if noise is not None:
            first = self.problem.first
            priced = [cost + noise[first[n] : first[n + 1]] for n, cost in enumerate(priced)]
        return priced

    def _forward(self, own: list[np.ndarray]) -> None:
        for node in range(len(own)):
            total = own[node] + sum(self._messages[node].values())
            for other, table in self._links[node].items():
                if other > node:
                    self._send(node, other, total, table)

    def _backward(self, own: list[np.ndarray]) -> float:
        bound = 0.0
        for node in range(len(own) - 1, -1, -1):
            total = own[node] + sum(self._messages[node].values())
            smallest = total.min()
            bound += smallest
            total = total - smallest
            for other, table in self._links[node].items():
                if other < node:
                    bound += self._send(node, other, total, table)
        return float(bound)

    def _send(self, node: int, other: int, total: np.ndarray, table: np.ndarray) -> float:
        """Set the message to a neighbour and return what was taken off it."""
        message = (table + (self._weight[node] * total - self._messages[node][other])).min(1)
        smallest = message.min()
        self._messages[other][node] = message - smallest
        return float(smallest)

    def _decide(self, own: list[np.ndarray]) -> np.ndarray:
        """Choose in order: exact costs to the nodes that have chosen, messages from those that have not."""
        decision = np.zeros(len(own), np.int64)
        for node in range(len(own)):
            cost = own[node]
            for other, table in self._links[node].items():
                cost = cost + (table[decision[other]] if other < node else self._messages[node][other])
            decision[node] = cost.argmin()
        return decision
