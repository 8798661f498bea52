"""A submission, a CSV with the ranking of every test graph: its rows, and the content from predictions."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from fastslow.competition.catalog import COLLECTIONS, Collection
from fastslow.competition.metrics import fastest_first
from fastslow.core.errors import DataError, counted
from fastslow.core.input_files import MAX_TEXT_BYTES, check_regular, is_there

HEADER = "ID,TopConfigs"
SAMPLE = "sample_submission.csv"
ROW = re.compile(r'("?)([^",]*)\1,("?)([^",]*)\3')


def collection_of(row_id: str) -> Collection | None:
    """Return the collection of a row's ID (``layout:xla:random:<file stem>``), None where there is none."""
    return next((c for c in COLLECTIONS if row_id.startswith(f"{c.name}:")), None)


def format_submission(
    path: Path, predictions: Mapping[str, ArrayLike], data_root: Path | None = None
) -> bytes:
    """Return the content of a submission; ``submission_checks.check_submission`` checks it.

    Args:
        path: Its future path, for messages.
        predictions: (C,) predictions by ID (``<collection>:<file stem>``), lower = predicted faster.
        data_root: Folder whose ``sample_submission.csv`` gives the order of rows; without one, or for IDs
            that it does not list, rows are in the order of collections, then of names.

    Raises:
        DataError: An ID belongs to no collection, or a graph's prediction is not 1-D and finite.
    """
    place = sample_lines(data_root) if data_root else {}
    lines = {}
    for row_id, prediction in predictions.items():
        collection = collection_of(row_id)
        if collection is None:
            raise DataError(path, f"{row_id!r} belongs to no collection", "IDs are <collection>:<file stem>")
        if {*row_id} & {*',"\r\n'}:
            raise DataError(path, f"{row_id!r} holds a comma, quote or line end", "Rename the program's file")
        try:
            order = fastest_first(prediction, collection.kind)
        except ValueError as error:
            raise DataError(path, f"{row_id}: {error}", "Predict this graph again") from None
        key = (place.get(row_id, np.inf), COLLECTIONS.index(collection), row_id)
        lines[key] = f"{row_id},{';'.join(map(str, order.tolist()))}"
    return "".join(f"{line}\n" for line in [HEADER, *(lines[key] for key in sorted(lines))]).encode()


def read_lines(path: Path, blank_end: bool = False) -> list[str]:
    """Read lines, without blank ones at a ``blank_end``; a DataError if the file is empty or no UTF-8."""
    check_regular(path, MAX_TEXT_BYTES)
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(path, "no such file", "Run the step that writes it first") from None
    if not data.strip():
        raise DataError(path, "the file is empty", "Write it again")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(path, f"line {line}: not UTF-8", "Save it as plain UTF-8") from None
    end = "\n" if "\n" in text else "\r"
    text = text.rstrip("\r\n") if blank_end else text.removesuffix(end)
    return [line.removesuffix("\r") for line in text.split(end)]


def read_rows(path: Path) -> dict[str, tuple[int, str]]:
    """Return the line number and the text of ``TopConfigs`` by ID, in the file's order.

    Raises:
        DataError: A row has not two columns, or an ID has two rows; the message names the line.
    """
    header, *lines = read_lines(path, blank_end=True)
    if header.replace('"', "") != HEADER:
        remedy = f"The first line is {HEADER}; pandas writes it with to_csv(index=False)"
        raise DataError(path, f"line 1: the header is {header[:80]!r}", remedy)
    rows: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines, start=2):
        match = ROW.fullmatch(line)
        if match is None:
            columns = counted(line.count(",") + 1, "column")
            problem = f"{columns} or stray quotes" if line else "the row is empty"
            raise DataError(path, f"line {number}: {problem}: {line[:80]!r}", f"A row is {HEADER}")
        row_id, top_configs = match[2], match[4]
        if row_id in rows:
            problem = f"line {number} ({row_id}): a second row for this ID, after line {rows[row_id][0]}"
            raise DataError(path, problem, "Keep one of them")
        rows[row_id] = (number, top_configs)
    return rows


def sample_lines(data_root: Path) -> dict[str, int]:
    """Return the line number by ID of the competition's sample submission; none where there is no such file.

    Raises:
        DataError: The file is broken, without rows, or an ID belongs to no collection.
    """
    path = Path(data_root) / SAMPLE
    if not is_there(path, MAX_TEXT_BYTES):
        return {}
    lines = {row_id: number for row_id, (number, _) in read_rows(path).items()}
    foreign = [f"line {number}: {row_id!r}" for row_id, number in lines.items() if not collection_of(row_id)]
    if foreign or not lines:
        problem = f"{foreign[0]} belongs to no collection" if foreign else "no rows"
        raise DataError(path, problem, "Take the file of the competition predict-ai-model-runtime")
    return lines
