"""Apply the network of a finished run."""

from pathlib import Path

import numpy as np
import torch

from fastslow.core.artifacts import read_manifest
from fastslow.evaluation.predictions import Predictor
from fastslow.features.scaling import read_scaler
from fastslow.features.store import SCALERS, Features
from fastslow.networks.config import TrainConfig
from fastslow.networks.dataset import GraphDataset, predict
from fastslow.networks.devices import pick_device
from fastslow.networks.train import WEIGHTS, make_network


def read_network(folder: Path) -> Predictor:
    """Read a finished network; the run folder is all that is needed.

    Args:
        folder: The run folder.

    Raises:
        DataError: The run is not finished, or lacks its scalers.
    """
    settings = read_manifest(folder)["settings"]
    config = TrainConfig(**{k: v for k, v in settings.items() if k in TrainConfig.model_fields})
    scalers = read_scaler(folder / SCALERS, "node"), read_scaler(folder / SCALERS, "config")
    device = pick_device(config.device)

    def dataset(*sources: Features) -> GraphDataset:
        return GraphDataset(sources, config.num_layers, device, config.joins_pairs(), scalers)

    network = make_network(config, dataset())
    network.load_state_dict(torch.load(folder / WEIGHTS, weights_only=True, map_location=device))

    def predict_split(features: Features, split: str) -> dict[str, np.ndarray]:
        slug = features.collection.slug
        return predict(network, dataset(features), slug, split, config.inference_configs)

    return predict_split
