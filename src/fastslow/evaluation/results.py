"""The table of scores: every baseline, member and ensemble of every collection; scores by distance."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastslow.competition.catalog import LABELLED_SPLITS, PREDICTED_SPLITS, TEST, TRAIN, VALID, Collection
from fastslow.competition.metrics import collection_score, tile_score
from fastslow.competition.opcodes import distance, opcode_shares
from fastslow.competition.submission_csv import ranking
from fastslow.core.npz_io import read_arrays
from fastslow.core.settings import resolve
from fastslow.evaluation.ensemble import models_of
from fastslow.evaluation.predictions import read_predictions, read_run_manifest
from fastslow.evaluation.score_tables import PARTS
from fastslow.evaluation.solution import runtimes_of
from fastslow.features.store import Features, files_of


def score_table(pairs: list[tuple[Features, Path]], solution: dict | None) -> pd.DataFrame:
    """Score every baseline, every member and every ensemble.

    Args:
        pairs: Features and ensemble folder of each collection.
        solution: True test runtimes by ID, None where they are not known.

    Returns:
        One row per collection and run: ``collection``, ``model`` (shared by its seeds), ``run``, ``weight``
        (NaN: a baseline), ``valid``, ``valid_min``, ``valid_max`` (over graphs), for tile ``valid_top1`` and,
        where the solution is known, the same for ``test``. Kendall's tau for layout, 1 - slowdown of the top
        5 (or 1) for tile; test scores are those of a submission, which breaks ties by file order.
    """
    rows = []
    for features, folder in pairs:
        collection, truth = features.collection, known_labels(features)
        if solution:
            truth[TEST] = runtimes_of(solution, collection)
        for model, run, weight, path in list_runs(folder):
            row: dict[str, Any] = {"collection": collection.name, "model": short_name(model, collection)}
            row |= {"run": short_name(run, collection), "weight": weight}
            predictions = read_predictions(path)
            for split, own in truth.items():
                places = as_submitted(predictions[split]) if split == TEST else predictions[split]
                known = split == VALID and read_run_manifest(path)["valid"]
                row |= _spread(split, known or collection_score(collection.kind, own, places))
            if collection.kind == "tile":
                for split, own in truth.items():
                    top = [
                        tile_score(runtime, predictions[split][graph], 1) for graph, runtime in own.items()
                    ]
                    row[f"{split}_top1"] = float(np.mean(top))
            rows.append(row)
    return pd.DataFrame(rows)


def known_labels(features: Features) -> dict[str, dict[str, np.ndarray]]:
    """Return the runtimes of every split that is predicted and labelled, by split and graph."""
    return {split: features.labels(split) for split in PREDICTED_SPLITS if split in LABELLED_SPLITS}


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
        One row per graph, worst for the ensemble first: its score and that of each other, seeds averaged.
    """
    scores: dict[str, list[dict]] = {}
    for model, _, _, path in list_runs(ensemble):
        scores.setdefault(model, []).append(read_run_manifest(path)["valid"]["per_graph"])
    table = pd.DataFrame({model: pd.DataFrame(own).mean() for model, own in scores.items()})
    own = table.columns[-1]
    return table[[own, *table.columns[:-1]]].sort_values(own).rename_axis("graph")


def as_submitted(predictions: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the place of each layout configuration in the order that a submission lists, from 0.

    Args:
        predictions: ``(C,)`` per graph, lower = predicted faster; equal ones are listed in file order.

    Returns:
        ``(C,)`` int64 per graph.
    """
    return {graph: np.argsort(ranking(values, "layout")) for graph, values in predictions.items()}


def short_name(name: str, collection: Collection) -> str:
    """Return ``gnn s0`` for ``gnn-layout-xla-random-s0``, ``ensemble`` for ``ensemble-layout-xla-random``."""
    return name.replace(f"-{collection.slug}", "").replace("-", " ")


def _spread(split: str, score: dict) -> dict:
    values = score["per_graph"].values()
    return {split: score["mean"], f"{split}_min": min(values), f"{split}_max": max(values)}


def nearest_train(stores: Sequence[Features], split: str) -> dict[str, dict[str, float]]:
    """Measure the distance of every graph of a split to the nearest train graph.

    Train graphs of all collections of a kind count, since one network may learn from all layout collections.

    Args:
        stores: Features of some collections.
        split: ``valid`` or ``test``.

    Returns:
        Distance by graph of each collection, see :func:`fastslow.competition.opcodes.distance`.
    """
    train: dict[str, list[np.ndarray]] = {}
    for features in stores:
        train.setdefault(features.collection.kind, []).append(_opcode_shares(features, TRAIN))
    found = {}
    for features in stores:
        seen = np.unique(np.concatenate(train[features.collection.kind]), axis=0)
        nearest = distance(_opcode_shares(features, split), seen).min(1, initial=1.0)
        found[features.collection.name] = dict(zip(features.names(split), nearest.tolist(), strict=True))
    return found


def _opcode_shares(features: Features, split: str) -> np.ndarray:
    """Return the opcode shares of a split's graphs, from their opcodes alone."""
    files = (files_of(features.folder, split, name)[0] for name in features.names(split))
    return opcode_shares(read_arrays(file, ["node_opcode"])["node_opcode"] for file in files)


def score_by_distance(
    stores: Sequence[Features], split: str, scored: Mapping[str, Mapping[str, dict]]
) -> list[dict]:
    """Average scores over the graphs of a collection that are near to, or far from, the train graphs.

    Args:
        stores: Features of some collections.
        split: ``valid`` or ``test``.
        scored: By collection, ``per_graph``: the score of each of its graphs, by name or ID.

    Returns:
        One row per collection and part, at most three parts of equal size: ``split``, ``collection``,
        ``part`` (one of ``score_tables.PARTS``), ``graphs`` (count), ``smallest`` and ``largest`` distance,
        and the mean ``score``.
    """
    rows = []
    for collection, distances in nearest_train(stores, split).items():
        scores = {g.removeprefix(f"{collection}:"): s for g, s in scored[collection]["per_graph"].items()}
        order = sorted(distances, key=lambda graph: (distances[graph], graph))
        for part, own in zip(PARTS, np.array_split(order, len(PARTS)), strict=True):
            if len(own):
                row = {"split": split, "collection": collection, "part": part, "graphs": len(own)}
                row |= {"smallest": distances[own[0]], "largest": distances[own[-1]]}
                rows.append(row | {"score": float(np.mean([scores[graph] for graph in own]))})
    return rows
