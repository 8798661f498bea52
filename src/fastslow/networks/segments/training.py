r"""Graph Segment Training (GST, Cao et al., NeurIPS 2023, arXiv 2305.12322), on deduplicated states.

A step learns from one segment of a graph; activations are held only for this segment, so its memory does not
grow with the graph. :class:`SegmentTraining` takes the place of the network in the training loop. The network
predicts whole graphs, as after any training.

A segment adds to the graph the sum of its nodes, h_j (C, P D). The head reads

.. math:: g_c = \eta_c h_{live,c} + \sum_{j\ other} h_{j,c}

with :math:`\eta_c = 1 + m_c`, m_c the number of other segments that are left out or unknown. Where segments
are left out with probability 1 - p, its mean is the published :math:`p + (1 - p) J`, and the mean of g over
the draws is the sum over all segments. A norm takes the statistics of the live segment together with the
statistics of the others, computed first (``gst``) or stored (``gst+e``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fastslow.competition.catalog import TRAIN
from fastslow.networks.hardware.memory import BoundedCache, prefetch
from fastslow.networks.model.graph_batch import Batch
from fastslow.networks.model.network import RankingNetwork
from fastslow.networks.predict.dataset import GraphDataset
from fastslow.networks.segments.graph import SegmentedGraph, SegmentExample, partition
from fastslow.networks.segments.sums import Batches, Norms, add_segments, norms, pool_moments, segment_moments
from fastslow.networks.segments.table import GraphTable
from fastslow.networks.settings.options import NetworkOptions
from fastslow.networks.settings.segments import (
    CUT,
    CUT_LIVE,
    EDGES,
    FRESH,
    HALO,
    TABLE,
    VARIANTS,
    head_epochs,
)
from fastslow.networks.states.set_statistics import Moments, as_is

KEEP = 0.5  # share of the table's segments that a step keeps with +d, as published


class SegmentTraining:
    """Predicts from one segment of each graph, for a training.

    Args:
        options: Settings; ``segment_training`` is not ``none``.
        dataset: The graphs.
        network: The network that is trained.

    Attributes:
        tables: The historical table of each graph.
    """

    def __init__(self, options: NetworkOptions, dataset: GraphDataset, network: RankingNetwork):
        self.options, self.dataset, self.network = options, dataset, network
        self.variant = VARIANTS[options.segment_training]
        self.tables: dict[str, GraphTable] = {}
        self._head_only = False
        self._others = HALO if options.segment_border == CUT_LIVE else options.segment_border
        self._live = CUT if options.segment_border == CUT_LIVE else options.segment_border
        self._graphs = BoundedCache[SegmentedGraph](dataset.memory // 4)
        self._sums = BoundedCache[Tensor](dataset.memory // 4)

    def begin(self, epoch: int) -> None:
        """Begin an epoch."""
        self._head_only = epoch in head_epochs(self.options)

    def graph(self, name: str) -> SegmentedGraph:
        """Return a train graph, divided."""
        return self._graphs.get(name, lambda: self._divide(name))

    def _divide(self, name: str) -> SegmentedGraph:
        options = self.options
        prepared = self.dataset.graph(TRAIN, name)
        part = partition(prepared.graph.num_nodes, options.segment_nodes)
        graph = SegmentedGraph(prepared, options.architecture().num_levels, part)
        if self.variant.others == TABLE:
            graph.states(self._live)
        elif self.variant.others != EDGES:
            graph.view(self._live)
        return graph

    def example(self, name: str, configs: np.ndarray, seed: int) -> SegmentExample | Batch:
        """Draw the segment that a step learns from, and return it on the device.

        Args:
            name: The graph, of the train split.
            configs: ``(C,)`` positions of its configurations.
            seed: Decides which segment the step learns from, and which are left out.

        Returns:
            The input of a call of this object: a batch of whole graphs for ``edges``, else an example.
        """
        graph = self.graph(name)
        rng = np.random.default_rng(seed)
        count = graph.num_segments
        live = int(rng.choice(count, 1, replace=False)[0])
        if self.variant.others == EDGES:
            return self.dataset.batch(TRAIN, name, configs, graph.edges_inside(live))
        kept = rng.random(count) < KEEP if self.variant.drops else np.ones(count, bool)
        choices = graph.prepared.choices(configs)
        batch = None if self._head_only else graph.batch(live, configs, choices, self._live)
        features = graph.prepared.config_features(configs) if batch is None else batch.config_feat
        runtime = torch.from_numpy(graph.prepared.graph.runtime[configs])
        drawn = str(name), graph, configs, choices, features, runtime, live, kept, batch
        return SegmentExample(*drawn).to(self.dataset.device)

    def __call__(self, example: SegmentExample | Batch) -> Tensor:
        """Return a prediction per configuration, ``(C,)``, with gradients where the step learns."""
        if isinstance(example, Batch):
            return self.network(example)
        head = self.network.head
        sums = self._whole_sums(example) if self._head_only else self._learn(example)
        configurable = example.graph.prepared.configurable.to(sums.device)
        pooled = head.readout.of_sums(sums, configurable)
        return head.read_out(head.join(pooled, example.config_feat), as_is)

    def _learn(self, example: SegmentExample) -> Tensor:
        """Return the sums ``(C, P D)`` over the nodes, with gradients through the live segment."""
        graph, live = example.graph, example.live
        others = np.setdiff1d(np.arange(graph.num_segments), live)
        if self.variant.others == FRESH and len(others):
            parts = segment_moments(self.network, self._batches(example, self._others), len(graph.size))
            apart = [pool_moments(norm[others], graph.size[others]) for norm in parts]
        elif self.variant.others == TABLE:
            apart = self._stored_moments(example)
        else:
            apart = [None] * len(norms(self.network))
        statistics = Norms(apart, int(graph.size[live].sum()))
        x = self.network.trunk(example.batch, statistics.complete)
        sums = self.network.head.readout.sums(x, example.batch)
        if self.variant.others == TABLE:
            return self._add_stored(example, sums, statistics.own())
        if self.variant.others != FRESH or not len(others):
            return sums * graph.num_segments
        every = [pool_moments(each, graph.size) for each in parts]
        batches = self._batches(example, self._others)
        return sums + add_segments(self.network, batches, others.tolist(), every)

    def _batches(self, example: SegmentExample, border: str) -> Batches:
        """Return what yields batches of single segments, one prepared ahead."""
        configs, choices, device = example.configs, example.choices, self.dataset.device

        def batches(segments: Sequence[int], num_levels: int | None) -> Iterator[Batch]:
            def batch(segment: int) -> Batch:
                drawn = segment, configs, choices, border, num_levels
                return example.graph.batch(*drawn, gradients=False).to(device)

            return prefetch(map(batch, segments))

        return batches

    def _whole_sums(self, example: SegmentExample) -> Tensor:
        """Return the sums over all nodes, uncut; of all configurations they are kept, if not too many."""
        prepared = example.graph.prepared
        if prepared.graph.num_configs > self.dataset.shrinking.size:
            return self._whole(example)
        every = np.arange(prepared.graph.num_configs)
        everything = replace(example, configs=every, choices=prepared.choices(every))
        return self._sums.get(example.name, lambda: self._whole(everything))[example.configs]

    def _whole(self, example: SegmentExample) -> Tensor:
        batches = self._batches(example, HALO)
        size = example.graph.size
        moments = segment_moments(self.network, batches, len(size))
        every = [pool_moments(parts, size) for parts in moments]
        return add_segments(self.network, batches, range(len(size)), every)

    def _graph_table(self, example: SegmentExample) -> GraphTable:
        if example.name not in self.tables:
            self.tables[example.name] = GraphTable.empty(
                len(example.graph.states(self._live)),
                example.graph.num_segments,
                self.network.head.readout.channels,
                len(norms(self.network)),
                self.network.architecture.hidden_channels,
            )
        return self.tables[example.name]

    def _stored_moments(self, example: SegmentExample) -> list[Moments | None]:
        """Return the moments of each norm over the segments that are known and not live."""
        table = self._graph_table(example)
        known = table.known.copy()
        known[example.live] = False
        if not known.any():
            return [None] * len(norms(self.network))
        parts = torch.from_numpy(table.moments[known]).to(self.dataset.device)
        return [pool_moments(norm, example.graph.size[known]) for norm in parts.unbind(1)]

    def _add_stored(self, example: SegmentExample, sums: Tensor, moments: Tensor) -> Tensor:
        """Return the sums of the live segment, ``(C, P D)``, plus the table's sums; store the former."""
        table = self._graph_table(example)
        live = example.live
        rows = example.graph.rows(self._live, example.configs)
        others = example.kept.copy()
        others[live] = False
        written = others[:, None] & table.written[rows]
        stored = np.zeros(sums.shape)
        for state, there in zip(rows, written, strict=True):
            stored[there] += table.sums[state[there]]
        weight = torch.from_numpy(example.graph.num_segments - written.sum(0)).to(sums.device)
        learned = sums.detach().cpu().numpy()
        if np.isfinite(learned).all():  # float16 may overflow; such a step is left out
            table.write(live, rows[live], learned, moments.cpu().numpy())
        return weight[:, None] * sums + torch.from_numpy(stored).to(sums.device)

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Return the state for a checkpoint: by graph, the arrays of its :class:`GraphTable` as tensors."""
        return {name: table.state_dict() for name, table in self.tables.items()}

    def load_state_dict(self, state: dict[str, dict[str, Tensor]]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.tables = {name: GraphTable.of_state(table) for name, table in state.items()}
