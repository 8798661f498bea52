"""The store of built features, which training and inference read.

A graph is one ``<name>.npz`` of small arrays beside two plain ``.npy`` files, choices and packed features of
the configurations, whose rows are read when they are indexed and which are never kept open. The store has one
row per *distinct* configuration; models compute these, and :meth:`Graph.expand` repeats their predictions for
every configuration of the competition file. The manifest has a checksum of every file: to read a damaged or
edited one is an error.
"""

from copy import copy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from fastslow.competition.catalog import (
    COLLECTIONS,
    LABELLED_SPLITS,
    SPLITS,
    TRAIN,
    Collection,
    get_collection,
)
from fastslow.competition.tied_choices import Choices
from fastslow.core.artifacts import MANIFEST, finished_file, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path
from fastslow.core.input_files import check_regular
from fastslow.core.npz_io import read_arrays, readable, write_arrays
from fastslow.core.records import Record, check_record
from fastslow.features.scaling import EXPANDED_NODE_FEATURES, Scaler, expand_node_features, read_scaler
from fastslow.features.stored_rows import PackedColumns, StoredRows

INDEX = "graphs.csv"
SCALERS = "scalers.npz"
RECIPE = ("fingerprint", "settings", "inputs", "config_columns")
"""Keys of the features' manifest that are needed to build other graphs alike."""
_ROWS = ("choices", "config_feat")
_AGAIN = "Delete the features folder and run the feature notebook again"
_MAKE = "Make it with `make features`, or notebooks/10_features.ipynb (its `folder`), or name another folder"


@dataclass(frozen=True)
class Graph:
    """One program with its distinct configurations, ready for a model; see ``features/README.md``.

    Letters in shapes: N nodes, E edges, K configurable nodes (tile: none), P pairs, L distinct layouts, C
    distinct configurations, C_file configurations of the competition file, V configuration features.
    """

    name: str  # stem of the competition file
    node_feat: np.ndarray  # (N, 140) float32, pruned and padded, not scaled
    node_extra: np.ndarray  # (N, Y) float32, columns node_encodings.EXTRA_COLUMNS
    node_opcode: np.ndarray  # (N,) uint8
    edge_index: np.ndarray  # (E, 2) int32; row (u, v): u consumes v's output
    config_index: np.ndarray  # (K,) int32, node number of each configurable node
    tensor_sizes: np.ndarray  # (K, 3, 6) int32, sizes of output, input and kernel; 0 beyond the rank
    tensor_bytes: np.ndarray  # (K, 3) uint8, bytes per element of these tensors
    pairs: np.ndarray  # (P, 3) int32: producer and consumer of one tensor in config_index, consumer's role
    pair_axes: np.ndarray  # (P, 6) int8, the producer's axis that each axis of the consumer's tensor is
    layouts: np.ndarray  # (L, 6) int8, minor to major, -1 padded; row 0 all -1 (tile: that row only)
    default_layouts: np.ndarray  # (K, 3, 6) int8, the compiler's own layouts, -1 where not known
    choices: Choices  # the C configurations as tied choices: each tensor's position in layouts
    config_feat: np.ndarray | PackedColumns  # (C, V) float32; from the store, rows are unpacked when indexed
    runtime: np.ndarray  # (C,) float64 label: ns (sample: cycles), tile: over normalizer; a mean; 0 in test
    config_row: np.ndarray  # (C_file,) int32, row of each configuration of the file, numbered as they occur
    file_runtime: np.ndarray  # (C_file,) float64, runtime of each configuration of the file

    @property
    def num_nodes(self) -> int:
        """N, the number of nodes after pruning."""
        return len(self.node_opcode)

    @property
    def num_configs(self) -> int:
        """C, the number of distinct configurations."""
        return len(self.runtime)

    @property
    def count(self) -> np.ndarray:
        """``(C,)`` number of configurations of the file that each row represents, 1 or more."""
        return np.bincount(self.config_row, minlength=self.num_configs)

    @property
    def config_ids(self) -> np.ndarray:
        """``(C,)`` position in the file of the first configuration that each row represents."""
        return np.unique(self.config_row, return_index=True)[1]

    def expand(self, values: np.ndarray) -> np.ndarray:
        """Repeat values of the rows, ``(C, ...)``, for every configuration of the file, ``(C_file, ...)``."""
        return values[self.config_row]

    def take(self, rows: np.ndarray | slice) -> "Graph":
        """Return the graph with some of its rows, as if the file held these configurations only.

        Args:
            rows: Positions of rows, in any order, repeats allowed.
        """
        runtime = self.runtime[rows]
        return replace(
            self,
            choices=self.choices.take(rows),
            config_feat=self.config_feat[rows],
            runtime=runtime,
            config_row=np.arange(len(runtime), dtype=np.int32),
            file_runtime=runtime,
        )


def expand_nodes(graph: Graph) -> np.ndarray:
    """Return what a network may read of the nodes, ``(N, EXPANDED_NODE_FEATURES)`` float32."""
    return expand_node_features(graph.node_feat, graph.node_extra)


_SMALL = tuple(f.name for f in fields(Graph) if f.name not in ("name", *_ROWS))
_CHOICES = tuple(f.name for f in fields(Choices) if f.name != "values")
_COLUMNS = ("values", "sizes")  # of PackedColumns
_TABLES = (*(f"choices_{key}" for key in _CHOICES), *(f"config_feat_{key}" for key in _COLUMNS))


def files_of(folder: Path, split: str, name: str) -> list[Path]:
    """Return the files of one graph: the npz of small arrays, then those that are read row by row."""
    stems = [f"{name}.npz", *(f"{name}.{array}.npy" for array in _ROWS)]
    return [Path(folder) / split / stem for stem in stems]


def graph_files(folder: Path) -> list[Path]:
    """Return every file of every graph in a features folder, sorted within each split."""
    return [path for split in SPLITS for path in sorted((Path(folder) / split).glob("*.np[yz]"))]


def write_graph(folder: Path, split: str, graph: Graph, fingerprint: str) -> None:
    """Write one graph, the npz last: a graph whose npz exists is complete.

    Args:
        folder: Features folder of a collection.
        split: ``train``, ``valid`` or ``test``.
        graph: The graph to write.
        fingerprint: Digest of what the graph was made from, see :func:`is_written`.
    """
    path, *rows = files_of(folder, split, graph.name)
    path.unlink(missing_ok=True)
    columns = PackedColumns.pack(graph.config_feat)
    for file, values in zip(rows, (graph.choices.values, columns.packed), strict=True):
        with atomic_path(file) as temporary, open(temporary, "wb") as handle:
            np.save(handle, np.ascontiguousarray(values))
    small = {key: getattr(graph, key) for key in _SMALL}
    tables = [getattr(graph.choices, key) for key in _CHOICES] + [getattr(columns, key) for key in _COLUMNS]
    small |= dict(zip(_TABLES, tables, strict=True))
    write_arrays(path, {"fingerprint": np.array(fingerprint), **small})


def is_written(folder: Path, split: str, name: str, fingerprint: str) -> bool:
    """Check whether a graph is there, complete, and carries this fingerprint."""
    files = files_of(folder, split, name)
    if not all(file.is_file() for file in files):
        return False
    try:
        return str(read_arrays(files[0], ["fingerprint"])["fingerprint"]) == fingerprint
    except DataError:
        return False


def read_graph(folder: Path, split: str, name: str) -> Graph:
    """Read one graph as :func:`write_graph` wrote it, also from a folder that is not finished.

    Rows of ``choices.values`` and ``config_feat`` are read when they are indexed.

    Raises:
        DataError: A file is missing or cannot be read, or the files are not of one graph.
    """
    path, *files = files_of(folder, split, name)
    arrays = read_arrays(path, [*_SMALL, *_TABLES], _AGAIN)
    rows = []
    for file in files:
        check_regular(file)
        with readable(file, _AGAIN):
            rows.append(StoredRows(file))
        if len(rows[-1]) != len(arrays["runtime"]):
            problem = f"{len(rows[-1])} rows, the graph has {len(arrays['runtime'])} configurations"
            raise DataError(file, problem, _AGAIN)
    tables = [arrays.pop(key) for key in _TABLES]
    choices = Choices(rows[0], *tables[: len(_CHOICES)])
    return Graph(
        name, choices=choices, config_feat=PackedColumns(rows[1], *tables[len(_CHOICES) :]), **arrays
    )


class _Settings(Record):
    collection: Literal[*(collection.name for collection in COLLECTIONS)]


class _Inputs(Record):
    data: str


class CollectionRecord(Record):
    """Keys of the manifest of what was made of one collection: features, or a run."""

    fingerprint: str
    settings: _Settings
    inputs: _Inputs


class _Manifest(CollectionRecord):
    config_columns: list[str]


def check_features_manifest(path: Path, manifest: dict, remedy: str) -> None:
    """Refuse a manifest of another kind of folder; errors as of ``core.records.check_record``."""
    check_record(path, manifest, _Manifest, remedy)


class Features:
    """A finished features folder of one collection.

    Raises:
        DataError: The folder is missing or not finished, or its manifest or index was changed since.
    """

    def __init__(self, folder: Path):
        self.folder, self.manifest = Path(folder), read_manifest(folder, _MAKE)
        check_features_manifest(self.folder / MANIFEST, self.manifest, _AGAIN)
        path = self._finished(self.folder / INDEX)
        with readable(path, _AGAIN):
            # a program may be called "nan"; only an unknown spread is an empty cell
            kinds = {"dtype": {"name": str}, "keep_default_na": False, "na_values": {"spread": [""]}}
            self.index = pd.read_csv(path, **kinds)

    def _finished(self, path: Path) -> Path:
        """Return a file of the folder, once it is as it was written."""
        return finished_file(self.folder, path.relative_to(self.folder).as_posix(), _AGAIN, self.manifest)

    @property
    def collection(self) -> Collection:
        """The collection that these features belong to."""
        return get_collection(self.manifest["settings"]["collection"])

    @property
    def fingerprint(self) -> str:
        """Digest of the settings and data that the features were made from; a model's manifest records it."""
        return self.manifest["fingerprint"]

    @property
    def data(self) -> str:
        """Fingerprint of the competition files they were built from."""
        return self.manifest["inputs"]["data"]

    @property
    def row_order(self) -> dict[str, str]:
        """Digest of the order of the configurations in each layout test file, by the file's ID."""
        orders = self.manifest.get("row_order", {})
        return {f"{self.collection.name}:{name}": own for name, own in orders.items()}

    @property
    def recipe(self) -> dict:
        """Settings to build other graphs like these; a model's manifest keeps them (``unseen.py``)."""
        return {key: self.manifest[key] for key in RECIPE}

    @property
    def config_columns(self) -> list[str]:
        """Names of the columns of ``config_feat``."""
        return self.manifest["config_columns"]

    def names(self, split: str) -> list[str]:
        """Return the names of the graphs of a split, sorted by file name."""
        return self.index.loc[self.index["split"] == split, "name"].tolist()

    def sample(self, one_in: int, least: int) -> "Features":
        """Return the features of one in so many graphs of a split, or of the least, of sizes as in all."""
        part, rows = copy(self), []
        for _, own in self.index.groupby("split"):
            count = min(len(own), max(least, len(own) // one_in))
            places = ((np.arange(count) + 0.5) / count * len(own)).astype(int)
            rows.append(own.sort_values("nodes", kind="stable").iloc[places])
        part.index = pd.concat(rows, ignore_index=True)
        return part

    def num_configs(self, split: str) -> dict[str, int]:
        """Return the number of configurations of each competition file of a split, by name of the graph.

        Graphs are not read. The number counts repeated configurations, as a prediction for the file must.
        """
        rows = self.index[self.index["split"] == split]
        return dict(zip(rows["name"], (rows["configs"] + rows["merged"]).astype(int), strict=True))

    def graph(self, split: str, name: str) -> Graph:
        """Read one graph, see :func:`read_graph`.

        Raises:
            DataError: A file of it is lost or was changed since the folder was finished.
        """
        for path in files_of(self.folder, split, name):
            self._finished(path)
        return read_graph(self.folder, split, name)

    def scaler(self, name: str) -> Scaler:
        """Read the ``node`` or the ``config`` scaler, fitted on train."""
        length = EXPANDED_NODE_FEATURES if name == "node" else len(self.config_columns)
        return read_scaler(self._finished(self.folder / SCALERS), name, length)

    def labels(self, split: str) -> dict[str, np.ndarray]:
        """Return the runtimes of each graph, float64: what a model is trained on or scored against.

        Args:
            split: ``train``: ``(C,)``, one training label per distinct configuration. ``valid``:
                ``(C_file,)``, the runtime of every configuration of the file, as the competition scores them.

        Raises:
            DataError: The split is ``test``, whose files carry zeros in place of runtimes.
        """
        if split not in LABELLED_SPLITS:
            remedy = "Score a submission through solution.csv"
            raise DataError(self.folder, f"{split} runtimes are not known", remedy)
        array = "runtime" if split == TRAIN else "file_runtime"
        return {name: self.read_labels(split, name, array) for name in self.names(split)}

    def read_labels(self, split: str, name: str, array: str) -> np.ndarray:
        """Read only the array ``runtime`` or ``file_runtime`` of a labelled graph."""
        path, *_ = files_of(self.folder, split, name)
        return read_arrays(self._finished(path), [array], _AGAIN)[array]
