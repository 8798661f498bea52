"""Read a submission back and check it against the competition's test files."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, TEST, Collection, ProgramFile, list_programs
from fastslow.competition.metrics import TOP_K
from fastslow.competition.schema import check_schema
from fastslow.competition.submission_csv import ROW, SAMPLE, collection_of, read_rows, sample_lines
from fastslow.core.errors import DataError, counted, listed
from fastslow.core.npz_io import read_headers

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


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
    sample = sample_lines(data_root)
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
            if not (ROW.fullmatch(f"{program.id},0") and program.id.isprintable()):
                problem = "cannot be an ID: it has a comma, a quote or a control character"
                raise DataError(program.path, f"{program.path.name!r} {problem}", "Rename the file")


def expected_counts(data_root: Path) -> dict[str, int | None]:
    """Return the IDs that a submission must have, with each graph's number of configurations.

    The IDs come from ``sample_submission.csv`` where it exists, else from the test npz of all five
    collections. The number is None where the npz is absent: the indices in the sample are placeholders.

    Raises:
        DataError: Neither exists, an npz is broken, or an npz is not in ``sample_submission.csv``.
    """
    sample = sample_lines(data_root)
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
    rows = read_rows(path)
    rankings = {}
    for row_id, (number, top_configs) in rows.items():
        where = f"line {number} ({row_id})"
        if row_id not in counts:
            example = next(iter(counts), "layout:xla:random:NAME")
            raise DataError(path, f"{where}: no test graph has this ID", f"IDs are like {example}")
        try:
            rankings[row_id] = _indices(top_configs, row_id.partition(":")[0], counts[row_id])
        except ValueError as error:
            raise DataError(path, f"{where}: {error}", "Write the row again from its prediction") from None
    missing = [row_id for row_id in counts if row_id not in rows]
    if not rows or (missing and not partial):
        lost = f"{len(missing)} of {len(counts)} IDs have no row: {listed(missing)}"
        problem = lost if counts else "it has no row"
        raise DataError(path, problem, "Predict every test graph")
    return rankings


def read_any_submission(path: Path) -> dict[str, np.ndarray]:
    """Read a submission of which nothing else is known.

    Returns:
        Indices by ID, as of :func:`read_submission`.

    Raises:
        DataError: The CSV is wrong; the message names line, ID and reason.
    """
    known = {row_id: None for row_id in read_rows(path) if collection_of(row_id)}
    return read_submission(path, known, partial=True)


def _indices(top_configs: str, kind: str, count: int | None) -> np.ndarray:
    """Parse the indices of one row: a permutation (layout) or 5 distinct ones (tile) of ``count``."""
    tokens = top_configs.split(";")
    for token in tokens:
        if not _INDEX.fullmatch(token):
            raise ValueError(f"{token[:40]!r} is not an index; integers separated by ; are expected")
    indices = [int(token) for token in tokens]
    source = "" if count is None else f": the graph has {counted(count, 'configuration')}"
    if count is None:
        count = max(indices) + 1 if kind == "tile" and len(indices) == TOP_K else len(indices)
    if max(indices) >= count:
        short = f"the highest is {max(indices)}: a layout row lists all of its program's"
        outside = f"index {max(indices)} is outside 0 to {count - 1}{source}"
        raise ValueError(outside if source or kind == "tile" else f"lists {count} configurations, {short}")
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
