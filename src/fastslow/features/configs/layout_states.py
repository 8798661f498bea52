"""The distinct states of configured tensors, and which of them each configuration has.

A configurable node takes few combinations of layouts, however many configurations there are. What depends on
the layouts of a node (or of a pair of tensors) alone is therefore computed once per distinct combination, a
*state*. Nodes whose tensors belong to the same groups of tied choices change together: their states are
summed once per class of configurations, and a configuration is a row of few classes.
"""

import numpy as np
from scipy import sparse

from fastslow.competition.layouts import ROLES
from fastslow.competition.tied_choices import Choices, GroupSets


def tensor_positions(nodes: np.ndarray, roles: np.ndarray | int) -> np.ndarray:
    """Return the positions of tensors among the 3 K of a graph, 0 to 3 K - 1, for :class:`LayoutStates`.

    ``nodes`` are positions among the K configurable ones, ``roles`` 0 output, 1 input, 2 kernel; their shapes
    are broadcast.
    """
    return np.asarray(nodes) * len(ROLES) + roles


class LayoutStates:
    """The S distinct combinations of layouts of M items of D tensors each.

    Which states there are, and their order, depends neither on the order of the configurations nor on how
    often one occurs.

    Args:
        choices: The configurations.
        tensors: ``(M, D)`` positions of each item's tensors, from :func:`tensor_positions`.

    Attributes:
        item: ``(S,)`` item of each state, 0 to M - 1, ascending.
        codes: ``(S, D)`` its layouts, in lexicographic order within an item.
        classes: The classes of the configurations under the sets of groups of the items.
        class_index: ``(S,)`` class of the configurations that have the state.
    """

    def __init__(self, choices: Choices, tensors: np.ndarray):
        items, depth = tensors.shape
        groups = choices.group.ravel()[tensors]
        places = np.repeat(np.arange(items), depth), groups.ravel()
        shape = items, choices.num_groups
        sets = GroupSets(sparse.csr_matrix((np.ones(groups.size), places), shape=shape), choices.options)
        self.classes = sets.classes(np.asarray(choices.values))

        size = self.classes.size[sets.index]
        offset = np.cumsum(size) - size - self.classes.start[sets.index]  # state minus class
        item = np.repeat(np.arange(items), size)
        class_index = np.arange(len(item)) - offset[item]
        option = choices.values[self.classes.config[class_index, None], groups[item]]
        node, role = np.divmod(tensors[item], len(ROLES))
        codes = choices.codes[node, role, option].astype(np.int64)
        order = np.lexsort((*codes.T[::-1], item))
        self.item, self.codes, self.class_index = item, codes[order], class_index[order]

    def sum(self, terms: np.ndarray) -> np.ndarray:
        """Sum terms of the states ``(S, F)`` float64 over all items, for every configuration: ``(C, F)``.

        Terms are added in order of the items within a class. Sums of whole numbers below 2**53 are exact in
        any order.
        """
        states = len(self.item)
        places = self.class_index, np.arange(states)
        members = sparse.csr_array((np.ones(states), places), shape=(len(self.classes), states))
        return self.classes.sum(members @ terms)
