"""The step of rankers: train one for the collections that ``train_on`` joins, and write its runs."""

import contextlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.competition.catalog import PREDICTED_SPLITS, TRAIN, VALID, get_collection
from fastslow.competition.metrics import collection_score, mean_metrics
from fastslow.core.artifacts import Artifact, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path, digest, read_json, write_json
from fastslow.core.progress import name_score, progress
from fastslow.core.settings import resolve
from fastslow.evaluation.plots import plot_training
from fastslow.evaluation.training_files import IMPORTANCE, METRICS, TRAINING_PLOT
from fastslow.features.folds import HELD_OUT_CONFIGS
from fastslow.features.graph import GraphSet
from fastslow.rankers.fit import OUT_OF_TIME, Fitted, RankerTables, Report, fit, read_training
from fastslow.rankers.libraries import Trees
from fastslow.rankers.table import read_table
from fastslow.runs.predictions import write_held_out, write_predictions
from fastslow.runs.run_manifest import HELD_OUT, PREDICTIONS
from fastslow.runs.trained_ranker import MODEL
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.steps.training_groups import warn_of_predicted

USED = "used.json"
"""File in the folder of an interrupted ranker: the seconds that its trees took, of a limit in hours."""
_WRITTEN_EVERY = 1.0  # seconds
RUN_OUTPUTS = (METRICS, TRAINING_PLOT, MODEL, IMPORTANCE, PREDICTIONS)


def train_ranker(settings: RankerSettings) -> dict:
    """Train the ranker of a collection; write its run folder, and the folders of ``runs`` from its trees.

    The folder, and each of ``runs``, then holds ``metrics.jsonl``, ``training.png``, ``model.txt``,
    ``importance.csv``, ``predictions.npz`` and, last, ``manifest.json``. Training takes seconds to minutes;
    an interrupted run starts again; of its ``hours`` the rest is left.

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
    title = f"{artifact.folder.name} {settings.objective}"
    scored = name_score([source.collection.slug for source in sources.values()])
    with progress(total=settings.num_iterations, desc=title, unit="round") as bar:

        def report(_: int, valid: float) -> None:
            bar.update()
            bar.set_postfix({scored: f"{valid:.3f}"}, refresh=False)

        fitted = fit_within_hours(settings, training, report)
    left_out = warn_of_predicted(sources)
    few: list[str] = []
    stopped = ""
    if fitted.ended:
        grown = f"{fitted.history[-1].trees} of {settings.num_iterations} trees"
        why = fitted.ended
        if fitted.ended == OUT_OF_TIME:
            stopped, why = grown, f"hours={settings.hours:g}"
        few = [f"{grown} ({why})"]
    evaluated = fitted.predict(training.valid)
    for run in (*artifact.parts, artifact):  # the folder that stands for all comes last
        source = sources[get_collection(run.settings["collection"]).slug]
        labels = source.labels(VALID)
        valid = predict_valid(fitted, source, evaluated)
        others = [split for split in PREDICTED_SPLITS if split != VALID]
        predictions = {VALID: valid, **{split: fitted.predict_split(source, split) for split in others}}
        slug = source.collection.slug
        metrics = mean_metrics(labels, valid)
        rows = history_rows(fitted, metrics, slug)
        write_trees(run.folder, fitted, rows)
        figure = plot_training(pd.DataFrame(rows), run.folder.name, None, {slug: source.references})
        save_figure(figure, run.folder / TRAINING_PLOT)
        warnings = write_predictions(run.folder, predictions)
        outputs = RUN_OUTPUTS
        if settings.folds:
            prefix = f"{source.collection.slug}/"
            names = [name.removeprefix(prefix) for name in training.held_out if name.startswith(prefix)]
            held_out: dict[str, np.ndarray] = {}
            for name in names:
                held_out |= fitted.predict(read_table(source, TRAIN, [name], HELD_OUT_CONFIGS))
            write_held_out(run.folder, held_out)
            outputs = (*RUN_OUTPUTS, HELD_OUT)
        run.finish(
            outputs,
            stopped,
            valid={
                **collection_score(source.collection.kind, labels, valid),
                "weights": f"{fitted.objective}, {fitted.num_trees} rounds",
            },
            objective=fitted.objective,
            features=source.recipe,
            warnings=[*left_out, *warnings, *few],
            trees=fitted.num_trees,  # LightGBM's file holds a constant tree where none is kept
        )
    forget_used(settings)


def predict_valid(
    fitted: Fitted, source: GraphSet, evaluated: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Predict every configuration of a collection's valid graphs.

    Args:
        fitted: The boosted trees.
        source: The graphs.
        evaluated: Predictions of the valid configurations that the training evaluated, ``(n,)`` per graph,
            as ``<slug>/<graph>``. A graph whose configurations are all there is not tabulated again.

    Returns:
        ``(C_file,)`` float64 per graph, lower = predicted faster.
    """
    predictions = {}
    for name, runtimes in source.labels(VALID).items():
        predicted = evaluated[f"{source.collection.slug}/{name}"]
        if len(predicted) < len(runtimes):  # valid_configs left some out
            predicted = fitted.predict(read_table(source, VALID, [name]))[name]
        predictions[name] = predicted
    return predictions


def fit_within_hours(settings: RankerSettings, training: RankerTables, report: Report) -> Fitted:
    """Fit the trees in the hours of the settings, less what an interrupted training used of them.

    Args:
        settings: Options of the trees, and their hours; 0: no limit.
        training: Tables of train and valid.
        report: Is called after each tree with its number and the score on valid.
    """
    if not settings.hours:
        return fit(training, settings, settings.num_threads, report=report)
    used = read_used(settings)
    began = time.monotonic()
    written = -math.inf

    def count(iteration: int, valid: float) -> None:
        nonlocal written
        now = time.monotonic()
        if now - written > _WRITTEN_EVERY:
            written = now
            facts = {"settings": _mark(settings), "seconds": used + now - began}
            write_json(resolve(settings.folder) / USED, facts)
        report(iteration, valid)

    return fit(training, settings, settings.num_threads, 3600 * settings.hours - used, count)


def read_used(settings: RankerSettings) -> float:
    """Return the seconds of its limit that an interrupted training with these settings used; else 0."""
    path = resolve(settings.folder) / USED
    if not path.is_file():
        return 0.0
    with contextlib.suppress(DataError, KeyError, TypeError, ValueError):  # broken: as if it was not there
        used = read_json(path)
        if used["settings"] == _mark(settings):
            return float(used["seconds"])
    return 0.0


def forget_used(settings: RankerSettings) -> None:
    """Remove what :func:`read_used` reads: the training is finished."""
    (resolve(settings.folder) / USED).unlink(missing_ok=True)


def _mark(settings: RankerSettings) -> str:
    return digest([settings.identity(), settings.hours])


def history_rows(fitted: Fitted, metrics: Mapping[str, float], slug: str) -> list[dict]:
    """Return a row of every evaluation, as ``metrics.jsonl`` holds them.

    Args:
        fitted: The boosted trees.
        metrics: Every metric on valid of the trees that are used.
        slug: The run's collection, whose mean has its name.
    """
    rows = []
    for trees, score, per_graph in fitted.history:
        scores = [value for graph, value in per_graph.items() if graph.startswith(f"{slug}/")]
        row = {"objective": fitted.objective, "round": trees, "valid": score, slug: float(np.mean(scores))}
        rows.append(row | (metrics if trees == fitted.num_trees else {}))
    return rows


def write_trees(folder: Path, fitted: Fitted, rows: Sequence[Mapping]) -> None:
    """Write the trees of a run, their importances and the history.

    Args:
        folder: Run folder.
        fitted: The boosted trees.
        rows: As :func:`history_rows` returns them.
    """
    with atomic_path(folder / METRICS) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with atomic_path(folder / MODEL) as temporary:
        fitted.trees.save(temporary, fitted.num_trees)
    with atomic_path(folder / IMPORTANCE) as temporary:
        importance(fitted.trees, fitted.num_trees).to_csv(temporary, index=False)


def importance(trees: Trees, count: int) -> pd.DataFrame:
    """Return the total gain of the first trees' splits per column, largest first: ``column``, ``gain``."""
    table = pd.DataFrame({"column": trees.columns, "gain": trees.gain(count)})
    return table.sort_values("gain", ascending=False, kind="stable", ignore_index=True)
