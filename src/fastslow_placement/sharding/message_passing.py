"""Sequential tree-reweighted message passing (TRW-S, Kolmogorov 2006) for sharding problems.

Messages along the edges approximate what the rest of the graph costs, given a group's option. They give a
lower
bound, and a decision that sees far more of the graph than a local move: on graphs that are close to trees it
is
close to the optimum. Memory enters through prices, as in :mod:`fastslow_placement.sharding.sharding_search`.
"""

import numpy as np

from fastslow_placement.sharding.tied_strategies import TiedStrategies

CEILING = 1e14  # forbidden pairs count as this, which double precision can still add up


class MessagePassing:
    """Messages between the groups of one problem.

    Args:
        groups: The groups.
    """

    def __init__(self, groups: TiedStrategies):
        self._links = groups.tables(CEILING)
        self._messages = [
            {other: np.zeros(count) for other in link}
            for count, link in zip(groups.choices.tolist(), groups.links, strict=True)
        ]
        self._weight = [
            1.0 / max(1, sum(o > node for o in link), sum(o < node for o in link))
            for node, link in enumerate(groups.links)
        ]

    def sweep(self, own: list[np.ndarray]) -> tuple[np.ndarray, float]:
        """Pass messages forward and back; return a decision (G,) and a lower bound of its cost.

        Args:
            own: Costs of each group's options.
        """
        own = [np.minimum(cost, CEILING) for cost in own]
        self._forward(own)
        bound = self._backward(own)
        return self._decide(own), bound

    def to(self, group: int) -> dict[int, np.ndarray]:
        """Return the messages to a group by sender: what its options cost there, up to a constant."""
        return self._messages[group]

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
