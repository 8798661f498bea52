"""Apply finished runs to programs that they never saw: network, rankers, and ensembles with their weights.

Features of the programs are built with the settings of the run's features
(:func:`fastslow.features.unseen.read_unseen`); each model then predicts them as it predicts a test split::

    programs = read_unseen(resolve("features/sample/layout-xla-default"), ["program.npz"])
    predictions = predict_run(resolve("runs/sample/ensemble-layout-xla-default"), programs)
    predictions["program"]  # one value per configuration of the file, lower = predicted faster
"""

from pathlib import Path

import numpy as np

from fastslow.competition.catalog import TEST
from fastslow.core.errors import DataError
from fastslow.core.settings import resolve
from fastslow.evaluation.ensemble import combine
from fastslow.evaluation.predictions import read_run_manifest
from fastslow.features.store import Features
from fastslow.networks.trained import predict_with_network
from fastslow.rankers.additive_train import predict_with_additive_ranker
from fastslow.rankers.train import predict_with_ranker

MODELS = {
    "gnn": predict_with_network,
    "ranker": predict_with_ranker,
    "additive ranker": predict_with_additive_ranker,
}
"""By ``model`` of a run's manifest, the function of its folder, features and a split that predicts."""


def predict_run(run: Path, features: Features, split: str = TEST) -> dict[str, np.ndarray]:
    """Predict the graphs of a split with a finished run.

    Args:
        run: Folder of a network's or a ranker's run, or of an ensemble, whose members are found through its
            manifest.
        features: The features that the run was trained on, or graphs built with their settings
            (:class:`fastslow.features.unseen.UnseenGraphs`). Those of the other collections that it learned
            from are expected beside them.
        split: The split to predict.

    Returns:
        ``(C_file,)`` float64 per graph, in the order of the competition file, lower = predicted faster.

    Raises:
        DataError: The run is not finished, is of other features, or of a model that cannot be applied.
    """
    return predict_members(run, features, split)[Path(run).name]


def predict_members(run: Path, features: Features, split: str = TEST) -> dict[str, dict[str, np.ndarray]]:
    """Predict the graphs of a split with a finished run and, of an ensemble, with each member.

    Arguments and errors as for :func:`predict_run`.

    Returns:
        Predictions per graph, by member and last by the run's own name.
    """
    run = Path(run)
    manifest = read_run_manifest(run)
    if "members" not in manifest:
        return {run.name: _predict_model(run, manifest, features, split)}
    members = {
        name: predict_run(resolve(m["folder"]), features, split) for name, m in manifest["members"].items()
    }
    weights = {name: member["weight"] for name, member in manifest["members"].items()}
    own = combine(
        {name: {split: p} for name, p in members.items()}, split, manifest["normalisation"], weights
    )
    return {**members, run.name: own}


def _predict_model(run: Path, manifest: dict, features: Features, split: str) -> dict[str, np.ndarray]:
    model = manifest["settings"].get("model")
    if model not in MODELS:
        problem = f"a run of {model!r}, whose model is not kept"
        raise DataError(run, problem, f"Name a run of {', '.join(MODELS)}, or an ensemble of them")
    inputs = manifest["inputs"]
    if inputs.get("features") != features.fingerprint:
        problem = f"trained on features other than {features.folder}"
        raise DataError(run, problem, "Give the features of the same run, or run `make submit` again")
    return MODELS[model](run, features, split)
