"""Score a submission where the test labels are known, as in the embedded sample competition."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, Collection
from fastslow.competition.metrics import collection_score
from fastslow.competition.submission_csv import collection_of, read_lines, read_submission
from fastslow.core.errors import DataError

HEADER = "ID,config_index,runtime"
_ROW = re.compile(r"([^,]+),(0|[1-9][0-9]{0,8}),([1-9][0-9]{0,17})")


def read_solution(path: Path) -> dict[str, np.ndarray]:
    """Read the true runtimes of test graphs from ``solution.csv``.

    Its columns are ID, config_index and runtime, a graph's configurations in order.

    Returns:
        (C,) int64 runtimes by ID, in the file's order; unit as in the file (sample: estimated cycles).

    Raises:
        DataError: The file cannot be read, or a line is malformed, has an unknown collection, a
            config_index out of order, or a runtime that is not a positive integer.
    """
    header, *lines = read_lines(path)
    if header != HEADER:
        raise DataError(path, f"line 1: the header is {header[:80]!r}", f"The first line is {HEADER}")
    runtimes: dict[str, list[int]] = {}
    for number, line in enumerate(lines, start=2):
        match = _ROW.fullmatch(line)
        if match is None or collection_of(match[1]) is None:
            problem = f"line {number}: {line[:80]!r} is not an ID of a collection, an index and a runtime"
            raise DataError(path, problem, f"A line is {HEADER}, in integers, the runtime above 0")
        seen = runtimes.setdefault(match[1], [])
        if int(match[2]) != len(seen):
            problem = f"line {number} ({match[1]}): config_index {match[2]}, {len(seen)} expected"
            raise DataError(path, problem, "List each configuration of a graph once, in order")
        seen.append(int(match[3]))
    if not runtimes:
        raise DataError(path, "no rows", "Take the solution file that came with the data")
    return {row_id: np.array(values, dtype=np.int64) for row_id, values in runtimes.items()}


def runtimes_of(solution: Mapping[str, np.ndarray], collection: Collection) -> dict[str, np.ndarray]:
    """Return the true runtimes ``(C,)`` of a collection's test graphs, by file stem instead of by ID."""
    prefix = f"{collection.name}:"
    return {i.removeprefix(prefix): own for i, own in solution.items() if i.startswith(prefix)}


def score_submission(
    path: Path, solution: Mapping[str, np.ndarray], partial: bool = False
) -> dict[str, dict]:
    """Score a submission as the competition does (TpuGraphs, arXiv 2308.13490), from its rows.

    A layout row's score is Kendall's tau between runtime and place in the list, a tile row's 1 - slowdown of
    the best of its five configurations. Tile runtimes are not normalised, which changes nothing where all
    normalizers of a graph are equal, as in the sample.

    With ``partial`` only the graphs that have a row are scored; by default a missing ID is refused.

    Returns:
        For each collection name that has rows: ``mean``, and ``per_graph`` by ID; higher = better.

    Raises:
        DataError: The CSV is wrong; the message names line, ID and reason.
    """
    rankings = read_submission(path, {row_id: runtime.size for row_id, runtime in solution.items()}, partial)
    result = {}
    for collection in COLLECTIONS:
        runtimes, places = {}, {}
        for row_id, order in rankings.items():
            if collection_of(row_id) == collection:
                runtimes[row_id] = solution[row_id]
                places[row_id] = np.full(solution[row_id].size, order.size)  # of those that are not listed
                places[row_id][order] = np.arange(order.size)
        if runtimes:
            result[collection.name] = collection_score(collection.kind, runtimes, places)
    return result
