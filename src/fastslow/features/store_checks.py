"""What a features folder must hold: types, shapes and ranges. A damaged file is named, never computed with.

A checksum shows that a file changed; these checks show that its content makes sense, whichever
program wrote it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import AfterValidator

from fastslow.choices.layouts import LAYOUT_WIDTH, MAX_DIMENSION, ROLES
from fastslow.competition.catalog import COLLECTIONS, SPLITS
from fastslow.competition.node_columns import LAYOUT
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.schema import NODE_FEATURES
from fastslow.core.errors import DataError
from fastslow.core.records import FileName, Record, check_record, is_valid
from fastslow.features.nodes.node_encodings import EXTRA_COLUMNS

_INTEGER, _FLOAT = "iu", "f"
_LARGEST = np.iinfo(np.int64).max
# array: numpy kinds, shape in the letters of Graph (G groups, O options, B bytes, S values), smallest and
# largest value; a letter means one less than that size
_SPECIFICATION = {
    "node_feat": (_FLOAT, ("N", NODE_FEATURES), -_LARGEST, _LARGEST),
    "node_extra": (_FLOAT, ("N", len(EXTRA_COLUMNS)), -_LARGEST, _LARGEST),
    "node_opcode": (_INTEGER, ("N",), 0, len(OPCODES)),
    "edge_index": (_INTEGER, ("E", 2), 0, "N"),
    "config_index": (_INTEGER, ("K",), 0, "N"),
    "tensor_sizes": (_INTEGER, ("K", len(ROLES), LAYOUT_WIDTH), 0, _LARGEST),
    "tensor_bytes": (_INTEGER, ("K", len(ROLES)), 0, 16),
    "pairs": (_INTEGER, ("P", 3), 0, _LARGEST),
    "pair_axes": (_INTEGER, ("P", LAYOUT_WIDTH), -1, MAX_DIMENSION),
    "layouts": (_INTEGER, ("L", LAYOUT_WIDTH), -1, MAX_DIMENSION),
    "default_layouts": (_INTEGER, ("K", len(ROLES), LAYOUT_WIDTH), -1, MAX_DIMENSION),
    "config_row": (_INTEGER, ("F",), 0, "C"),
    "file_runtime": (_FLOAT, ("F",), 0, _LARGEST),
    "runtime": (_FLOAT, ("C",), 0, _LARGEST),
    "choices_group": (_INTEGER, ("K", len(ROLES)), 0, "G"),
    "choices_codes": (_INTEGER, ("K", len(ROLES), "O"), 0, "L"),
    "choices_options": (_INTEGER, ("G",), 1, _LARGEST),
    "choices": (_INTEGER, ("C", "G"), 0, _LARGEST),
    "config_feat_sizes": (_INTEGER, ("V",), 0, 1 << 16),
    "config_feat_values": (_FLOAT, ("S",), -_LARGEST, _LARGEST),
    "config_feat": (_INTEGER, ("C", "B"), 0, 255),
}
_MOST_CONFIGS = 2**31 - 1  # of one file
_MAX_AXIS = 63  # as the reader allows
_LEAST_RUNTIME = np.finfo(np.float64).tiny


class _Settings(Record):
    collection: Literal[*(collection.name for collection in COLLECTIONS)]


class _Inputs(Record):
    data: str


def _unlike(columns: list[str]) -> list[str]:
    if len({*columns}) < len(columns):
        raise ValueError("it names a column twice")
    return columns


class _Manifest(Record):
    """Keys that the manifest of a features folder must have."""

    fingerprint: str
    settings: _Settings
    inputs: _Inputs
    config_columns: Annotated[list[str], AfterValidator(_unlike)]
    row_order: dict[str, str] = {}


def check_features_manifest(path: Path, manifest: dict, remedy: str) -> None:
    """Check that a manifest is that of a features folder; errors as of ``core.records.check_record``."""
    check_record(path, manifest, _Manifest, remedy)


class _Checker:
    """The arrays of a graph and what to say where one is wrong."""

    def __init__(self, path: Path, arrays: Mapping[str, np.ndarray], remedy: str):
        self.path, self.arrays, self.remedy = path, arrays, remedy
        self.sizes: dict[str, int] = {}

    def refuse(self, problem: str) -> None:
        raise DataError(self.path, problem, self.remedy)

    def shape(self, name: str, kinds: str, shape: tuple) -> None:
        """Check type and shape of an array; sizes of the same letter must agree."""
        array = self.arrays[name]
        fits = len(array.shape) == len(shape) and all(
            size == (self.sizes.setdefault(letter, size) if isinstance(letter, str) else letter)
            for letter, size in zip(shape, array.shape, strict=True)
        )
        if array.dtype.kind not in kinds or not fits:
            wanted = ", ".join(f"{s}={self.sizes[s]}" if s in self.sizes else str(s) for s in shape)
            self.refuse(f"{name} is {array.dtype} of shape {array.shape}, ({wanted}) wanted")

    def within(self, name: str, values: np.ndarray, low, high) -> None:
        """Check that every value is in a range, which no NaN is."""
        bad = ~((values >= low) & (values <= high))
        if bad.any():
            position = tuple(np.argwhere(bad)[0].tolist())
            low, high = (np.broadcast_to(end, values.shape)[position] for end in (low, high))
            wanted = f"{low} or more" if high == _LARGEST else f"{low} to {high}"
            wanted = "a finite number" if low == -_LARGEST else wanted
            self.refuse(f"{name}{list(position)} is {values[position]}, {wanted} wanted")


def check_stored(path: Path, arrays: Mapping[str, np.ndarray], labelled: bool, remedy: str) -> None:
    """Check the arrays of a stored graph, see :class:`fastslow.features.store.Graph`.

    Args:
        path: The graph's npz, for messages.
        arrays: Every array of the store by name; those of configurations may be on disk.
        labelled: Whether its runtimes must be positive (train and valid).
        remedy: What to do about it, for messages.

    Raises:
        DataError: Names the array, the position, and what is wanted.
    """
    check = _Checker(path, arrays, remedy)
    for name, (kinds, shape, _, _) in _SPECIFICATION.items():
        check.shape(name, kinds, shape)
    for name, (_, _, low, high) in _SPECIFICATION.items():
        if name not in ("choices", "config_feat"):
            if labelled and name in ("runtime", "file_runtime"):
                low = _LEAST_RUNTIME
            check.within(name, arrays[name], low, check.sizes[high] - 1 if isinstance(high, str) else high)
    check.within("node_feat", arrays["node_feat"][:, LAYOUT], -1, _MAX_AXIS)
    if len(np.unique(arrays["config_index"])) < check.sizes["K"]:
        check.refuse("config_index names a node twice")
    axes = np.sort(arrays["layouts"], axis=1)
    if ((axes[:, 1:] == axes[:, :-1]) & (axes[:, 1:] >= 0)).any():
        check.refuse("layouts names an axis twice")
    check.within("pairs", arrays["pairs"], [0, 0, 1], [check.sizes["K"] - 1] * 2 + [2])
    if len(np.unique(arrays["config_row"])) < check.sizes["C"]:
        check.refuse("config_row leaves out a configuration")
    _check_choices(check)
    _check_columns(check)


def check_labels(path: Path, name: str, values: np.ndarray, remedy: str) -> None:
    """Check the array ``runtime`` or ``file_runtime`` of a labelled graph alone, as :func:`check_stored`."""
    check = _Checker(path, {name: values}, remedy)
    kinds, shape, _, high = _SPECIFICATION[name]
    check.shape(name, kinds, shape)
    check.within(name, values, _LEAST_RUNTIME, high)


def _check_choices(check: _Checker) -> None:
    """Check that each configuration chooses an option that is there, and that options differ."""
    group, codes, options = (check.arrays[f"choices_{part}"] for part in ("group", "codes", "options"))
    check.within("choices_options", options, 1, max(1, check.sizes["O"]))
    check.within("choices", np.asarray(check.arrays["choices"]), 0, options.astype(np.int64) - 1)
    tables, owner = codes.reshape(-1, check.sizes["O"]), group.ravel()
    for number in np.flatnonzero(options > 1).tolist():
        own = tables[owner == number, : options[number]]
        if len(np.unique(own, axis=1).T) < options[number]:
            check.refuse(
                f"choices_codes: two of the {options[number]} options of group {number} are the same"
            )


def _check_columns(check: _Checker) -> None:
    """Check that every packed feature is a position in the table of its column, or a finite number."""
    sizes = check.arrays["config_feat_sizes"].astype(np.int64)
    if sizes.sum() != check.sizes["S"]:
        check.refuse(f"config_feat_values has {check.sizes['S']} values, {sizes.sum()} by config_feat_sizes")
    widths = np.select([sizes == 0, sizes == 1, sizes <= 256], [4, 0, 1], 2)
    if widths.sum() != check.sizes["B"]:
        check.refuse(f"config_feat has {check.sizes['B']} bytes a row, {widths.sum()} by config_feat_sizes")
    packed = np.asarray(check.arrays["config_feat"])
    for column, (size, width, end) in enumerate(zip(sizes, widths, np.cumsum(widths), strict=True)):
        if width:
            own = np.ascontiguousarray(packed[:, end - width : end]).view(
                np.float32 if width == 4 else f"u{width}"
            )
            low, high = (-_LARGEST, _LARGEST) if width == 4 else (0, size - 1)
            check.within(f"config_feat (column {column})", own[:, 0], low, high)


def check_index(path: Path, index: pd.DataFrame, remedy: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Check the table of a folder's graphs: where each is, and how many configurations it has.

    Returns:
        By split and name, the number of distinct configurations and of those in the file.

    Raises:
        DataError: A column is missing, or a row is wrong; it is named.
    """
    wanted = ("split", "name", "configs", "merged")
    if missing := [column for column in wanted if column not in index]:
        raise DataError(path, f"it lacks the column {missing[0]}", remedy)
    if not isinstance(index.index, pd.RangeIndex):  # pandas takes surplus cells for names of rows
        raise DataError(path, "its rows have more cells than columns", remedy)
    counts = index[["configs", "merged"]].apply(pd.to_numeric, errors="coerce")
    counts = counts.where(counts <= _MOST_CONFIGS)
    plain = index["name"].astype(str).map(lambda name: Path(name).name == name and is_valid(FileName, name))
    wrong = {
        f"split is none of {', '.join(SPLITS)}": ~index["split"].isin(SPLITS),
        "name is not that of a file": ~plain,
        "it is there twice": index.duplicated(["split", "name"]),
        "configs is not a whole number of 1 or more": ~(
            (counts["configs"] >= 1) & (counts["configs"] % 1 == 0)
        ),
        "merged is not a whole number of 0 or more": ~((counts["merged"] >= 0) & (counts["merged"] % 1 == 0)),
    }
    for problem, rows in wrong.items():
        if rows.any():
            row = index[rows].iloc[0]
            raise DataError(path, f"graph {row['split']}/{row['name']}: {problem}", remedy)
    if index.empty:
        raise DataError(path, "it lists no graph", remedy)
    counts = counts.astype(int)
    both = zip(counts["configs"].tolist(), counts.sum(axis=1).tolist(), strict=True)
    return dict(zip(zip(index["split"], index["name"], strict=True), both, strict=True))


def check_listed(
    folder: Path, split: str, graph, listed: tuple | None, columns: list[str], remedy: str
) -> None:
    """Check a graph against the folder's manifest and table.

    Args:
        folder: The features folder, for messages.
        split: The graph's split.
        graph: The graph, see :class:`fastslow.features.store.Graph`.
        listed: What :func:`check_index` returned for it; None where the table does not list it.
        columns: Names of the columns of ``config_feat``.
        remedy: What to do about it, for messages.

    Raises:
        DataError: It has other columns, or another number of configurations.
    """
    if graph.config_feat.shape[1] != len(columns):
        problem = f"config_feat has {graph.config_feat.shape[1]} columns, {len(columns)} wanted"
        raise DataError(folder / split / f"{graph.name}.npz", problem, remedy)
    found = (graph.num_configs, len(graph.config_row))
    if listed not in (None, found):
        problem = f"{split}/{graph.name} has {listed} distinct and all configurations, the graph {found}"
        raise DataError(folder / "graphs.csv", problem, remedy)
