"""Apply the network of a finished run."""

from pathlib import Path

import numpy as np
import torch

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError
from fastslow.features.store import Features
from fastslow.networks.config import TrainConfig
from fastslow.networks.dataset import predict
from fastslow.networks.train import WEIGHTS, make_dataset, make_network


def predict_with_network(folder: Path, features: Features, split: str) -> dict[str, np.ndarray]:
    """Predict the graphs of a split with a finished network.

    Args:
        folder: The run folder.
        features: Features of the run's collection; those of the others that the network learned from, whose
            scalers it shares, are expected beside them.
        split: The split to predict.

    Returns:
        ``(C_file,)`` float64 per graph, lower = predicted faster.

    Raises:
        DataError: The run is not finished, or the features of another collection are missing or others.
    """
    manifest = read_manifest(folder)
    sources = _sources(folder, manifest["inputs"], features)
    known = {k: v for k, v in manifest["settings"].items() if k in TrainConfig.model_fields}
    places = {"features": [str(s.folder) for s in sources], "runs": [s.collection.slug for s in sources]}
    config = TrainConfig(**known, **places)
    dataset = make_dataset(config, sources)
    network = make_network(config, dataset)
    weights = torch.load(folder / WEIGHTS, weights_only=True, map_location=dataset.device)
    network.load_state_dict(weights)
    return predict(network, dataset, features.collection.slug, split, config.inference_configs)


def _sources(folder: Path, inputs: dict, own: Features) -> list[Features]:
    """Return the features of every collection that the network learned from, in the catalog's order."""
    sources = []
    for collection in COLLECTIONS:
        if collection == own.collection:
            sources.append(own)
        elif collection.slug in inputs:
            sources.append(Features(own.folder.parent / collection.slug))
            if sources[-1].fingerprint != inputs[collection.slug]:
                problem = f"trained on features other than {sources[-1].folder}"
                raise DataError(folder, problem, "Give the features of the same run, or train it again")
    return sources
