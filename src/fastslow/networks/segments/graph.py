"""A graph divided into segments, and a batch of one of them, which needs memory for this segment only.

States are deduplicated as in the whole graph, see ``PartReach`` in ``part_states.py``. With the border
``halo`` the states of a segment equal its states in the whole graph. With ``cut`` they depend on nothing but
the segment.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fastslow.networks.model.graph_batch import Batch, PreparedGraph
from fastslow.networks.segments.part_states import PartReach, part_batch, states_of_parts
from fastslow.networks.settings.segments import CUT, HALO
from fastslow.networks.states.config_states import Level, Reach
from fastslow.networks.states.sparse import move


def partition(num_nodes: int, max_nodes: int) -> np.ndarray:
    """Divide the nodes of a graph into segments: ranges of about equal size in the order of the file.

    Args:
        num_nodes: N.
        max_nodes: Maximum number of nodes of a segment.

    Returns:
        ``(N,)`` int64 segment of each node, 0 to J - 1; each has a node, none more than ``max_nodes``.
    """
    parts = -(-num_nodes // max_nodes)
    return np.repeat(np.arange(parts), np.diff(np.arange(parts + 1) * num_nodes // parts))


class SegmentedGraph:
    """A graph divided into segments.

    Args:
        prepared: The graph.
        num_levels: Message-passing layers of the network.
        part: ``(N,)`` segment of each node, 0 to J - 1, see :func:`partition`.

    Attributes:
        size: ``(J,)`` number of nodes of each segment.
    """

    def __init__(self, prepared: PreparedGraph, num_levels: int, part: np.ndarray):
        self.prepared, self.part = prepared, part
        self._num_levels = num_levels
        self.size = np.bincount(part)
        self._views: dict[str, tuple[Reach, Tensor]] = {}
        self._states: dict[str, Level] = {}

    @property
    def num_segments(self) -> int:
        """J, the number of segments."""
        return len(self.size)

    def edges_inside(self, segment: int | None = None) -> np.ndarray:
        """Return ``(E,)`` bool, the edges within a segment: this one, or any."""
        ends = self.part[self.prepared.edge_index]
        inside = ends[:, 0] == ends[:, 1]
        return inside if segment is None else inside & (ends[:, 0] == segment)

    def view(self, border: str) -> tuple[Reach, Tensor]:
        """Return the groups that nodes see, and degrees ``(N, 2)``, with edges between segments or without.

        Both are found once for each border.
        """
        if border not in self._views:
            edges = self.edges_inside() if border == CUT else None
            reach = self.prepared.reach(self._num_levels, edges)
            self._views[border] = reach, self.prepared.degrees(edges)
        return self._views[border]

    def states(self, border: str) -> Level:
        """Return the states of segments, as of nodes, under all configurations of the graph; found once.

        Two configurations give a segment the same state where they agree on all groups that its nodes see.
        """
        if border not in self._states:
            reach, _ = self.view(border)
            everything = self.prepared.choices(np.arange(self.prepared.graph.num_configs))
            self._states[border] = states_of_parts(reach.sets[-1], self.part, everything)
        return self._states[border]

    def rows(self, border: str, configs: np.ndarray) -> np.ndarray:
        """Return the state ``(J, C)`` of each segment under some configurations, 0 to T - 1."""
        return self.states(border).state(np.arange(self.num_segments)[:, None], configs)

    def batch(
        self,
        segment: int,
        configs: np.ndarray,
        choices: np.ndarray,
        border: str = HALO,
        num_levels: int | None = None,
        gradients: bool = True,
    ) -> Batch:
        """Return the nodes of a segment, and with ``halo`` those that they depend on, as a batch.

        Args:
            segment: Number of the segment.
            configs: ``(C,)`` positions of the configurations.
            choices: Their choices, see :meth:`PreparedGraph.choices`.
            border: ``halo`` or ``cut``.
            num_levels: Layers after which they are wanted; by default all.
            gradients: Whether gradients are wanted.

        Returns:
            The batch; its last level holds the nodes of the segment, ascending.
        """
        reach, degrees = self.view(border)
        part = PartReach(reach, np.flatnonzero(self.part == segment), num_levels)
        return part_batch(self.prepared, part, configs, choices, degrees, gradients)


@dataclass(frozen=True)
class SegmentExample:
    """What a step sees of a graph.

    Args:
        name: The graph.
        graph: The graph, divided.
        configs: ``(C,)`` positions of its configurations.
        choices: Their choices.
        config_feat: ``(C, V)`` their scaled features.
        runtime: ``(C,)`` their runtimes.
        live: Segment that it learns from.
        kept: ``(J,)`` bool, segments that are not left out.
        batch: The nodes of the live segment; None where only the head learns.
    """

    name: str
    graph: SegmentedGraph
    configs: np.ndarray
    choices: np.ndarray
    config_feat: Tensor
    runtime: Tensor
    live: int
    kept: np.ndarray
    batch: Batch | None

    def to(self, device: torch.device) -> "SegmentExample":
        """Return the example on a device."""
        batch = None if self.batch is None else self.batch.to(device)
        moved = {"config_feat": self.config_feat.to(device), "runtime": move(self.runtime, device)}
        return replace(self, batch=batch, **moved)
