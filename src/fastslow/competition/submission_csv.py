"""Format, read and check a submission: a CSV with the ranking of every test graph."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastslow.competition.catalog import COLLECTIONS, TEST, Collection, ProgramFile, list_programs
from fastslow.competition.metrics import TOP_K, fastest_first
from fastslow.competition.schema import check_schema
from fastslow.core.errors import DataError
from fastslow.core.input_files import MAX_TEXT_BYTES, check_regular, is_there
from fastslow.core.npz_io import read_headers

HEADER = "ID,TopConfigs"
SAMPLE = "sample_submission.csv"
_ROW = re.compile(r'("?)([^",]*)\1,("?)([^",]*)\3')
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def collection_of(row_id: str) -> Collection | None:
    """Return the collection of a row's ID (``layout:xla:random:<file stem>``), None where there is none."""
    return next((c for c in COLLECTIONS if row_id.startswith(f"{c.name}:")), None)


def format_submission(
    path: Path, predictions: Mapping[str, ArrayLike], data_root: Path | None = None
) -> bytes:
    """Return the content of a submission; check it with :func:`check_submission` before it is uploaded.

    Args:
        path: Its future path, for messages.
        predictions: (C,) predictions by ID (``<collection>:<file stem>``), lower = predicted faster.
        data_root: Folder whose ``sample_submission.csv`` gives the order of rows; without one, or for IDs
            that it does not list, rows are in the order of collections, then of names.

    Raises:
        DataError: An ID belongs to no collection, or a graph's prediction is not 1-D and finite.
    """
    place = _sample_lines(data_root) if data_root else {}
    lines = {}
    for row_id, prediction in predictions.items():
        collection = collection_of(row_id)
        if collection is None:
            raise DataError(path, f"{row_id!r} belongs to no collection", "IDs are <collection>:<file stem>")
        try:
            order = fastest_first(prediction, collection.kind)
        except ValueError as error:
            raise DataError(path, f"{row_id}: {error}", "Predict this graph again") from None
        key = (place.get(row_id, np.inf), COLLECTIONS.index(collection), row_id)
        lines[key] = f"{row_id},{';'.join(map(str, order.tolist()))}"
    return "".join(f"{line}\n" for line in [HEADER, *(lines[key] for key in sorted(lines))]).encode()


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file, without line ends; a DataError if it is empty or no plain UTF-8."""
    check_regular(path, MAX_TEXT_BYTES)
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(path, "no such file", "Run the step that writes it first") from None
    if not data.strip():
        raise DataError(path, "the file is empty", "Write it again")
    if data.startswith(b"\xef\xbb\xbf"):
        raise DataError(path, "line 1: a byte-order mark before the header", "Save it as UTF-8 without BOM")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(path, f"line {line}: not UTF-8", "Save it as plain UTF-8") from None
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _read_rows(path: Path) -> dict[str, tuple[int, str]]:
    """Read line number and TopConfigs by ID, in the file's order; checks for two columns and unique IDs."""
    header, *lines = read_lines(path)
    if header.replace('"', "") != HEADER:
        remedy = f"The first line is {HEADER}; pandas writes it with to_csv(index=False)"
        raise DataError(path, f"line 1: the header is {header[:80]!r}", remedy)
    rows: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines, start=2):
        match = _ROW.fullmatch(line)
        if match is None:
            problem = f"{line.count(',') + 1} columns or stray quotes" if line else "the row is empty"
            raise DataError(path, f"line {number}: {problem}: {line[:80]!r}", f"A row is {HEADER}")
        row_id, top_configs = match[2], match[4]
        if row_id in rows:
            problem = f"line {number} ({row_id}): a second row for this ID, after line {rows[row_id][0]}"
            raise DataError(path, problem, "Keep one of them")
        rows[row_id] = (number, top_configs)
    return rows


def _sample_lines(data_root: Path) -> dict[str, int]:
    """Read the line of each ID of the competition's sample submission; none where there is no such file."""
    path = Path(data_root) / SAMPLE
    if not is_there(path, MAX_TEXT_BYTES):
        return {}
    lines = {row_id: number for row_id, (number, _) in _read_rows(path).items()}
    foreign = [row_id for row_id in lines if collection_of(row_id) is None]
    if foreign or not lines:
        problem = "no rows"
        if foreign:
            problem = f"line {lines[foreign[0]]}: {foreign[0]!r} belongs to no collection"
        raise DataError(path, problem, "Take the file of the competition predict-ai-model-runtime")
    return lines


def _require_listed(programs: Iterable[ProgramFile], sample: Mapping[str, int]) -> None:
    """Refuse a test file that the sample submission does not list, where there is one."""
    for program in programs:
        if sample and program.id not in sample:
            raise DataError(program.path, f"not in {SAMPLE}", "Use the files of one competition")


def check_ids(data_root: Path, collections: Iterable[Collection] = COLLECTIONS) -> None:
    """Check the IDs that a submission of these collections will have, before anything is trained.

    Raises:
        DataError: A test file's name would break its row of the CSV, ``sample_submission.csv`` is broken, or
            it lists a graph without a test file, or a test file is not in it.
    """
    sample = _sample_lines(data_root)
    for collection in collections:
        programs = list_programs(data_root, collection, TEST)
        here = {program.id for program in programs}
        for row_id, number in sample.items():
            if collection_of(row_id) == collection and row_id not in here:
                name = row_id.removeprefix(f"{collection.name}:")
                lost = collection.folder(data_root, TEST) / f"{name}.npz"
                problem = f"line {number} lists {row_id}, but there is no {lost}"
                remedy = "Put the file back: `make data` downloads what is missing of the competition"
                raise DataError(Path(data_root) / SAMPLE, problem, remedy)
        _require_listed(programs, sample)
        for program in programs:
            if not (_ROW.fullmatch(f"{program.id},0") and program.id.isprintable()):
                problem = "cannot be an ID: it has a comma, a quote or a control character"
                raise DataError(program.path, f"{program.path.name!r} {problem}", "Rename the file")


def expected_counts(data_root: Path) -> dict[str, int | None]:
    """Return the IDs that a submission must have, with each graph's number of configurations.

    The IDs come from ``sample_submission.csv`` where it exists, else from the test npz of all five
    collections. The number is None where the npz is absent: the indices in the sample are placeholders.

    Raises:
        DataError: Neither exists, an npz is broken, or an npz is not in ``sample_submission.csv``.
    """
    sample = _sample_lines(data_root)
    counts = dict.fromkeys(sample)
    for collection in COLLECTIONS:
        if not collection.folder(data_root, TEST).is_dir() and sample:
            continue
        programs = list_programs(data_root, collection, TEST)
        _require_listed(programs, sample)
        for program in programs:
            counts[program.id] = check_schema(program.path, collection.kind, read_headers(program.path))["C"]
    return counts


def read_submission(
    path: Path, counts: Mapping[str, int | None], partial: bool = False
) -> dict[str, np.ndarray]:
    """Read a submission and check that it ranks exactly these graphs.

    Args:
        path: The CSV.
        counts: Number of configurations by ID. Where it is None, a layout row must be a permutation, and a
            tile row 5 distinct indices or a permutation of fewer.
        partial: Allow missing IDs, for a CSV of some graphs only; Kaggle requires all.

    Returns:
        By ID, in the file's order, the indices of configurations from 0, fastest first: ``(C_file,)`` of a
        layout row, ``(5,)`` of a tile row, or as many as a kernel with fewer has.

    Raises:
        DataError: The CSV is wrong; the message names line, ID and reason.
    """
    rows = _read_rows(path)
    rankings = {}
    for row_id, (number, top_configs) in rows.items():
        where = f"line {number} ({row_id})"
        if row_id not in counts:
            example = next(iter(counts))
            raise DataError(path, f"{where}: no test graph has this ID", f"IDs are like {example}")
        try:
            rankings[row_id] = _indices(top_configs, row_id.partition(":")[0], counts[row_id])
        except ValueError as error:
            raise DataError(path, f"{where}: {error}", "Write the row again from its prediction") from None
    missing = [row_id for row_id in counts if row_id not in rows]
    if not rows or (missing and not partial):
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        problem = f"{len(missing)} of {len(counts)} IDs have no row: {shown}"
        raise DataError(path, problem, "Predict every test graph")
    return rankings


def read_any_submission(path: Path) -> dict[str, np.ndarray]:
    """Read a submission of which nothing else is known.

    Returns:
        Indices by ID, as of :func:`read_submission`.

    Raises:
        DataError: The CSV is wrong; the message names line, ID and reason.
    """
    known = {row_id: None for row_id in _read_rows(path) if collection_of(row_id)}
    return read_submission(path, known or {"layout:xla:random:NAME": None}, partial=True)


def _indices(top_configs: str, kind: str, count: int | None) -> np.ndarray:
    """Parse the indices of one row: a permutation (layout) or 5 distinct ones (tile) of ``count``."""
    tokens = top_configs.split(";")
    for token in tokens:
        if not _INDEX.fullmatch(token):
            raise ValueError(f"{token[:40]!r} is not an index; integers separated by ; are expected")
    indices = [int(token) for token in tokens]
    source = "" if count is None else f": the graph has {count} configurations"
    if count is None:
        count = max(indices) + 1 if kind == "tile" and len(indices) == TOP_K else len(indices)
    if max(indices) >= count:
        raise ValueError(f"index {max(indices)} is outside 0 to {count - 1}{source}")
    if len(set(indices)) < len(indices):
        raise ValueError(f"index {Counter(indices).most_common(1)[0][0]} occurs more than once")
    expected = min(count, TOP_K) if kind == "tile" else count
    if len(indices) != expected:
        raise ValueError(f"{len(indices)} indices, {expected} expected{source}")
    return np.array(indices, dtype=np.int64)


def check_submission(path: Path, data_root: Path) -> dict[str, Any]:
    """Read a submission back and check it against the competition's test files.

    Args:
        path: The CSV.
        data_root: The folder with ``npz_all/`` or ``sample_submission.csv`` or both.

    Returns:
        ``rows``: number of rows by collection. ``without_npz``: number of rows whose number of configurations
        could not be checked, since their npz is missing. ``file_order``: number of layout rows in the order
        of the file, as a constant prediction gives them.

    Raises:
        DataError: As for :func:`expected_counts` and :func:`read_submission`.
    """
    counts = expected_counts(data_root)
    rankings = read_submission(path, counts)
    collections = {row_id: collection_of(row_id) for row_id in rankings}
    layout = [order for row_id, order in rankings.items() if row_id.startswith("layout:")]
    return {
        "rows": {c.name: list(collections.values()).count(c) for c in COLLECTIONS},
        "without_npz": sum(counts[row_id] is None for row_id in rankings),
        "file_order": sum(order.size > 1 and bool((np.diff(order) > 0).all()) for order in layout),
    }
