"""Apply the network of a finished run."""

from pathlib import Path

import numpy as np

from fastslow.core.artifacts import MANIFEST, finished_file, read_manifest
from fastslow.core.errors import ConfigError, DataError
from fastslow.evaluation.predictions import Predictor
from fastslow.features.scaling import EXPANDED_NODE_FEATURES, read_scaler
from fastslow.features.store import SCALERS, Features
from fastslow.networks.config import TrainConfig
from fastslow.networks.dataset import predict
from fastslow.networks.run_folder import WEIGHTS
from fastslow.networks.stored_weights import load_weights
from fastslow.networks.train import make_dataset, make_network

_AGAIN = "Train this model again"


def read_network(folder: Path) -> Predictor:
    """Read a finished network; the run folder is all that is needed.

    Args:
        folder: The run folder.

    Raises:
        DataError: The run is not finished, lacks its scalers, or was changed after it was trained.
    """
    settings = read_manifest(folder)["settings"]
    try:
        config = TrainConfig(**{k: v for k, v in settings.items() if k in TrainConfig.model_fields})
    except ConfigError as error:
        raise DataError(Path(folder) / MANIFEST, f"settings.{error}", _AGAIN) from None
    scaler_file = finished_file(folder, SCALERS, _AGAIN)
    scalers = read_scaler(scaler_file, "node", EXPANDED_NODE_FEATURES), read_scaler(scaler_file, "config")
    network = make_network(config, make_dataset(config, [], scalers))
    load_weights(network, finished_file(folder, WEIGHTS, _AGAIN), _AGAIN)

    def predict_split(features: Features, split: str) -> dict[str, np.ndarray]:
        slug = features.collection.slug
        return predict(
            network, make_dataset(config, [features], scalers), slug, split, config.inference_configs
        )

    return predict_split
