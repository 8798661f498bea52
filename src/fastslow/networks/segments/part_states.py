"""The states of some nodes of a graph, as in the whole graph, without the states of all others."""

from dataclasses import replace

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from fastslow.competition.tied_choices import GroupSets
from fastslow.networks.model.graph_batch import Batch, PreparedGraph, level_tensors
from fastslow.networks.states.config_states import Level, Reach, aggregate
from fastslow.networks.states.sparse import SparseOperator


class PartReach:
    """The states of some nodes, and at each level below of the nodes that they depend on.

    Args:
        reach: The sets of groups that all nodes of the graph see.
        wanted_ids: ``(n,)`` node numbers, ascending, at least one.
        num_levels: Layers after which they are wanted; by default all.

    Attributes:
        nodes: ``(n_l,)`` node numbers of each level l, ascending; the nodes of the last level are wanted.
    """

    def __init__(self, reach: Reach, wanted_ids: np.ndarray, num_levels: int | None = None):
        depth = len(reach.sets) - 1 if num_levels is None else num_levels
        self.nodes = [wanted_ids]  # of each level, the lowest first
        # for each level from 1 the positions of its nodes in the level below, its operands and users
        self._links: list[tuple] = []
        for _ in range(depth):
            sides = [side[self.nodes[0]] for side in (reach.operands, reach.users)]
            below = np.unique(np.concatenate([self.nodes[0], *(side.indices for side in sides)]))
            shape = len(self.nodes[0]), len(below)
            sides = [
                sparse.csr_matrix((s.data, np.searchsorted(below, s.indices), s.indptr), shape) for s in sides
            ]
            self._links.insert(0, (np.searchsorted(below, self.nodes[0]), *sides))
            self.nodes.insert(0, below)
        self._sets = [sets.take(chosen) for sets, chosen in zip(reach.sets, self.nodes, strict=False)]

    def states(self, values: np.ndarray) -> list[Level]:
        """Return the levels 0 to ``num_levels`` of these nodes, with the same states as :meth:`Reach.states`.

        Args:
            values: ``(C, G)`` option that each configuration chooses for each group.
        """
        levels = [Level(self._sets[0].classes(values), self._sets[0].index)]
        for sets, (position, *sides) in zip(self._sets[1:], self._links, strict=True):
            level = Level(sets.classes(values), sets.index)
            below = levels[-1]
            states = below.state(position[level.node_ids], level.config)
            linked = (aggregate(side, level, below) for side in sides)
            levels.append(Level(level.classes, level.set_index, states, *linked))
        return levels


def states_of_parts(sets: GroupSets, part: np.ndarray, values: np.ndarray) -> Level:
    """Return the states after the last layer of parts of the nodes, each as one node, without links.

    Args:
        sets: Sets of groups that the nodes see after the last layer.
        part: ``(N,)`` part of each node, 0 to J - 1, each of them at least once.
        values: ``(C, G)`` option that each configuration chooses for each group.
    """
    united = sets.union(part)
    return Level(united.classes(values), united.index)


def part_batch(
    prepared: PreparedGraph,
    part: PartReach,
    configs: np.ndarray,
    choices: np.ndarray,
    degrees: Tensor,
    gradients: bool,
) -> Batch:
    """Return some nodes of a graph under some of its configurations, and the nodes that they depend on.

    Args:
        prepared: The graph.
        part: The nodes. Those that they depend on have no share in the statistics of a level.
        configs: ``(C,)`` positions of the configurations.
        choices: Their :meth:`PreparedGraph.choices`.
        degrees: Of all nodes, see :meth:`PreparedGraph.degrees`.
        gradients: Whether gradients are wanted.
    """
    levels = part.states(choices)
    first, last = part.nodes[0], part.nodes[-1]
    tensors = []
    for level, nodes in zip(levels, part.nodes, strict=True):
        all_nodes = level_tensors(level, len(configs), degrees[nodes], gradients)
        counted = torch.from_numpy(np.isin(nodes, last) * np.float32(len(nodes) / len(last)))
        share = all_nodes.share * counted[all_nodes.node_ids, None]
        tensors.append(replace(all_nodes, share=share))
    return Batch(
        prepared.numeric[first],
        prepared.node_layout[first],
        prepared.opcode[first],
        *prepared.state_features(levels[0], configs, first),
        tensors,
        SparseOperator(*levels[-1].pooling(), differentiable=gradients),
        prepared.config_features(configs),
        torch.from_numpy(prepared.graph.runtime[configs]),
        prepared.configurable[last],
    )
