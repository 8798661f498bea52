"""Measure the labels of every graph of a competition, and name those that are doubtful."""

import os
from dataclasses import asdict
from pathlib import Path

import joblib
import pandas as pd

from fastslow.competition.catalog import (
    COLLECTIONS,
    LABELLED_SPLITS,
    TRAIN,
    VALID,
    ProgramFile,
    list_programs,
)
from fastslow.competition.data_quality import Quality, measure_quality
from fastslow.competition.reader import read_npz
from fastslow.competition.row_order import releases_in_words
from fastslow.competition.rules.program_rules import check_program
from fastslow.core.errors import DataError, counted
from fastslow.core.files import atomic_path, digest
from fastslow.core.memory import step_cores
from fastslow.core.npz_io import file_fingerprint
from fastslow.core.progress import progress, ticking
from fastslow.core.settings import Names, Settings, find_data, resolve
from fastslow.core.shown import Shown
from fastslow.core.source import source_digest
from fastslow.core.tables import table_text
from fastslow.workflow.steps import DATA_ROOTS, check_data, chosen_collections

_ENTRY = "fastslow.competition.data_quality:measure_quality"
_SAVED_EVERY = 50  # files


class QualitySettings(Settings):
    """Settings of the measurement of labels."""

    data: str = "sample"
    """``sample``, ``kaggle`` (``data/raw``), or a folder that holds ``npz_all/``."""
    collections: Names = [collection.name for collection in COLLECTIONS]
    """Collections whose graphs are measured, separated by commas on a command line."""
    splits: Names = [TRAIN, VALID]
    """Splits whose graphs are measured, of train and valid; test files carry no runtimes."""

    def check(self) -> None:
        """Check the names of collections and splits."""
        for name in ("collections", "splits"):
            values = getattr(self, name)
            self.require(bool(values), name, "a name or more")
            self.require(len({*values}) == len(values), name, "names of which each is there once")
        chosen_collections(self.collections)
        self.require({*self.splits} <= {*LABELLED_SPLITS}, "splits", f"of {', '.join(LABELLED_SPLITS)}")

    @property
    def root(self) -> Path:
        """The data root."""
        return find_data(DATA_ROOTS.get(self.data, self.data))

    @property
    def table(self) -> Path:
        """The CSV file; graphs that it holds are not measured again."""
        return resolve(f"features/data-quality-{Path(os.path.realpath(self.root)).name}.csv")


class LabelReport(Shown):
    """The quality of the labels of every graph.

    Args:
        table: As :func:`measure_labels` returns it.
    """

    def __init__(self, table: pd.DataFrame):
        self.table = table

    def words(self) -> list[str]:
        """Return how many graphs were measured, and the doubtful ones."""
        doubtful = self.table[self.table["doubts"].ne("")]
        rows = zip(doubtful["collection"], doubtful["name"], doubtful["doubts"], strict=True)
        first = f"{counted(len(self.table), 'graph')}, {len(doubtful)} with doubtful labels"
        return [first, *(f"{collection}:{name}: {doubts}" for collection, name, doubts in rows)]


def report_quality(settings: QualitySettings) -> pd.DataFrame:
    """Print a summary of :func:`measure_labels`, and return its table.

    Raises:
        SettingsError: There is no such folder of data.
        DataError: A file is missing or broken, or the CSV is another one.
    """
    table = measure_labels(settings)
    _report(settings, table)
    return table


def measure_labels(settings: QualitySettings) -> pd.DataFrame:
    """Measure graphs that are not measured yet, and write the table.

    The table keeps the rows of other collections and splits.

    Returns:
        A row per chosen graph: ``collection``, ``split``, ``name``, ``file`` (digest of content and code),
        the fields of :class:`fastslow.competition.data_quality.Quality`, and ``doubts`` in words.

    Raises:
        SettingsError: There is no such folder of data.
        DataError: A file is missing or broken, or the CSV is another one.
    """
    check_data(settings.data)
    collections = chosen_collections(settings.collections)
    chosen = [(collection, split) for collection in collections for split in settings.splits]
    there = [(c, split) for c, split in chosen if c.folder(settings.root, split).is_dir()] or chosen
    programs = [program for c, split in there for program in list_programs(settings.root, c, split)]
    code = source_digest(_ENTRY)
    marks = [digest([program.id, file_fingerprint(program.path), code]) for program in programs]
    known = _read(settings.table)
    names = {(collection.name, split) for collection, split in chosen}
    others = [mark for mark, row in known.items() if (row["collection"], row["split"]) not in names]
    written = [*others, *marks]
    todo = [(p, mark) for p, mark in zip(programs, marks, strict=True) if mark not in known]
    jobs = (joblib.delayed(_measure)(program, mark) for program, mark in todo)
    results = joblib.Parallel(n_jobs=step_cores(), return_as="generator")(jobs)
    bar = progress(results, total=len(todo), desc="labels", unit="graph")
    with ticking(bar):
        for number, row in enumerate(bar, 1):
            known[row["file"]] = row
            if number % _SAVED_EVERY == 0:
                _write(settings.table, known, written)
    _write(settings.table, known, written)
    return pd.DataFrame([known[mark] for mark in marks])


def _measure(file: ProgramFile, mark: str) -> dict:
    program = read_npz(file, labelled=True)
    check_program(program)
    quality = measure_quality(program)
    graph = {"collection": program.collection.name, "split": file.split, "name": program.name}
    return graph | {"file": mark} | asdict(quality) | {"doubts": quality.doubts}


def _read(path: Path) -> dict[str, dict]:
    if not path.exists():
        return {}
    columns = ["collection", "split", "name", "file", *Quality.__dataclass_fields__, "doubts"]
    try:
        table = pd.read_csv(path, dtype={"name": str, "doubts": str}, keep_default_na=False, na_values=[""])
    except (ValueError, UnicodeError) as error:
        raise DataError(path, f"is no CSV ({error})", "Delete it") from None
    if [*table.columns] != columns:
        raise DataError(path, "is no table of data-quality", "Delete it")
    table["doubts"] = table["doubts"].fillna("")
    return {row["file"]: row for row in table.to_dict("records")}


def _write(path: Path, known: dict[str, dict], marks: list[str]) -> None:
    table = pd.DataFrame([known[mark] for mark in marks if mark in known])
    with atomic_path(path) as temporary:
        table.to_csv(temporary, index=False)


def _report(settings: QualitySettings, table: pd.DataFrame) -> None:
    known = table["ceiling"].notna()
    by = table.groupby("collection", sort=False)
    columns = {
        "graphs": ("name", "size"),
        "rows": ("configs", "sum"),
        "distinct": ("distinct", "sum"),
        "median noise": ("noise", "median"),
        "lowest ceiling": ("ceiling", "min"),
        "median ceiling": ("ceiling", "median"),
    }
    summary = by.agg(**columns)
    summary.insert(3, "noise known", known.groupby(table["collection"], sort=False).sum())
    summary["doubtful"] = table["doubts"].ne("").groupby(table["collection"], sort=False).sum()
    summary.index = summary.index.str.removeprefix("layout:")
    print(table_text(summary.dropna(axis="columns", how="all")))
    doubtful = table[table["doubts"].ne("")].sort_values("ceiling", na_position="last")
    if len(doubtful):
        print("\nDoubtful labels; a model that learns from them learns noise:\n")
        columns = ["collection", "split", "name", "repeat_tau", "ceiling", "doubts"]
        print(table_text(doubtful[columns].reset_index(drop=True), file=str(settings.table)))
    if not known.any():
        print("\nNo graph repeats enough configurations: their noise is not known.")
    orders = "" if settings.data == "sample" else releases_in_words(settings.root)
    print(f"\n{orders}a line per graph: {settings.table}")
