"""Origin and row order of the data, and a check before a submission made from them is uploaded."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from fastslow.competition.catalog import COLLECTIONS, TEST
from fastslow.competition.row_order import RowOrder, layout_files, release_of, row_order
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import digest, write_json
from fastslow.core.progress import progress
from fastslow.core.records import Record, read_record

PROVENANCE = "provenance.json"
"""Record beside the data: the source of each split, and the row order of each layout test file."""
KAGGLE, GOOGLE = "kaggle", "google"
LAUNCH_RELEASE = (
    "its layout test files have the row order of the launch release (August 2023); since October 2023 Kaggle"
    " scores another order, so every layout row of a submission made from them is noise"
)
_UNPROVEN = (
    "nobody has shown that these layout test files have the row order that Kaggle scores: they are not"
    " recorded as downloaded from Kaggle"
)
_ALLOW = (
    "Run `make data` with Kaggle credentials, or add unproven_order=True (with make SET=unproven_order=True)"
    " to upload all the same"
)
_AGAIN = "Delete it and run `make data` again: it is written anew"


class _Source(Record):
    source: str
    downloaded: str


class _Provenance(Record):
    sources: dict[str, _Source]


def record_provenance(root: Path, source: str, splits: Iterable[str]) -> None:
    """Write down where new splits are from, and the row order of all layout test files that are there.

    Args:
        root: The data root.
        source: ``kaggle`` or ``google``.
        splits: The new splits, as ``layout:xla:random test``.
    """
    path = root / PROVENANCE
    now = datetime.now(UTC).isoformat(timespec="seconds")
    sources = _read_sources(root) | {split: {"source": source, "downloaded": now} for split in splits}
    facts = {key: value._asdict() for key, value in sorted(read_row_orders(root).items())}
    release = release_of(root, TEST)
    write_json(path, {"sources": dict(sorted(sources.items())), "row_order": facts, "release": release})


def read_row_orders(root: Path) -> dict[str, RowOrder]:
    """Return the row order of every layout test file under a data root, by the file's ID."""
    programs = layout_files(root, TEST)
    bar = progress(programs, desc="row order of the test files", unit="file", disable=len(programs) < 10)
    return {program.id: row_order(program.path) for program in bar}


def digest_of_orders(orders: Mapping[str, RowOrder]) -> dict[str, str]:
    """Return one digest of the row orders of each layout collection, by its name."""
    by_collection = {
        c.name: [(key, o.order) for key, o in sorted(orders.items()) if key.startswith(f"{c.name}:")]
        for c in COLLECTIONS
    }
    return {name: digest(rows) for name, rows in by_collection.items() if rows}


def _read_sources(root: Path) -> dict[str, dict[str, str]]:
    """Return the recorded source of each split under a data root; empty without a record."""
    path = root / PROVENANCE
    return read_record(path, _Provenance, _AGAIN)["sources"] if path.exists() else {}


def _all_from_kaggle(root: Path) -> bool:
    """Return whether all layout test files are recorded as downloaded from Kaggle."""
    recorded = _read_sources(root)
    names = {file.collection.name for file in layout_files(root, TEST)}
    return all(recorded.get(f"{name} {TEST}", {}).get("source") == KAGGLE for name in names)


def warn_of_release(root: Path) -> str:
    """Return the reason not to upload a submission made from these data; empty if there is none."""
    if release_of(root, TEST) == "launch":
        return f"{root}: {LAUNCH_RELEASE}"
    return "" if _all_from_kaggle(root) else f"{root}: {_UNPROVEN}. {_ALLOW}"


def check_release(csv: Path, record: Mapping, root: Path, unproven_order: bool) -> None:
    """Refuse to upload a submission whose rows Kaggle would read in another order.

    Args:
        csv: The submission, for the message.
        record: Its record, whose ``row_order`` has a digest for each layout collection that was ranked.
        root: The data root that it was made from.
        unproven_order: Whether the user accepts an order that is not known to be the scored one.

    Raises:
        DataError: The data belong to the launch release, or to another release than the submission.
        SettingsError: The order is unproven, and nobody said that it is accepted.
    """
    if release_of(root, TEST) == "launch":
        remedy = "Move the data away, run `make data` with Kaggle credentials, and make the submission again"
        raise DataError(root, LAUNCH_RELEASE, remedy)
    if record.get("row_order") != digest_of_orders(read_row_orders(root)):
        problem = f"was made from layout test files of another row order than those in {root}"
        raise DataError(csv, problem, "Make the submission again from these data")
    if not (unproven_order or _all_from_kaggle(root)):
        raise SettingsError("unproven_order", f"{_UNPROVEN}. {_ALLOW}")
