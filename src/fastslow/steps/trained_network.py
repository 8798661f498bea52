"""Apply the network of a finished run."""

from pathlib import Path

import numpy as np

from fastslow.core.artifacts import MANIFEST, finished_file, read_manifest
from fastslow.core.errors import DataError, SettingsError
from fastslow.features.graph_set import GraphSet
from fastslow.features.scaling import EXPANDED_NODE_FEATURES, read_scaler
from fastslow.networks.predict.dataset import GraphDataset, predict
from fastslow.networks.training.train import make_network
from fastslow.runs.features_folder import SCALERS
from fastslow.runs.tensors import load_weights
from fastslow.steps.network import WEIGHTS, graphs_of
from fastslow.steps.network_settings import TrainSettings

_AGAIN = "Train this model again"
_BESIDE = ("model", "collection", "device_type", "precision")  # recorded beside the settings


class TrainedNetwork:
    """A finished network, called to predict (:data:`fastslow.runs.predictions.Predictor`).

    Attributes:
        settings: Settings that it was trained with.
        network: The network.

    Raises:
        DataError: The run is not finished, lacks its scalers, or was changed after it was trained.
    """

    def __init__(self, folder: Path):
        recorded = read_manifest(folder)["settings"]
        try:
            self.settings = TrainSettings.from_record(
                {name: value for name, value in recorded.items() if name not in _BESIDE}
            )
        except SettingsError as error:
            raise DataError(Path(folder) / MANIFEST, f"settings.{error}", _AGAIN) from None
        file = finished_file(folder, SCALERS, _AGAIN)
        self._scalers = read_scaler(file, "node", EXPANDED_NODE_FEATURES), read_scaler(file, "config")
        self.network = make_network(self.settings, self.dataset())
        load_weights(self.network, finished_file(folder, WEIGHTS, _AGAIN), _AGAIN)

    def dataset(self, *sources: GraphSet) -> GraphDataset:
        """Return graphs as the network reads them, scaled as those that it learned from."""
        return graphs_of(self.settings, sources, self._scalers)

    def __call__(self, features: GraphSet, split: str) -> dict[str, np.ndarray]:
        """Predict the graphs of a split, ``(C_file,)`` float64 each, lower = predicted faster."""
        dataset = self.dataset(features)
        return predict(self.network, dataset, features.collection.slug, split, self.settings.configs_together)
