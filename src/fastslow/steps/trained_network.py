"""Apply the network of a finished run."""

from pathlib import Path

import numpy as np

from fastslow.core.artifacts import finished_file
from fastslow.features.graph import GraphSet
from fastslow.networks.predict.dataset import GraphDataset, predict
from fastslow.networks.training.train import make_network
from fastslow.runs.tensors import load_weights
from fastslow.steps.network import WEIGHTS, graphs_of, read_scalers
from fastslow.steps.network_settings import AGAIN, recorded_settings


class TrainedNetwork:
    """A finished network, called to predict (:data:`fastslow.runs.predictions.Predictor`).

    Attributes:
        settings: Settings that it was trained with.
        scalers: Scalers of nodes and of configurations.
        network: The network.

    Raises:
        DataError: The run is not finished, lacks its scalers, or was changed after it was trained.
    """

    def __init__(self, folder: Path):
        self.settings = recorded_settings(folder)
        self.scalers = read_scalers(folder)
        self.network = make_network(self.settings, self.dataset())
        load_weights(self.network, finished_file(folder, WEIGHTS, AGAIN), AGAIN)

    def dataset(self, *sources: GraphSet) -> GraphDataset:
        """Return graphs as the network reads them, scaled as those that it learned from."""
        return graphs_of(self.settings, sources, self.scalers)

    def __call__(self, features: GraphSet, split: str) -> dict[str, np.ndarray]:
        """Predict the graphs of a split, ``(C_file,)`` float64 each, lower = predicted faster."""
        dataset = self.dataset(features)
        return predict(self.network, dataset, features.collection.slug, split, self.settings.configs_together)
