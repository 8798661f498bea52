"""The network of a finished run, as its folder holds it, read to predict further graphs."""

from dataclasses import fields
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import ConfigDict

from fastslow.core.artifacts import MANIFEST, finished_file
from fastslow.core.errors import DataError, SettingsError, counted
from fastslow.core.memory import step_memory
from fastslow.core.records import Record, check_record
from fastslow.features.graph import GraphSet
from fastslow.features.scaling import EXPANDED_NODE_FEATURES, Scaler
from fastslow.networks.model.convolutions import CONVOLUTIONS
from fastslow.networks.predict.dataset import GraphDataset, make_network, predict
from fastslow.networks.settings.options import NetworkOptions
from fastslow.runs.run_manifest import read_finished
from fastslow.runs.scalers import SCALERS, read_scaler
from fastslow.runs.tensors import load_weights

WEIGHTS = "model.pt"
_AGAIN = "Train this model again"
_REGISTER = f"Register what this code does not have (CONTRIBUTING.md), or: {_AGAIN}"


class _Recorded(Record, NetworkOptions):
    """The settings of a network's manifest: its options and what is recorded beside them."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["gnn"]
    collection: str
    convolution: Literal[*CONVOLUTIONS] = NetworkOptions.convolution
    device_type: str
    precision: str
    node_attention: Literal["none"] = "none"  # of former versions, which had others
    denoise: Literal[False] = False  # of former versions


class _Manifest(Record):
    settings: _Recorded


def recorded_options(folder: Path) -> NetworkOptions:
    """Return the options that the network of a run folder was trained with.

    Raises:
        DataError: The folder is not finished, holds no network, or one that this code cannot make.
    """
    manifest = read_finished(folder)
    recorded = manifest["settings"]
    if (model := recorded.get("model")) != "gnn":
        problem = f"a run of {model!r}, not of a network"
        raise DataError(folder, problem, "Name a network's run folder, such as runs/sample/gnn-tile-xla-s0")
    check_record(Path(folder) / MANIFEST, manifest, _Manifest, _REGISTER)
    names = {field.name for field in fields(NetworkOptions)}
    try:
        return NetworkOptions(**{name: value for name, value in recorded.items() if name in names})
    except SettingsError as error:
        raise DataError(Path(folder) / MANIFEST, f"settings.{error}", _AGAIN) from None


def read_scalers(folder: Path) -> tuple[Scaler, Scaler]:
    """Read the scalers of nodes and of configurations of a finished network's run folder.

    Raises:
        DataError: The run is not finished, or this code builds another number of node columns.
    """
    file = finished_file(folder, SCALERS, _AGAIN)
    node = read_scaler(file, "node", remedy=_AGAIN)
    if len(node.mean) != EXPANDED_NODE_FEATURES:
        numbers = f"{counted(len(node.mean), 'node column')}, this code builds {EXPANDED_NODE_FEATURES}"
        raise DataError(folder, f"learned from {numbers}", "Use the code of its commit, or train it again")
    return node, read_scaler(file, "config", remedy=_AGAIN)


class TrainedNetwork:
    """A finished network, called to predict (:data:`fastslow.runs.predictions.Predictor`).

    Attributes:
        options: Options that it was trained with.
        scalers: Scalers of nodes and of configurations.
        network: The network.

    Raises:
        DataError: The run is not finished, lacks its scalers, or was changed after it was trained.
    """

    def __init__(self, folder: Path):
        self.options = recorded_options(folder)
        self.scalers = read_scalers(folder)
        try:
            self.network = make_network(self.options, self.dataset())
        except SettingsError as error:
            raise DataError(Path(folder) / MANIFEST, f"settings.{error}", _REGISTER) from None
        load_weights(self.network, finished_file(folder, WEIGHTS, _AGAIN), _AGAIN)

    def dataset(self, *sources: GraphSet) -> GraphDataset:
        """Return graphs as the network reads them, scaled as those that it learned from."""
        return GraphDataset(self.options, sources, self.scalers, memory=step_memory())

    def __call__(self, features: GraphSet, split: str) -> dict[str, np.ndarray]:
        """Predict the graphs of a split, ``(C_file,)`` float64 each, lower = predicted faster."""
        return predict(self.network, self.dataset(features), features.collection.slug, split)
