"""Keys, types, shapes and ranges of the competition's npz files (TpuGraphs, arXiv 2308.13490)."""

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path

import numpy as np

from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES
from fastslow.competition.node_columns import COLUMN_NAMES
from fastslow.competition.opcodes import OPCODES
from fastslow.core.errors import DataError
from fastslow.core.npz_io import Header, check_memory

NODE_FEATURES = len(COLUMN_NAMES)
TILE_ROLES = ("kernel", "output", "input")  # the tensors of a kernel, in the order of config_feat
TILE_DIMENSIONS = 6  # bounds of each, major to minor, 0-padded
TILE_WIDTH = TILE_DIMENSIONS + 2  # the bounds, their sum, their product

FLOAT, INTEGER = "f", "iu"  # numpy's kinds
_DTYPES = {  # kinds accepted: in words, and a type to save such an array in
    FLOAT: ("a floating-point type", "float32"),
    INTEGER: ("an integer type", "int64"),
    FLOAT + INTEGER: ("an integer or floating-point type", "int8"),
}
_UNLABELLED = "A train or valid file needs positive runtimes: is this a test file?"
_PARTLY = "Give every configuration a runtime, or 0 to all, as a test file does"
REMEDY = "Correct the file; if it is a published one, delete it and run `make data` again"
Schema = dict[str, tuple[str, tuple[str | int, ...] | None]]
_LAYOUTS = len(ROLES) * LAYOUT_WIDTH
# key: (numpy kinds accepted, shape with the project's letters; a number is an exact size)
_SHARED: Schema = {
    "node_feat": (FLOAT, ("N", NODE_FEATURES)),
    "node_opcode": (INTEGER, ("N",)),
    "edge_index": (INTEGER, ("E", 2)),
    "config_runtime": (INTEGER, ("C",)),
}
SCHEMA: dict[str, Schema] = {
    "layout": {
        **_SHARED,
        "node_config_ids": (INTEGER, ("K",)),
        "node_config_feat": (FLOAT + INTEGER, ("C", "K", _LAYOUTS)),  # whole numbers, which any type holds
        "node_splits": (INTEGER, None),
    },
    "tile": {
        **_SHARED,
        "config_feat": (FLOAT, ("C", len(TILE_ROLES) * TILE_WIDTH)),
        "config_runtime_normalizers": (INTEGER, ("C",)),
    },
}
"""Accepted numpy kinds and shape of every key, by kind of collection."""
DEFAULTS = "node_config_default"
"""Key that a layout file may have, published ones do not: the compiler's own layouts, as a configuration."""
_OPTIONAL: dict[str, Schema] = {"layout": {DEFAULTS: (FLOAT + INTEGER, ("K", _LAYOUTS))}, "tile": {}}
GRAPH = ("node_feat", "node_opcode", "edge_index")
"""Keys of the program itself, without its configurations."""
LARGEST = {
    "N": ("nodes", 1_000_000),
    "E": ("edges", 4_000_000),
    "K": ("configurable nodes", 100_000),
    "C": ("configurations", 1_000_000),
}
"""Meaning of each letter, and the largest number that is read: 10 to 30 times the largest of TpuGraphs
(43,614 nodes, 3,143 configurable ones, 100,040 configurations); a small file can inflate to far more."""
_STREAMED_OR_UNUSED = ("node_config_feat", "node_splits")
_COPIES = 3  # of an array, while it is checked and brought to its type


def whole_keys(kind: str) -> list[str]:
    """Return the keys of a kind of file that are read whole; the others are streamed, or not read."""
    return [key for key in SCHEMA[kind] if key not in _STREAMED_OR_UNUSED]


def check_schema(
    path: Path, kind: str, headers: dict[str, Header], keys: Iterable[str] = ()
) -> dict[str, int]:
    """Check keys, types, shapes and sizes of a file against the competition's schema.

    Args:
        path: The file, for messages.
        kind: ``layout`` or ``tile``.
        headers: From :func:`fastslow.core.npz_io.read_headers`.
        keys: The only keys that are wanted; by default all of the kind.

    Returns:
        The sizes by letter: N nodes, E edges, C configurations and, for layout, K configurable nodes.

    Raises:
        DataError: A key is missing, is none of this kind, or has another type or shape; there is no node,
            configuration or, for layout, configurable node; or there are more than :data:`LARGEST`, or than
            fit into the machine's memory.
    """
    sizes: dict[str, int] = {}
    if kind not in SCHEMA:
        raise DataError(path, f"{kind!r} is no kind of file", f"Give {' or '.join(SCHEMA)}")
    every = SCHEMA[kind] | _OPTIONAL[kind]
    if foreign := [key for key in keys if key not in every]:
        raise DataError(path, f"a {kind} file has no key {foreign[0]}", f"Its keys are {', '.join(every)}")
    for key, (kinds, shape) in ({key: every[key] for key in keys} or every).items():
        if key not in headers and key in _OPTIONAL[kind] and not keys:
            continue
        if key not in headers:
            other = "tile" if kind == "layout" else "layout"
            hint = f"It looks like a {other} file" if set(SCHEMA[other]) <= set(headers) else REMEDY
            raise DataError(path, f"key {key} is missing (a {kind} file has {', '.join(SCHEMA[kind])})", hint)
        header = headers[key]
        if header.dtype.kind not in kinds:
            wanted, example = _DTYPES[kinds]
            remedy = f"Save it as {example}, for example with {key}.astype({example!r})"
            raise DataError(path, f"{key} has type {header.dtype}, {wanted} wanted", remedy)
        if shape is None:
            continue
        fits = len(header.shape) == len(shape) and all(
            size == (sizes.setdefault(letter, size) if isinstance(letter, str) else letter)
            for letter, size in zip(shape, header.shape, strict=True)
        )
        if not fits:
            wanted = ", ".join(f"{s}={sizes[s]}" if s in sizes else str(s) for s in shape)
            raise DataError(path, f"{key} has shape {header.shape}, ({wanted}) wanted", REMEDY)
    for letter, count in sizes.items():
        what, largest = LARGEST[letter]
        if not count and letter != "E":  # kernels of one node have no edge
            raise DataError(path, f"has no {what}", REMEDY)
        if count > largest:
            raise DataError(path, f"declares {count:,} {what}, at most {largest:,} are read", REMEDY)
    whole = [headers[key] for key in keys or whole_keys(kind)]
    needed = _COPIES * sum(prod(header.shape) * header.dtype.itemsize for header in whole)
    check_memory(path, needed, "reading it")
    return sizes


def check_values(path: Path, arrays: Mapping[str, np.ndarray], labelled: bool) -> None:
    """Refuse numbers that are not finite, and positions and counts that are out of range.

    Args:
        path: The file, for messages.
        arrays: Arrays of a competition file by key, without those that are streamed.
        labelled: Require every runtime to be positive (train and valid); otherwise all may be 0.

    Raises:
        DataError: Names the key, and the position of the first bad number.
    """
    last_node = len(arrays["node_feat"]) - 1
    largest = np.iinfo(np.int64).max
    partly = not labelled and np.max(arrays.get("config_runtime", 0)) > 0
    ranges = {
        "edge_index": (0, last_node),
        "node_config_ids": (0, last_node),
        "node_opcode": (0, len(OPCODES)),
        "config_runtime": (1 if labelled or partly else 0, largest),
        "config_runtime_normalizers": (1, largest),
    }
    for key, array in arrays.items():
        if key in ranges:
            low, high = ranges[key]
            wanted = f"{low} or more" if high == largest else f"{low} to {high}"
            of_runtimes = _PARTLY if partly else _UNLABELLED
            remedy = of_runtimes if key == "config_runtime" and low else REMEDY
            refuse(path, key, array, (array < low) | (array > high), wanted, remedy)
        elif array.dtype.kind in FLOAT:
            with np.errstate(over="ignore"):  # a float64 too large becomes infinite here, and is refused
                finite = np.isfinite(array.astype(np.float32, copy=False))
            refuse(path, key, array, ~finite, "a finite float32")


def refuse(
    path: Path, key: str, array: np.ndarray, bad: np.ndarray, wanted: str, remedy: str = REMEDY, row: int = 0
) -> None:
    """Raise a DataError of the first bad value of an array, whose first row is ``row`` of the file."""
    if bad.any():
        position = np.argwhere(bad)[0].tolist()
        value = array[tuple(position)]
        position[0] += row
        raise DataError(path, f"{key}{position} is {value}, {wanted} wanted", remedy)
