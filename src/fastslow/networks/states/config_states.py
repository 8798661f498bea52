"""Exact deduplication of (node, configuration) pairs into states.

After l message-passing layers a node's representation depends on the configuration only through the groups of
tied choices within l hops, so most (node, configuration) pairs of a node share one. A *state* of level l is
such a class of pairs: pairs of a node whose configurations agree on the choices of its set of groups. A
network that computes states instead of pairs gives the same result for a fraction of the work. The drawing
is in ``networks/README.md``.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from fastslow.competition.tied_choices import Choices, Classes, GroupSets


@dataclass(frozen=True)
class Level:
    """The S states after some number of layers, node by node.

    The nodes that see the same set of groups divide the configurations alike: state = the node's first state
    + class of the configuration under the node's set.
    """

    classes: Classes  # of the C configurations under each of Q sets
    set_index: np.ndarray  # (N,) int64, set of groups that each node sees, 0 to Q - 1
    itself: np.ndarray | None = None  # (S,) int64, the node's state one level below; None at level 0
    # (S, S_below) CSR, row-normalised: mean over the states of the node's operands; None at level 0
    operands: sparse.csr_matrix | None = None
    users: sparse.csr_matrix | None = None  # the same over the nodes that consume its output

    @cached_property
    def start(self) -> np.ndarray:
        """``(N + 1,)`` int64, first state of each node, and S."""
        return np.concatenate([[0], np.cumsum(self.classes.size[self.set_index])])

    @cached_property
    def node_ids(self) -> np.ndarray:
        """``(S,)`` int64, node of each state, ascending."""
        return np.repeat(np.arange(len(self.set_index)), np.diff(self.start))

    @cached_property
    def class_index(self) -> np.ndarray:
        """``(S,)`` int64, class of the configurations that give the node this state."""
        return np.arange(len(self)) - self._offset[self.node_ids]

    @cached_property
    def _offset(self) -> np.ndarray:
        """State minus class, for each node."""
        return self.start[:-1] - self.classes.start[self.set_index]

    @property
    def config(self) -> np.ndarray:
        """``(S,)`` int64, position of a configuration that gives the node this state."""
        return self.classes.config[self.class_index]

    @property
    def multiplicity(self) -> np.ndarray:
        """``(S,)`` int64, number of configurations that give the node this state; sums to C per node."""
        return self.classes.count[self.class_index]

    def __len__(self) -> int:
        """Return S."""
        return int(self.start[-1])

    def state(self, node_ids: np.ndarray, configs: np.ndarray) -> np.ndarray:
        """Return the state of each node in each configuration; the positions of both are broadcast."""
        row = self.set_index * self.classes.index.shape[1]  # flat positions: twice as fast as two indices
        return self._offset.take(node_ids) + self.classes.index.ravel().take(row.take(node_ids) + configs)

    def pooling(self) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Return two factors; their product ``(C, S)`` picks the states of each configuration, one per node.

        Returns:
            ``(C, T)`` CSR of ones, the classes that a configuration is in; ``(T, S)`` CSR of ones, the states
            in each of the T classes. A class has the configurations that are equal in the groups of a set.
        """
        ones = np.ones(len(self))
        shape = len(self.classes), len(self)
        states = sparse.csr_array((ones, (self.class_index, np.arange(len(self)))), shape=shape)
        return self.classes.picks(), states


class Reach:
    """The set of groups within 0 to ``num_levels`` hops of each node: the same for any configurations.

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        num_nodes: N.
        config_index: ``(K,)`` configurable nodes, distinct.
        choices: Configurations of the K nodes; which groups there are and their numbers of options are used.
        num_levels: Number of message-passing layers, 0 or more.
        whole_graph: Whether a layer lets each node see the whole graph: every distinct configuration is then
            a state of every node from level 1 on.

    Attributes:
        operands: ``(N, N)`` CSR of ones, the operands of each node.
        users: ``(N, N)`` CSR of ones, the nodes that consume its output.
        sets: Sets of groups that the nodes see, by level.
    """

    def __init__(
        self,
        edge_index: np.ndarray,
        num_nodes: int,
        config_index: np.ndarray,
        choices: Choices,
        num_levels: int,
        whole_graph: bool = False,
    ):
        ones = np.ones(len(edge_index), np.int64)
        shape = num_nodes, num_nodes
        self.operands = sparse.csr_matrix((ones, (edge_index[:, 0], edge_index[:, 1])), shape=shape)
        self.users = self.operands.T.tocsr()
        self.num_nodes = num_nodes
        near = self.operands + self.users + sparse.eye_array(num_nodes, dtype=np.int64)
        nodes = np.repeat(config_index, choices.group.shape[1])
        members = sparse.csr_matrix(
            (np.ones(len(nodes), np.int64), (nodes, choices.group.ravel())),
            shape=(num_nodes, choices.num_groups),
        )
        self.sets = [GroupSets(members, choices.options)]
        for _ in range(num_levels):
            if whole_graph:
                members = sparse.csr_matrix(np.ones(members.shape, np.int64))
            else:
                members = sparse.csr_matrix(near @ members)
                members.data[:] = 1
            self.sets.append(GroupSets(members, choices.options))

    def states(self, values: np.ndarray) -> list[Level]:
        """Compute the states of a set of configurations.

        Args:
            values: ``(C, G)`` option that each configuration chooses for each group.

        Returns:
            Level 0 (before any message) to level ``num_levels``. Exact: two pairs of a node share a state of
            level l if and only if they agree on the choices of every group of a configurable node within l
            hops, in either edge direction.
        """
        first, *others = self.unlinked(values)
        levels = [first]
        every = np.arange(self.num_nodes)
        for level in others:
            levels.append(self.link(level, levels[-1], every))
        return levels

    def unlinked(self, values: np.ndarray) -> list[Level]:
        """Return the levels of :meth:`states`, without the links from one to the next."""
        return [Level(sets.classes(values), sets.index) for sets in self.sets]

    def link(self, level: Level, below: Level, nodes: np.ndarray) -> Level:
        """Return some nodes of a level, with their links to the states of all nodes of the level below.

        The nodes at the positions ``nodes`` ``(n,)`` become nodes 0 to n - 1 of the level returned.
        """
        part = Level(level.classes, level.set_index[nodes])
        itself = below.state(nodes[part.node_ids], part.config)
        sides = (aggregate(side[nodes], part, below) for side in (self.operands, self.users))
        return Level(part.classes, part.set_index, itself, *sides)


def aggregate(adjacency: sparse.csr_matrix, level: Level, below: Level) -> sparse.csr_matrix:
    """Return the row-normalised ``(S, S_below)`` matrix along one direction of the edges.

    ``adjacency`` is a CSR ``(n, n_below)`` of ones, the neighbours of each node of the level.
    """
    degree = np.diff(adjacency.indptr)[level.node_ids]
    first = adjacency.indptr[level.node_ids]
    indptr = np.concatenate([[0], np.cumsum(degree)])
    position = np.arange(indptr[-1]) - np.repeat(indptr[:-1] - first, degree)
    neighbours = adjacency.indices[position]
    states = below.state(neighbours, np.repeat(level.config, degree))
    weights = np.repeat(1.0 / np.maximum(degree, 1), degree).astype(np.float32)
    return sparse.csr_matrix((weights, states, indptr), shape=(len(level), len(below)))
