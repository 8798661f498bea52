"""From ensembles to a checked submission and one table of the score of every model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, TEST, VALID, Collection
from fastslow.competition.metrics import TOP_K, collection_score, competition_score, tile_score
from fastslow.core.artifacts import Artifact
from fastslow.core.errors import SettingsError
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path, file_digest
from fastslow.core.input_files import is_there
from fastslow.core.settings import Settings, resolve, unkeyed
from fastslow.evaluation.distances import score_by_distance
from fastslow.evaluation.ensemble import models_of
from fastslow.evaluation.plots import plot_results
from fastslow.evaluation.predictions import check_predictions, read_predictions, read_run_manifest
from fastslow.evaluation.score_tables import pool_seeds
from fastslow.features.store import Features
from fastslow.kaggle.ledger import read_record, write_record
from fastslow.kaggle.solution import read_solution, runtimes_of, score_submission
from fastslow.kaggle.submission import SAMPLE, check_submission, format_submission, ranking

SOLUTION = "solution.csv"
ENTRY = "fastslow.evaluation.results:make_submission"


class SubmissionSettings(Settings):
    """Settings of the submission notebook."""

    data_root: str = unkeyed("data/sample")
    """Folder that holds ``npz_all/`` and, if any, ``sample_submission.csv`` and ``solution.csv``."""
    features: list[str] = [f"features/sample/{c.slug}" for c in COLLECTIONS]
    """Features folders, one for each of the five collections."""
    ensembles: list[str] = [f"runs/sample/ensemble-{c.slug}" for c in COLLECTIONS]
    """Ensemble (or run) folders whose predictions are submitted, in the order of ``features``."""
    csv: str = "submissions/play.csv"
    """CSV file to write; its record (``.json``) and plot (``.png``) are written beside it."""
    folder: str = unkeyed("runs/play/submission")
    """Folder of the executed notebook and the manifest."""

    def check(self) -> None:
        """Check ranges."""
        self.require(self.csv.endswith(".csv"), "csv", "a path that ends in .csv")
        if len(self.features) != len(self.ensembles):
            raise SettingsError(f"ensembles: {len(self.ensembles)} folders for {len(self.features)} features")

    def artifact(self) -> Artifact:
        """Return the submission's folder; it depends on the ensembles and on the data's CSVs, if any."""
        inputs = {
            ensemble: read_run_manifest(resolve(ensemble))["fingerprint"] for ensemble in self.ensembles
        }
        root, csv = resolve(self.data_root), resolve(self.csv)
        for name in (SAMPLE, SOLUTION):
            if is_there(root / name):
                inputs[name] = file_digest(root / name)
        products, records = (csv, csv.with_suffix(".png")), (csv.with_suffix(".json"),)
        return Artifact(resolve(self.folder), self.identity(), inputs, ENTRY, products, records)


def make_submission(settings: SubmissionSettings) -> pd.DataFrame:
    """Write the CSV, read it back, check it, score it where labels are known, and record all that.

    ``<name>.json`` (members, weights, scores, checksum) and ``<name>.png`` are written beside ``<name>.csv``.

    Args:
        settings: Settings.

    Returns:
        The table of :func:`score_table`: one row per collection and run.

    Raises:
        DataError: Predictions, the CSV or the data are missing, incomplete or inconsistent.
    """
    artifact = settings.artifact()
    with artifact.building() as needed:
        if needed:
            _submission(settings, resolve(settings.data_root), resolve(settings.csv))
            artifact.finish()
    return pd.DataFrame(read_record(resolve(settings.csv), "table")["table"])


def _submission(settings: SubmissionSettings, root: Path, csv: Path) -> None:
    pairs = [
        (Features(resolve(f)), resolve(e)) for f, e in zip(settings.features, settings.ensembles, strict=True)
    ]
    missing = {c.name for c in COLLECTIONS} - {features.collection.name for features, _ in pairs}
    if missing:
        raise SettingsError(
            f"features: no folder for {', '.join(sorted(missing))}; a submission needs all five"
        )
    by_id, weights = {}, {}
    for features, folder in pairs:
        name, predictions = features.collection.name, read_predictions(folder)
        check_predictions(folder, predictions, features)
        by_id |= {f"{name}:{graph}": prediction for graph, prediction in predictions[TEST].items()}
        members = read_run_manifest(folder).get("members", {folder.name: {"weight": 1.0}})
        weights[name] = {member: facts["weight"] for member, facts in members.items()}
    # checked under a temporary name: a CSV that fails the check never replaces a good one
    solution = read_solution(root / SOLUTION) if is_there(root / SOLUTION) else None
    with atomic_path(csv) as temporary:
        temporary.write_bytes(format_submission(csv, by_id, root))
        checked = check_submission(temporary, root)
        submitted = score_submission(temporary, solution) if solution else {}
    table = score_table(pairs, solution)
    save_figure(plot_results(pool_seeds(table)), csv.with_suffix(".png"))
    validated = {features.collection.name: read_run_manifest(folder)["valid"] for features, folder in pairs}
    valid, test = (
        {name: score["mean"] for name, score in scores.items()} for scores in (validated, submitted)
    )
    split, scored = (TEST, submitted) if submitted else (VALID, validated)
    write_record(
        csv,
        [member for by_member in weights.values() for member in by_member],
        weights,
        valid,
        data_root=settings.data_root,
        checked=checked,
        valid_mean=competition_score(valid),
        test=test,
        test_mean=competition_score(test) if test else None,
        distances=score_by_distance([features for features, _ in pairs], split, scored),
        table=[row.dropna().to_dict() for _, row in table.iterrows()],  # NaN is no JSON
    )


def preview_submission(settings: SubmissionSettings, rows: int = 2) -> pd.DataFrame:
    """Return the first rows of each collection in the CSV, readable.

    Args:
        settings: Settings.
        rows: Number of rows per collection.

    Returns:
        ``collection``, ``program``, ``listed`` (number of configurations in the row) and ``fastest first``
        (the first five of them).
    """
    csv = pd.read_csv(resolve(settings.csv), dtype=str)
    named = csv["ID"].str.rpartition(":")
    listed = csv["TopConfigs"].str.split(";")
    table = pd.DataFrame({"collection": named[0], "program": named[2], "listed": listed.str.len()})
    table["fastest first"] = listed.str[:TOP_K].str.join(", ")
    return table.groupby("collection", sort=False).head(rows).reset_index(drop=True)


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
        collection, truth = features.collection, {VALID: features.labels(VALID)}
        if solution:
            truth[TEST] = runtimes_of(solution, collection)
        for model, run, weight, path in list_runs(folder):
            row: dict[str, Any] = {"collection": collection.name, "model": short_name(model, collection)}
            row |= {"run": short_name(run, collection), "weight": weight}
            row |= _spread(VALID, read_run_manifest(path)["valid"])
            predictions = read_predictions(path)
            if solution:
                places = as_submitted(predictions[TEST])
                row |= _spread(TEST, collection_score(collection.kind, truth[TEST], places))
            if collection.kind == "tile":
                row |= {f"{split}_top1": _top_1(own, predictions[split]) for split, own in truth.items()}
            rows.append(row)
    return pd.DataFrame(rows)


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
    """Compare an ensemble with its baselines and each of its models on every valid graph.

    Args:
        ensemble: The ensemble's folder.

    Returns:
        One row per graph, worst for the ensemble first: its score and that of each other, seeds averaged.
    """
    scores: dict[str, list[dict]] = {}
    for model, _, _, path in list_runs(ensemble):
        scores.setdefault(model, []).append(read_run_manifest(path)["valid"]["per_graph"])
    table = pd.DataFrame({model: pd.DataFrame(own).mean() for model, own in scores.items()})
    own = table.columns[-1]
    return table[[own, *table.columns[:-1]]].sort_values(own).rename_axis("graph")


def _top_1(truth: dict[str, np.ndarray], predictions: dict[str, np.ndarray]) -> float:
    """Return the mean of 1 - slowdown of the configuration that is predicted fastest."""
    return float(np.mean([tile_score(runtime, predictions[graph], 1) for graph, runtime in truth.items()]))


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
