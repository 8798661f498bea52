"""The submission: a CSV with the ranking of every test graph, written, read back and checked."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from fastslow.competition.catalog import COLLECTIONS, Collection, list_programs
from fastslow.competition.metrics import TOP_K
from fastslow.competition.reader import read_headers
from fastslow.competition.schema import check_schema
from fastslow.core.errors import ConfigError, DataError
from fastslow.core.files import atomic_path

HEADER = "ID,TopConfigs"
SAMPLE = "sample_submission.csv"
_ROW = re.compile(r'("?)([^",]*)\1,("?)([^",]*)\3')
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def ranking(score: ArrayLike, kind: str) -> np.ndarray:
    """The configurations that a submission lists, fastest first.

    Args:
        score: (C,) scores, lower = predicted faster. Equal scores keep the order of the configurations.
        kind: ``tile`` (the first 5, or all of fewer) or ``layout`` (all).

    Returns:
        (C,) or (min(C, 5),) int64 configuration indices.

    Raises:
        ConfigError: ``kind`` is neither.
        ValueError: Scores are no vector, empty, or not finite: a NaN would rank last without a word.
    """
    if kind not in ("tile", "layout"):
        raise ConfigError(f"kind: {kind!r} is none of tile, layout")
    score = np.asarray(score)
    if score.ndim != 1 or score.size == 0 or not np.isfinite(score).all():
        raise ValueError(f"scores of shape {score.shape} are not a vector of at least one finite number")
    order = np.argsort(score, kind="stable")
    return order[:TOP_K] if kind == "tile" else order


def collection_of(row_id: str) -> Collection | None:
    """The collection of a row's ID (``layout:xla:random:<file stem>``), None where there is none."""
    return next((c for c in COLLECTIONS if row_id.startswith(f"{c.name}:")), None)


def write_submission(path: Path, scores: Mapping[str, ArrayLike], data_root: Path | None = None) -> None:
    """Write the CSV that Kaggle takes; call :func:`check_submission` on it before it goes anywhere.

    Args:
        path: The CSV.
        scores: (C,) scores by ID (``<collection>:<file stem>``), lower = predicted faster.
        data_root: Where a ``sample_submission.csv`` gives the order of rows; without one, or for IDs that it
            does not list, rows are in the order of collections, then of names.

    Raises:
        DataError: An ID belongs to no collection, or a graph's scores are no finite vector.
    """
    place = {row_id: n for n, row_id in enumerate(_sample_ids(data_root) or ())} if data_root else {}
    lines = {}
    for row_id, score in scores.items():
        collection = collection_of(row_id)
        if collection is None:
            raise DataError(path, f"{row_id!r} names no collection", "IDs are <collection>:<file stem>")
        try:
            order = ranking(score, collection.kind)
        except ValueError as error:
            raise DataError(path, f"{row_id}: {error}", "Predict this graph again") from None
        key = (place.get(row_id, len(place)), COLLECTIONS.index(collection), row_id)
        lines[key] = f"{row_id},{';'.join(map(str, order.tolist()))}"
    text = "".join(f"{line}\n" for line in [HEADER, *(lines[key] for key in sorted(lines))])
    with atomic_path(path) as temporary:
        temporary.write_bytes(text.encode())


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file, without line ends.

    Raises:
        DataError: The file is missing, empty, not UTF-8, or starts with a byte-order mark.
    """
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
    """Line number and TopConfigs by ID, in the file's order; two columns and unique IDs are certain."""
    header, *lines = read_lines(path)
    if header.replace('"', "") != HEADER:
        remedy = f"The first line is {HEADER}; pandas writes it with to_csv(index=False)"
        raise DataError(path, f"line 1: the header is {header[:80]!r}", remedy)
    rows = {}
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


def _sample_ids(data_root: Path) -> list[str] | None:
    """The IDs of the competition's own sample submission, None where there is no such file."""
    path = Path(data_root) / SAMPLE
    if not path.is_file():
        return None
    rows = _read_rows(path)
    for row_id, (number, _) in rows.items():
        if collection_of(row_id) is None:
            problem = f"line {number}: {row_id!r} names no collection"
            raise DataError(path, problem, "Take the file of the competition predict-ai-model-runtime")
    return list(rows)


def expected_counts(data_root: Path, partial: bool = False) -> dict[str, int | None]:
    """The IDs that a submission must have, and each graph's number of configurations.

    ``sample_submission.csv`` says which IDs where it is there, else the test npz of all five collections.
    The npz says how many configurations; None where it is absent, for the sample's indices are placeholders.

    Args:
        data_root: The folder with ``npz_all/`` or ``sample_submission.csv`` or both.
        partial: Allow that, without ``sample_submission.csv``, a collection has no test folder.

    Raises:
        DataError: There is neither, an npz is broken, or an npz is not in ``sample_submission.csv``.
    """
    sample = _sample_ids(data_root)
    counts = dict.fromkeys(sample or ())
    for collection in COLLECTIONS:
        folder = collection.folder(data_root, "test")
        if not folder.is_dir() and (sample or partial):
            continue
        for program in list_programs(data_root, collection, "test"):
            if sample is not None and program.id not in counts:
                raise DataError(program.path, f"not in {SAMPLE}", "Use the files of one competition")
            counts[program.id] = check_schema(program.path, collection.kind, read_headers(program.path))["C"]
    if not counts:
        raise DataError(
            data_root, f"neither test npz nor {SAMPLE}", "Check the data root, or run `make data`"
        )
    return counts


def read_submission(
    path: Path, counts: Mapping[str, int | None], partial: bool = False
) -> dict[str, np.ndarray]:
    """Read a submission and refuse it, with row and reason, where it does not rank exactly these graphs.

    Kaggle would refuse a missing ID; but a doubled index, an index of another graph or a sixth tile index
    could pass there and cost score without a word.

    Args:
        path: The CSV.
        counts: Number of configurations by ID. Where it is None, a layout row must be a permutation, and a
            tile row 5 distinct indices or a permutation of fewer.
        partial: Allow missing IDs, for a CSV of some graphs only; Kaggle wants all.

    Returns:
        Configuration indices by ID, fastest first, in the file's order.

    Raises:
        DataError: Naming line, ID and reason.
    """
    rows = _read_rows(path)
    rankings = {}
    for row_id, (number, top_configs) in rows.items():
        where = f"line {number} ({row_id})"
        if row_id not in counts:
            example = next(iter(counts))
            raise DataError(path, f"{where}: no test graph has this ID", f"IDs are like {example}")
        try:
            rankings[row_id] = _indices(top_configs, collection_of(row_id).kind, counts[row_id])
        except ValueError as error:
            raise DataError(path, f"{where}: {error}", "Write the row again from its scores") from None
    missing = [row_id for row_id in counts if row_id not in rows]
    if not rows or (missing and not partial):
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        problem = f"{len(missing)} of {len(counts)} IDs have no row: {shown}"
        raise DataError(path, problem, "Predict every test graph")
    return rankings


def _indices(top_configs: str, kind: str, count: int | None) -> np.ndarray:
    """The indices of one row, certain to be a permutation (layout) or 5 distinct (tile) of ``count``."""
    tokens = top_configs.split(";")
    for token in tokens:
        if not _INDEX.fullmatch(token):
            raise ValueError(f"{token[:40]!r} is no index; whole numbers joined by ; are wanted")
    indices = [int(token) for token in tokens]
    source = "" if count is None else f": the graph has {count} configurations"
    if count is None:
        count = max(indices) + 1 if kind == "tile" and len(indices) == TOP_K else len(indices)
    if max(indices) >= count:
        raise ValueError(f"index {max(indices)} is outside 0 to {count - 1}{source}")
    if len(set(indices)) < len(indices):
        raise ValueError(f"index {Counter(indices).most_common(1)[0][0]} is there more than once")
    wanted = min(count, TOP_K) if kind == "tile" else count
    if len(indices) != wanted:
        raise ValueError(f"{len(indices)} indices, {wanted} wanted{source}")
    return np.array(indices, dtype=np.int64)


def check_submission(path: Path, data_root: Path, partial: bool = False) -> dict:
    """Read a submission back and check it against the competition's test files.

    Args:
        path: The CSV.
        data_root: The folder with ``npz_all/`` or ``sample_submission.csv`` or both.
        partial: Allow missing IDs. Such a CSV is for trying the path; Kaggle refuses it.

    Returns:
        ``rows`` by collection; ``without_npz``: how many rows no npz could confirm the number of
        configurations of; ``file_order``: how many layout rows only repeat the order of the file, as a model
        that gives every configuration the same score does (valid, but worth a look).

    Raises:
        DataError: The CSV is wrong, with line, ID and reason, or ``data_root`` has nothing to check against.
    """
    counts = expected_counts(data_root, partial)
    rankings = read_submission(path, counts, partial)
    collections = {row_id: collection_of(row_id) for row_id in rankings}
    layout = [order for row_id, order in rankings.items() if collections[row_id].kind == "layout"]
    return {
        "rows": {c.name: list(collections.values()).count(c) for c in COLLECTIONS},
        "without_npz": sum(counts[row_id] is None for row_id in rankings),
        "file_order": sum(order.size > 1 and bool((np.diff(order) > 0).all()) for order in layout),
    }
