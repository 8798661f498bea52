"""The table that the ranker learns from or predicts: the rows of one split, per graph."""

from collections.abc import Mapping, Sequence

import numpy as np

from fastslow.core.errors import DataError
from fastslow.features.store import Features
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
        self.names, self.rows, self.runtimes = list(names), list(rows), list(runtimes)
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
    features: Features | Mapping[str, Features],
    split: str,
    names: Sequence[str] | None = None,
    max_configs: int | None = None,
    seed: int = 0,
) -> Table:
    """Read the table of a split.

    Args:
        features: A finished features folder, or several by the prefix of their graphs' names.
        split: ``train``, ``valid`` or ``test``.
        names: Graphs to read, ``<prefix>/<graph>`` where ``features`` are several; by default all.
        max_configs: Maximum configurations of a graph; of more, that many are sampled. The min-subtracted
            columns are computed from all of them.
        seed: Seed of the samples.

    Raises:
        DataError: The folders have different columns.
    """
    if names is None:
        names = [
            f"{prefix}/{name}" if prefix else name
            for prefix, source in _by_prefix(features).items()
            for name in source.names(split)
        ]
    return read_tables(features, split, [(names, max_configs)], seed)[0]


def _by_prefix(features: Features | Mapping[str, Features]) -> Mapping[str, Features]:
    return features if isinstance(features, Mapping) else {"": features}


def read_tables(
    features: Features | Mapping[str, Features],
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
            problem = f"columns other than those of {first.folder.name}"
            raise DataError(source.folder, problem, "Build both with the same settings")
    kind, columns = first.collection.kind, first.config_columns
    found: list[dict[str, tuple[np.ndarray, np.ndarray]]] = [{} for _ in samples]
    members, table_columns = [set(names) for names, _ in samples], []
    for name in dict.fromkeys(name for names, _ in samples for name in names):
        prefix, _, stem = name.rpartition("/")
        graph = sources[prefix].graph(split, stem)
        wanted = [place for place, own in enumerate(members) if name in own]
        drawn = [draw_rows(graph, split, name, samples[place][1], seed) for place in wanted]
        all_rows = np.arange(graph.num_configs)
        rows = [all_rows[chosen] for chosen, _ in drawn]
        table, table_columns = tabulate(graph, kind, columns, np.concatenate(rows))
        parts = np.split(table, np.cumsum([len(own) for own in rows])[:-1])
        for place, part, (_, runtime) in zip(wanted, parts, drawn, strict=True):
            found[place][name] = part, runtime
    return [
        Table(names, [own[name][0] for name in names], [own[name][1] for name in names], table_columns)
        for (names, _), own in zip(samples, found, strict=True)
    ]
