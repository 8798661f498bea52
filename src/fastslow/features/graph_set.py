"""The graphs of one collection: what models learn from and predict."""

from collections.abc import Iterable, Mapping

import numpy as np

from fastslow.competition.catalog import LABELLED_SPLITS, TRAIN, Collection
from fastslow.core.errors import DataError
from fastslow.features.graph import Graph, expand_nodes
from fastslow.features.scaling import NODE_BLOCKS, Scaler, ScalerFit

Predictions = dict[str, dict[str, np.ndarray]]
"""Predictions ``(C_file,)`` of a model by split and graph, lower = predicted faster."""


class GraphSet:
    """The graphs of one collection in memory, by split.

    :class:`fastslow.runs.features_folder.Features` is one whose graphs are read from disk when they are asked
    for. Whatever trains or predicts takes either.

    Args:
        collection: The collection that all graphs belong to.
        graphs: The graphs of each split, in the order of their files.
        config_columns: Names of the V columns of their ``config_feat``.

    Attributes:
        origin: Where the graphs are, for messages.
    """

    def __init__(
        self, collection: Collection, graphs: Mapping[str, Iterable[Graph]], config_columns: list[str]
    ):
        self.collection, self.config_columns = collection, config_columns
        self.origin = f"the graphs of {collection.name}"
        self._graphs = {split: {graph.name: graph for graph in part} for split, part in graphs.items()}
        self._scalers: dict[str, Scaler] = {}

    def names(self, split: str) -> list[str]:
        """Return the names of the graphs of a split."""
        return [*self._graphs.get(split, {})]

    def graph(self, split: str, name: str) -> Graph:
        """Return one graph."""
        return self._graphs[split][name]

    def num_configs(self, split: str) -> dict[str, int]:
        """Return the number of configurations of each competition file of a split, by name of the graph.

        The number counts repeated configurations, as a prediction for the file must.
        """
        return {name: len(self.graph(split, name).config_row) for name in self.names(split)}

    def num_distinct(self, split: str) -> dict[str, int]:
        """Return the number of distinct configurations of each graph of a split."""
        return {name: self.graph(split, name).num_configs for name in self.names(split)}

    def labels(self, split: str) -> dict[str, np.ndarray]:
        """Return the runtimes of each graph, float64: what a model is trained on or scored against.

        Args:
            split: ``train``: ``(C,)``, one training label per distinct configuration. ``valid``:
                ``(C_file,)``, the runtime of every configuration of the file, as the competition scores them.

        Raises:
            DataError: The split is ``test``, whose files carry zeros in place of runtimes.
        """
        if split not in LABELLED_SPLITS:
            remedy = "Score a submission through solution.csv"
            raise DataError(self.origin, f"{split} runtimes are not known", remedy)
        array = "runtime" if split == TRAIN else "file_runtime"
        return {name: self.read_labels(split, name, array) for name in self.names(split)}

    def read_labels(self, split: str, name: str, array: str) -> np.ndarray:
        """Return the array ``runtime`` or ``file_runtime`` of a labelled graph."""
        return getattr(self.graph(split, name), array)

    def scaler(self, name: str) -> Scaler:
        """Return the scaler of ``node`` or of ``config`` features, fitted on the train graphs."""
        if name not in self._scalers:
            self._scalers = fit_scalers(self.graph(TRAIN, graph) for graph in self.names(TRAIN))
        return self._scalers[name]


def fit_scalers(graphs: Iterable[Graph]) -> dict[str, Scaler]:
    """Fit the scalers ``node`` and ``config`` on graphs, each weighing the same."""
    nodes = ScalerFit(*NODE_BLOCKS)
    configs = ScalerFit()
    for graph in graphs:
        nodes.add(expand_nodes(graph))
        configs.add(graph.config_feat)
    return {"node": nodes.scaler(), "config": configs.scaler()}
