"""The store of built features, which training and inference read.

A graph is one ``<name>.npz`` of small arrays beside two plain ``.npy`` files, choices and packed features of
the configurations, whose rows are read when they are asked for and which are never kept open. The store
has one row per *distinct* configuration; models compute these, and :meth:`Graph.expand` repeats their
predictions for every configuration of the competition file.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.choices.tied_choices import Choices
from fastslow.competition.catalog import LABELLED_SPLITS, SPLITS, TRAIN, Collection, get_collection
from fastslow.core.artifacts import MANIFEST, finished_file, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path
from fastslow.core.input_files import MAX_TEXT_BYTES, check_regular
from fastslow.core.npz_io import read_arrays, readable, write_arrays
from fastslow.features import store_checks
from fastslow.features.packed_columns import PackedColumns
from fastslow.features.scaling import EXPANDED_NODE_FEATURES, Scaler, expand_node_features, read_scaler
from fastslow.features.stored_rows import StoredRows

INDEX = "graphs.csv"
SCALERS = "scalers.npz"
RECIPE = ("fingerprint", "settings", "inputs", "config_columns")
"""Keys of the features' manifest that are needed to build other graphs alike."""
_ROWS = ("choices", "config_feat")
_AGAIN = "Delete the features folder and run the feature notebook again"
_MAKE = "Make it with `make features`, or notebooks/10_features.ipynb (its `folder`), or name another folder"


@dataclass(frozen=True)
class Graph:
    """One program with its distinct configurations, ready for a model.

    Letters in shapes: N nodes, E edges, K configurable nodes, P pairs, L distinct layouts, C distinct
    configurations, C_file configurations of the competition file, V configuration features.

    Args:
        name: File stem of the competition file.
        node_feat: ``(N, 140)`` float32, pruned and padded, not scaled.
        node_extra: ``(N, Y)`` float32, columns ``node_encodings.EXTRA_COLUMNS``: degrees, depths and random
            walks of the whole graph, and attributes that only a protobuf has.
        node_opcode: ``(N,)`` uint8.
        edge_index: ``(E, 2)`` int32; row ``(u, v)``: u consumes v's output.
        config_index: ``(K,)`` int32, node number of each configurable node (tile: none).
        tensor_sizes: ``(K, 3, 6)`` int32, dimension sizes of each configurable node's output, input and
            kernel, 0-padded, all 0 where there is no such tensor or it is unknown (tile: none).
        tensor_bytes: ``(K, 3)`` uint8, bytes per element of these tensors (tile: none).
        pairs: ``(P, 3)`` int32, pairs of configurable tensors that hold the same values: position in
            ``config_index`` of the producer, of the consumer, and the consumer's role, 1 input or 2 kernel
            (tile: none).
        pair_axes: ``(P, 6)`` int8, the producer's axis that each axis of the consumer's tensor is (tile:
            none).
        layouts: ``(L, 6)`` int8, distinct minor-to-major layouts, row 0 all -1 (tile: that row only).
        default_layouts: ``(K, 3, 6)`` int8, the compiler's own layouts, -1 where not known (tile: none).
        choices: The configurations as tied choices: each tensor's position in ``layouts``.
        config_feat: ``(C, V)`` float32, features of a configuration as a whole; see ``features/README.md``.
            Of a graph that was read from the store, rows are unpacked when they are indexed.
        runtime: ``(C,)`` float64, the training label: nanoseconds (layout; cycles in the sample competition)
            or runtime over normalizer (tile), the mean over identical configurations; 0 in test.
        config_row: ``(C_file,)`` int32, row, 0 to C - 1, of each configuration of the competition file,
            in file order. Rows are numbered by first occurrence.
        file_runtime: ``(C_file,)`` float64, runtime of each configuration of the file, unit as ``runtime``.
    """

    name: str
    node_feat: np.ndarray
    node_extra: np.ndarray
    node_opcode: np.ndarray
    edge_index: np.ndarray
    config_index: np.ndarray
    tensor_sizes: np.ndarray
    tensor_bytes: np.ndarray
    pairs: np.ndarray
    pair_axes: np.ndarray
    layouts: np.ndarray
    default_layouts: np.ndarray
    choices: Choices
    config_feat: np.ndarray | PackedColumns
    runtime: np.ndarray
    config_row: np.ndarray
    file_runtime: np.ndarray

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
        """``(C,)`` number of configurations of the file that each row stands for, 1 or more."""
        return np.bincount(self.config_row, minlength=self.num_configs)

    @property
    def config_ids(self) -> np.ndarray:
        """``(C,)`` position in the file of the first configuration that each row stands for."""
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
        own_row = np.arange(len(runtime), dtype=np.int32)
        return replace(
            self,
            choices=self.choices.take(rows),
            config_feat=self.config_feat[rows],
            runtime=runtime,
            config_row=own_row,
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
    """Read one graph; rows of ``choices.values`` and ``config_feat`` are read when they are indexed.

    Args:
        folder: Features folder of a collection.
        split: ``train``, ``valid`` or ``test``.
        name: Name of the graph.

    Raises:
        DataError: A file is missing, the files do not belong together, or an array has a value out of range.
    """
    path, *rows = files_of(folder, split, name)
    arrays = read_arrays(path, [*_SMALL, *_TABLES], _AGAIN)
    for array, file in zip(_ROWS, rows, strict=True):
        check_regular(file)
        with readable(file, _AGAIN):
            arrays[array] = StoredRows(file)
    store_checks.check_stored(path, arrays, split in LABELLED_SPLITS, _AGAIN)
    tables = [arrays.pop(key) for key in _TABLES]
    arrays["choices"] = Choices(arrays["choices"], *tables[: len(_CHOICES)])
    arrays["config_feat"] = PackedColumns(arrays["config_feat"], *tables[len(_CHOICES) :])
    return Graph(name=name, **arrays)


class Features:
    """A finished features folder of one collection.

    Args:
        folder: The folder that a feature notebook wrote.

    Raises:
        DataError: The folder is missing or not finished, or its manifest or index was changed since.
    """

    def __init__(self, folder: Path):
        self.folder, self.manifest = Path(folder), read_manifest(folder, _MAKE)
        store_checks.check_features_manifest(self.folder / MANIFEST, self.manifest, _AGAIN)
        path = self._file(INDEX)
        check_regular(path, MAX_TEXT_BYTES)
        with readable(path, _AGAIN):
            # a program may be called "nan"; only an unknown spread is an empty cell
            kinds = {"dtype": {"name": str}, "keep_default_na": False, "na_values": {"spread": [""]}}
            self.index = pd.read_csv(path, **kinds)
        self._counts = store_checks.check_index(path, self.index, _AGAIN)

    def _file(self, name: str) -> Path:
        return finished_file(self.folder, name, _AGAIN, self.manifest)

    @property
    def collection(self) -> Collection:
        """The collection these features belong to."""
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
        return {
            f"{self.collection.name}:{name}": own for name, own in self.manifest.get("row_order", {}).items()
        }

    @property
    def recipe(self) -> dict:
        """What builds other graphs as these were; a model's manifest keeps it, see ``features/unseen.py``."""
        return {key: self.manifest[key] for key in RECIPE}

    @property
    def config_columns(self) -> list[str]:
        """Names of the columns of ``config_feat``."""
        return self.manifest["config_columns"]

    def names(self, split: str) -> list[str]:
        """Return the names of the graphs of a split, sorted by file name."""
        return self.index.loc[self.index["split"] == split, "name"].tolist()

    def num_configs(self, split: str) -> dict[str, int]:
        """Return the number of configurations of each competition file, without reading the graphs."""
        rows = self.index[self.index["split"] == split]
        return dict(zip(rows["name"], (rows["configs"] + rows["merged"]).astype(int), strict=True))

    def graph(self, split: str, name: str) -> Graph:
        """Read one graph, see :func:`read_graph`."""
        graph = read_graph(self.folder, split, name)
        listed, columns = self._counts.get((split, name)), self.manifest["config_columns"]
        store_checks.check_listed(self.folder, split, graph, listed, columns, _AGAIN)
        return graph

    def scaler(self, name: str) -> Scaler:
        """Read the ``node`` or the ``config`` scaler, fitted on train."""
        length = EXPANDED_NODE_FEATURES if name == "node" else len(self.config_columns)
        return read_scaler(self._file(SCALERS), name, length)

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
        """Read the array ``runtime`` or ``file_runtime`` of a labelled graph alone."""
        path, *_ = files_of(self.folder, split, name)
        labels = read_arrays(path, [array], _AGAIN)[array]
        store_checks.check_labels(path, array, labels, _AGAIN)
        return labels
