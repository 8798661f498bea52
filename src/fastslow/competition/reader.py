"""Reading one npz file of the competition: every key is checked, large arrays are never held as float32.

A layout file's ``node_config_feat`` exceeds 1 GB as float32, so it is streamed out of the zip member in
chunks of configurations and becomes one small number per group of tied tensors.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.choices.choice_stream import ChoiceFinder, Patterns
from fastslow.choices.layouts import BASE, LAYOUT_WIDTH, MAX_DIMENSION, ROLES, WEIGHTS, layouts_of
from fastslow.choices.tied_choices import Choices, distinct_rows
from fastslow.competition.node_columns import DIMENSIONS, LAYOUT, SHAPE
from fastslow.competition.opcodes import OPCODES, opcode_name
from fastslow.competition.rank_checks import check_default_ranks, check_ranks, check_transposes
from fastslow.competition.schema import DEFAULTS, FLOAT, GRAPH, REMEDY, check_schema, whole_keys
from fastslow.core.errors import DataError
from fastslow.core.files import digest
from fastslow.core.memory import machine_memory
from fastslow.core.npz_io import read_arrays, read_checksums, read_headers, stream_rows

_MINUS_ONE = "A competition file pads lists with 0; -1 is written by the feature step (features.padding=-1)"
_MAX_AXIS = 63  # a tensor may have more dimensions than the six columns show; numpy's limit is 64
# columns of node_feat that hold whole numbers, with the largest; DIMENSIONS are axis numbers
_WHOLE = (
    (SHAPE, np.iinfo(np.int32).max, "size"),
    (LAYOUT, _MAX_AXIS, "axis"),
    (DIMENSIONS, _MAX_AXIS, "axis"),
)
_COPIES = 3  # of the choices, while the groups are put in order
_WITHOUT_OPERANDS = ("parameter", "constant")  # their layout is given: no compiler chooses it
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
        default_layouts: ``(K, 3, 6)`` int8, the compiler's own layout of these tensors, where the file names
            them; see :mod:`fastslow.features.configs.default_layouts`.
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
    default_layouts: np.ndarray | None = None
    config_feat: np.ndarray | None = None
    normalizers: np.ndarray | None = None


def config_groups(file: CompetitionFile) -> tuple[np.ndarray, np.ndarray]:
    """Return runtime (of a tile in units of its normaliser) and number of the configuration of each row.

    Args:
        file: A file; its rows may repeat a configuration.

    Returns:
        ``(C,)`` float64 and ``(C,)`` int64; rows of equal configurations have equal numbers, from 0.
    """
    rows = file.config_feat if file.choices is None else file.choices.values
    runtime = file.runtime if file.normalizers is None else file.runtime / file.normalizers
    assert rows is not None, "a file has configurations of one kind"
    return runtime.astype(np.float64), distinct_rows(rows.T.astype(np.int64), len(runtime))[1]


def file_fingerprint(path: Path) -> str:
    """Return a digest of the file's content, from the checksums in its zip directory (no decompression).

    Raises:
        DataError: The file is missing or not an npz.
    """
    return digest(read_checksums(path))


def read_competition_file(path: Path, kind: str, labelled: bool = False) -> CompetitionFile:
    """Read and check one npz file of the competition.

    Tolerated, because real files have them: runtimes of zero (unless ``labelled``), graphs with two
    configurations, identical configurations, no edges, layouts that leave axes out. ``node_splits``, which
    nothing here needs, is not read. Tensors of more than six dimensions may occur in ``node_feat``.

    Args:
        path: The npz file.
        kind: ``layout`` or ``tile``.
        labelled: Require every runtime to be positive (train and valid).

    Raises:
        DataError: Names the file, the key, what is wrong and what to do.
    """
    path = Path(path)
    headers = read_headers(path)
    sizes = check_schema(path, kind, headers)
    arrays = read_arrays(path, whole_keys(kind))
    _check_values(path, arrays, sizes["N"], labelled)
    common: dict[str, Any] = {
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
    of_configurable = arrays["node_feat"][arrays["node_config_ids"]]
    check_ranks(path, of_configurable, layouts, choices)
    defaults = _read_defaults(path) if DEFAULTS in headers else None
    if defaults is not None:
        check_default_ranks(path, of_configurable, defaults)
    return CompetitionFile(
        **common,
        node_config_ids=arrays["node_config_ids"].astype(np.int64),
        layouts=layouts,
        choices=choices,
        default_layouts=defaults,
    )


def read_checked(path: Path, kind: str, keys: Iterable[str]) -> dict[str, np.ndarray]:
    """Read some arrays of a competition file; types, shapes and sizes are checked before, values are not.

    Raises:
        DataError: As for :func:`fastslow.competition.schema.check_schema`.
    """
    check_schema(path, kind, read_headers(path), keys)
    return read_arrays(path, keys)


def read_graph_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read and check the arrays of a competition file that are the program itself, see :data:`GRAPH`.

    Raises:
        DataError: As for :func:`read_competition_file`.
    """
    arrays = read_checked(path, "layout", GRAPH)  # of a tile file they are the same
    _check_values(path, arrays, len(arrays["node_feat"]), labelled=False)
    return arrays


def _read_defaults(path: Path) -> np.ndarray:
    """Read the compiler's own layouts ``(K, 3, 6)`` int8, checked as those of the configurations."""
    row = read_arrays(path, [DEFAULTS])[DEFAULTS]
    number = _layout_numbers(path, row[None], 0, DEFAULTS)
    return layouts_of(number.ravel()).reshape(-1, len(ROLES), LAYOUT_WIDTH).astype(np.int8)


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
    _check_acyclic(path, arrays["edge_index"], num_nodes)
    for columns, largest, what in _WHOLE:
        values, bad = arrays["node_feat"][:, columns], np.zeros(arrays["node_feat"].shape, bool)
        bad[:, columns] = (values < 0) | (values >= largest + 1) | (values != np.rint(values))
        remedy = _MINUS_ONE if (values == -1).any() else REMEDY
        _refuse(path, "node_feat", arrays["node_feat"], bad, f"a whole {what} from 0 to {largest}", remedy)
    if "config_feat" in arrays:
        bounds = arrays["config_feat"]
        wrong = (bounds < 0) | (bounds != np.rint(bounds))
        _refuse(path, "config_feat", bounds, wrong, "a whole size from 0")
    check_transposes(path, arrays["node_feat"], arrays["node_opcode"])
    if "node_config_ids" in arrays:
        _check_configurable(path, arrays["node_config_ids"], arrays["node_opcode"])


def _check_acyclic(path: Path, edges: np.ndarray, num_nodes: int) -> None:
    """Refuse a node that consumes its own output, directly or through others: no program computes it."""
    _refuse(path, "edge_index", edges, edges == edges[:, ::-1], "a node other than its operand")
    if (edges[:, 0] > edges[:, 1]).all():  # so in every published file: operands come first
        return
    from scipy.sparse import coo_array, csgraph  # takes 0.2 seconds

    graph = coo_array((np.ones(len(edges), bool), edges.T.astype(np.int64)), (num_nodes, num_nodes))
    part = csgraph.connected_components(graph, connection="strong")[1][edges]
    if (inside := part[:, 0] == part[:, 1]).any():
        row = int(np.argmax(inside))
        user, operand = edges[row].tolist()
        problem = f"edge_index[{row}] is [{user}, {operand}], but node {operand} needs node {user}: a cycle"
        raise DataError(path, problem, REMEDY)


def _check_configurable(path: Path, ids: np.ndarray, opcodes: np.ndarray) -> None:
    """Refuse configurable nodes that are named twice or have no operand that could be laid out."""
    if len(np.unique(ids)) < len(ids):
        raise DataError(path, "node_config_ids names a node twice", REMEDY)
    for position, node in enumerate(ids.tolist()):
        name = opcode_name(opcodes[node])
        if name in _WITHOUT_OPERANDS:
            problem = (
                f"node_config_ids[{position}] names node {node}, a {name}: no compiler chooses its layout"
            )
            raise DataError(path, problem, REMEDY)


def _refuse(
    path: Path,
    key: str,
    array: np.ndarray,
    bad: np.ndarray,
    wanted: str,
    remedy: str = REMEDY,
    first_row: int = 0,
) -> None:
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
        chunk_bytes: Bytes of a chunk; small enough to stay in the processor's cache.

    Returns:
        ``layouts`` (L, 6) int8, the distinct minor-to-major vectors with -1 padding; row 0 is the
        all -1 layout (the compiler decides), present even where unused. The choices of all configurations;
        codes are positions in ``layouts``.

    Raises:
        DataError: A value is not a whole number from -1 to 5, a layout names an axis twice or has a hole, or
            the choices do not fit into the machine's memory.
    """
    finder = patterns = None
    start, memory = 0, machine_memory()
    for chunk in stream_rows(path, "node_config_feat", chunk_bytes):
        finder = finder or ChoiceFinder(chunk.shape[1])
        values = patterns.match(chunk) if patterns else None
        if values is None:
            values, new = finder.explain(_layout_numbers(path, chunk, start))
            patterns = None if new or not chunk.size else Patterns(finder, chunk.dtype)
        finder.add(values)
        start += len(chunk)
        if _COPIES * finder.held > memory:
            problem = f"its first {start:,} configurations make {values.shape[1]:,} separate choices,"
            raise DataError(path, f"{problem} too many for {memory / 1e9:.1f} GB of memory", REMEDY)
    assert finder is not None, "an array of no rows has one empty chunk"
    return finder.finish()


def _layout_numbers(
    path: Path, chunk: np.ndarray, first_row: int, key: str = "node_config_feat"
) -> np.ndarray:
    """Check some rows of ``node_config_feat`` and number the layouts of their tensors, (rows, 3 K) int32."""
    with np.errstate(over="ignore"):  # too large a value is found by the comparisons
        values = chunk.astype(np.float32, copy=False).reshape(-1, LAYOUT_WIDTH)
    in_range = values.min(initial=0) >= -1 and values.max(initial=0) <= MAX_DIMENSION
    if not (in_range and np.array_equal(np.rint(values).reshape(chunk.shape), chunk)):
        bad = ~((chunk >= -1) & (chunk <= MAX_DIMENSION) & (chunk == np.rint(chunk)))
        wanted = f"a whole number from -1 to {MAX_DIMENSION}"
        _refuse(path, key, chunk, bad, wanted, first_row=first_row)
    number = (values @ WEIGHTS.astype(np.float32) + WEIGHTS.sum()).astype(np.int32)  # exact: below 2**24
    number = number.reshape(len(chunk), chunk.shape[1], len(ROLES))
    seen = np.zeros(BASE**LAYOUT_WIDTH, bool)
    seen[number] = True
    _refuse_bad_layouts(path, np.flatnonzero(seen), number, first_row, key)
    numbers: np.ndarray = number.reshape(len(chunk), -1)
    return numbers


def _refuse_bad_layouts(
    path: Path, distinct: np.ndarray, number: np.ndarray, first_row: int, key: str
) -> None:
    """Name the first layout of some rows that names an axis twice or has a hole, if there is one.

    Args:
        path: The file, for the message.
        distinct: Numbers of the layouts that occur.
        number: (rows, K, 3) numbers of the layouts of each tensor.
        first_row: Position of the first of these rows in the file.
        key: Key of the rows.
    """
    layouts = layouts_of(distinct)
    ascending = np.sort(layouts, axis=1)
    repeats = ((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)).any(1)
    holes = ((layouts[:, 1:] >= 0) & (layouts[:, :-1] < 0)).any(1)
    if (repeats | holes).any():
        row, node, role = np.argwhere(np.isin(number, distinct[repeats | holes]))[0].tolist()
        layout = layouts_of(number[row, node, role, None])[0].tolist()
        entry, wrong = next(
            (i, "names twice" if axis in layout[:i] else "names after padding")
            for i, axis in enumerate(layout)
            if axis >= 0 and (axis in layout[:i] or -1 in layout[:i])
        )
        position = [first_row + row, node, role * LAYOUT_WIDTH + entry]
        problem = f"{key}{position} is {layout[entry]}, an axis that its layout {layout} {wrong}"
        raise DataError(path, problem, REMEDY)
