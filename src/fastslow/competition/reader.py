"""Reading one npz file of the competition: every key is checked, large arrays are never held as float32.

A layout file's ``node_config_feat`` exceeds 1 GB as float32, so it is streamed out of the zip member in
chunks of configurations and becomes one small number per group of tied tensors.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastslow.competition.choice_stream import BASE, WEIGHTS, ChoiceFinder, Patterns, layouts_of
from fastslow.competition.node_columns import SHAPE
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.schema import (
    FLOAT,
    LAYOUT_WIDTH,
    MAX_DIMENSION,
    REMEDY,
    ROLES,
    SCHEMA,
    check_schema,
)
from fastslow.competition.tied_choices import Choices
from fastslow.core.errors import DataError
from fastslow.core.files import digest
from fastslow.core.npz_io import read_arrays, read_checksums, read_headers, stream_rows

_MINUS_ONE = "A competition file pads lists with 0; -1 is written by the feature step (features.padding=-1)"
_UNLABELLED = "A train or valid file needs positive runtimes: is this a test file?"


@dataclass(frozen=True)
class CompetitionFile:
    """The checked arrays of one competition npz file.

    Args:
        path: The file.
        node_feat: ``(N, 140)`` float32, as published (0-padded).
        node_opcode: ``(N,)`` uint8, 0 to 120.
        edge_index: ``(E, 2)`` int64; row ``(u, v)``: u consumes v's output.
        runtime: ``(C,)`` int64, nanoseconds (sample: compiler-estimated cycles); 0 in test files.
        node_config_ids: ``(K,)`` int64, layout only.
        layouts: ``(L, 6)`` int8, the distinct minor-to-major layouts of this file, layout only.
        choices: The C configurations as tied choices of the output, input and kernel layouts of the K
            configurable nodes, as positions in ``layouts``, layout only.
        config_feat: ``(C, 24)`` float32, tile only.
        normalizers: ``(C,)`` int64, 1 or more, unit of ``runtime``, tile only.
    """

    path: Path
    node_feat: np.ndarray
    node_opcode: np.ndarray
    edge_index: np.ndarray
    runtime: np.ndarray
    node_config_ids: np.ndarray | None = None
    layouts: np.ndarray | None = None
    choices: Choices | None = None
    config_feat: np.ndarray | None = None
    normalizers: np.ndarray | None = None


def file_fingerprint(path: Path) -> str:
    """Return a digest of the file's content, from the checksums in its zip directory (no decompression).

    Raises:
        DataError: The file is missing or not an npz.
    """
    return digest(read_checksums(path))


def read_competition_file(path: Path, kind: str, labelled: bool = False) -> CompetitionFile:
    """Read and check one npz file of the competition.

    Tolerated, because real files have them: runtimes of zero (unless ``labelled``), graphs with two
    configurations, identical configurations, ``node_splits`` of any shape, no edges.

    Args:
        path: The npz file.
        kind: ``layout`` or ``tile``.
        labelled: Require every runtime to be positive (train and valid).

    Raises:
        DataError: Names the file, the key, what is wrong and what to do.
    """
    path = Path(path)
    sizes = check_schema(path, kind, read_headers(path))
    arrays = read_arrays(path, [key for key in SCHEMA[kind] if key != "node_config_feat"])
    _check_values(path, arrays, sizes["N"], labelled)
    common = {
        "path": path,
        "node_feat": arrays["node_feat"].astype(np.float32, copy=False),
        "node_opcode": arrays["node_opcode"].astype(np.uint8),
        "edge_index": arrays["edge_index"].astype(np.int64, copy=False),
        "runtime": arrays["config_runtime"].astype(np.int64, copy=False),
    }
    if kind == "tile":
        return CompetitionFile(
            **common,
            config_feat=arrays["config_feat"].astype(np.float32, copy=False),
            normalizers=arrays["config_runtime_normalizers"].astype(np.int64, copy=False),
        )
    layouts, choices = read_choices(path)
    return CompetitionFile(
        **common,
        node_config_ids=arrays["node_config_ids"].astype(np.int64),
        layouts=layouts,
        choices=choices,
    )


def _check_values(path: Path, arrays: dict[str, np.ndarray], num_nodes: int, labelled: bool) -> None:
    """Check the range of every integer array and that every floating-point one is finite."""
    largest = np.iinfo(np.int64).max
    ranges = {
        "edge_index": (0, num_nodes - 1),
        "node_config_ids": (0, num_nodes - 1),
        "node_opcode": (0, len(OPCODES)),
        "config_runtime": (1 if labelled else 0, largest),
        "config_runtime_normalizers": (1, largest),
    }
    for key, array in arrays.items():
        if key in ranges:
            low, high = ranges[key]
            wanted = f"{low} or more" if high == largest else f"{low} to {high}"
            remedy = _UNLABELLED if key == "config_runtime" and labelled else REMEDY
            _refuse(path, key, array, (array < low) | (array > high), wanted, remedy)
        elif array.dtype.kind in FLOAT:
            with np.errstate(over="ignore"):  # a float64 too large becomes infinite here, and is refused
                finite = np.isfinite(array.astype(np.float32, copy=False))
            _refuse(path, key, array, ~finite, "a finite float32")
        if key == "node_feat":
            negative = np.zeros(array.shape, bool)
            negative[:, SHAPE] = array[:, SHAPE] < 0
            _refuse(path, key, array, negative, "a size of 0 or more", _MINUS_ONE)
    ids = arrays.get("node_config_ids", np.zeros(0))
    if len(np.unique(ids)) < len(ids):
        raise DataError(path, "node_config_ids names a node twice", REMEDY)


def _refuse(path, key, array, bad, wanted, remedy=REMEDY, first_row=0) -> None:
    """Name the first bad value of an array and its position, if there is one."""
    if bad.any():
        position = np.argwhere(bad)[0].tolist()
        value = array[tuple(position)]
        position[0] += first_row
        raise DataError(path, f"{key}{position} is {value}, {wanted} wanted", remedy)


def read_choices(path: Path, chunk_bytes: int = 1 << 20) -> tuple[np.ndarray, Choices]:
    """Stream ``node_config_feat`` of a layout file into tied choices.

    Args:
        path: A layout npz file.
        chunk_bytes: Bytes of the array held at a time; small enough to stay in the processor's cache.

    Returns:
        ``layouts`` (L, 6) int8, the distinct minor-to-major vectors with -1 padding; row 0 is the
        all -1 layout (the compiler decides), present even where unused. The choices of all configurations;
        codes are positions in ``layouts``.

    Raises:
        DataError: A value is not a whole number from -1 to 5, or a layout names an axis twice.
    """
    finder = patterns = None
    start = 0
    for chunk in stream_rows(path, "node_config_feat", chunk_bytes):
        finder = finder or ChoiceFinder(chunk.shape[1])
        values = patterns.match(chunk) if patterns else None
        if values is None:
            values, new = finder.explain(_layout_numbers(path, chunk, start))
            patterns = None if new or not chunk.size else Patterns(finder, chunk.dtype)
        finder.add(values)
        start += len(chunk)
    return finder.finish()


def _layout_numbers(path: Path, chunk: np.ndarray, first_row: int) -> np.ndarray:
    """Check some rows of ``node_config_feat`` and number the layouts of their tensors, (rows, 3 K) int32."""
    with np.errstate(over="ignore"):  # too large a value is found by the comparisons
        values = chunk.astype(np.float32, copy=False).reshape(-1, LAYOUT_WIDTH)
    in_range = values.min(initial=0) >= -1 and values.max(initial=0) <= MAX_DIMENSION
    if not (in_range and np.array_equal(np.rint(values).reshape(chunk.shape), chunk)):
        bad = ~((chunk >= -1) & (chunk <= MAX_DIMENSION) & (chunk == np.rint(chunk)))
        wanted = f"a whole number from -1 to {MAX_DIMENSION}"
        _refuse(path, "node_config_feat", chunk, bad, wanted, first_row=first_row)
    number = (values @ WEIGHTS.astype(np.float32) + WEIGHTS.sum()).astype(np.int32)  # exact: below 2**24
    number = number.reshape(len(chunk), chunk.shape[1], len(ROLES))
    seen = np.zeros(BASE**LAYOUT_WIDTH, bool)
    seen[number] = True
    _refuse_repeated_axes(path, np.flatnonzero(seen), number, first_row)
    return number.reshape(len(chunk), -1)


def _refuse_repeated_axes(path: Path, distinct: np.ndarray, number: np.ndarray, first_row: int) -> None:
    """Name the first layout of some rows that names an axis twice, if there is one.

    Args:
        path: The file, for the message.
        distinct: Numbers of the layouts that occur.
        number: (rows, K, 3) numbers of the layouts of each tensor.
        first_row: Position of the first of these rows in the file.
    """
    ascending = np.sort(layouts_of(distinct), axis=1)
    repeats = ((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)).any(1)
    if repeats.any():
        row, node, role = np.argwhere(np.isin(number, distinct[repeats]))[0].tolist()
        layout = layouts_of(number[row, node, role, None])[0].tolist()
        entry = next(i for i, axis in enumerate(layout) if axis >= 0 and axis in layout[:i])
        position = [first_row + row, node, role * LAYOUT_WIDTH + entry]
        problem = (
            f"node_config_feat{position} is {layout[entry]}, an axis that its layout {layout} names twice"
        )
        raise DataError(path, problem, REMEDY)
