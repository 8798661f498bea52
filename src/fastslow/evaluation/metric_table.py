"""Every metric of every model, beside the competition's own: the table of ``metrics=all``."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.competition.catalog import TEST, VALID
from fastslow.competition.metrics import mean_metrics
from fastslow.core.input_files import is_there
from fastslow.core.settings import resolve
from fastslow.evaluation.predictions import read_predictions
from fastslow.evaluation.results import list_runs, short_name
from fastslow.evaluation.solution import read_solution, runtimes_of
from fastslow.evaluation.submission import SOLUTION, SubmissionSettings
from fastslow.features.store import Features

Truth = dict[str, np.ndarray]  # graph -> (C_file,) runtimes


def true_runtimes(features: Features, data_root: Path) -> dict[str, Truth]:
    """Return the runtimes of the valid graphs and, where ``solution.csv`` is there, of the test graphs.

    Args:
        features: Features of a collection.
        data_root: Folder that may hold ``solution.csv``.

    Returns:
        Runtimes per split and graph, unit as in the features store.
    """
    truth, solution = {VALID: features.labels(VALID)}, data_root / SOLUTION
    if is_there(solution):
        truth[TEST] = runtimes_of(read_solution(solution), features.collection)
    return truth


def metric_table(settings: SubmissionSettings) -> pd.DataFrame:
    """Compute every metric of every baseline, member and ensemble of a submission.

    Returns:
        One row per collection, model and split: each metric, mean over graphs and then over seeds.
    """
    tables = []
    for folder, ensemble in zip(settings.features, settings.ensembles, strict=True):
        features = Features(resolve(folder))
        table = _metrics(resolve(ensemble), features, true_runtimes(features, resolve(settings.data_root)))
        tables.append(table.assign(collection=features.collection.name))
    whole = pd.concat(tables, ignore_index=True)
    return whole[["collection", *whole.columns.drop("collection")]]


def valid_metrics(features: str, ensemble: str) -> pd.DataFrame:
    """Compute every metric of the baselines, members and ensemble of one collection on valid.

    Args:
        features: Features folder as the settings name it.
        ensemble: Folder of the ensemble as the settings name it.

    Returns:
        One row per model: each metric, mean over graphs and then over seeds.
    """
    source = Features(resolve(features))
    return _metrics(resolve(ensemble), source, {VALID: source.labels(VALID)}).drop(columns="split")


def _metrics(ensemble: Path, features: Features, truth: Mapping[str, Truth]) -> pd.DataFrame:
    """Return a row per model and split of an ensemble: each metric, mean over graphs and then over seeds."""
    rows = []
    for model, _, _, run in list_runs(ensemble):
        predictions, name = read_predictions(run), short_name(model, features.collection)
        for split, runtimes in truth.items():
            rows.append({"model": name, "split": split, **mean_metrics(runtimes, predictions[split])})
    return pd.DataFrame(rows).groupby(["model", "split"], sort=False).mean().reset_index()


def format_metrics(table: pd.DataFrame) -> str:
    """Format :func:`metric_table` as Markdown, with a line on how to read it."""
    note = (
        "tau, opa (a pair tied in prediction counts one half), opa_ties_wrong (it counts as wrong): higher is"
        " better; top_K_error (slowdown@K): lower is better. Each the mean over graphs, then over seeds."
    )
    return f"{table.to_markdown(index=False, floatfmt='.3f')}\n\n{note}"
