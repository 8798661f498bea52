"""Graphs straight from layout npz files, without a features folder, for timing."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import Collection, Program, get_collection
from fastslow.core.errors import DataError
from fastslow.core.settings import PROJECT
from fastslow.features.build import FeatureConfig, build_graph
from fastslow.features.scaling import Scaler, expand_node_features
from fastslow.features.store import Features, Graph

REAL = PROJECT.parent / "shared" / "real"
SAMPLE = PROJECT / "data" / "sample"
_TEST_FILES = "npz_all/npz/layout/*/*/test/*.npz"


def default_files(quick: bool) -> list[Path]:
    """Every genuine test file there is, else the sample's; quick: one of the sample's."""
    files = [] if quick else sorted(REAL.glob(_TEST_FILES))
    return files or sorted(SAMPLE.glob(_TEST_FILES))[: 1 if quick else None]


def program_of(path: Path) -> Program:
    """A layout file as an unlabelled program; its folders (``layout/xla/default/test``) name its collection.

    Raises:
        DataError: The folders do not name a layout collection.
    """
    path = Path(path).resolve()
    name = ":".join(path.parts[-5:-2])
    if not name.startswith("layout:"):
        raise DataError(path, "no layout collection in its path", "Give layout/SOURCE/SEARCH/SPLIT/NAME.npz")
    return Program(get_collection(name), "test", path)


def load_graph(program: Program, hops: int) -> Graph:
    """The graph of a file pruned to so many hops, -1 for the whole, with all configurations."""
    settings = FeatureConfig(collection=program.collection.name, hops=hops)
    return build_graph(program, settings)[0]


def first_configs(graph: Graph, num_configs: int) -> Graph:
    """The graph with its first configurations alone."""
    if num_configs >= graph.num_configs:
        return graph
    per_config = ("codes", "config_feat", "runtime", "count", "config_ids")
    return replace(graph, **{name: getattr(graph, name)[:num_configs] for name in per_config})


class OneGraph(Features):
    """A graph in the place of a features folder: the only one of train and test, scalers fitted on it.

    Args:
        program: Where it comes from.
        graph: The graph; its runtimes count as labels.
    """

    def __init__(self, program: Program, graph: Graph):
        self.program, self.only = program, graph
        self._scalers = {
            "node": Scaler.fit([expand_node_features(graph.node_feat)]),
            "config": Scaler.fit([graph.config_feat]),
        }

    @property
    def collection(self) -> Collection:
        """The collection of the file."""
        return self.program.collection

    def names(self, split: str) -> list[str]:
        """The graph's name; valid has none, for its programs are trained on nowhere."""
        return [] if split == "valid" else [self.only.name]

    def graph(self, split: str, name: str) -> Graph:
        """The graph."""
        return self.only

    def scaler(self, name: str) -> Scaler:
        """The ``node`` or ``config`` scaler."""
        return self._scalers[name]

    def labels(self, split: str) -> dict[str, np.ndarray]:
        """The graph's runtimes."""
        return {self.only.name: self.only.runtime}

    def first_configs(self, num_configs: int) -> "OneGraph":
        """The same with the first configurations alone; the scalers stay."""
        part = copy.copy(self)
        part.only = first_configs(self.only, num_configs)
        return part
