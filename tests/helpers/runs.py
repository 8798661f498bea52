"""Finished run folders with predictions made up at random."""

import numpy as np

from fastslow.competition.catalog import PREDICTED_SPLITS, get_collection
from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import Artifact
from fastslow.core.npz_io import write_arrays
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import write_predictions
from fastslow.runs.run_manifest import PREDICTIONS
from fastslow.steps.ensemble import EnsembleSettings
from fastslow.steps.features import FeatureSettings, build_features
from helpers.competition_files import write_data_root
from helpers.good_artifacts import reseal

NAMES = {"train": ("a",), "valid": ("v", "w"), "test": ("t",)}


def make_features(root, name, names=NAMES, **settings):
    """Features of one collection, built from made-up files."""
    collection = get_collection(name)
    write_data_root(root / "data", name, **names)
    folder = root / "features" / collection.slug
    common = {"data_root": str(root / "data"), "folder": str(folder), "workers": 1}
    build_features(FeatureSettings(collection=name, **common, **settings))
    return Features(folder)


def random_scores(features, rng, noise=1.0):
    """Scores that follow the runtime where it is known, with noise."""
    scores = {split: {} for split in PREDICTED_SPLITS}
    for split in PREDICTED_SPLITS:
        for name, count in features.num_configs(split).items():
            runtime = features.graph(split, name).file_runtime
            order = np.argsort(np.argsort(runtime)) if split == "valid" else np.zeros(count)
            scores[split][name] = order + noise * count * rng.standard_normal(count)
    return scores


def write_run(folder, features, scores, collection=None, data=None, **settings):
    """A finished run folder with these scores, as any model writes it."""
    settings = {"model": "made up", "collection": collection or features.collection.name, **settings}
    write_predictions(folder, scores)
    valid = collection_score(features.collection.kind, features.labels("valid"), scores["valid"])
    Artifact(folder, settings, {"data": data or features.data}).finish([PREDICTIONS], valid=valid)
    return str(folder)


def overwrite_predictions(folder, scores):
    """Put any predictions into a run folder, also those that no model may write."""
    arrays = {
        f"{split}/{name}": values
        for split, graph_scores in scores.items()
        for name, values in graph_scores.items()
    }
    write_arrays(folder / PREDICTIONS, arrays)
    reseal(folder, PREDICTIONS)


def ensemble_settings(features, folder, runs, **options):
    return EnsembleSettings(features=str(features.folder), folder=str(folder), runs=runs, **options)
