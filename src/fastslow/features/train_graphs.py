"""The train graphs, and the configurations of them, that a model learns from."""

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fastslow.competition.catalog import PREDICTED_SPLITS, TRAIN
from fastslow.core.errors import DataError
from fastslow.features.graph import Graph
from fastslow.features.graph_set import GraphSet


def trainable(sources: Mapping[str, GraphSet]) -> list[str]:
    """Return the train graphs that a model of these collections may learn from.

    A program (by name) that is predicted in any of the collections is left out of all of them:
    collections share programs, and the score on a program trained on is optimistically biased. Graphs
    whose runtimes are all equal carry no ranking signal and are left out too.

    Args:
        sources: Graphs of every collection that is read, by the prefix of its graphs' names.

    Returns:
        ``<prefix>/<graph>``, or ``<graph>`` where the prefix is ``""``, in the order of sources and files.

    Raises:
        DataError: No graph is left.
    """
    held_out = {
        name for source in sources.values() for split in PREDICTED_SPLITS for name in source.names(split)
    }
    names = [
        f"{prefix}/{name}" if prefix else name
        for prefix, source in sources.items()
        for name, runtime in source.labels(TRAIN).items()
        if name not in held_out and runtime.min() < runtime.max()
    ]
    if not names:
        folders = ", ".join(source.origin for source in sources.values())
        problem = "no train graph has two configurations of different runtime (valid programs left out)"
        raise DataError(folders, problem, "Build the features from other programs")
    return names


def draw_graphs(
    sources: Mapping[str, GraphSet], split: str, names: Sequence[str], max_configs: int | None, seed: int
) -> Iterator[tuple[Graph, np.ndarray | slice, np.ndarray]]:
    """Yield each graph with the rows and runtimes of a random sample of its configurations.

    Args:
        sources: Graphs by the prefix of their graphs' names, as for :func:`trainable`.
        split: ``train``, ``valid`` or ``test``.
        names: Graphs to read, ``<prefix>/<graph>`` or ``<graph>``.
        max_configs: Maximum configurations of a graph; ``None`` takes all.
        seed: Seed of the samples.
    """
    for name in names:
        prefix, _, stem = name.rpartition("/")
        graph = sources[prefix].graph(split, stem)
        yield graph, *draw_rows(graph, split, name, max_configs, seed)


def draw_rows(
    graph: Graph, split: str, name: str, max_configs: int | None, seed: int
) -> tuple[np.ndarray | slice, np.ndarray]:
    """Return rows and runtimes of a random sample of a graph's configurations, see :func:`draw_graphs`.

    Of a train graph the distinct configurations with their mean runtimes are sampled; of a valid or test
    graph the configurations of the competition file, in which a row may occur more than once.
    """
    if split == TRAIN:
        chosen = draw_configs(graph.num_configs, max_configs, seed, name)
        return chosen, graph.runtime[chosen]
    chosen = draw_configs(len(graph.config_row), max_configs, seed, name)
    return graph.config_row[chosen], graph.file_runtime[chosen]


def draw_configs(size: int, max_configs: int | None, seed: int, name: str) -> np.ndarray | slice:
    """Sample at most ``max_configs`` of ``size`` configurations without replacement.

    The sample depends on the seed and the name of the graph, not on the other graphs read.

    Returns:
        Ascending positions ``(n,)``, or ``slice(None)`` where all are taken.
    """
    if max_configs is None or size <= max_configs:
        return slice(None)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return np.sort(rng.choice(size, max_configs, replace=False))
