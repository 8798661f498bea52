"""Blend submissions: the weighted mean of the places that they give each configuration of a program."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import BeforeValidator

from fastslow.competition.catalog import TEST
from fastslow.competition.schema import LARGEST
from fastslow.competition.submission_checks import (
    check_submission,
    expected_counts,
    read_any_submission,
    read_submission,
)
from fastslow.competition.submission_csv import HEADER
from fastslow.core.errors import DataError, SettingsError, counted, listed
from fastslow.core.files import atomic_path
from fastslow.core.setting_fields import nearest
from fastslow.core.settings import Settings, Unread, find_data, parse_value, resolve
from fastslow.core.tables import sentences_text
from fastslow.evaluation.scores import competition_score, score_submission, solution_of
from fastslow.evaluation.submission_record import (
    is_recorded,
    read_submission_record,
    submission_path,
    write_record,
)


def _as_floats(value: Any) -> Any:
    """Return numbers that a command line gives as ``2,1`` as a list, and a single one, too."""
    if isinstance(value, str):  # one of them is no number: the error names it
        value = [parse_value(part) for part in value.split(",")]
    if not isinstance(value, tuple | list):
        value = [value]
    return [float(number) if type(number) is int else number for number in value]


_LARGEST = 1e6  # weight: sums of larger ones lose the smaller, and those near the largest number overflow


class BlendSettings(Settings):
    """Settings of a blend of submissions."""

    csvs: list[str] = []
    """Submissions (CSV), two or more, your own or others'; a plain name, with or without ``.csv``,
    may be in ``submissions``."""
    weights: Annotated[list[float], BeforeValidator(_as_floats)] = []
    """A weight above 0 for each of them, such as 2,1; equal ones if empty."""
    out: str = "blend.csv"
    """CSV to write; a plain name goes into ``submissions``, where the leaderboard finds it."""
    data_root: str = ""
    """Folder that holds ``npz_all/`` or ``sample_submission.csv``, to check the rows against; if empty, the
    data that one of the submissions was made from, as its record has it."""
    upload: bool = False
    """Upload the blend to Kaggle, and record its score."""
    unproven_order: bool = False
    """With ``upload``: upload although the layout test files are not known to have the row order that Kaggle
    scores (``data/README.md``)."""

    def unread(self) -> Unread:
        """Return the field that only an upload reads, with the reason and the remedy."""
        return {} if self.upload else {"unproven_order": ("without an upload", "add upload=True")}

    def check(self) -> None:
        """Check that there are several submissions, and a weight for each."""
        self.require(len(self.csvs) >= 2, "csvs", "two submissions or more: fastslow blend a.csv b.csv")
        different = len({path.resolve() for path in self.paths()}) == len(self.csvs)
        self.require(different, "csvs", "different files; use weights instead")
        known = not self.weights or len(self.weights) == len(self.csvs)
        self.require(known, "weights", f"{len(self.csvs)} numbers, one for each submission")
        summed = all(1 / _LARGEST <= weight <= _LARGEST for weight in self.weights)
        self.require(summed, "weights", f"finite numbers above 0, of {1 / _LARGEST:g} to {_LARGEST:g}")
        self.require(self.out.endswith(".csv"), "out", "a path that ends in .csv")

    def test_files(self) -> Path | None:
        """Return the folder whose test files rows are checked against; None where none is known.

        Raises:
            SettingsError: ``data_root`` is no folder.
            DataError: A submission is no file.
        """
        if self.data_root:
            root = find_data(self.data_root)
            self.require(root.is_dir(), "data_root", "a folder that holds npz_all/ or sample_submission.csv")
            return root
        return data_of(self.paths())

    def paths(self) -> list[Path]:
        """Return where the submissions are.

        Raises:
            DataError: One is no file.
        """
        return [typed_submission(name) for name in self.csvs]


def typed_submission(typed: str) -> Path:
    """Find the CSV that a user means: a path, or a name in ``submissions`` with or without ``.csv``.

    Raises:
        DataError: It is no file; the message names the nearest submission.
    """
    path = submission_path(typed)
    if not path.exists():
        known = (csv.stem for csv in resolve("submissions").glob("*.csv"))
        hint = nearest(Path(typed).name.removesuffix(".csv"), known)
        raise DataError(path, "no such file", f"`fastslow leaderboard` lists runs and blends{hint}")
    return path


def blend_orders(orders: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Rank the configurations of a program by the weighted mean of their places.

    Args:
        orders: For each submission the ``(n,)`` indices of the configurations that it lists, fastest first.
        weights: The weight of each submission.

    Returns:
        ``(n,)`` configurations, fastest first. One that a submission does not list has the place behind its
        last one there. Among equal means the order is the first submission's, then the next one's.
    """
    candidates = pd.unique(np.concatenate(orders))
    places = np.empty((len(orders), candidates.max() + 1))
    for place, order in zip(places, orders, strict=True):
        place[:] = len(order)
        place[order] = np.arange(len(order))
    mean = np.asarray(weights, dtype=float) @ places[:, candidates]
    return candidates[np.argsort(mean, kind="stable")][: len(orders[0])]


def blend_submissions(
    paths: Sequence[Path], weights: Sequence[float] = (), data_root: Path | None = None
) -> dict[str, np.ndarray]:
    """Blend submissions row by row, see :func:`blend_orders`.

    Args:
        paths: Two CSVs or more, with the same rows.
        weights: The weight of each; equal ones if empty.
        data_root: Folder with the test files to check each of them against; not checked if None.

    Returns:
        ``(n,)`` blended configurations by ID, fastest first, in the order of rows of the first CSV.

    Raises:
        DataError: A CSV is missing or broken, does not fit the test files, lacks rows that another one has,
            or has another number of configurations in a row; or two were made from files of another row
            order.
    """
    first, *others = paths
    counts = expected_counts(data_root) if data_root else None
    submissions = {path: _read(path, counts) for path in paths}
    for path in others:
        _require_same_rows(first, submissions[first], path, submissions[path])
    require_one_release(paths)
    weights = [*weights] or [1.0] * len(paths)
    rows = {row_id: [rows[row_id] for rows in submissions.values()] for row_id in submissions[first]}
    return {row_id: blend_orders(orders, weights) for row_id, orders in rows.items()}


def _read(path: Path, counts: Mapping[str, int | None] | None) -> dict[str, np.ndarray]:
    """Return the rows of a submission; refuse an index that no program has, where its number is not known."""
    rows = read_submission(path, counts) if counts else read_any_submission(path)
    for row_id, order in rows.items():
        if order.max() >= LARGEST["C"][1]:  # places are held by index: the largest one decides the memory
            problem = f"{row_id}: index {order.max()}, but no program has {LARGEST['C'][1]:,} configurations"
            raise DataError(path, problem, "Write the row again from its prediction")
    return rows


def _require_same_rows(one: Path, first: Mapping, other: Path, second: Mapping) -> None:
    for path, rows, full, reference in ((other, second, one, first), (one, first, other, second)):
        if missing := [row_id for row_id in reference if row_id not in rows]:
            problem = (
                f"lacks {len(missing)} of the {counted(len(reference), 'row')} of {full}: {listed(missing)}"
            )
            raise DataError(path, problem, "Blend submissions of the same programs")
    for row_id, order in first.items():
        if len(second[row_id]) != len(order):
            problem = f"{row_id}: {counted(len(second[row_id]), 'configuration')}, but {len(order)} in {one}"
            raise DataError(other, problem, "Blend submissions that were made from the same test files")


def _records(paths: Sequence[Path]) -> dict[Path, dict]:
    """Return the record of each submission that has one of this very file."""
    known = {path: read_submission_record(path) for path in paths if path.with_suffix(".json").is_file()}
    return {path: record for path, record in known.items() if is_recorded(path, record)}


def data_of(paths: Sequence[Path]) -> Path | None:
    """Return the data root that one of some submissions was made from, as its record has it; None without."""
    records = _records(paths).values()
    roots = (find_data(record["data_root"]) for record in records if record.get("data_root"))
    return next(filter(Path.is_dir, roots), None)


def require_one_release(paths: Sequence[Path]) -> None:
    """Refuse submissions whose rows name configurations of files in another order.

    Args:
        paths: The CSVs. Of one without a record, such as somebody else's, the order is not known.

    Raises:
        DataError: The records of two of them have another order.
    """
    orders = {path: record.get("row_order", {}) for path, record in _records(paths).items()}
    for path, order in orders.items():
        for other, reference in orders.items():
            if differing := [name for name in order if order[name] != reference.get(name, order[name])]:
                problem = f"was made from {', '.join(differing)} files of another row order than {other}"
                raise DataError(path, problem, "Take submissions that were made from the same release")


def write_blend(settings: BlendSettings, blended: Mapping[str, np.ndarray]) -> Path:
    """Write a blend, checked like every other submission, and record it for the leaderboard.

    Returns:
        The CSV.

    Raises:
        SettingsError: ``out`` must not be replaced: it is one of the submissions, no blend, another file
            than its record was written for, or another blend that was uploaded.
        DataError: A row does not fit the test files.
    """
    paths = settings.paths()
    plain = Path(settings.out).name == settings.out
    out = resolve("submissions") / settings.out if plain else Path.cwd() / Path(settings.out).expanduser()
    lines = [f"{row_id},{';'.join(map(str, order.tolist()))}\n" for row_id, order in blended.items()]
    content = "".join([f"{HEADER}\n", *lines]).encode()
    _require_replaceable(out, paths, content)
    records = _records(paths)
    root = settings.test_files()
    solution = solution_of(root) if root else None
    with atomic_path(out) as temporary:
        temporary.write_bytes(content)
        checked = check_submission(temporary, root) if root else {}
        scores = score_submission(temporary, solution) if solution else {}
    test = {name: score["mean"] for name, score in scores.items()}
    weights = settings.weights or [1.0] * len(paths)
    facts: dict[str, Any] = {"blend": dict(zip(settings.csvs, weights, strict=True)), "checked": checked}
    if row_order := next((r["row_order"] for r in records.values() if r.get("row_order")), None):
        facts["row_order"] = row_order
    if root:
        facts["data_root"] = str(root)
    facts["warnings"] = [
        f"{path.stem}: {warning}"
        for path, record in records.items()
        for warning in record.get("warnings", [])
    ]
    if test:
        facts |= {"test": test, "test_mean": competition_score(test)}
        facts["programs"] = {
            name: sorted(row_id.removeprefix(f"{name}:") for row_id in score["per_graph"])
            for name, score in scores.items()
        }
    write_record(out, settings.csvs, facts["blend"], {}, **facts)
    where = f"checked against {root}" if root else "not checked against test files: give data_root=FOLDER"
    score = f"; mean of the five on {TEST} {facts['test_mean']:.3f}" if test else ""
    rows = f"{counted(len(blended), 'row')} of {len(paths)} submissions"
    print(sentences_text([f"{out}: {rows}, {where}{score}"]))
    return out


def _require_replaceable(out: Path, paths: Sequence[Path], content: bytes) -> None:
    """Refuse to write a blend over what cannot be made again, or whose score would be lost."""
    problem = ""
    record = read_submission_record(out) if out.with_suffix(".json").is_file() else {}
    if out.resolve() in [path.resolve() for path in paths]:
        problem = "is one of the submissions to blend"
    elif out.exists() and "blend" not in record:
        problem = "is there already and is no blend"
    elif out.exists() and not is_recorded(out, record):
        problem = f"is not the file that {out.with_suffix('.json')} was written for"
    elif _was_uploaded(record) and not (out.exists() and out.read_bytes() == content):
        problem = "has the name of another submission, which was uploaded"
    if problem:
        raise SettingsError("out", f"{out} {problem}; give another name")


def _was_uploaded(record: Mapping) -> bool:
    return any(record.get(key) for key in ("attempt", "upload", "kaggle"))
