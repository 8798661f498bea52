"""The step of rankers: train one for the collections that ``train_on`` joins; write and read its runs."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pandas as pd

from fastslow.competition.catalog import PREDICTED_SPLITS, VALID, get_collection
from fastslow.competition.metrics import collection_score, mean_metrics
from fastslow.core.artifacts import MANIFEST, Artifact, finished_file, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path
from fastslow.core.progress import progress
from fastslow.core.records import Record, check_record
from fastslow.core.settings import NonNegative
from fastslow.evaluation.plots import plot_training
from fastslow.evaluation.training_files import IMPORTANCE, METRICS, TRAINING_PLOT
from fastslow.rankers.fit import Fitted, fit, read_training
from fastslow.rankers.options import OBJECTIVES
from fastslow.runs.predictions import PREDICTIONS, write_predictions
from fastslow.steps.ranker_settings import RankerSettings

if TYPE_CHECKING:
    import lightgbm

MODEL = "model.txt"
_AGAIN = "Train this model again"
RUN_OUTPUTS = (METRICS, TRAINING_PLOT, MODEL, IMPORTANCE, PREDICTIONS)


class _Manifest(Record):
    """Keys of a ranker's manifest that prediction needs."""

    objective: Literal[*OBJECTIVES]
    trees: NonNegative


def train_ranker(settings: RankerSettings) -> dict:
    """Train the ranker of a collection; write its run folder, and the folders of ``runs`` from its trees.

    The folder, and each of ``runs``, then holds ``metrics.jsonl``, ``training.png``, ``model.txt``,
    ``importance.csv``, ``predictions.npz`` and, last, ``manifest.json``. Training takes seconds to minutes;
    an interrupted run starts again.

    Returns:
        The manifest, with the valid score (mean and per graph) of the model.
    """
    artifact = settings.artifact()
    with artifact.building() as needed:
        if needed:
            _train(settings, artifact)
    return read_manifest(artifact.folder)


def _train(settings: RankerSettings, artifact: Artifact) -> None:
    """Fit the trees, and write a run for each of the collections."""
    sources = settings.sources()
    training = read_training(sources, settings)
    seconds = 3600 * settings.hours or math.inf
    title = f"{artifact.folder.name} {settings.objective}"
    with progress(total=settings.num_iterations, desc=title, unit="round") as bar:

        def report(_: int, valid: float) -> None:
            bar.update()
            bar.set_postfix(valid=f"{valid:.3f}", refresh=False)

        fitted = fit(training, settings, settings.num_threads, seconds, report)
    grown, most = fitted.history[-1][0], settings.num_iterations
    late = [f"{grown} of {most} trees (hours={settings.hours:g})"] if settings.hours and grown < most else []
    for run in (*artifact.parts, artifact):  # the folder that stands for all comes last
        source = sources[get_collection(run.settings["collection"]).slug]
        predictions = {split: fitted.predict_split(source, split) for split in PREDICTED_SPLITS}
        labels = source.labels(VALID)
        valid = predictions[VALID]
        write_trees(run.folder, fitted, mean_metrics(labels, valid))
        warnings = write_predictions(run.folder, predictions)
        run.finish(
            RUN_OUTPUTS,
            valid={
                **collection_score(source.collection.kind, labels, valid),
                "weights": f"{fitted.objective}, {fitted.num_trees} rounds",
            },
            objective=fitted.objective,
            features=source.recipe,
            warnings=[*warnings, *late],
            trees=fitted.num_trees,  # LightGBM's file holds a constant tree where none is kept
        )


def write_trees(folder: Path, fitted: Fitted, metrics: Mapping[str, float]) -> None:
    """Write the trees of a run, their importances, and the history as a file and as a plot.

    Args:
        folder: Run folder.
        fitted: The boosted trees.
        metrics: Every metric on valid of the trees that are used.
    """
    rows = [
        {"objective": fitted.objective, "round": iteration, "valid": score}
        | (metrics if iteration == fitted.num_trees else {})
        for iteration, score in fitted.history
    ]
    save_figure(plot_training(pd.DataFrame(rows), folder.name), folder / TRAINING_PLOT)
    with atomic_path(folder / METRICS) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with atomic_path(folder / MODEL) as temporary:
        fitted.booster.save_model(temporary, num_iteration=fitted.num_trees)
    with atomic_path(folder / IMPORTANCE) as temporary:
        importance(fitted.booster, fitted.num_trees).to_csv(temporary, index=False)


def read_booster(folder: Path) -> "lightgbm.Booster":
    """Read the trees of a finished run.

    Raises:
        DataError: The run is not finished, or its trees were changed: LightGBM would end or never return.
    """
    import lightgbm  # with scikit-learn a second

    path = finished_file(folder, MODEL, _AGAIN)
    try:
        return lightgbm.Booster(model_file=path)
    except lightgbm.basic.LightGBMError as error:
        problem = f"cannot be read ({' '.join(str(error).split())[:200]})"
        raise DataError(path, problem, _AGAIN) from None


def read_ranker(folder: Path) -> Fitted:
    """Read the ranker of a run folder.

    Returns:
        The trees, which predict graphs with :meth:`~fastslow.rankers.fit.Fitted.predict_split`.

    Raises:
        DataError: The run is not finished, or is not a ranker's.
    """
    manifest = read_manifest(folder)
    if (model := manifest["settings"].get("model")) != "ranker":
        problem = f"a run of a {model}, a ranker wanted"
        raise DataError(folder, problem, "Name a folder that the ranker notebook wrote")
    check_record(Path(folder) / MANIFEST, manifest, _Manifest, _AGAIN)
    return Fitted(manifest["objective"], read_booster(folder), manifest["trees"], [])


def importance(booster: "lightgbm.Booster", num_iteration: int) -> pd.DataFrame:
    """Return the total gain of the first trees' splits per column, largest first: ``column``, ``gain``."""
    gain = booster.feature_importance("gain", iteration=num_iteration)
    table = pd.DataFrame({"column": booster.feature_name(), "gain": gain})
    return table.sort_values("gain", ascending=False, kind="stable", ignore_index=True)
