"""Graphs of several collections as batches for a network, and predictions of whole splits."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch

from fastslow.competition.catalog import TRAIN, VALID
from fastslow.core.errors import DataError, SettingsError
from fastslow.features.graph import GraphSet
from fastslow.features.scaling import Scaler
from fastslow.networks.hardware.devices import Shrinking, autocast, pick_device
from fastslow.networks.hardware.memory import BoundedCache
from fastslow.networks.model.graph_batch import Batch, PreparedGraph
from fastslow.networks.model.network import RankingNetwork
from fastslow.networks.predict.chunked_prediction import predict_chunks
from fastslow.networks.predict.node_blocks import predict_by_nodes
from fastslow.networks.settings.inputs import config_columns, input_columns, require_inputs
from fastslow.networks.settings.options import NetworkOptions

_PAIRS = 1 << 20  # (node, configuration) pairs of a graph from which node by node is faster than one batch


class GraphDataset:
    """Graphs of several collections, scaled, of which those used last are cached.

    A graph is named ``<collection's slug>/<name>``. The scalers pool the train graphs of all collections.

    Args:
        options: Options of the network.
        sources: The graphs of each collection; none where a finished network is applied without graphs.
        scalers: Scalers of nodes and of configurations; by default the sources' scalers, pooled.
        device: ``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or ``cuda:N``.
        configs_together: Maximum number of configurations of a batch at inference, see :func:`predict`.
        memory: Bytes that all graphs which are kept, and a prediction, may hold.

    Raises:
        DataError: Two sets belong to one collection, or were built with different options.
        SettingsError: The features lack columns of ``node_inputs``, or a collection has another kind.
    """

    def __init__(
        self,
        options: NetworkOptions,
        sources: Sequence[GraphSet],
        scalers: tuple[Scaler, Scaler] | None = None,
        device: str = "auto",
        configs_together: int = 2000,
        memory: int = 2 << 30,
    ):
        self.shrinking = Shrinking(configs_together)
        self.memory = memory
        self.sources = {source.collection.slug: source for source in sources}
        self.num_levels = options.num_levels
        self.device = pick_device(device)
        self._options = options
        for other in sources:
            if other.collection.kind != options.kind:
                problem = f"{options.kind!r} is not the kind of {other.origin}; choose"
                raise SettingsError("kind", f"{problem} {other.collection.kind!r}")
            if other.config_columns != sources[0].config_columns:
                problem = f"columns other than in {sources[0].origin}"
                raise DataError(other.origin, problem, "Build both with the same options")
            if self.sources[other.collection.slug] is not other:
                problem = f"another set of {other.collection.name} is given too, of which one would be lost"
                raise DataError(other.origin, problem, "Build all graphs of a collection with one call")
        nodes, configs = scalers or (
            Scaler.pool([source.scaler(name) for source in sources]) for name in ("node", "config")
        )
        self.node_scaler = nodes.select(input_columns(options.node_inputs))
        if scalers is None:
            require_inputs(options.node_inputs, nodes)
        self.config_scaler = configs  # of a finished run without graphs: its columns were selected already
        if sources and sources[0].config_columns:
            chosen = config_columns(options.config_inputs, sources[0].config_columns)
            self.config_scaler = configs.select(chosen)
        self._cache = BoundedCache[PreparedGraph](memory // 4)
        self._batches = {TRAIN: BoundedCache[Batch](memory // 4), VALID: BoundedCache[Batch](memory // 8)}
        self._sizes: dict[tuple[str, str], dict[str, int]] = {}

    def graph(self, split: str, name: str) -> PreparedGraph:
        """Return a graph, scaled."""
        return self._cache.get((split, name), lambda: self._prepare(split, name))

    def _prepare(self, split: str, name: str) -> PreparedGraph:
        slug, _, stem = name.partition("/")
        options = self._options
        return PreparedGraph(
            self.sources[slug].graph(split, stem),
            self.node_scaler,
            self.config_scaler,
            pair_edges=options.pair_edges and options.kind == "layout",
            whole_graph=options.input_attention,
            joins_nodes=options.joins_nodes,
        )

    def num_configs(self, split: str, name: str) -> int:
        """Return the number of distinct configurations of a graph, without reading it."""
        slug, _, stem = name.partition("/")
        if (split, slug) not in self._sizes:
            self._sizes[split, slug] = self.sources[slug].num_distinct(split)
        return self._sizes[split, slug][stem]

    def batch(self, split: str, name: str, configs: np.ndarray, edges: np.ndarray | None = None) -> Batch:
        """Return some configurations of a graph as a batch on the device.

        Of a train or valid graph, a batch of all configurations and edges is kept for the next epoch.
        ``configs`` ``(C,)`` are positions among the distinct configurations. ``edges`` ``(E',)`` bool tells
        which edges pass messages; by default all do.
        """

        def make() -> Batch:
            return self.graph(split, name).batch(configs, self.num_levels, edges).to(self.device)

        kept = split in self._batches and edges is None
        if kept and np.array_equal(configs, np.arange(self.num_configs(split, name))):
            return self._batches[split].get(name, make)
        return make()


def make_network(options: NetworkOptions, dataset: GraphDataset) -> RankingNetwork:
    """Return a network of the configured size for these graphs, with weights drawn from the seed."""
    torch.manual_seed(options.seed)
    return RankingNetwork(
        node_channels=len(dataset.node_scaler.kept),
        config_channels=len(dataset.config_scaler.kept),
        architecture=options.architecture(),
    ).to(dataset.device)


@torch.no_grad()
def predict(
    network: RankingNetwork,
    dataset: GraphDataset,
    slug: str,
    split: str,
    only: Mapping[str, np.ndarray | slice] | None = None,
) -> dict[str, np.ndarray]:
    """Predict the configurations of a collection's split; only configurations of one graph are compared.

    A layout graph with more configurations than the dataset's ``configs_together``, or a large one, is
    predicted node by node (``node_blocks.py``) or, where that does not fit, in chunks
    (``chunked_prediction.py``). The result is the same up to rounding. Where memory runs out, the number is
    halved.

    Args:
        network: A network; it is left in evaluation mode.
        dataset: Its graphs.
        slug: Slug of one of the dataset's collections.
        split: ``train``, ``valid`` or ``test``.
        only: Positions in the competition file of the configurations to predict, of the graphs to predict,
            ``slice(None)`` for all of a graph; by default all of all.

    Returns:
        ``(C_file,)`` float64 per graph, in the order of the competition file or of ``only``; lower is faster.
    """
    network.eval()
    predictions = {}
    if only is None:
        only = dict.fromkeys(dataset.sources[slug].names(split), slice(None))
    for name, positions in only.items():
        path = f"{slug}/{name}"
        graph = dataset.graph(split, path).graph
        # how often a configuration occurs in the file must not weigh: each distinct one is computed once
        rows, position = np.unique(graph.config_row[positions], return_inverse=True)
        work = partial(_predict_rows, network, dataset, split, path, rows)
        prediction = dataset.shrinking.run(work)
        predictions[name] = prediction.cpu().numpy().astype(np.float64)[position]
    return predictions


def _predict_rows(
    network: RankingNetwork,
    dataset: GraphDataset,
    split: str,
    path: str,
    rows: np.ndarray,
    configs_together: int,
) -> torch.Tensor:
    """Predict distinct configurations ``(n,)`` of a graph, at most ``configs_together`` in a batch."""
    prepared = dataset.graph(split, path)
    parts = math.ceil(len(rows) / configs_together) if prepared.varies else 1
    large = parts > 1 or (prepared.varies and len(rows) * prepared.graph.num_nodes >= _PAIRS)
    with autocast(dataset.device):
        if large:
            predictions = predict_by_nodes(network, prepared, rows, dataset.device, dataset.memory // 4)
            if predictions is not None:
                return predictions
        if parts == 1:
            return network(dataset.batch(split, path, rows))
        return predict_chunks(network, partial(dataset.batch, split, path), np.array_split(rows, parts))
