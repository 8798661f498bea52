"""The LightGBM ranker, for layout and for tile, from tabulated features of each configuration."""

import json
from pathlib import Path

import lightgbm
import pandas as pd

from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path
from fastslow.core.progress import boosting_progress
from fastslow.core.settings import resolve
from fastslow.evaluation.plots import plot_training
from fastslow.evaluation.predictions import PREDICTED_SPLITS, write_predictions
from fastslow.features.store import Features
from fastslow.rankers.config import RankerConfig
from fastslow.rankers.fit import Fitted, Training, fit, read_training
from fastslow.rankers.objectives import OBJECTIVES
from fastslow.rankers.table import read_table

MODEL = "model.txt"
IMPORTANCE = "importance.csv"
METRICS = "metrics.jsonl"
PLOT = "training.png"


def train_ranker(config: RankerConfig) -> dict:
    """Train the ranker of one collection and write its run folder.

    The folder gets ``metrics.jsonl``, ``training.png``, ``model.txt``, ``importance.csv``,
    ``predictions.npz`` and, last, ``manifest.json``. Training takes seconds to minutes; an interrupted run
    starts again. Of several machines the first one writes; the others only take part.

    Args:
        config: Settings.

    Returns:
        The manifest, with the valid score (mean and per graph) of the kept and of every objective; empty on
        the other machines.
    """
    if config.machine > 0:
        fit_objectives(config, read_training(config), Path(config.folder).name)
        return {}
    artifact = config.artifact()
    with artifact.building() as needed:
        if needed:
            artifact.finish(**_train(config, artifact.folder))
    return read_manifest(artifact.folder)


def fit_objectives(config: RankerConfig, training: Training, title: str) -> dict[str, Fitted]:
    """A ranker of the objective, or of each where the best is wanted."""
    wanted = tuple(OBJECTIVES) if config.objective == "best" else (config.objective,)
    fits = {}
    for objective in wanted:
        with boosting_progress(config.num_iterations, f"{title} {objective}") as report:
            fits[objective] = fit(config, objective, training, report)
    return fits


def _train(config: RankerConfig, folder: Path) -> dict:
    """Fit, write all but the manifest, and give the facts for it."""
    features = Features(resolve(config.features))
    kind, labels = features.collection.kind, features.labels("valid")
    fits = fit_objectives(config, read_training(config), folder.name)
    tables = {
        split: read_table(features, split, largest_nodes=config.largest_nodes) for split in PREDICTED_SPLITS
    }
    scores = {
        objective: {split: fitted.scores(table) for split, table in tables.items()}
        for objective, fitted in fits.items()
    }
    valid = {objective: collection_score(kind, labels, scores[objective]["valid"]) for objective in fits}
    best = max(fits, key=lambda objective: valid[objective]["mean"])
    rows = [
        {"objective": objective, "round": number, "valid": value}
        for objective, fitted in fits.items()
        for number, value in fitted.history
    ]
    fitted = fits[best]
    write_run(folder, rows, fitted.booster, fitted.rounds)
    write_predictions(folder, scores[best])
    return {
        "valid": {**valid[best], "weights": f"{best}, {fitted.rounds} rounds"},
        "objectives": {objective: valid[objective]["mean"] for objective in fits},
        "objective": best,
    }


def write_run(folder: Path, history: list[dict], booster: lightgbm.Booster, rounds: int) -> None:
    """Write what tells of a run of boosting, and its trees, into the run folder.

    Args:
        folder: Run folder.
        history: ``objective``, ``round`` and ``valid`` (score) of every evaluation.
        booster: The trees.
        rounds: How many of them are kept.
    """
    save_figure(plot_training(pd.DataFrame(history), folder.name), folder / PLOT)
    with atomic_path(folder / METRICS) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in history))
    with atomic_path(folder / MODEL) as temporary:
        booster.save_model(temporary, num_iteration=rounds)
    with atomic_path(folder / IMPORTANCE) as temporary:
        importance(booster, rounds).to_csv(temporary, index=False)


def read_ranker(folder: Path) -> Fitted:
    """The ranker of a run folder.

    Raises:
        DataError: The run is not finished, or no ranker's.
    """
    manifest = read_manifest(folder)
    if manifest["settings"].get("model") != "ranker":
        problem = f"a run of a {manifest['settings'].get('model')}, a ranker wanted"
        raise DataError(folder, problem, "Name a folder that the ranker notebook wrote")
    booster = lightgbm.Booster(model_file=str(folder / MODEL))
    opponents = manifest["settings"]["opponents"]
    return Fitted(manifest["objective"], booster, booster.num_trees(), [], opponents)


def importance(booster: lightgbm.Booster, rounds: int) -> pd.DataFrame:
    """Total gain of the first rounds' splits on each column, most first: ``column``, ``gain``."""
    gain = booster.feature_importance("gain", iteration=rounds)
    table = pd.DataFrame({"column": booster.feature_name(), "gain": gain})
    return table.sort_values("gain", ascending=False, kind="stable", ignore_index=True)
