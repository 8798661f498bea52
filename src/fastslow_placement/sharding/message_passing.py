"""Sequential tree-reweighted message passing (TRW-S, Kolmogorov 2006) for sharding problems.

Messages along the edges approximate the cost of the rest of the graph, given a group's option. They give a
lower bound, and a decision that sees far more of the graph than a local move: on graphs that are close to
trees it is close to the optimum. Memory enters through prices, as in
:mod:`fastslow_placement.sharding.forest_search`.
"""

import numpy as np

from fastslow_placement.sharding.compiled import CEILING, decide, send
from fastslow_placement.sharding.tied_strategies import TiedStrategies, begins


class MessagePassing:
    """Messages between the groups of one problem.

    Args:
        groups: The groups.
    """

    def __init__(self, groups: TiedStrategies):
        self._arrays = arrays = groups.arrays
        owner = np.repeat(np.arange(len(groups)), np.diff(arrays.begins))
        self._at = begins(groups.choices[owner])
        self._to = np.zeros(self._at[-1])
        ahead = np.bincount(owner, arrays.other > owner, len(groups))
        behind = np.bincount(owner, arrays.other < owner, len(groups))
        self._weight = 1.0 / np.maximum(1, np.maximum(ahead, behind))

    def to(self, group: int) -> np.ndarray:
        """Return the sum of the messages to a group: the cost of its options there, up to a constant."""
        begin, end = self._arrays.begins[group : group + 2]
        options = self._arrays.first[group + 1] - self._arrays.first[group]
        return self._to[self._at[begin] : self._at[end]].reshape(-1, options).sum(0)

    def sweep(self, own: np.ndarray) -> tuple[np.ndarray, float]:
        """Pass messages forward and back; return a decision (G,) and a lower bound of its cost.

        Args:
            own: (S,) costs of all groups' options.
        """
        own = np.minimum(own, CEILING)
        send(self._arrays, own, self._weight, self._at, self._to, True)
        bound = send(self._arrays, own, self._weight, self._at, self._to, False)
        return decide(self._arrays, own, self._at, self._to), float(bound)
