"""Graphs as a network takes them, and scores of whole splits."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch

from fastslow.core.errors import DataError
from fastslow.features.scaling import Scaler
from fastslow.features.store import Features
from fastslow.features.train_graphs import trainable
from fastslow.networks.chunked_prediction import predict_chunks
from fastslow.networks.graph_batch import Batch, PreparedGraph
from fastslow.networks.model import RankingNetwork


class GraphDataset:
    """The graphs of several collections, each scaled once and kept.

    A graph is called ``<collection's slug>/<name>``. The scalers are those of all collections together.

    Args:
        sources: Finished features folders, each of another collection.
        depth: Message-passing layers of the network.
        device: Where batches go.
        pair_edges: Whether configurable nodes that share a tensor are joined by an edge.

    Raises:
        DataError: The folders were built with different settings, so their columns differ.
    """

    def __init__(
        self, sources: Sequence[Features], depth: int, device: torch.device, pair_edges: bool = True
    ):
        self.sources = {source.collection.slug: source for source in sources}
        self.depth = depth
        self.device = device
        self.pair_edges = pair_edges
        first, *others = sources
        for other in others:
            if other.config_columns != first.config_columns:
                problem = f"columns other than those of {first.folder.name}"
                raise DataError(other.folder, problem, "Build both with the same settings")
        self.node_scaler = Scaler.pool([source.scaler("node") for source in sources])
        self.config_scaler = Scaler.pool([source.scaler("config") for source in sources])
        self._cache: dict[tuple[str, str], PreparedGraph] = {}

    def graph(self, split: str, name: str) -> PreparedGraph:
        """The scaled graph."""
        if (split, name) not in self._cache:
            slug, _, stem = name.partition("/")
            graph = self.sources[slug].graph(split, stem)
            scalers = self.node_scaler, self.config_scaler
            self._cache[split, name] = PreparedGraph(graph, *scalers, self.pair_edges)
        return self._cache[split, name]

    def batch(self, split: str, name: str, configs: np.ndarray) -> Batch:
        """A batch of some configurations of a graph on the device."""
        return self.graph(split, name).batch(configs, self.depth).to(self.device)

    def trainable(self) -> list[str]:
        """Return the train graphs to learn from, see :func:`fastslow.features.train_graphs.trainable`."""
        return trainable(self.sources)


def pick_device(name: str) -> torch.device:
    """The device of a setting: ``auto`` is a GPU where there is one."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def autocast(device: torch.device) -> torch.autocast:
    """bfloat16 on a GPU, float32 on a CPU."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


@torch.no_grad()
def predict(
    network: RankingNetwork,
    inputs: GraphDataset,
    slug: str,
    split: str,
    configs_together: int,
    only: Mapping[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Scores of the configurations of a collection's split, each graph's compared all with each other.

    Args:
        network: A network.
        inputs: Its graphs.
        slug: Slug of one of its collections.
        split: ``train``, ``valid`` or ``test``.
        configs_together: Most configurations of a batch. A layout graph with more is scored in chunks, which
            takes several passes and changes no score; a kernel's graph is the same for all of them.
        only: Positions in the competition file of the configurations to predict, per graph; by default all.

    Returns:
        ``(F,)`` float64 per graph, in the order of the competition file or of ``only``.
    """
    network.eval()
    scores = {}
    for name in inputs.sources[slug].names(split):
        path = f"{slug}/{name}"
        graph = inputs.graph(split, path).graph
        # how often a configuration occurs in the file must not weigh: each distinct one is computed once
        rows, position = np.unique(graph.config_row[only[name] if only else ...], return_inverse=True)
        parts = math.ceil(len(rows) / configs_together) if len(graph.config_index) else 1
        with autocast(inputs.device):
            score = predict_chunks(network, partial(inputs.batch, split, path), np.array_split(rows, parts))
        scores[name] = score.cpu().numpy().astype(np.float64)[position]
    return scores
