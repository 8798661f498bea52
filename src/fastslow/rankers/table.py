"""The table that the ranker learns from or predicts: the rows of one split, per graph."""

from collections.abc import Mapping, Sequence

import numpy as np

from fastslow.core.errors import DataError
from fastslow.features.graph_set import GraphSet
from fastslow.features.train_graphs import draw_rows
from fastslow.rankers.table_features import CONTEXT, tabulate


class Table:
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
        self.names = list(names)
        self.rows = list(rows)
        self.runtimes = list(runtimes)
        self.columns = list(columns)

    def labels(self) -> dict[str, np.ndarray]:
        """Return the runtimes ``(C,)`` per graph."""
        return dict(zip(self.names, self.runtimes, strict=True))

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
    features: GraphSet | Mapping[str, GraphSet],
    split: str,
    names: Sequence[str] | None = None,
    max_configs: int | None = None,
    seed: int = 0,
) -> Table:
    """Read the table of a split.

    Args:
        features: The graphs of one collection, or of several by the prefix of their graphs' names.
        split: ``train``, ``valid`` or ``test``.
        names: Graphs to read, ``<prefix>/<graph>`` where ``features`` are several; by default all.
        max_configs: Maximum configurations of a graph; of more, that many are sampled. The min-subtracted
            columns are computed from all of them.
        seed: Seed of the samples.

    Raises:
        DataError: The collections have different columns.
    """
    if names is None:
        names = [
            f"{prefix}/{name}" if prefix else name
            for prefix, source in _by_prefix(features).items()
            for name in source.names(split)
        ]
    return read_tables(features, split, [(names, max_configs)], seed)[0]


def _by_prefix(features: GraphSet | Mapping[str, GraphSet]) -> Mapping[str, GraphSet]:
    return features if isinstance(features, Mapping) else {"": features}


def read_tables(
    features: GraphSet | Mapping[str, GraphSet],
    split: str,
    samples: Sequence[tuple[Sequence[str], int | None]],
    seed: int = 0,
) -> list[Table]:
    """Read several samples of a split, each as :func:`read_table` does; a graph is tabulated once for all.

    ``samples`` are the names of the graphs of each sample, and the maximum number of configurations of one.
    Arguments and errors else as for :func:`read_table`.
    """
    sources = _by_prefix(features)
    first = next(iter(sources.values()))
    for source in sources.values():
        if source.config_columns != first.config_columns:
            problem = f"columns other than in {first.origin}"
            raise DataError(source.origin, problem, "Build both with the same settings")
    kind = first.collection.kind
    members = [set(names) for names, _ in samples]
    drawn: list[dict[str, tuple[np.ndarray, np.ndarray]]] = [{} for _ in samples]
    table_columns: list[str] = []
    for name in dict.fromkeys(name for names, _ in samples for name in names):
        prefix, _, stem = name.rpartition("/")
        graph = sources[prefix].graph(split, stem)
        all_rows = np.arange(graph.num_configs)
        parts = {
            sample: draw_rows(graph, split, name, max_configs, seed)
            for sample, (names, max_configs) in enumerate(samples)
            if name in members[sample]
        }
        rows = [all_rows[chosen] for chosen, _ in parts.values()]
        table, table_columns = tabulate(graph, kind, first.config_columns, np.concatenate(rows))
        tables = np.split(table, np.cumsum([len(part) for part in rows])[:-1])
        for (sample, (_, runtime)), part in zip(parts.items(), tables, strict=True):
            drawn[sample][name] = part, runtime
    return [
        Table(names, [graphs[name][0] for name in names], [graphs[name][1] for name in names], table_columns)
        for (names, _), graphs in zip(samples, drawn, strict=True)
    ]
