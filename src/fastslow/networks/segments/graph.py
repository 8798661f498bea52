"""A graph divided into segments, and batches of some of them, which need memory for these segments only.

States are deduplicated as in the whole graph, see ``PartReach`` in ``config_states.py``. With the border
``halo`` the states of a segment equal its states in the whole graph. With ``cut`` they depend on nothing but
the segment.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fastslow.networks.model.graph_batch import Batch, PreparedGraph
from fastslow.networks.settings.segment_settings import CUT, HALO
from fastslow.networks.states.config_states import Level, Reach


@dataclass(frozen=True)
class _View:
    """The graph with all of its edges, or with those inside segments: what nodes see, and their degrees."""

    reach: Reach
    degrees: Tensor


class SegmentedGraph:
    """A graph divided into segments.

    Args:
        prepared: The graph.
        num_levels: Message-passing layers of the network.
        part: ``(N,)`` segment of each node, 0 to J - 1, see
            :func:`~fastslow.networks.segments.partition.partition`.

    Attributes:
        size: ``(J,)`` number of nodes of each segment.
    """

    def __init__(self, prepared: PreparedGraph, num_levels: int, part: np.ndarray):
        self.prepared, self.part = prepared, part
        self._num_levels = num_levels
        self.size = np.bincount(part)
        self._nodes = np.split(np.argsort(part, kind="stable"), np.cumsum(self.size)[:-1])
        self._views: dict[str, _View] = {}
        self._states: dict[str, Level] = {}

    @property
    def num_segments(self) -> int:
        """J, the number of segments."""
        return len(self.size)

    def edges_inside(self, segments: np.ndarray | None = None) -> np.ndarray:
        """Return ``(E,)`` bool, the edges within a segment, one of all or of some."""
        ends = self.part[self.prepared.edge_index]
        inside = ends[:, 0] == ends[:, 1]
        return inside if segments is None else inside & np.isin(ends[:, 0], segments)

    def view(self, border: str) -> _View:
        """Return the graph with edges between segments (``halo``) or without (``cut``); found once."""
        if border not in self._views:
            edges = self.edges_inside() if border == CUT else None
            reach = (
                self.prepared.reach(self._num_levels)
                if edges is None
                else self.prepared.reach_along(edges, self._num_levels)
            )
            self._views[border] = _View(reach, self.prepared.degrees(edges))
        return self._views[border]

    def states(self, border: str) -> Level:
        """Return the states of segments, as of nodes, under all configurations of the graph; found once.

        Two configurations give a segment the same state where they agree on all groups that its nodes see.
        """
        if border not in self._states:
            everything = self.prepared.choices(np.arange(self.prepared.graph.num_configs))
            self._states[border] = self.view(border).reach.parts(self.part, everything)
        return self._states[border]

    def rows(self, border: str, configs: np.ndarray) -> np.ndarray:
        """Return the state ``(J, C)`` of each segment under some configurations, 0 to T - 1."""
        return self.states(border).state(np.arange(self.num_segments)[:, None], configs)

    def batch(
        self,
        segments: np.ndarray,
        configs: np.ndarray,
        choices: np.ndarray,
        border: str = HALO,
        num_levels: int | None = None,
        gradients: bool = True,
    ) -> Batch:
        """Return the nodes of some segments, and with ``halo`` those that they depend on, as a batch.

        Args:
            segments: Numbers of the segments.
            configs: ``(C,)`` positions of the configurations.
            choices: Their choices, see :meth:`PreparedGraph.choices`.
            border: ``halo`` or ``cut``.
            num_levels: Layers after which they are wanted; by default all.
            gradients: Whether gradients are wanted.

        Returns:
            The batch; the nodes of its last level are :meth:`nodes`, in this order.
        """
        view = self.view(border)
        part = view.reach.part(self.nodes(segments), num_levels)
        return self.prepared.part_batch(part, configs, choices, view.degrees, gradients)

    def nodes(self, segments: np.ndarray) -> np.ndarray:
        """Return the nodes of some segments, ascending."""
        return np.sort(np.concatenate([self._nodes[segment] for segment in segments]))


@dataclass(frozen=True)
class SegmentExample:
    """What a step sees of a graph.

    Args:
        name: The graph.
        graph: The graph, divided.
        configs: ``(C,)`` positions of its configurations.
        choices: Their choices.
        config_feat: ``(C, V)`` their scaled features.
        live: ``(S,)`` segments that it learns from, ascending.
        kept: ``(J,)`` bool, segments that are not left out.
        batch: The nodes of the live segments; None where only the head learns.
        owner: ``(n,)`` position in ``live`` of the segment of each node of the batch's last level.
    """

    name: str
    graph: SegmentedGraph
    configs: np.ndarray
    choices: np.ndarray
    config_feat: Tensor
    live: np.ndarray
    kept: np.ndarray
    batch: Batch | None
    owner: Tensor

    def to(self, device: torch.device) -> "SegmentExample":
        """Return the example on a device."""
        batch = None if self.batch is None else self.batch.to(device)
        config_feat, owner = self.config_feat.to(device), self.owner.to(device)
        return replace(self, batch=batch, config_feat=config_feat, owner=owner)
