"""From ensembles to a checked submission: CSV, record and plot."""

from pathlib import Path

import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, LABELLED_SPLITS, TEST, VALID
from fastslow.competition.data_quality import quality_of
from fastslow.competition.submission_checks import check_submission
from fastslow.competition.submission_csv import SAMPLE, format_submission
from fastslow.core.artifacts import Artifact
from fastslow.core.errors import SettingsError, counted
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path, digest, file_digest
from fastslow.core.input_files import is_there
from fastslow.core.settings import Settings, find_data, resolve, unkeyed
from fastslow.evaluation.distances import score_by_distance
from fastslow.evaluation.run_record import read_run_record
from fastslow.evaluation.score_tables import pool_seeds
from fastslow.evaluation.scores import (
    SOLUTION,
    competition_score,
    score_submission,
    score_table,
    solution_of,
)
from fastslow.evaluation.submission_record import read_submission_record, write_record
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import check_predictions, read_predictions
from fastslow.runs.run_manifest import identity_of, read_run_manifest

SUBMISSION_ENTRY = "fastslow.steps.submission:make_submission"


class SubmissionSettings(Settings):
    """Settings of the submission notebook."""

    data_root: str = unkeyed("")
    """Folder that holds ``npz_all/`` and, if any, ``sample_submission.csv`` and ``solution.csv``; if empty,
    the data that the run of one of ``ensembles`` was made from, as its record has it."""
    features: list[str] = [f"features/sample/{c.slug}" for c in COLLECTIONS]
    """Features folders, one for each collection."""
    ensembles: list[str] = [f"runs/sample/ensemble-{c.slug}" for c in COLLECTIONS]
    """Ensemble (or run) folders whose predictions are submitted, in the order of ``features``."""
    csv: str = "submissions/play.csv"
    """CSV file to write; its record (``.json``) and plot (``.png``) are written beside it."""
    folder: str = unkeyed("runs/play/submission")
    """Folder of the executed notebook and the manifest."""

    def check(self) -> None:
        """Check the name of the CSV, and that there is an ensemble for each features folder.

        Raises:
            SettingsError: One is wrong.
        """
        self.require(self.csv.endswith(".csv"), "csv", "a path that ends in .csv")
        if len(self.features) != len(self.ensembles):
            raise SettingsError(
                "ensembles", f"{counted(len(self.ensembles), 'folder')} for {len(self.features)} features"
            )

    def data(self) -> str:
        """Return ``data_root``, or the data that the run of one of the ensembles was made from.

        Raises:
            SettingsError: Neither is there.
        """
        records = (read_run_record(resolve(name).parent) for name in self.ensembles)
        data = self.data_root or next((record["data"] for record in records if record), "")
        if not data:
            raise SettingsError(
                "data_root", "no run of the ensembles records its data; give data_root=FOLDER"
            )
        return data

    def pairs(self) -> list[tuple[Features, Path]]:
        """Return features and ensemble folder of each collection."""
        named = zip(self.features, self.ensembles, strict=True)
        return [(Features(resolve(features)), resolve(ensemble)) for features, ensemble in named]

    def artifact(self) -> Artifact:
        """Return the submission's folder; it depends on the ensembles and on the data's CSVs, if any."""
        inputs = {name: identity_of(read_run_manifest(resolve(name))) for name in self.ensembles}
        root = find_data(self.data())
        csv = resolve(self.csv)
        for name in (SAMPLE, SOLUTION):
            if is_there(root / name):
                inputs[name] = file_digest(root / name)
        products = (csv, csv.with_suffix(".png"))
        records = (csv.with_suffix(".json"),)
        return Artifact(resolve(self.folder), self.identity(), inputs, SUBMISSION_ENTRY, products, records)


def make_submission(settings: SubmissionSettings) -> pd.DataFrame:
    """Write the CSV, read it back, check it, score it where labels are known, and record all that.

    ``<name>.json`` (members, weights, scores, checksum) and ``<name>.png`` are written beside ``<name>.csv``.

    Returns:
        The table of :func:`score_table`: one row per collection and run.

    Raises:
        DataError: Predictions, the CSV or the data are missing, incomplete or inconsistent.
    """
    artifact = settings.artifact()
    with artifact.building() as needed:
        if needed:
            _submission(settings, find_data(settings.data()), resolve(settings.csv))
            artifact.finish()
    return pd.DataFrame(read_submission_record(resolve(settings.csv), "table")["table"])


def _submission(settings: SubmissionSettings, root: Path, csv: Path) -> None:
    pairs = settings.pairs()
    missing = {c.name for c in COLLECTIONS} - {features.collection.name for features, _ in pairs}
    if missing:
        raise SettingsError(
            "features", f"no folder for {', '.join(sorted(missing))}; a submission needs every collection"
        )
    by_id, weights = {}, {}
    for features, folder in pairs:
        name = features.collection.name
        predictions = read_predictions(folder)
        check_predictions(folder, predictions, features)
        by_id |= {f"{name}:{graph}": prediction for graph, prediction in predictions[TEST].items()}
        members = read_run_manifest(folder).get("members", {folder.name: {"weight": 1.0}})
        weights[name] = {member: facts["weight"] for member, facts in members.items()}
    # checked under a temporary name: a CSV that fails the check never replaces a good one
    solution = solution_of(root)
    with atomic_path(csv) as temporary:
        temporary.write_bytes(format_submission(csv, by_id, root))
        checked = check_submission(temporary, root)
        submitted = score_submission(temporary, solution) if solution else {}
    table = score_table(pairs, solution)
    from fastslow.evaluation.plots import plot_results  # matplotlib, which no settings need

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
        data_root=settings.data(),
        row_order={f.collection.name: digest(sorted(f.row_order.items())) for f, _ in pairs if f.row_order},
        checked=checked,
        valid_mean=competition_score(valid),
        test=test,
        test_mean=competition_score(test) if test else None,
        doubtful={name: doubts for f, _ in pairs for name, doubts in doubtful_labels(f).items()},
        distances=score_by_distance([features for features, _ in pairs], split, scored),
        table=[row.dropna().to_dict() for _, row in table.iterrows()],  # NaN is no JSON
    )


def doubtful_labels(features: Features) -> dict[str, str]:
    """Return reasons to doubt the labels of a layout collection's graphs.

    Returns:
        The reasons in words by ``COLLECTION:GRAPH (SPLIT)``, of labelled graphs that have any, see
        :attr:`fastslow.competition.data_quality.Quality.doubts`. Empty for tile.
    """
    if features.collection.kind != "layout":
        return {}
    graphs = [(split, name) for split in LABELLED_SPLITS for name in features.names(split)]
    reasons = {}
    for split, name in graphs:
        graph = features.graph(split, name)
        quality = quality_of(graph.file_runtime, graph.config_row)
        reasons[f"{features.collection.name}:{name} ({split})"] = quality.doubts
    return {name: doubts for name, doubts in reasons.items() if doubts}
