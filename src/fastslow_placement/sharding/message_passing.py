"""Sequential tree-reweighted message passing (TRW-S, Kolmogorov 2006) for sharding problems.

Messages along the edges approximate the cost of the rest of the graph, given a group's option. They give a
lower bound, and a decision that sees far more of the graph than a local move: on graphs that are close to
trees it is close to the optimum. Memory enters through prices, as in
:mod:`fastslow_placement.sharding.forest_search`.
"""

import numpy as np

from fastslow_placement.sharding.tied_strategies import TiedStrategies

_CEILING = 1e14  # forbidden pairs count as this, which double precision can still add up


class MessagePassing:
    """Messages between the groups of one problem.

    Attributes:
        to: For each group the messages to it by sender: the cost of its options there, up to a constant.

    Args:
        groups: The groups.
    """

    def __init__(self, groups: TiedStrategies):
        self._links = groups.tables(_CEILING)
        self.to = [
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
        own = [np.minimum(cost, _CEILING) for cost in own]
        nodes = range(len(own))
        self._pass(own, nodes, lambda node, other: other > node)
        bound = self._pass(own, reversed(nodes), lambda node, other: other < node)
        return self._decide(own), bound

    def _pass(self, own: list[np.ndarray], nodes, ahead) -> float:
        """Send messages from each node to those ahead of it; return the sum of all that was taken off."""
        bound = 0.0
        for node in nodes:
            total = own[node] + sum(self.to[node].values())
            smallest = total.min()
            bound += smallest
            for other, table in self._links[node].items():
                if ahead(node, other):
                    sent = (table + (self._weight[node] * (total - smallest) - self.to[node][other])).min(1)
                    least = sent.min()
                    self.to[other][node] = sent - least
                    bound += least
        return float(bound)

    def _decide(self, own: list[np.ndarray]) -> np.ndarray:
        """Choose in order: exact costs to the nodes that have chosen, messages from those that have not."""
        decision = np.zeros(len(own), np.int64)
        for node in range(len(own)):
            cost = own[node]
            for other, table in self._links[node].items():
                cost = cost + (table[decision[other]] if other < node else self.to[node][other])
            decision[node] = cost.argmin()
        return decision
