"""The leaderboard: every model under ``runs/``, with what its run was started with and what Kaggle said."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, TEST, VALID, get_collection
from fastslow.competition.metrics import collection_score, competition_score
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path
from fastslow.core.settings import Settings, find_data, resolve
from fastslow.core.shown import Shown
from fastslow.evaluation.run_record import PICTURES, read_run_record
from fastslow.evaluation.scores import as_submitted, runtimes_of, solution_of
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.evaluation.training_files import notebook_seconds
from fastslow.runs.predictions import RUN_FILES, models_of, read_predictions, read_run_manifest

_NAMES = tuple(collection.name for collection in COLLECTIONS)
_KAGGLE = ("public", "private")


class LeaderboardSettings(Settings):
    """Settings of the leaderboard."""

    sort: Literal[VALID, TEST, *_KAGGLE, *_NAMES, "hours", "run", "created"] = VALID
    """Column to sort by, the best or newest first: the mean of the five collections on ``valid`` or ``test``,
    Kaggle's score, the valid score of a single collection, the hours, the name, or the time it was made."""
    csv: str = ""
    """CSV file to write the whole table to, with the test score of each collection; none if empty."""


class Leaderboard(Shown):
    """Every model under ``runs/``.

    Args:
        table: A row per run and model, by the name of its folders, with the number of its ``seeds``.
            ``settings`` are the preset and what the command changed. ``hours`` count all notebooks of the
            run, one after the other. ``valid COLLECTION`` and
            ``test COLLECTION`` are the mean over programs of Kendall's tau or 1 - slowdown of the top 5.
            ``valid`` and ``test`` are the mean of the five, ``valid_error`` and ``test_error`` its standard
            error over programs. ``public`` and ``private`` are Kaggle's scores of the run's CSV. What is not
            known is NaN.
        left_out: Why folders are not in it, a sentence each.
    """

    def __init__(self, table: pd.DataFrame, left_out: list[str]):
        self.table, self.left_out = table, left_out

    def words(self) -> list[str]:
        """Return how to read the table, and which folders are left out of it."""
        return [
            "a cell is valid / test; a mean counts all five collections, ± its standard error over programs",
            "epochs and weights were chosen on valid, whose scores are optimistic; hours are the whole run's",
            *(f"left out: {reason}" for reason in self.left_out),
        ]

    def __str__(self) -> str:
        if self.table.empty:
            return "\n".join(["no finished model under runs/", *self.words()[2:]])
        table, shown = self.table, self.table[["run", "model", "settings"]].copy()
        shown["hours"] = table["hours"].map("{:.2f}".format)
        for name in _NAMES:
            valid, test = (table[f"{split} {name}"].map("{:.3f}".format) for split in (VALID, TEST))
            shown[name.removeprefix("layout:")] = valid + " / " + test
        means = [
            table[s].map("{:.3f}".format) + table[f"{s}_error"].map(" ± {:.3f}".format) for s in (VALID, TEST)
        ]
        shown["mean of five"] = means[0] + " / " + means[1]
        for name in _KAGGLE:
            shown[name] = table[name].map("{:.3f}".format)
        shown = shown.replace({" ± nan": "", "nan / nan": "", " / nan": "", "^nan$": ""}, regex=True)
        return "\n".join([shown.to_markdown(index=False, disable_numparse=True), "", *self.words()])


def leaderboard(settings: LeaderboardSettings) -> Leaderboard:
    """Read every run, and write the CSV if one is named.

    Damaged folders and those that hold no model are named; all others are listed.
    """
    runs = [_Run(folder) for folder in sorted(resolve("runs").glob("*/")) if folder.name != PICTURES]
    scores = [f"{split} {name}" for split in (VALID, TEST) for name in _NAMES]
    means = [f"{split}{what}" for split in (VALID, TEST) for what in ("", "_error")]
    numbers = ["hours", *scores, *means, *_KAGGLE]
    columns = ["run", "model", "seeds", "settings", "created", *numbers]
    table = pd.DataFrame([row for run in runs for row in run.rows()], columns=columns)
    table = table.astype(dict.fromkeys(numbers, float))
    key = f"{VALID} {settings.sort}" if settings.sort in _NAMES else settings.sort
    rising = settings.sort in ("hours", "run")
    table = table.sort_values(key, ascending=rising, kind="stable", ignore_index=True)
    if settings.csv:
        with atomic_path(resolve(settings.csv)) as temporary:
            table.to_csv(temporary, index=False)
    return Leaderboard(table, [reason for run in runs for reason in run.left_out])


def print_leaderboard(settings: LeaderboardSettings) -> dict:
    """Print :func:`leaderboard`; return its rows, None where a score is not known, and the reasons."""
    print(board := leaderboard(settings))
    return {"models": json.loads(board.table.to_json(orient="records")), "left out": board.left_out}


def model_means(run: Path) -> Iterator[str]:
    """Yield for each model of a folder of runs, in words, the mean over the collections that it predicts."""
    for row in _Run(run).rows():
        own = {split: [row[key] for n in _NAMES if (key := f"{split} {n}") in row] for split in (VALID, TEST)}
        means = [f"{split} {np.mean(own[split]):.3f}" for split in own if not np.isnan(own[split]).any()]
        yield f"{row['model']}, mean over {len(own[VALID])} of the five collections: {', '.join(means)}"


class _Run:
    """A folder of runs, or of a single model, read as far as it is whole.

    Attributes:
        left_out: Why something in it was left out, a sentence each.
    """

    def __init__(self, folder: Path):
        self.folder, self.left_out = folder, list[str]()
        self.record = self._try(read_run_record, folder) or {}
        self._solution = self._try(solution_of, find_data(self.record.get("data", "data/sample"))) or {}
        made = {path.parent for name in RUN_FILES for path in (*folder.glob(name), *folder.glob(f"*/{name}"))}
        found = {path: self._try(read_manifest, path) for path in sorted(made)}
        self.manifests = {path: manifest for path, manifest in found.items() if manifest}
        own = (*folder.glob("*/"), *resolve(f"features/{folder.name}").glob("*/"))
        self._hours = sum(notebook_seconds(path) or 0.0 for path in own) / 3600 or None

    def _try(self, read: Callable, *arguments: Any) -> Any:
        """Return what a function reads; None where that is damaged, which is then named."""
        try:
            return read(*arguments)
        except DataError as error:
            self.left_out.append(str(error))
            return None

    def rows(self) -> Iterator[dict]:
        """Yield a row for each model, see :class:`Leaderboard`."""
        models: dict[str, dict[str, list[Path]]] = {}  # by name and collection, a folder for each seed
        runs = [path for path, made in self.manifests.items() if "collection" in made["settings"]]
        scores = {path: own for path in runs if (own := self._try(self._score, path))}
        for name in _NAMES:
            of_it = [path for path in scores if self.manifests[path]["settings"]["collection"] == name]
            by_name = {path.name: path for path in of_it}
            for model, seeds in models_of({n: self.manifests[path] for n, path in by_name.items()}).items():
                models.setdefault(model, {})[name] = [by_name[seed] for seed in seeds]
        if not models and not self.left_out:
            self.left_out.append(f"{self.folder}: holds no finished model")
        for model, folders in models.items():
            yield self._row(model, folders, scores)

    def _score(self, folder: Path) -> dict[str, dict[str, float]]:
        """Return the score of every valid program, and of every test program if its runtimes are known."""
        manifest, predictions = read_run_manifest(folder), read_predictions(folder)[TEST]
        collection = get_collection(manifest["settings"]["collection"])
        truth = runtimes_of(self._solution, collection)
        scores = {VALID: manifest["valid"]["per_graph"], TEST: {}}
        if truth and {g: len(v) for g, v in truth.items()} == {g: len(v) for g, v in predictions.items()}:
            scores[TEST] = collection_score(collection.kind, truth, as_submitted(predictions))["per_graph"]
        return scores

    def _row(self, model: str, folders: dict[str, list[Path]], scores: dict[Path, dict]) -> dict:
        every = [folder for own in folders.values() for folder in own]
        made = [self.manifests[folder] for folder in every]
        row: dict[str, Any] = {"run": self.folder.name, "model": model, "settings": " ".join(self._changed())}
        row["seeds"] = max(map(len, folders.values()))
        row["created"] = max(str(manifest.get("created", "")) for manifest in made)
        row["hours"] = self._hours
        for split in (VALID, TEST):
            # of a program, the mean over seeds
            programs = {n: pd.DataFrame([scores[f][split] for f in own]).mean() for n, own in folders.items()}
            row |= {f"{split} {name}": own.mean() for name, own in programs.items()}
            if len(programs) == len(_NAMES):
                row[split] = competition_score({name: own.mean() for name, own in programs.items()})
                squares = [own.var(ddof=1) / len(own) if len(own) else np.nan for own in programs.values()]
                row[f"{split}_error"] = np.sqrt(np.sum(squares)) / len(programs)
        ensemble = any(manifest["settings"].get("model") == "ensemble" for manifest in made)
        csv = resolve(f"submissions/{self.folder.name}.csv")
        known = ensemble and csv.with_suffix(".json").is_file() and self._try(read_submission_record, csv)
        return row | {name: known.get("kaggle", {}).get(name) for name in _KAGGLE if known}

    def _changed(self) -> list[str]:
        """Return the preset and the settings that the command changed."""
        own, usual = self.record.get("settings", {}), ("", 0, [], "sample")
        told = [name for name in own if "." in name or (name != "preset" and own[name] not in usual)]
        words = {n: ",".join(map(str, own[n])) if isinstance(own[n], list) else own[n] for n in told}
        return [self.record.get("preset", ""), *(f"{name}={value}" for name, value in words.items())]
