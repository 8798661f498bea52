"""Record what a submission was made of and what Kaggle said of it: a JSON file beside the CSV."""

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Len
from pydantic import AfterValidator

from fastslow.competition.catalog import COLLECTIONS, COMPETITION, TEST, VALID, get_collection
from fastslow.core.artifacts import commit
from fastslow.core.errors import DataError
from fastslow.core.files import file_digest, read_json, write_json
from fastslow.core.records import Record, check_record
from fastslow.core.settings import find_typed, resolve


def write_record(
    path: Path, members: Sequence[str], weights: Mapping, scores: Mapping[str, float], **extra
) -> dict:
    """Write the record of a submission, a JSON file beside it.

    Where the same CSV was uploaded before, its ``upload`` and ``kaggle`` are kept.

    Args:
        path: The CSV, written and checked; the record is ``<name of the CSV>.json``.
        members: Names of the runs in the ensemble.
        weights: Their weights, as the ensemble stores them.
        scores: Validation score by collection name: Kendall's tau (layout) or 1 - slowdown (tile).
        **extra: Further entries of the record.
    """
    path = Path(path)
    sha256 = file_digest(path)
    before = {}
    if path.with_suffix(".json").is_file():
        try:
            before = read_submission_record(path)
        except DataError as error:  # the new record is sound; only what Kaggle answered is lost
            print(f"replaced, and with it any upload that it recorded: {error}", file=sys.stderr)
    kept = ("attempt", "upload", "kaggle") if before.get("sha256") == sha256 else ()
    record = {
        "name": path.stem,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "sha256": sha256,
        "members": list(members),
        "weights": dict(weights),
        "scores": {get_collection(name).name: float(score) for name, score in scores.items()},
        **extra,
        **{key: before[key] for key in kept if key in before},
    }
    write_json(path.with_suffix(".json"), record)
    return record


_Name = Literal[*(collection.name for collection in COLLECTIONS)]


class _Kaggle(Record):
    public: float | None = None
    private: float | None = None


class _Row(Record):
    """A row of the table of scores; it may have further columns."""

    collection: _Name
    model: str
    run: str
    weight: float | None = None
    valid: float
    valid_min: float
    valid_max: float
    test: float | None = None
    test_min: float | None = None
    test_max: float | None = None
    valid_top1: float | None = None
    test_top1: float | None = None


class _Distance(Record):
    """Scores of the graphs at like distances from the nearest train graph."""

    split: Literal[VALID, TEST]
    collection: _Name
    part: str
    graphs: Annotated[int, Ge(1)]
    smallest: float
    largest: float
    score: float


def _has_a_model(table: list[_Row]) -> list[_Row]:
    if all(row.weight is None for row in table):
        raise ValueError("it has no row of a model, which has a weight")
    return table


class SubmissionResult(Record):
    """An upload that Kaggle has accepted, as the submission's record holds it."""

    competition: Literal[COMPETITION] = COMPETITION
    file_name: str  # without folders
    message: str
    earlier_refs: list[int]  # submissions listed before, to distinguish a second upload of the same name
    begun: float = 0.0  # seconds since 1970; 0: not recorded, long ago


class _Submission(Record):
    """Keys that a submission's record must have; it may have more."""

    name: str
    created: str
    commit: str
    sha256: str
    members: list[str]
    scores: dict[_Name, float]
    kaggle: _Kaggle = _Kaggle()
    row_order: dict[str, str] = {}
    table: Annotated[list[_Row], Len(1), AfterValidator(_has_a_model)] = []
    distances: list[_Distance] = []
    doubtful: dict[str, str] = {}
    warnings: list[str] = []  # of the command that made it
    upload: SubmissionResult | None = None
    attempt: SubmissionResult | None = None
    valid_mean: float = 0.0
    test_mean: float | None = None


def submission_path(typed: str) -> Path:
    """Return the CSV that a user means: a path, or a name in ``submissions`` with or without ``.csv``."""
    path = find_typed(typed)
    if path.is_file() or Path(typed).name != typed:
        return path
    return resolve("submissions") / (typed if typed.endswith(".csv") else f"{typed}.csv")


def read_submission_record(path: Path, *needed: str) -> dict:
    """Read the record beside a submission.

    Args:
        path: The CSV or its record, which has the same name and ends in ``.json``.
        *needed: Keys that the record must have.

    Raises:
        DataError: There is no record, it is no submission's, or it lacks one of ``needed``.
    """
    path = Path(path).with_suffix(".json")
    remedy = "Rename or delete it: it is no submission's record; then make the submission again"
    record = check_record(path, read_json(path), _Submission, remedy)
    for key in needed:
        if key not in record:
            raise DataError(path, f"it lacks the key {key}", remedy)
    return record


def is_recorded(path: Path, record: Mapping) -> bool:
    """Return whether a CSV is there and is the file that a record was written for."""
    return path.is_file() and record["sha256"] == file_digest(path)


def require_recorded(path: Path, record: Mapping) -> None:
    """Refuse a CSV that is gone, or is another file than its record was written for.

    Raises:
        DataError: It is.
    """
    if not is_recorded(path, record):
        raise DataError(path, "not the file its record was written for (sha256)", "Make the submission again")


def update_record(path: Path, **facts) -> dict:
    """Add or replace entries of a submission's record, such as Kaggle's scores.

    Raises:
        DataError: There is no record, or the CSV has changed since it was written.
    """
    path = Path(path)
    record = read_submission_record(path)
    require_recorded(path, record)
    record |= facts
    write_json(path.with_suffix(".json"), record)
    return record
