"""The leaderboard: every model under ``runs/``, with what its run was started with and what Kaggle said."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, TEST, VALID, get_collection
from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError, printable
from fastslow.core.files import atomic_path, digest
from fastslow.core.settings import Settings, find_data, resolve
from fastslow.core.shown import Shown
from fastslow.core.tables import sentences_text, table_markdown, table_text
from fastslow.evaluation.paired import clustered_mean, seed_deviation
from fastslow.evaluation.run_record import PICTURES, PLACED, read_run_record
from fastslow.evaluation.scores import (
    OPTIMISTIC,
    as_submitted,
    competition_score,
    runtimes_of,
    solution_of,
)
from fastslow.evaluation.standing import TEAMS, standing_of
from fastslow.evaluation.submission_record import read_submission_record, require_recorded
from fastslow.evaluation.training_files import wall_seconds
from fastslow.runs.predictions import RUN_FILES, read_predictions
from fastslow.runs.run_manifest import models_by_collection, read_run_manifest

_NAMES = tuple(collection.name for collection in COLLECTIONS)
_WIDTH = 80  # of a terminal
_KAGGLE = ("public", "private")
_USUAL = ("", 0, [], "sample")  # values of settings of a whole run that tell nothing


class LeaderboardSettings(Settings):
    """Settings of the leaderboard."""

    sort: Literal[VALID, TEST, *_KAGGLE, *_NAMES, "hours", "run", "created"] = VALID
    """Column to sort by, the best or newest first: the mean of the five collections on ``valid`` or ``test``,
    Kaggle's score, the valid score of a single collection, the hours, the name, or the time it was made."""
    csv: str = ""
    """CSV file to write the whole table to, with the test score of each collection; none if empty."""
    wide: bool = False
    """Print a row for every model, with the score of each collection and the settings, on lines as long as
    they need; else a row for a run, on lines of 80 characters."""

    def check(self) -> None:
        """Check that the CSV is no folder."""
        self.require(not self.csv or self.csv.endswith(".csv"), "csv", "a path that ends in .csv")


class Leaderboard(Shown):
    """Every model under ``runs/``.

    Args:
        table: A row per run and model, by the name of its folders, with the number of its ``seeds``.
            ``settings`` are the preset and what the command changed. ``hours`` are wall
            hours in which a notebook of the run was executed; of a step that was resumed its last session.
            ``valid COLLECTION`` and
            ``test COLLECTION`` are the mean over programs of Kendall's tau or 1 - slowdown of the top 5.
            Equal predictions of a layout program count on valid as in random order, on test as in the file's
            order, which a submission lists.
            ``valid`` and ``test`` are the mean of the five, ``valid_error`` and ``test_error`` its standard
            error over programs, both searches of a program together. ``valid_seeds`` and ``test_seeds`` are
            the standard deviation of this mean over the seeds, where there are several. ``public`` and
            ``private`` are Kaggle's scores of the run's CSV, ``place`` and ``medal`` where the private one
            would have stood on the final board. A blend of submissions has a row of its own, with the model
            ``blend``. ``warnings`` are what the command that made the CSV warned of, such as collections that
            a rule fills. What is not known is NaN. Means of two rows
            compare where ``valid programs`` (``test programs``) is equal, a mark of the programs that they
            are a mean over, and of the number of configurations that were predicted of each. Sorted by a
            collection, ``valid COLLECTION programs`` is the mark of its scores.
        left_out: Why folders are not in it, a sentence each.
        settings: How it is sorted and printed.
    """

    def __init__(self, table: pd.DataFrame, left_out: list[str], settings: LeaderboardSettings):
        self.table = table
        self.left_out = left_out
        self._settings = settings

    def words(self) -> list[str]:
        """Return how to read the table, and which folders are left out of it."""
        words = []
        if self._settings.wide:
            words.append("a cell is valid / test; hours are the whole run's (of a resumed step: the last)")
        words.append("a mean counts all five collections, ± its standard error over programs")
        words.append(OPTIMISTIC)
        blends = self.table[self.table["model"] == "blend"]
        named = zip(blends["run"], blends["settings"], strict=True)
        words += [f"{run}: a blend of {members}" for run, members in named]
        sort = self._settings.sort
        if len(self.table) and self.table[_column(sort)].isna().all():
            words.append(f"no run has a score {sort}: they are in order of their names")
        for column in _compared(sort):
            group = _groups(self.table, column)
            first = ", ".join(self.table.loc[group == 0, "run"].unique())
            if others := ", ".join(self.table.loc[group > 0, "run"].unique()):
                stand_on = "stand on other programs, or on another number of their configurations"
                split, _, name = column.partition(" ")
                scores = f"{split} scores of {name}" if name else f"{split} scores"
                words.append(f"* {others}: {scores} {stand_on}, and do not compare with {first}")
        words += [
            f"{run}: place {place} of the {TEAMS} on the final board, {medal}"
            for run, place, medal in self.table[["run", "place", "medal"]].dropna().itertuples(index=False)
        ]
        warned = self.table[["run", "warnings"]].dropna()
        words += [f"{run}: warning: {said}" for run, said in warned.itertuples(index=False)]
        words += self._without_mean()
        return [*words, *(f"left out: {reason}" for reason in self.left_out)]

    def __str__(self) -> str:
        if self.table.empty:
            reasons = [f"left out: {reason}" for reason in self.left_out]
            return sentences_text(["no finished model under runs/", *reasons], _WIDTH)
        shown = self._wide() if self._settings.wide else self._narrow()
        table = table_markdown(shown) if self._settings.wide else table_text(shown, _WIDTH)
        return f"{table}\n\n{sentences_text(self.words(), _WIDTH)}"

    def _shown_rows(self) -> pd.DataFrame:
        """Return the row of each run's ensemble, or all rows of a run without one."""
        ensembles = self.table["model"] == "ensemble"
        return self.table[ensembles | ~self.table["run"].isin(self.table.loc[ensembles, "run"])]

    def _without_mean(self) -> list[str]:
        """Return which collections a model lacks for its mean of five, a sentence for each such model."""
        rows = self._shown_rows()
        columns = {f"{VALID} {name}": name for name in _NAMES}
        lacking = rows[list(columns)].rename(columns=columns).isna()
        partly = lacking.any(axis=1) & ~lacking.all(axis=1)
        return [
            f"{label}: no mean of five on valid without {', '.join(lacking.columns[lacks])}"
            for label, lacks in zip(_labels(rows)[partly], lacking[partly].to_numpy(), strict=True)
        ]

    def _narrow(self) -> pd.DataFrame:
        """Return a row for each run, of its ensemble where it has one, as texts that fit into 80 columns."""
        rows = self._shown_rows()
        shown = pd.DataFrame(index=rows.index)
        if self._settings.sort in _NAMES:
            name = self._settings.sort
            shown[name.removeprefix("layout:")] = self._marked(_texts(rows[_column(name)]), _column(name))
        shown["hours"] = rows["hours"].map("{:.2f}".format)
        for split in (VALID, TEST):
            shown[split] = self._means(rows, split)
        for name in _KAGGLE:
            shown[name] = _texts(rows[name])
        shown["place"] = rows["place"].fillna("").str.replace(" to ", "-")
        shown = shown.replace("nan", "")
        shown = shown.loc[:, (shown != "").any()]
        shown.insert(0, "run", _labels(rows))
        return shown.reset_index(drop=True)

    def _wide(self) -> pd.DataFrame:
        """Return a row for each model as texts; a column without a value is left out."""
        table = self.table
        shown = table[["run", "model", "settings"]].copy()
        shown["hours"] = table["hours"].map("{:.2f}".format)
        for name in _NAMES:
            valid, test = (table[f"{split} {name}"].map("{:.3f}".format) for split in (VALID, TEST))
            if name == self._settings.sort:
                valid = self._marked(valid, _column(name))
            shown[name.removeprefix("layout:")] = valid + " / " + test
        shown["mean of five"] = self._means(table, VALID) + " / " + self._means(table, TEST)
        for name in _KAGGLE:
            shown[name] = _texts(table[name])
        shown["place"] = table["place"].fillna("").str.replace(" to ", "-")
        gone = {"nan / nan": "", " / nan": "", " / $": "", "^nan / ": "- / ", "^ / ": "- / ", "^nan$": ""}
        shown = shown.replace(gone, regex=True)
        return shown.loc[:, (shown != "").any()]

    def _means(self, rows: pd.DataFrame, split: str) -> pd.Series:
        """Return the mean of five on a split with its standard error, as texts."""
        error = rows[f"{split}_error"]
        texts = _texts(rows[split]) + error.map(" ± {:.3f}".format).where(error.notna(), "")
        return self._marked(texts, split)

    def _marked(self, texts: pd.Series, column: str) -> pd.Series:
        """Return the texts of a column of scores, with ``*`` at each that :meth:`words` names."""
        group = _groups(self.table, column)[texts.index]
        return texts.where(group <= 0, texts + " *")


def _labels(rows: pd.DataFrame) -> pd.Series:
    """Return what the table calls the rows: as ``compare`` and ``blend`` take it, else with the model."""
    return rows["run"].where(rows["model"].isin(["ensemble", "blend"]), rows["run"] + "/" + rows["model"])


def _texts(values: pd.Series) -> pd.Series:
    """Return numbers with three digits; one that is not known becomes an empty text."""
    return values.map("{:.3f}".format).where(values.notna(), "")


def _groups(table: pd.DataFrame, column: str) -> pd.Series:
    """Return for each row the number of its group, in which scores compare: 0 is the largest, -1 no score."""
    scored = table[column].notna()
    marks = table[f"{column} programs"]
    numbers = {mark: number for number, mark in enumerate(marks[scored].value_counts().index)}
    return marks.map(numbers).where(scored, -1)


def _column(sort: str) -> str:
    """Return the column that the rows are sorted by."""
    return f"{VALID} {sort}" if sort in _NAMES else sort


def _compared(sort: str) -> list[str]:
    """Return the columns of scores that are compared: the means, and the one of the sorted collection."""
    return [VALID, TEST, *([_column(sort)] if sort in _NAMES else [])]


def leaderboard(settings: LeaderboardSettings) -> Leaderboard:
    """Read every run, and write the CSV if one is named.

    Damaged folders and those that hold no model are named; all others are listed. Scores are sorted among
    runs of the same programs and the same number of their configurations; runs of others stand below.
    """
    folders, left_out = _folders(resolve("runs"))
    runs = [_Run(folder) for folder in folders if folder.name not in (PICTURES, PLACED)]
    scores = [f"{split} {name}" for split in (VALID, TEST) for name in _NAMES]
    means = [f"{split}{what}" for split in (VALID, TEST) for what in ("", "_error", "_seeds")]
    numbers = ["hours", *scores, *means, *_KAGGLE]
    texts = ["place", "medal", "warnings"]
    columns = ["run", "model", "seeds", "settings", "created", *numbers, *texts, "programs"]
    blends = _Blends(resolve("submissions"), {folder.name for folder in folders})
    listed: list[_Run | _Blends] = [*runs, blends]
    rows = [row for source in listed for row in source.rows()]
    table = pd.DataFrame([row | _standing(row) for row in rows], columns=columns)
    table = table.astype(dict.fromkeys(numbers, float) | dict.fromkeys(texts, object))
    table = _sort(table, settings.sort)
    if settings.csv:
        with atomic_path(resolve(settings.csv)) as temporary:
            table.to_csv(temporary, index=False)
    for source in listed:
        left_out += source.left_out
    return Leaderboard(table, left_out, settings)


def _of_record(record: dict) -> dict[str, Any]:
    """Return Kaggle's scores and the warnings of a submission's record; None for what it lacks."""
    scores = {name: record.get("kaggle", {}).get(name) for name in _KAGGLE}
    return {**scores, "warnings": "; ".join(record.get("warnings", [])) or None}


def _standing(row: dict) -> dict[str, str]:
    """Return place and medal of a row that has a private score."""
    if (private := row.get("private")) is None:
        return {}
    standing = standing_of(private)
    return {"place": standing.place, "medal": standing.medal}


def _sort(table: pd.DataFrame, sort: str) -> pd.DataFrame:
    """Mark what scores stand on, and sort the rows; scores among equal marks, the largest group first."""
    for compared in _compared(sort):
        every = [compared] if " " in compared else [f"{compared} {name}" for name in _NAMES]
        table[f"{compared} programs"] = [
            digest([programs.get(name) for name in every]) for programs in table["programs"]
        ]
    column = _column(sort)
    rising = sort in ("hours", "run")
    table = table.drop(columns="programs")
    table = table.sort_values(column, ascending=rising, kind="stable", ignore_index=True)
    if column not in _compared(sort):
        return table
    group = _groups(table, column)
    order = group.where(group >= 0, len(table)).argsort(kind="stable")
    return table.iloc[order].reset_index(drop=True)


def _folders(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the folders in a folder, sorted, and why links to what is not there are left out."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    dangling = [path for path in paths if path.is_symlink() and not path.exists()]
    remedy = "Remove the link, or mount the disk that it leads to"
    left_out = [f"{path}: a link to {os.readlink(path)}, which is not there. {remedy}" for path in dangling]
    return [path for path in paths if path.is_dir()], left_out


def print_leaderboard(settings: LeaderboardSettings) -> dict:
    """Print :func:`leaderboard`; return its rows, None where a score is not known, and the reasons."""
    print(board := leaderboard(settings))
    return {"models": json.loads(board.table.to_json(orient="records")), "left out": board.left_out}


def model_means(run: Path) -> Iterator[str]:
    """Yield for each model of a folder of runs, in words, the mean over the collections that it predicts."""
    for row in _Run(run).rows():
        predicted = [name for name in _NAMES if f"{VALID} {name}" in row]
        means = []
        for split in (VALID, TEST):
            scores = [row[f"{split} {name}"] for name in predicted]
            if not np.isnan(scores).any():
                means.append(f"{split} {np.mean(scores):.3f}")
        yield f"{row['model']}, mean over {len(predicted)} of the five collections: {', '.join(means)}"


class _Blends:
    """The blends of submissions, which have no run.

    Args:
        folder: Folder of submissions.
        runs: Names of runs, whose submissions are no blends.

    Attributes:
        left_out: Why something was left out, a sentence each.
    """

    def __init__(self, folder: Path, runs: set[str]):
        self.folder, self._runs = folder, runs
        self.left_out: list[str] = []

    def rows(self) -> Iterator[dict]:
        """Yield a row for each blend, see :class:`Leaderboard`."""
        for path in sorted(self.folder.glob("*.json")):
            if path.stem in self._runs or not path.is_file() or b'"blend"' not in path.read_bytes():
                continue
            try:
                record = read_submission_record(path)
                if "blend" in record:
                    require_recorded(path.with_suffix(".csv"), record)
            except DataError as error:
                self.left_out.append(str(error))
                continue
            if "blend" in record:
                yield self._row(path, record)

    def _row(self, path: Path, record: dict) -> dict:
        members = [f"{name} (weight {weight:g})" for name, weight in record["blend"].items()]
        row = {"run": printable(path.stem), "model": "blend", "seeds": 1, "settings": " and ".join(members)}
        row |= {"created": record["created"], TEST: record.get("test_mean")}
        row |= {f"{TEST} {name}": score for name, score in record.get("test", {}).items()}
        row["programs"] = {f"{TEST} {name}": names for name, names in record.get("programs", {}).items()}
        return row | _of_record(record)


class _Run:
    """A folder of runs, or of a single model, read as far as it is whole.

    Attributes:
        left_out: Why something in it was left out, a sentence each.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.left_out: list[str] = []
        self._sizes: dict[Path, dict[str, int]] = {}  # configurations of each valid program, by model
        self.record = self._try(read_run_record, folder) or {}
        self._solution = self._try(solution_of, find_data(self.record.get("data", "data/sample"))) or {}
        _, dangling = _folders(folder)
        self.left_out += dangling
        made = {path.parent for name in RUN_FILES for path in (*folder.glob(name), *folder.glob(f"*/{name}"))}
        manifests = {path: self._try(read_manifest, path) for path in sorted(made)}
        self.manifests = {path: manifest for path, manifest in manifests.items() if manifest}
        steps = (*folder.glob("*/"), *resolve(f"features/{folder.name}").glob("*/"))
        self._hours = wall_seconds(steps) / 3600 or None

    def _try(self, read: Callable, *arguments: Any) -> Any:
        """Return what a function reads; None where that is damaged, which is then named."""
        try:
            return read(*arguments)
        except DataError as error:
            self.left_out.append(str(error))
            return None

    def rows(self) -> Iterator[dict]:
        """Yield a row for each model, see :class:`Leaderboard`."""
        runs = [path for path, made in self.manifests.items() if "collection" in made["settings"]]
        tried = {path: self._try(self._score, path) for path in runs}
        scores = {path: score for path, score in tried.items() if score}
        models = models_by_collection({path: self.manifests[path] for path in scores})
        if not models and not self.left_out:
            self.left_out.append(printable(f"{self.folder}: holds no finished model"))
        for model, folders in models.items():
            yield self._row(model, folders, scores)

    def _score(self, folder: Path) -> dict[str, dict[str, float]]:
        """Return the score of every valid program, and of every test program if its runtimes are known."""
        manifest = read_run_manifest(folder)
        predictions = read_predictions(folder)
        collection = get_collection(manifest["settings"]["collection"])
        truth = runtimes_of(self._solution, collection)
        sizes = {split: {g: len(v) for g, v in predictions[split].items()} for split in (VALID, TEST)}
        self._sizes[folder] = sizes[VALID]
        scores = {VALID: manifest["valid"]["per_graph"], TEST: {}}
        if truth and sizes[TEST] == {g: len(v) for g, v in truth.items()}:
            ranked = as_submitted(predictions[TEST])
            scores[TEST] = collection_score(collection.kind, truth, ranked)["per_graph"]
        return scores

    def _row(self, model: str, folders: dict[str, list[Path]], scores: dict[Path, dict]) -> dict:
        made = [self.manifests[folder] for seeds in folders.values() for folder in seeds]
        row: dict[str, Any] = {
            "run": printable(self.folder.name),
            "model": model,
            "settings": " ".join(self._changed()),
        }
        row["seeds"] = max(map(len, folders.values()))
        row["created"] = max(str(manifest.get("created", "")) for manifest in made)
        row["hours"] = self._hours
        programs = row["programs"] = dict[str, list]()
        for split in (VALID, TEST):
            by_program: dict[str, pd.Series] = {}
            seed_means: dict[str, list[float]] = {}
            for name, seeds in folders.items():
                of_seeds = pd.DataFrame([scores[folder][split] for folder in seeds])
                by_program[name] = of_seeds.mean()
                seed_means[name] = of_seeds.mean(axis=1).tolist()
                names = sorted(of_seeds.columns)
                if split == VALID:  # of which a run with MODELS= predicts a part of the configurations
                    sizes = self._sizes[seeds[0]]
                    programs[f"{split} {name}"] = [(program, sizes.get(program)) for program in names]
                else:
                    programs[f"{split} {name}"] = names
            means = {name: values.mean() for name, values in by_program.items()}
            row |= {f"{split} {name}": mean for name, mean in means.items()}
            if len(means) == len(_NAMES):
                row[split] = competition_score(means)
                row[f"{split}_seeds"] = seed_deviation(seed_means.values())
            if len(means) == len(_NAMES) and all(map(len, by_program.values())):
                row[f"{split}_error"] = clustered_mean(by_program)["standard_error"]
        ensemble = any(manifest["settings"].get("model") == "ensemble" for manifest in made)
        csv = resolve(f"submissions/{self.folder.name}.csv")
        known = ensemble and csv.with_suffix(".json").is_file() and self._try(read_submission_record, csv)
        return row | (_of_record(known) if known else {})

    def _changed(self) -> list[str]:
        """Return the preset and the settings that the command changed."""
        words = [self.record.get("preset", "")]
        for name, value in self.record.get("settings", {}).items():
            if name == "preset" or ("." not in name and value in _USUAL):
                continue
            text = ",".join(map(str, value)) if isinstance(value, list) else value
            words.append(f"{name}={text}")
        return words
