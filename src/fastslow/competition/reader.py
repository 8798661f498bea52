"""A program: the checked arrays of a competition file, read from an npz or made in memory.

Every key is checked, and large arrays are never held as float32.

A layout file's ``node_config_feat`` exceeds 1 GB as float32, so it is streamed out of the zip member in
chunks of configurations and becomes one small number per group of tied tensors.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.competition.catalog import Collection, ProgramFile
from fastslow.competition.layouts import (
    ENTRY_VALUES,
    LAYOUT_WIDTH,
    MAX_DIMENSION,
    PLACE_VALUES,
    ROLES,
    layouts_of,
)
from fastslow.competition.schema import DEFAULTS, REMEDY, check_schema, check_values, refuse, whole_keys
from fastslow.competition.tied_choices import ChoiceFinder, Choices
from fastslow.core.errors import DataError, counted
from fastslow.core.npz_io import Header, check_memory, read_arrays, read_headers, stream_rows

_CHUNK_BYTES = 1 << 20  # of configurations at once: they stay in the processor's cache
_COPIES = 3  # of the choices, while the groups are put in order


@dataclass(frozen=True)
class Program:
    """A program and its configurations: the checked arrays of a competition file, and where they came from.

    A program of yours that was never written to a file is one too (:func:`program_of`).

    Args:
        file: Its collection and split, and the path that it was read from or is named after.
        node_feat: ``(N, 140)`` float32, as published (0-padded).
        node_opcode: ``(N,)`` uint8, 0 to 120.
        edge_index: ``(E, 2)`` int64; row ``(u, v)``: u consumes v's output.
        runtime: ``(C,)`` int64, nanoseconds (sample: compiler-estimated cycles); 0 in test files.
        node_config_ids: ``(K,)`` int64, layout only.
        layouts: ``(L, 6)`` int8, the distinct minor-to-major layouts of this file, layout only.
        choices: The C configurations as tied choices of the output, input and kernel layouts of the K
            configurable nodes, as positions in ``layouts``, layout only.
        default_layouts: ``(K, 3, 6)`` int8, the compiler's own layout of these tensors, where the file names
            them; see :mod:`fastslow.features.configs.default_layouts`.
        config_feat: ``(C, 24)`` float32, tile only.
        normalizers: ``(C,)`` int64, 1 or more, unit of ``runtime``, tile only.
        operands: For each of the N nodes its operands in order; None where only an npz is known.
    """

    file: ProgramFile
    node_feat: np.ndarray
    node_opcode: np.ndarray
    edge_index: np.ndarray
    runtime: np.ndarray
    node_config_ids: np.ndarray | None = None
    layouts: np.ndarray | None = None
    choices: Choices | None = None
    default_layouts: np.ndarray | None = None
    config_feat: np.ndarray | None = None
    normalizers: np.ndarray | None = None
    operands: Sequence[Sequence[int]] | None = None

    @property
    def name(self) -> str:
        """File stem."""
        return self.file.name

    @property
    def path(self) -> Path:
        """The file, or the one that it would be written to."""
        return self.file.path

    @property
    def collection(self) -> Collection:
        """The collection that it belongs to."""
        return self.file.collection

    def take(self, rows: np.ndarray | slice) -> "Program":
        """Return the program with some of its configurations, given their positions in the file."""
        return replace(
            self,
            runtime=self.runtime[rows],
            choices=None if self.choices is None else self.choices.take(rows),
            config_feat=None if self.config_feat is None else self.config_feat[rows],
            normalizers=None if self.normalizers is None else self.normalizers[rows],
        )


def read_npz(file: ProgramFile, labelled: bool = False) -> Program:
    """Read and check one npz file of the competition.

    Tolerated, because real files have them: runtimes that are all zero (unless ``labelled``), graphs with two
    configurations, identical configurations, one node without edges, layouts that leave axes out.
    ``node_splits``, which nothing here needs, is not read. Tensors of more than six dimensions may occur in
    ``node_feat``.

    Args:
        file: The file; its collection determines which keys it must have.
        labelled: Require every runtime to be positive (train and valid).

    Raises:
        DataError: Names the file, the key, what is wrong and what to do.
    """
    headers = read_headers(file.path)
    check_schema(file.path, file.collection.kind, headers)
    arrays = read_arrays(file.path, [*whole_keys(file.collection.kind), *({DEFAULTS} & headers.keys())])
    rows = stream_rows(file.path, "node_config_feat", _CHUNK_BYTES)  # read where it is of a layout file
    return _checked(file, arrays, rows, labelled)


def program_of(file: ProgramFile, arrays: Mapping[str, np.ndarray], labelled: bool = False) -> Program:
    """Check arrays in memory and return their program; arguments and errors as for :func:`read_npz`.

    Args:
        file: The file that would hold the program: its collection, split and name.
        arrays: The arrays of a competition file by key.
        labelled: As for :func:`read_npz`.
    """
    headers = {key: Header(array.shape, array.dtype, False) for key, array in arrays.items()}
    check_schema(file.path, file.collection.kind, headers)
    rows = arrays.get("node_config_feat", np.empty(0))
    many = max(1, _CHUNK_BYTES * len(rows) // max(1, rows.nbytes))
    return _checked(file, {**arrays}, (rows[n : n + many] for n in range(0, len(rows), many)), labelled)


def _checked(
    file: ProgramFile, arrays: dict[str, np.ndarray], rows: Iterable[np.ndarray], labelled: bool
) -> Program:
    """Return the program of arrays whose types and shapes are checked; ``rows``: ``node_config_feat``."""
    check_values(file.path, arrays, labelled)
    common: dict[str, Any] = {
        "file": file,
        "node_feat": arrays["node_feat"].astype(np.float32, copy=False),
        "node_opcode": arrays["node_opcode"].astype(np.uint8),
        "edge_index": arrays["edge_index"].astype(np.int64, copy=False),
        "runtime": arrays["config_runtime"].astype(np.int64, copy=False),
    }
    if file.collection.kind == "tile":
        return Program(
            **common,
            config_feat=arrays["config_feat"].astype(np.float32, copy=False),
            normalizers=arrays["config_runtime_normalizers"].astype(np.int64, copy=False),
        )
    ids = arrays["node_config_ids"].astype(np.int64)
    layouts, choices = find_choices(file.path, rows)
    defaults = None
    if DEFAULTS in arrays:  # checked as the configurations' layouts are
        numbers = _layout_numbers(file.path, arrays[DEFAULTS][None], 0, DEFAULTS)
        defaults = layouts_of(numbers.ravel()).reshape(-1, len(ROLES), LAYOUT_WIDTH)
    return Program(**common, node_config_ids=ids, layouts=layouts, choices=choices, default_layouts=defaults)


def read_checked(path: Path, kind: str, keys: Iterable[str]) -> dict[str, np.ndarray]:
    """Read arrays of a competition file by key, after a check of types, shapes and sizes, but not of values.

    Raises:
        DataError: The file is broken, the kind is another, or an array is missing or has another type or
            shape.
    """
    check_schema(path, kind, read_headers(path), keys)
    return read_arrays(path, keys)


def read_choices(path: Path, chunk_bytes: int = _CHUNK_BYTES) -> tuple[np.ndarray, Choices]:
    """Stream ``node_config_feat`` of a layout file into what :func:`find_choices` returns.

    Raises:
        DataError: As of :func:`find_choices`, or the file cannot be read.
    """
    return find_choices(path, stream_rows(path, "node_config_feat", chunk_bytes))


def find_choices(path: Path, rows: Iterable[np.ndarray]) -> tuple[np.ndarray, Choices]:
    """Find the tied choices of configurations.

    Args:
        path: Their file, for messages.
        rows: Chunks ``(n, K, 18)`` of ``node_config_feat``, at least one.

    Returns:
        ``layouts`` (L, 6) int8, the distinct minor-to-major vectors with -1 padding; row 0 is the
        all -1 layout (the compiler decides), present even where unused. The choices of all configurations;
        codes are positions in ``layouts``.

    Raises:
        DataError: A value is not a whole number from -1 to 5, a layout names an axis twice or has a hole, or
            the choices do not fit into the machine's memory.
    """
    finder = None
    start = 0
    for chunk in rows:
        finder = finder or ChoiceFinder(chunk.shape[1])
        values = finder.explain(_layout_numbers(path, chunk, start))
        finder.add(values)
        start += len(chunk)
        separate = counted(values.shape[1], "separate choice")
        what = f"holding the {separate} of its first {start:,} configurations"
        check_memory(path, _COPIES * finder.held, what)
    assert finder is not None, "an array of no rows has one empty chunk"
    return finder.finish()


def _layout_numbers(path: Path, chunk: np.ndarray, row: int, key: str = "node_config_feat") -> np.ndarray:
    """Check rows of layouts, the first of which is ``row``, and number them by tensor, (n, 3 K) int32."""
    with np.errstate(over="ignore"):  # too large a value is found by the comparisons
        values = chunk.astype(np.float32, copy=False).reshape(-1, LAYOUT_WIDTH)
    in_range = values.min(initial=0) >= -1 and values.max(initial=0) <= MAX_DIMENSION
    if not (in_range and np.array_equal(np.rint(values).reshape(chunk.shape), chunk)):
        bad = ~((chunk >= -1) & (chunk <= MAX_DIMENSION) & (chunk == np.rint(chunk)))
        refuse(path, key, chunk, bad, f"a whole number from -1 to {MAX_DIMENSION}", row=row)
    # exact: below 2**24
    number = (values @ PLACE_VALUES.astype(np.float32) + PLACE_VALUES.sum()).astype(np.int32)
    number = number.reshape(len(chunk), chunk.shape[1], len(ROLES))
    seen = np.zeros(ENTRY_VALUES**LAYOUT_WIDTH, bool)
    seen[number] = True
    _check_layouts(path, key, number, np.flatnonzero(seen), row)
    return np.asarray(number.reshape(len(chunk), -1))


def _check_layouts(path: Path, key: str, number: np.ndarray, distinct: np.ndarray, row: int) -> None:
    """Refuse the first layout that names an axis twice or has a hole.

    Takes the numbers ``(n, K, 3)`` of the layouts of each tensor and those that occur; ``row`` is the
    position of the first of these rows in the file.
    """
    layouts = layouts_of(distinct)
    ascending = np.sort(layouts, axis=1)
    repeats = ((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)).any(1)
    holes = ((layouts[:, 1:] >= 0) & (layouts[:, :-1] < 0)).any(1)
    if (repeats | holes).any():
        first, node, role = np.argwhere(np.isin(number, distinct[repeats | holes]))[0].tolist()
        layout = layouts_of(number[first, node, role, None])[0].tolist()
        entry, wrong = next(
            (i, "names twice" if axis in layout[:i] else "names after padding")
            for i, axis in enumerate(layout)
            if axis >= 0 and (axis in layout[:i] or -1 in layout[:i])
        )
        position = [row + first, node, role * LAYOUT_WIDTH + entry]
        problem = f"{key}{position} is {layout[entry]}, an axis that its layout {layout} {wrong}"
        raise DataError(path, problem, REMEDY)
