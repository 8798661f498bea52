"""Which train graphs and configurations a ranker learns from."""

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fastslow.competition.catalog import TRAIN
from fastslow.features.store import Features, Graph


def trainable(features: Features, also: Mapping[str, Features]) -> list[str]:
    """Train graphs with at least two different runtimes; the others teach no order.

    Args:
        features: A finished features folder.
        also: Features of other collections, by name; their graphs are called ``<name>/<graph>``, and those
            that are valid graphs of ``features`` are left out.
    """
    held_out = set(features.names("valid"))
    return [
        f"{prefix}/{name}" if prefix else name
        for prefix, source in {"": features, **also}.items()
        for name, runtime in source.labels("train").items()
        if runtime.min() < runtime.max() and not (prefix and name in held_out)
    ]


def draw_graphs(
    sources: Mapping[str, Features], split: str, names: Sequence[str], most: int | None, seed: int
) -> Iterator[tuple[Graph, np.ndarray | slice, np.ndarray]]:
    """Yield each graph with the rows of at most ``most`` of its configurations, and their runtimes.

    Of a train graph the distinct configurations with their mean runtimes are drawn; of a valid or test graph
    the configurations of the competition file, in which a row may occur more than once.

    Args:
        sources: Features by name; ``""`` are those whose graphs have no ``<name>/`` before theirs.
        split: ``train``, ``valid`` or ``test``.
        names: Which graphs.
        most: Most configurations of a graph, drawn at random beyond; all of them if none.
        seed: Seed of the draw.
    """
    for name in names:
        prefix, _, stem = name.rpartition("/")
        graph = sources[prefix].graph(split, stem)
        if split == TRAIN:
            chosen = draw_configs(graph.num_configs, most, seed, name)
            yield graph, chosen, graph.runtime[chosen]
        else:
            chosen = draw_configs(len(graph.config_row), most, seed, name)
            yield graph, graph.config_row[chosen], graph.file_runtime[chosen]


def draw_configs(size: int, most: int | None, seed: int, name: str) -> np.ndarray | slice:
    """Positions of at most so many of a graph's configurations, in their order."""
    if most is None or size <= most:
        return slice(None)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return np.sort(rng.choice(size, most, replace=False))
