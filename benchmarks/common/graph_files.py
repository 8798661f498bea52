"""Graphs read directly from layout npz files, without a features folder, for timing."""

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.competition.catalog import TEST, TRAIN, VALID, Collection, ProgramFile, get_collection
from fastslow.core.errors import DataError
from fastslow.core.settings import PROJECT
from fastslow.features.build import build_graph
from fastslow.features.graph import Graph, fit_scalers
from fastslow.features.scaling import Scaler
from fastslow.runs.features_folder import Features
from fastslow.steps.features import FeatureSettings

REAL = PROJECT.parent / "shared" / "real"
SAMPLE = PROJECT / "data" / "sample"
_TEST_FILES = "npz_all/npz/layout/*/*/test/*.npz"


def default_files(quick: bool) -> list[Path]:
    """Return the real test files or, without them, the sample's; with ``quick`` one of the sample's."""
    files = [] if quick else sorted(REAL.glob(_TEST_FILES))
    return files or sorted(SAMPLE.glob(_TEST_FILES))[: 1 if quick else None]


def program_of(path: Path) -> ProgramFile:
    """Return a layout file as an unlabelled program of the collection that its folders name.

    Args:
        path: A file such as ``layout/xla/default/test/NAME.npz``.

    Raises:
        DataError: The folders do not name a layout collection.
    """
    path = Path(path).resolve()
    name = ":".join(path.parts[-5:-2])
    if not name.startswith("layout:"):
        raise DataError(
            path, "its path names no layout collection", "Give layout/SOURCE/SEARCH/SPLIT/NAME.npz"
        )
    return ProgramFile(get_collection(name), TEST, path)


def load_graph(program: ProgramFile, hops: int) -> Graph:
    """Return the graph of a file, pruned to ``hops`` (-1 for the whole graph), with all configurations."""
    settings = FeatureSettings(collection=program.collection.name, hops=hops, merge_duplicates=False)
    return build_graph(program, settings)[0]


def first_configs(graph: Graph, num_configs: int) -> Graph:
    """Return the graph with only its first configurations."""
    if num_configs >= graph.num_configs:
        return graph
    return graph.take(slice(num_configs))


class OneGraph(Features):
    """A features folder of one graph in one split; the scalers are fitted on it.

    Args:
        program: The graph's program.
        graph: The graph; its runtimes are the labels.
        columns: Names of its configuration features; by default numbers.
        split: The split; training excludes the programs of the others.
    """

    def __init__(self, program: ProgramFile, graph: Graph, columns: Sequence[str] = (), split: str = TRAIN):
        self.program, self.only, self.split = program, graph, split
        self._columns = [*columns] or [str(number) for number in range(graph.config_feat.shape[1])]
        self._scalers = fit_scalers([graph])

    @property
    def collection(self) -> Collection:
        """Return the collection of the file."""
        return self.program.collection

    @property
    def config_columns(self) -> list[str]:
        """Return the names of the columns of ``config_feat``."""
        return self._columns

    @property
    def index(self) -> pd.DataFrame:
        """Return the index of the folder: the graph in its split."""
        sizes = {"configs": self.only.num_configs, "merged": 0}
        return pd.DataFrame([{"split": self.split, "name": self.only.name, **sizes}])

    def names(self, split: str) -> list[str]:
        """Return the graph's name in its split. A train graph is valid too: a training asks for one."""
        if split == VALID and self.split == TRAIN:
            return [f"{self.only.name} again"]
        return [self.only.name] if split == self.split else []

    def content(self, split: str, name: str) -> str:
        """Return the name: the valid graph counts as another program, or nothing could be trained on."""
        return name

    def graph(self, split: str, name: str) -> Graph:
        """Return the graph."""
        return self.only

    def scaler(self, name: str) -> Scaler:
        """Return the ``node`` or ``config`` scaler."""
        return self._scalers[name]

    def labels(self, split: str) -> dict[str, np.ndarray]:
        """Return the graph's runtimes."""
        return {self.only.name: self.only.runtime}

    def first_configs(self, num_configs: int) -> "OneGraph":
        """Return a copy with only the first configurations; the scalers stay."""
        part = copy.copy(self)
        part.only = first_configs(self.only, num_configs)
        return part
