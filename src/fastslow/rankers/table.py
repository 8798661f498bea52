"""The table that the ranker learns from or predicts: the rows of one split, per graph."""

from collections.abc import Mapping, Sequence

import numpy as np

from fastslow.core.errors import DataError
from fastslow.features.store import Features
from fastslow.features.train_graphs import draw_graphs
from fastslow.rankers.table_features import CONTEXT, LARGEST_NODES, tabulate


class PerGraph:
    """Configurations of several graphs; a subclass has their ``names``, ``sizes`` and ``runtimes``."""

    def per_graph(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Split values ``(C,)`` of all configurations per graph."""
        return dict(zip(self.names, np.split(values, np.cumsum(self.sizes)[:-1]), strict=True))

    def labels(self) -> dict[str, np.ndarray]:
        """Return the runtimes ``(C,)`` per graph."""
        return dict(zip(self.names, self.runtimes, strict=True))


class Table(PerGraph):
    """Features and runtimes of the configurations of some graphs.

    Args:
        names: Name of each graph.
        rows: ``(C, F)`` float32 of each graph.
        runtimes: ``(C,)`` of each graph; 0 where unknown.
        columns: Names of the F columns.
    """

    def __init__(
        self,
        names: Sequence[str],
        rows: Sequence[np.ndarray],
        runtimes: Sequence[np.ndarray],
        columns: Sequence[str],
    ):
        self.names, self.rows, self.runtimes = list(names), list(rows), list(runtimes)
        self.columns = list(columns)

    @property
    def sizes(self) -> list[int]:
        """Number of configurations of each graph."""
        return [len(rows) for rows in self.rows]

    @property
    def shared(self) -> np.ndarray:
        """Positions of the columns that describe the graph, equal for all of its configurations."""
        return np.flatnonzero([name.startswith(CONTEXT) for name in self.columns])

    def select(self, columns: Sequence[str]) -> "Table":
        """Return the table of some columns, by name."""
        if list(columns) == self.columns:
            return self
        chosen = [self.columns.index(column) for column in columns]
        return Table(self.names, [rows[:, chosen] for rows in self.rows], self.runtimes, columns)


def read_table(
    features: Features,
    split: str,
    names: Sequence[str] | None = None,
    also: Mapping[str, Features] | None = None,
    max_configs: int | None = None,
    seed: int = 0,
    largest_nodes: int = LARGEST_NODES,
) -> Table:
    """Read the table of a split.

    Args:
        features: A finished features folder.
        split: ``train``, ``valid`` or ``test``.
        names: Graphs to read, ``<name>/<graph>`` for those of ``also``; by default all of ``features``.
        also: Features of other collections, by name.
        max_configs: Maximum configurations of a graph; of more, that many are sampled. The min-subtracted
            columns are computed from all of them.
        seed: Seed of the samples.
        largest_nodes: As for :func:`fastslow.rankers.table_features.tabulate`.

    Raises:
        DataError: The folders have different columns.
    """
    sources = {"": features, **(also or {})}
    for source in sources.values():
        if source.config_columns != features.config_columns:
            problem = f"columns other than those of {features.folder.name}"
            raise DataError(source.folder, problem, "Build both with the same settings")
    names = features.names(split) if names is None else list(names)
    tables, runtimes, columns = [], [], []
    for graph, rows, runtime in draw_graphs(sources, split, names, max_configs, seed):
        table, columns = tabulate(graph, features.collection.kind, features.config_columns, largest_nodes)
        tables.append(table[rows])
        runtimes.append(runtime)
    return Table(names, tables, runtimes, columns)
