"""The folder of built features of one collection, which training and inference read.

A graph is one ``<name>.npz`` of small arrays beside two plain ``.npy`` files, choices and packed features of
the configurations, whose rows are read when they are indexed and which are never kept open. A graph has one
row per *distinct* configuration; models compute these, and :meth:`Graph.expand` repeats their predictions for
every configuration of the competition file. The manifest has a checksum of every file: to read a damaged or
edited one is an error.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from fastslow.competition.catalog import (
    COLLECTIONS,
    SPLITS,
    TRAIN,
    Collection,
    get_collection,
)
from fastslow.competition.tied_choices import Choices
from fastslow.core.artifacts import MANIFEST, finished_file, how_to_make, read_manifest
from fastslow.core.errors import DataError, counted, registered
from fastslow.core.files import atomic_path
from fastslow.core.input_files import check_regular
from fastslow.core.npz_io import read_arrays, readable, write_arrays
from fastslow.core.records import Record, check_record
from fastslow.features.graph import Graph, GraphSet
from fastslow.features.scaling import EXPANDED_NODE_FEATURES, Scaler
from fastslow.runs.scalers import SCALERS, read_scaler
from fastslow.runs.stored_rows import PackedColumns, StoredRows

INDEX = "graphs.csv"
RECIPE = ("fingerprint", "settings", "inputs", "config_columns")
"""Keys of the features' manifest that are needed to build other graphs alike."""
_ROWS = ("choices", "config_feat")
_AGAIN = "Delete the features folder and run the feature notebook again"
_NOTEBOOK = "notebooks/10_features.ipynb (its `folder`)"


_SMALL = tuple(f.name for f in fields(Graph) if f.name not in ("name", *_ROWS))
_CHOICES = tuple(f.name for f in fields(Choices) if f.name != "values")
_COLUMNS = ("values", "sizes")  # of PackedColumns
_TABLES = (*(f"choices_{key}" for key in _CHOICES), *(f"config_feat_{key}" for key in _COLUMNS))


def files_of(folder: Path, split: str, name: str) -> list[Path]:
    """Return the files of one graph in a features folder, whether they are there or not.

    Args:
        folder: Features folder of a collection.
        split: ``train``, ``valid`` or ``test``.
        name: Name of the graph.

    Returns:
        The npz of small arrays, then the npy files that are read row by row.
    """
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
    """Check whether a graph is in a features folder, complete and up to date.

    Args:
        folder: Features folder of a collection.
        split: ``train``, ``valid`` or ``test``.
        name: Name of the graph.
        fingerprint: Digest of what it is made from; a graph that was written with another one is out of date.
    """
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
            configurations = counted(len(arrays["runtime"]), "configuration")
            problem = f"{counted(len(rows[-1]), 'row')}, the graph has {configurations}"
            raise DataError(file, problem, _AGAIN)
    tables = [arrays.pop(key) for key in _TABLES]
    choices = Choices(rows[0], *tables[: len(_CHOICES)])
    return Graph(
        name, choices=choices, config_feat=PackedColumns(rows[1], *tables[len(_CHOICES) :]), **arrays
    )


class WrittenGraphs(GraphSet):
    """The graphs that are in a features folder, finished or not; one is read when it is asked for.

    Args:
        folder: Features folder of a collection.
        collection: The collection.
        names: Names of the graphs of each split, in the order of their files.
        config_columns: Names of the V columns of their ``config_feat``.
    """

    def __init__(
        self, folder: Path, collection: Collection, names: Mapping[str, list[str]], config_columns: list[str]
    ):
        super().__init__(collection, {}, config_columns)
        self.folder, self.origin = folder, str(folder)
        self._names = names

    def names(self, split: str) -> list[str]:
        """As of :class:`GraphSet`."""
        registered(dict.fromkeys(SPLITS), "split", split)
        return self._names.get(split, [])

    def graph(self, split: str, name: str) -> Graph:
        """Read one graph, see :func:`read_graph`."""
        return read_graph(self.folder, split, name)

    def read_labels(self, split: str, name: str, array: str) -> np.ndarray:
        """As of :class:`GraphSet`; nothing else of the graph is read."""
        path, *_ = files_of(self.folder, split, name)
        return read_arrays(path, [array], _AGAIN)[array]


class CollectionSettings(Record):
    """Settings of the manifest of what was made of one collection."""

    collection: Literal[*(collection.name for collection in COLLECTIONS)]


class _Inputs(Record):
    data: str


class CollectionRecord(Record):
    """Keys of the manifest of what was made of one collection: features, or a run."""

    fingerprint: str
    settings: CollectionSettings
    inputs: _Inputs


class _Manifest(CollectionRecord):
    config_columns: list[str]
    references: dict[str, float] = {}  # earlier versions kept none


class Features(GraphSet):
    """A finished features folder of one collection; a graph is read when it is asked for.

    Raises:
        DataError: The folder is missing or not finished, or has no features, or its manifest or index was
            changed since.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.origin = str(folder)
        self.manifest = read_manifest(folder, how_to_make(folder, "features", _NOTEBOOK))
        if "config_columns" not in self.manifest:
            problem = "is no features folder; another step has made it"
            raise DataError(folder, problem, "Name a folder of features/, such as features/sample/tile-xla")
        check_record(self.folder / MANIFEST, self.manifest, _Manifest, _AGAIN)
        path = self._finished(self.folder / INDEX)
        with readable(path, _AGAIN):
            # a program may be called "nan"; only an unknown spread is an empty cell
            texts = {"name": str, "content": str}
            kinds = {"dtype": texts, "keep_default_na": False, "na_values": {"spread": [""]}}
            self.index = pd.read_csv(path, **kinds)

    def _finished(self, path: Path) -> Path:
        """Return a file of the folder, once it is as it was written."""
        return finished_file(self.folder, path.relative_to(self.folder).as_posix(), _AGAIN, self.manifest)

    @property
    def has_train(self) -> bool:
        """Whether train programs are among them: without these nothing can be trained."""
        return bool((self.index["split"] == TRAIN).any())

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
        return {f"{self.collection.name}:{name}": order for name, order in orders.items()}

    @property
    def references(self) -> dict[str, float]:
        """What a valid score is compared with: ``rule`` and ``ceiling``, as far as the collection has them.

        :func:`fastslow.ensemble.baselines.score_references` computed them from these graphs.
        """
        return self.manifest.get("references", {})

    @property
    def recipe(self) -> dict:
        """Settings to build other graphs like these; a model's manifest keeps them (``steps/unseen.py``)."""
        return {key: self.manifest[key] for key in RECIPE}

    @property
    def config_columns(self) -> list[str]:
        """Names of the columns of ``config_feat``."""
        return self.manifest["config_columns"]

    def names(self, split: str) -> list[str]:
        """As of :class:`GraphSet`, sorted by file name."""
        return self._rows(split)["name"].tolist()

    def _rows(self, split: str) -> pd.DataFrame:
        """Return the rows of the index of one split; SettingsError where there is no such split."""
        registered(dict.fromkeys(SPLITS), "split", split)
        return self.index[self.index["split"] == split]

    def sample(self, one_in: int, least: int) -> "Features":
        """Return the features of one in so many graphs of a split, or of the least, of sizes as in all."""
        part = copy(self)
        rows = []
        for _, graphs in self.index.groupby("split"):
            count = min(len(graphs), max(least, len(graphs) // one_in))
            places = ((np.arange(count) + 0.5) / count * len(graphs)).astype(int)
            rows.append(graphs.sort_values("nodes", kind="stable").iloc[places])
        part.index = pd.concat(rows, ignore_index=True)
        return part

    def num_configs(self, split: str) -> dict[str, int]:
        """As of :class:`GraphSet`; graphs are not read."""
        rows = self._rows(split)
        return dict(zip(rows["name"], (rows["configs"] + rows["merged"]).astype(int), strict=True))

    def num_distinct(self, split: str) -> dict[str, int]:
        """As of :class:`GraphSet`; graphs are not read."""
        rows = self._rows(split)
        return dict(zip(rows["name"], rows["configs"].astype(int), strict=True))

    def content(self, split: str, name: str) -> str:
        """As of :class:`GraphSet`; graphs are not read, but where an older version wrote the index."""
        if "content" not in self.index:
            return super().content(split, name)
        return self._contents[split, name]

    @cached_property
    def _contents(self) -> dict[tuple[str, str], str]:
        """Content of each graph by split and name."""
        keys = zip(self.index["split"], self.index["name"], strict=True)
        return dict(zip(keys, self.index["content"], strict=True))

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

    def read_labels(self, split: str, name: str, array: str) -> np.ndarray:
        """Read only the labels of a graph.

        Args:
            split: ``train`` or ``valid``.
            name: The graph.
            array: ``runtime``, ``(C,)`` of the distinct configurations, or ``file_runtime``, ``(C_file,)``.

        Returns:
            Float64, in the unit of the file; of a tile kernel over the default's.
        """
        path, *_ = files_of(self.folder, split, name)
        return read_arrays(self._finished(path), [array], _AGAIN)[array]
