"""Scores in one place: the truth of each split, and the scores of rules, models, ensembles and submissions.

The true runtimes of the labelled splits are in the features. The true runtimes of test are in
``solution.csv`` where they are known, as in the embedded sample competition.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastslow.competition.catalog import (
    COLLECTIONS,
    LABELLED_SPLITS,
    PREDICTED_SPLITS,
    TEST,
    VALID,
    Collection,
)
from fastslow.competition.metrics import collection_score, fastest_first, mean_metrics, tile_score
from fastslow.competition.submission_checks import read_submission
from fastslow.competition.submission_csv import collection_of, read_lines
from fastslow.core.errors import DataError
from fastslow.core.figures import MODEL_WORDS
from fastslow.core.input_files import is_there
from fastslow.core.settings import resolve
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import read_predictions
from fastslow.runs.run_manifest import models_of, read_run_manifest

SOLUTION = "solution.csv"
OPTIMISTIC = "epochs and weights were chosen on valid, whose scores are optimistic"
"""A sentence that stands beside scores on valid."""
_HEADER = "ID,config_index,runtime"
_ROW = re.compile(r"([^,]+),(0|[1-9][0-9]{0,8}),([1-9][0-9]{0,17})")

Truth = dict[str, dict[str, np.ndarray]]
"""By split and graph, the true runtimes ``(C_file,)``, unit as in the features."""


def read_solution(path: Path) -> dict[str, np.ndarray]:
    """Read the true runtimes of test graphs from ``solution.csv``.

    Its columns are ID, config_index and runtime, a graph's configurations in order.

    Returns:
        (C,) int64 runtimes by ID, in the file's order; unit as in the file (sample: estimated cycles).

    Raises:
        DataError: The file cannot be read, or a line is malformed, has an unknown collection, a
            config_index out of order, or a runtime that is not a positive integer.
    """
    header, *lines = read_lines(path)
    if header != _HEADER:
        raise DataError(path, f"line 1: the header is {header[:80]!r}", f"The first line is {_HEADER}")
    runtimes: dict[str, list[int]] = {}
    for number, line in enumerate(lines, start=2):
        match = _ROW.fullmatch(line)
        if match is None or collection_of(match[1]) is None:
            problem = f"line {number}: {line[:80]!r} is not an ID of a collection, an index and a runtime"
            raise DataError(path, problem, f"A line is {_HEADER}, in integers, the runtime above 0")
        seen = runtimes.setdefault(match[1], [])
        if int(match[2]) != len(seen):
            problem = f"line {number} ({match[1]}): config_index {match[2]}, {len(seen)} expected"
            raise DataError(path, problem, "List each configuration of a graph once, in order")
        seen.append(int(match[3]))
    if not runtimes:
        raise DataError(path, "no rows", "Take the solution file that came with the data")
    return {row_id: np.array(values, dtype=np.int64) for row_id, values in runtimes.items()}


def solution_of(data_root: Path) -> dict[str, np.ndarray] | None:
    """Return the runtimes ``(C,)`` by ID of a data root, see :func:`read_solution`; None without any."""
    path = Path(data_root) / SOLUTION
    return read_solution(path) if is_there(path) else None


def truth_of(features: Features, solution: Mapping[str, np.ndarray] | None) -> Truth:
    """Return the true runtimes of every split that is predicted and whose runtimes are known.

    Args:
        features: Features of a collection.
        solution: True test runtimes by ID (:func:`solution_of`), None where they are not known.
    """
    truth = {split: features.labels(split) for split in PREDICTED_SPLITS if split in LABELLED_SPLITS}
    if solution:
        truth[TEST] = runtimes_of(solution, features.collection)
    return truth


def runtimes_of(solution: Mapping[str, np.ndarray], collection: Collection) -> dict[str, np.ndarray]:
    """Return the true runtimes ``(C,)`` of a collection's test graphs, by file stem instead of by ID."""
    prefix = f"{collection.name}:"
    return {i.removeprefix(prefix): runtime for i, runtime in solution.items() if i.startswith(prefix)}


def score_submission(path: Path, solution: Mapping[str, np.ndarray]) -> dict[str, dict]:
    """Score a submission as the competition does (TpuGraphs, arXiv 2308.13490), from its rows.

    A layout row's score is Kendall's tau between runtime and place in the list, a tile row's 1 - slowdown of
    the best of its five configurations. Tile runtimes are not normalised, which changes nothing where all
    normalizers of a graph are equal, as in the sample.

    Returns:
        For each collection name that has rows: ``mean``, and ``per_graph`` by ID; higher = better.

    Raises:
        DataError: The CSV is wrong; the message names line, ID and reason.
    """
    rankings = read_submission(path, {row_id: runtime.size for row_id, runtime in solution.items()})
    result = {}
    for collection in COLLECTIONS:
        runtimes, places = {}, {}
        for row_id, order in rankings.items():
            if collection_of(row_id) == collection:
                runtimes[row_id] = solution[row_id]
                places[row_id] = np.full(solution[row_id].size, order.size)  # of those that are not listed
                places[row_id][order] = np.arange(order.size)
        if runtimes:
            result[collection.name] = collection_score(collection.kind, runtimes, places)
    return result


def score_table(pairs: list[tuple[Features, Path]], solution: dict | None) -> pd.DataFrame:
    """Score every baseline, every member and every ensemble.

    Args:
        pairs: Features and ensemble folder of each collection.
        solution: True test runtimes by ID, None where they are not known.

    Returns:
        One row per collection and run: ``collection``, ``model`` (shared by its seeds), ``run``, ``weight``
        (NaN: a baseline), ``valid``, ``valid_min``, ``valid_max`` (over graphs), for tile ``valid_top1`` and,
        where the solution is known, the same for ``test``. Kendall's tau for layout, 1 - slowdown of the top
        5 (or 1) for tile; test scores are scores of a submission, which breaks ties by file order.
    """
    rows = []
    for features, folder in pairs:
        collection = features.collection
        truth = truth_of(features, solution)
        for model, run, weight, path in list_runs(folder):
            row: dict[str, Any] = {"collection": collection.name, "model": short_name(model, collection)}
            row |= {"run": short_name(run, collection), "weight": weight}
            predictions = read_predictions(path)
            for split, runtimes in truth.items():
                places = as_submitted(predictions[split]) if split == TEST else predictions[split]
                known = split == VALID and read_run_manifest(path)["valid"]
                row |= _spread(split, known or collection_score(collection.kind, runtimes, places))
            if collection.kind == "tile":
                for split, runtimes in truth.items():
                    top = [
                        tile_score(runtime, predictions[split][graph], 1)
                        for graph, runtime in runtimes.items()
                    ]
                    row[f"{split}_top1"] = float(np.mean(top))
            rows.append(row)
    return pd.DataFrame(rows)


def _spread(split: str, score: dict) -> dict:
    values = score["per_graph"].values()
    return {split: score["mean"], f"{split}_min": min(values), f"{split}_max": max(values)}


def list_runs(folder: Path) -> Iterator[tuple[str, str, float | None, Path]]:
    """Yield model, name, weight and folder of an ensemble's baselines, of its members, then of itself."""
    manifest = read_run_manifest(folder)
    for name, baseline in manifest.get("baselines", {}).items():
        yield name, name, None, resolve(baseline["folder"])
    for name, member in manifest.get("members", {}).items():
        yield member["model"], name, member["weight"], resolve(member["folder"])
    (model,) = models_of({folder.name: manifest})
    yield model, folder.name, 1.0, folder


def compare_graphs(ensemble: Path) -> pd.DataFrame:
    """Compare an ensemble, given its folder, with its baselines and each of its models on every valid graph.

    Returns:
        One row per graph, worst for the ensemble first: the score of the ensemble and of each model, in
        words, seeds averaged.
    """
    scores: dict[str, list[dict]] = {}
    for model, _, _, path in list_runs(ensemble):
        scores.setdefault(model, []).append(read_run_manifest(path)["valid"]["per_graph"])
    means = {MODEL_WORDS.get(model, model): pd.DataFrame(seeds).mean() for model, seeds in scores.items()}
    table = pd.DataFrame(means)
    ensemble_name = table.columns[-1]
    table = table[[ensemble_name, *table.columns[:-1]]]
    return table.sort_values(ensemble_name).rename_axis("graph")


def as_submitted(predictions: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the place of each layout configuration in the order that a submission lists, from 0.

    Args:
        predictions: ``(C,)`` per graph, lower = predicted faster; equal ones are listed in file order.

    Returns:
        ``(C,)`` int64 per graph.
    """
    return {graph: np.argsort(fastest_first(values, "layout")) for graph, values in predictions.items()}


def competition_score(means: Mapping[str, float]) -> float:
    """Compute the competition's final score: the plain mean of the scores of all five collections, by name.

    Raises:
        ValueError: A collection is missing or unknown.

    Examples:
        >>> competition_score({collection.name: 0.5 for collection in COLLECTIONS})
        0.5
    """
    every = {collection.name for collection in COLLECTIONS}
    if set(means) != every:
        raise ValueError(f"means: {', '.join(sorted(every ^ set(means)))} missing or unknown")
    return float(np.mean([means[name] for name in sorted(every)]))


def short_name(name: str, collection: Collection) -> str:
    """Return a run's name without its collection: ``gnn s0`` for ``gnn-layout-xla-random-s0``."""
    return name.replace(f"-{collection.slug}", "").replace("-", " ")


def valid_metrics(features: str, ensemble: str) -> pd.DataFrame:
    """Compute every metric of the rules, members and ensemble of a collection on its valid split.

    Args:
        features: Its features folder, as settings name it.
        ensemble: Folder of the ensemble, as settings name it.

    Returns:
        One row per model, in words: each metric, mean over graphs and then over seeds.
    """
    source = Features(resolve(features))
    rows = []
    labels = source.labels(VALID)
    for model, _, _, run in list_runs(resolve(ensemble)):
        metrics = mean_metrics(labels, read_predictions(run)[VALID])
        name = short_name(model, source.collection)
        rows.append({"model": MODEL_WORDS.get(name, name), **metrics})
    return pd.DataFrame(rows).groupby("model", sort=False).mean().reset_index()
