"""Reading one npz file of the competition: every key checked, large arrays never held as float32.

A layout file's ``node_config_feat`` passes 1 GB as float32, so it is streamed out of the zip member in
chunks of configurations and becomes one small code per tensor layout.
"""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from fastslow.artifacts import digest
from fastslow.errors import DataError

NODE_FEATURES = 140
LAYOUT_WIDTH = 6  # a layout names at most six dimensions, minor-most first
ROLES = ("output", "input", "kernel")  # the tensors of a configurable node, in the order of node_config_feat
MAX_DIMENSION = 5
CHUNK_BYTES = 64_000_000
_CORRUPT = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError)
_AGAIN = "The file is truncated or corrupt: delete it and run `make data` again"

# key: (numpy kinds accepted, shape with the project's letters; a number is an exact size)
_SHARED = {
    "node_feat": ("f", ("N", NODE_FEATURES)),
    "node_opcode": ("iu", ("N",)),
    "edge_index": ("iu", ("E", 2)),
    "config_runtime": ("iu", ("C",)),
}
SCHEMA = {
    "layout": {
        **_SHARED,
        "node_config_ids": ("iu", ("K",)),
        "node_config_feat": ("f", ("C", "K", len(ROLES) * LAYOUT_WIDTH)),
        "node_splits": ("iu", None),
    },
    "tile": {
        **_SHARED,
        "config_feat": ("f", ("C", 24)),
        "config_runtime_normalizers": ("iu", ("C",)),
    },
}


@dataclass(frozen=True)
class Header:
    """Shape and type of one array in an npz file.

    Args:
        shape: Array shape.
        dtype: Array type.
        fortran_order: Whether the bytes run column by column.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran_order: bool


@dataclass(frozen=True)
class CompetitionFile:
    """The arrays of one competition npz file, checked.

    Args:
        path: The file.
        node_feat: ``(N, 140)`` float32, as published (0-padded).
        node_opcode: ``(N,)`` uint8.
        edge_index: ``(E, 2)`` int64; row ``(u, v)``: u consumes v's output.
        runtime: ``(C,)`` int64, nanoseconds (sample: compiler-estimated cycles); 0 in test files.
        node_config_ids: ``(K,)`` int64, layout only.
        layouts: ``(L, 6)`` int8, the distinct minor-to-major layouts of this file, layout only.
        codes: ``(C, K, 3)`` uint8 or uint16, position in ``layouts`` of the output, input and kernel
            layout of each configurable node, layout only.
        config_feat: ``(C, 24)`` float32, tile only.
        normalizers: ``(C,)`` int64, tile only.
    """

    path: Path
    node_feat: np.ndarray
    node_opcode: np.ndarray
    edge_index: np.ndarray
    runtime: np.ndarray
    node_config_ids: np.ndarray | None = None
    layouts: np.ndarray | None = None
    codes: np.ndarray | None = None
    config_feat: np.ndarray | None = None
    normalizers: np.ndarray | None = None


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    if not Path(path).is_file():
        raise DataError(path, "no such file", "Check the data root")
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except DataError:
        raise
    except _CORRUPT as error:
        raise DataError(path, f"cannot be read ({error})", _AGAIN) from error


def _read_header(member) -> Header:
    version = npy.read_magic(member)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return Header(*(lambda shape, fortran, dtype: (shape, dtype, fortran))(*read(member)))


def read_headers(path: Path) -> dict[str, Header]:
    """Shape and type of every array in an npz file, without reading the arrays.

    Raises:
        DataError: The file is missing or not an npz.
    """
    headers = {}
    with _opened(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                headers[name.removesuffix(".npy")] = _read_header(member)
    return headers


def count_configs(path: Path) -> int:
    """Number of configurations in a competition file, from its headers alone."""
    headers = read_headers(path)
    if "config_runtime" not in headers:
        raise DataError(path, "key config_runtime is missing", _AGAIN)
    return headers["config_runtime"].shape[0]


def file_fingerprint(path: Path) -> str:
    """What the file holds, from the checksums in its zip directory (no decompression)."""
    with _opened(path) as archive:
        return digest([[i.filename, i.file_size, i.CRC] for i in archive.infolist()])


def check_schema(path: Path, kind: str, headers: dict[str, Header]) -> dict[str, int]:
    """Check keys, types and shapes of a file against the competition's schema.

    Args:
        path: The file, for messages.
        kind: ``layout`` or ``tile``.
        headers: As :func:`read_headers` gives.

    Returns:
        The sizes by letter: N, E, C and, for layout, K.

    Raises:
        DataError: A key is missing, or has another type or shape.
    """
    sizes: dict[str, int] = {}
    for key, (kinds, shape) in SCHEMA[kind].items():
        if key not in headers:
            other = "tile" if kind == "layout" else "layout"
            hint = f"It looks like a {other} file" if set(SCHEMA[other]) <= set(headers) else _AGAIN
            raise DataError(path, f"key {key} is missing (a {kind} file has {', '.join(SCHEMA[kind])})", hint)
        header = headers[key]
        if header.dtype.kind not in kinds:
            wanted = "floating point" if kinds == "f" else "integer"
            raise DataError(path, f"{key} has type {header.dtype}, {wanted} wanted", _AGAIN)
        if shape is None:
            continue
        fits = len(header.shape) == len(shape) and all(
            size == (sizes.setdefault(letter, size) if isinstance(letter, str) else letter)
            for letter, size in zip(shape, header.shape, strict=True)
        )
        if not fits:
            wanted = ", ".join(f"{s}={sizes[s]}" if s in sizes else str(s) for s in shape)
            raise DataError(path, f"{key} has shape {header.shape}, ({wanted}) wanted", _AGAIN)
    for letter, what in (("N", "nodes"), ("C", "configurations")):
        if not sizes[letter]:
            raise DataError(path, f"has no {what}", _AGAIN)
    return sizes


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
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in SCHEMA[kind] if key != "node_config_feat"}
    except _CORRUPT as error:
        raise DataError(path, f"cannot be read ({error})", _AGAIN) from error
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
    layouts, codes = read_layout_codes(path)
    return CompetitionFile(
        **common, node_config_ids=arrays["node_config_ids"].astype(np.int64), layouts=layouts, codes=codes
    )


def _check_values(path: Path, arrays: dict[str, np.ndarray], num_nodes: int, labelled: bool) -> None:
    for key, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise DataError(path, f"{key} is NaN or infinite at {where}", _AGAIN)
    ranges = {"edge_index": num_nodes, "node_config_ids": num_nodes, "node_opcode": 256}
    for key, stop in ranges.items():
        values = arrays.get(key)
        if values is not None and values.size and not 0 <= values.min() <= values.max() < stop:
            raise DataError(
                path, f"{key} spans {values.min()} to {values.max()}, 0 to {stop - 1} wanted", _AGAIN
            )
    ids = arrays.get("node_config_ids")
    if ids is not None and len(np.unique(ids)) < len(ids):
        raise DataError(path, "node_config_ids names a node twice", _AGAIN)
    runtime = arrays["config_runtime"]
    if runtime.min() < (1 if labelled else 0):
        bad = int(np.argmin(runtime))
        raise DataError(
            path,
            f"config_runtime is {runtime[bad]} at configuration {bad}",
            "A train or valid file needs positive runtimes: is this a test file?" if labelled else _AGAIN,
        )
    if (arrays.get("config_runtime_normalizers", np.ones(1)) <= 0).any():
        raise DataError(path, "config_runtime_normalizers has a value below 1", _AGAIN)


def stream_rows(path: Path, key: str, chunk_bytes: int = CHUNK_BYTES) -> Iterator[np.ndarray]:
    """Yield an array of an npz file in chunks of whole rows, never holding all of it.

    Args:
        path: The npz file.
        key: Array name; its bytes must be in C order.
        chunk_bytes: Upper end of a chunk's size (at least one row is read).
    """
    with _opened(path) as archive, archive.open(f"{key}.npy") as member:
        header = _read_header(member)
        if header.fortran_order:
            raise DataError(
                path, f"{key} is stored column by column", "Save it again with numpy.ascontiguousarray"
            )
        row_bytes = int(np.prod(header.shape[1:])) * header.dtype.itemsize
        rows = max(1, chunk_bytes // max(row_bytes, 1))
        for start in range(0, header.shape[0], rows):
            count = min(rows, header.shape[0] - start)
            buffer = member.read(count * row_bytes)
            if len(buffer) < count * row_bytes:
                raise DataError(path, f"{key} ends after {start} of {header.shape[0]} rows", _AGAIN)
            yield np.frombuffer(buffer, header.dtype).reshape(count, *header.shape[1:])
        if member.read(1):
            raise DataError(path, f"{key} is longer than its header says", _AGAIN)


def read_layout_codes(path: Path, chunk_bytes: int = CHUNK_BYTES) -> tuple[np.ndarray, np.ndarray]:
    """Stream ``node_config_feat`` into one code per tensor layout.

    Args:
        path: A layout npz file.
        chunk_bytes: Float bytes held at a time.

    Returns:
        ``layouts`` (L, 6) int8, the distinct minor-to-major vectors with -1 padding; row 0 is the
        all -1 layout (the compiler decides), present even where unused. ``codes`` (C, K, 3) uint8 or,
        above 256 layouts, uint16.

    Raises:
        DataError: A value is not a whole number from -1 to 5.
    """
    base = MAX_DIMENSION + 2
    weights = base ** np.arange(LAYOUT_WIDTH, dtype=np.int32)
    number_to_code = np.full(base**LAYOUT_WIDTH, -1, np.int32)
    number_to_code[0] = 0
    numbers = [0]
    shape = read_headers(path)["node_config_feat"].shape
    codes = np.empty((shape[0], shape[1], len(ROLES)), np.uint16)
    start = 0
    for chunk in stream_rows(path, "node_config_feat", chunk_bytes):
        with np.errstate(invalid="ignore"):  # NaN: found by the comparison below
            values = chunk.astype(np.int8)
        if not (
            np.array_equal(values, chunk)
            and (not values.size or -1 <= values.min() <= values.max() <= MAX_DIMENSION)
        ):
            bad = ~((chunk >= -1) & (chunk <= MAX_DIMENSION) & (chunk == np.rint(chunk)))
            config, node, column = np.argwhere(bad)[0]
            raise DataError(
                path,
                f"node_config_feat[{start + config}, {node}, {column}] is {chunk[config, node, column]},"
                f" a whole number from -1 to {MAX_DIMENSION} wanted",
                _AGAIN,
            )
        tensors = values.reshape(len(chunk), shape[1], len(ROLES), LAYOUT_WIDTH)
        number = (tensors + 1) @ weights
        seen = np.zeros(len(number_to_code), bool)
        seen[number] = True
        new = np.flatnonzero(seen & (number_to_code < 0))
        number_to_code[new] = len(numbers) + np.arange(len(new))
        numbers.extend(new.tolist())
        codes[start : start + len(chunk)] = number_to_code[number]
        start += len(chunk)
    layouts = (np.array(numbers)[:, None] // weights % base - 1).astype(np.int8)
    return layouts, codes.astype(np.uint8) if len(layouts) <= 256 else codes
