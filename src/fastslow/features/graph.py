"""A program with its distinct configurations, ready for a model."""

import hashlib
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from fastslow.competition.catalog import LABELLED_SPLITS, PREDICTED_SPLITS, SPLITS, TRAIN, VALID, Collection
from fastslow.competition.tied_choices import Choices
from fastslow.core.errors import DataError, registered
from fastslow.features.scaling import NODE_BLOCKS, Scaler, ScalerFit, expand_node_features


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
    config_feat: np.ndarray  # (C, V) float32; of a folder, rows that are read when indexed
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
    def config_ids(self) -> np.ndarray:
        """``(C,)`` position in the file of the first configuration that each row represents."""
        return np.unique(self.config_row, return_index=True)[1]

    @property
    def content(self) -> str:
        """A digest of nodes and edges, equal for copies of a program under different names."""
        arrays = map(np.ascontiguousarray, (self.node_opcode, self.edge_index, self.node_feat))
        return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]

    def expand(self, values: np.ndarray) -> np.ndarray:
        """Repeat the C rows' values for the ``C_file`` configurations; ValueError where there are not C."""
        if len(values) != self.num_configs:
            raise ValueError(f"{len(values)} values of {self.name}, which has {self.num_configs} rows")
        return values[self.config_row]

    def take(self, rows: np.ndarray | slice) -> "Graph":
        """Return the graph of some rows, in any order, as if the file held these configurations only."""
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
    """Return all node features that a network can read, ``(N, EXPANDED_NODE_FEATURES)`` float32."""
    return expand_node_features(graph.node_feat, graph.node_extra)


_Value = TypeVar("_Value")


def derived(graph: Graph, key: Hashable, make: Callable[[], _Value]) -> _Value:
    """Return a value that is computed from a graph, from the graph's cache where it was computed before.

    Models that read the same graph share its values; copies of it (``dataclasses.replace``) have none. The
    key names the value, with every setting that it depends on. Nobody may change what ``make`` returned.
    """
    kept = vars(graph).setdefault("derived", {})
    if key not in kept:
        kept[key] = make()
    return kept[key]


Predictions = dict[str, dict[str, np.ndarray]]
"""Predictions ``(C_file,)`` of a model by split and graph, lower = predicted faster."""


class GraphSet:
    """The graphs of one collection in memory, by split.

    :class:`fastslow.runs.features_folder.Features` reads them from disk instead, when they are asked for.

    Args:
        collection: The collection that all graphs belong to.
        graphs: The graphs of each split, in the order of their files.
        config_columns: Names of the V columns of their ``config_feat``.

    Attributes:
        origin: Where the graphs are, for messages.
    """

    def __init__(
        self, collection: Collection, graphs: Mapping[str, Iterable[Graph]], config_columns: list[str]
    ):
        self.collection, self.config_columns = collection, config_columns
        self.origin = f"the graphs of {collection.name}"
        self._graphs = {split: {graph.name: graph for graph in part} for split, part in graphs.items()}
        self._scalers: dict[str, Scaler] = {}

    def names(self, split: str) -> list[str]:
        """Return the names of the graphs of a split; SettingsError where there is no such split."""
        registered(dict.fromkeys(SPLITS), "split", split)
        return [*self._graphs.get(split, {})]

    def graph(self, split: str, name: str) -> Graph:
        """Return one graph."""
        return self._graphs[split][name]

    def content(self, split: str, name: str) -> str:
        """Return :attr:`Graph.content` of one graph."""
        return self.graph(split, name).content

    def num_configs(self, split: str) -> dict[str, int]:
        """Return the number of configurations of each competition file of a split, repeated ones included."""
        return {name: len(self.graph(split, name).config_row) for name in self.names(split)}

    def num_distinct(self, split: str) -> dict[str, int]:
        """Return the number of distinct configurations of each graph of a split."""
        return {name: self.graph(split, name).num_configs for name in self.names(split)}

    def labels(self, split: str) -> dict[str, np.ndarray]:
        """Return the runtimes of each graph, float64: what a model is trained on or scored against.

        Args:
            split: ``train``: ``(C,)``, one training label per distinct configuration. ``valid``:
                ``(C_file,)``, the runtime of every configuration of the file, as the competition scores them.

        Raises:
            SettingsError: There is no such split.
            DataError: The split is ``test``, whose files carry zeros in place of runtimes.
        """
        names = self.names(split)
        if split not in LABELLED_SPLITS:
            raise DataError(self.origin, f"{split} runtimes are not known", "Score a CSV by solution.csv")
        array = "runtime" if split == TRAIN else "file_runtime"
        return {name: self.read_labels(split, name, array) for name in names}

    def read_labels(self, split: str, name: str, array: str) -> np.ndarray:
        """Return the array ``runtime`` ``(C,)`` or ``file_runtime`` ``(C_file,)`` of a labelled graph."""
        return getattr(self.graph(split, name), array)

    def scaler(self, name: str) -> Scaler:
        """Return the scaler of ``node`` or of ``config`` features, fitted on the train graphs.

        Raises:
            DataError: There is none.
        """
        if name not in self._scalers:
            if not self.names(TRAIN):
                raise DataError(self.origin, "no train graph to learn from", "Build train files too")
            self._scalers = fit_scalers(self.graph(TRAIN, graph) for graph in self.names(TRAIN))
        return self._scalers[name]


def fit_scalers(graphs: Iterable[Graph]) -> dict[str, Scaler]:
    """Fit the scalers ``node`` and ``config`` on graphs, each weighing the same."""
    nodes = ScalerFit(*NODE_BLOCKS)
    configs = ScalerFit()
    for graph in graphs:
        nodes.add(expand_nodes(graph))
        configs.add(graph.config_feat)
    return {"node": nodes.scaler(), "config": configs.scaler()}


def trainable(sources: Mapping[str, GraphSet]) -> list[str]:
    """Return the train graphs that a model may learn from, as :func:`with_signal`.

    Raises:
        DataError: There is none, or a collection has no valid graph to score a model on.
    """
    names = with_signal(sources)
    if not names:
        folders = ", ".join(source.origin for source in sources.values()) or "sources is empty"
        problem = "no train graph has two configurations of different runtime (predicted programs left out)"
        raise DataError(folders, problem, "Build the features from other programs")
    for source in sources.values():
        if not source.names(VALID):
            raise DataError(source.origin, "no valid graph to score a model on", "Build valid files too")
    return names


def with_signal(sources: Mapping[str, GraphSet]) -> list[str]:
    """Return the train graphs that a model may learn from, ``<prefix>/<graph>``, in order; there may be none.

    ``sources`` are the graphs of every collection by the prefix of their names, which may be ``""``: then it
    is ``<graph>``. Left out are :func:`held_out`, and graphs of equal runtimes, which carry no signal.
    """
    predicted = held_out(sources)
    return [
        f"{prefix}/{name}" if prefix else name
        for prefix, source in sources.items()
        for name, runtime in source.labels(TRAIN).items()
        if name not in predicted and runtime.min() < runtime.max()
    ]


def held_out(sources: Mapping[str, GraphSet]) -> dict[str, str]:
    """Return the train programs that are predicted in any of the collections, each with its name there.

    The score on a program trained on is biased. A valid one is known by its content, too.
    """
    sets = sources.values()
    marks = {
        name: f"{split}/{name}" for split in PREDICTED_SPLITS for each in sets for name in each.names(split)
    }
    marks |= {each.content(VALID, name): f"{VALID}/{name}" for each in sets for name in each.names(VALID)}
    train = [(name, each.content(TRAIN, name)) for each in sets for name in each.names(TRAIN)]
    return {known[0]: marks[mark] for known in train for mark in known if mark in marks}


def draw_graphs(
    sources: Mapping[str, GraphSet], split: str, names: Sequence[str], max_configs: int | None, seed: int
) -> Iterator[tuple[Graph, np.ndarray | slice, np.ndarray]]:
    """Yield each graph, named as by :func:`trainable`, with what :func:`draw_rows` draws of it."""
    for name in names:
        prefix, _, stem = name.rpartition("/")
        graph = sources[prefix].graph(split, stem)
        yield graph, *draw_rows(graph, split, name, max_configs, seed)


def draw_rows(
    graph: Graph, split: str, name: str, max_configs: int | None, seed: int
) -> tuple[np.ndarray | slice, np.ndarray]:
    """Sample configurations of a graph as :func:`draw_configs` does.

    Of a train graph the distinct configurations with their mean runtimes are sampled; of a valid or test
    graph the configurations of the competition file, in which a row may occur more than once.

    Returns:
        Rows ``(n,)`` of the graph, and their runtimes ``(n,)`` float64.
    """
    if split == TRAIN:
        chosen = draw_configs(graph.num_configs, max_configs, seed, name)
        return chosen, graph.runtime[chosen]
    chosen = draw_configs(len(graph.config_row), max_configs, seed, name)
    return graph.config_row[chosen], graph.file_runtime[chosen]


def draw_configs(size: int, max_configs: int | None, seed: int, name: str) -> np.ndarray | slice:
    """Sample at most ``max_configs`` of ``size`` configurations without replacement; None takes all.

    Returns:
        Ascending positions ``(n,)``, which the graph's name and the seed decide, or ``slice(None)`` for all.
    """
    if max_configs is None or size <= max_configs:
        return slice(None)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return np.sort(rng.choice(size, max_configs, replace=False))
