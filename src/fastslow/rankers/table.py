"""The table that the ranker learns from or predicts: the rows of one split, per graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from fastslow.competition import node_columns
from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES
from fastslow.competition.opcodes import CONFIGURED, OPCODES, opcode_name
from fastslow.core.errors import DataError
from fastslow.features.configs.config_tensors import roles_of
from fastslow.features.configs.copies import PairStates
from fastslow.features.configs.layout_states import LayoutStates, tensor_positions
from fastslow.features.configs.tpu_tiling import tile
from fastslow.features.graph import Graph, GraphSet, derived, draw_rows
from fastslow.rankers.node_costs import graph_tensor_bytes, node_flops, state_terms


@dataclass(frozen=True)
class Table:
    """Features and runtimes of the configurations of some graphs."""

    names: list[str]  # of each graph
    rows: list[np.ndarray]  # (C, F) float32 of each graph
    runtimes: list[np.ndarray]  # (C,) of each graph; 0 where unknown
    columns: list[str]  # names of the F columns

    def labels(self) -> dict[str, np.ndarray]:
        """Return the runtimes ``(C,)`` per graph."""
        return dict(zip(self.names, self.runtimes, strict=True))

    @property
    def shared(self) -> np.ndarray:
        """Positions ``(H,)`` of the columns that describe the graph, equal for all of its configurations."""
        return np.flatnonzero([name.startswith(CONTEXT) for name in self.columns])

    @cached_property
    def distinct(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The distinct rows of each graph and the position of each row, see :func:`distinct_by_hash`."""
        return [distinct_by_hash(rows) for rows in self.rows]

    def select(self, columns: list[str]) -> "Table":
        """Return the table of some columns, by name."""
        if columns == self.columns:
            return self
        chosen = [self.columns.index(column) for column in columns]
        return Table(self.names, [rows[:, chosen] for rows in self.rows], self.runtimes, columns)


def distinct_by_hash(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct ones of rows ``(n, F)`` in the order of a hash of their values.

    That depends neither on the order of the rows nor on how often one occurs, so the first few are a fixed
    choice of opponents.

    Returns:
        ``(D, F)`` distinct rows, and ``(n,)`` the position of each row among them.
    """
    _, first, position = np.unique(hash_rows(rows), return_index=True, return_inverse=True)
    return rows[first], position


def hash_rows(rows: np.ndarray) -> np.ndarray:
    """Return the hash ``(n,)`` of each row as pandas' ``hash_pandas_object``, which is slow for few rows."""
    columns = (rows + 0).T  # adding 0 turns -0.0 into 0.0: the two are equal but hash differently
    hashes = pd.util.hash_array(columns.ravel(), categorize=False).reshape(columns.shape)
    combined = np.full(len(rows), 0x345678, np.uint64)
    factor = 1000003
    for number, column in enumerate(hashes):
        combined = (combined ^ column) * np.uint64(factor)
        factor += 82520 + 2 * (len(hashes) - number)
    return combined + np.uint64(97531)


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
    sources = features if isinstance(features, Mapping) else {"": features}
    if names is None:
        names = [
            f"{prefix}/{name}" if prefix else name
            for prefix, source in sources.items()
            for name in source.names(split)
        ]
    return read_tables(sources, split, names, [max_configs], seed)[0]


def read_tables(
    sources: Mapping[str, GraphSet],
    split: str,
    names: Sequence[str],
    max_configs: Sequence[int | None],
    seed: int = 0,
) -> list[Table]:
    """Read several samples of a split, each as :func:`read_table` does, in one pass over the graphs.

    ``max_configs`` has the maximum of each sample. Other arguments and errors are as for :func:`read_table`.
    """
    first = next(iter(sources.values()))
    for source in sources.values():
        if source.config_columns != first.config_columns:
            problem = f"columns other than in {first.origin}"
            raise DataError(source.origin, problem, "Build both with the same settings")
    rows: list[list[np.ndarray]] = [[] for _ in max_configs]
    runtimes: list[list[np.ndarray]] = [[] for _ in max_configs]
    columns: list[str] = []
    for name in names:
        prefix, _, stem = name.rpartition("/")
        graph = sources[prefix].graph(split, stem)
        for sample, most in enumerate(max_configs):
            drawn, runtime = draw_rows(graph, split, name, most, seed)
            values, columns = tabulate(graph, first.collection.kind, first.config_columns, drawn)
            rows[sample].append(values)
            runtimes[sample].append(runtime)
    return [Table(list(names), *sample, columns) for sample in zip(rows, runtimes, strict=True)]


ABOVE_LEAST = "_above_least"
"""Suffix of the min-subtracted columns."""
CONTEXT = "graph_"
"""Prefix of the columns that are equal for all configurations of a graph."""


def tabulate(
    graph: Graph, kind: str, config_columns: list[str], rows: np.ndarray | slice = slice(None)
) -> tuple[np.ndarray, list[str]]:
    """Compute one row of features for configurations of a graph.

    Args:
        graph: The graph.
        kind: ``layout`` or ``tile``, the kind of its collection.
        config_columns: Names of its ``config_feat`` columns.
        rows: Positions of the configurations; by default all of them. The others only count in the minima.

    Returns:
        ``(rows, F)`` float32 and the F names, described in ``features/README.md``: ``config_feat`` and, for
        layout, sums over states and copies; each of these minus its minimum over the graph's configurations,
        so that programs of different size compare; the graph's context.
    """
    blocks = [np.asarray(graph.config_feat)]
    names = list(config_columns)
    if kind == "layout":
        sums, sum_names = derived(graph, "physical sums", lambda: physical_sums(graph))
        blocks.append(sums)
        names += sum_names
    context, context_names = context_features(graph, kind)
    least = np.concatenate([block.min(0) for block in blocks])
    blocks = [block[rows] for block in blocks]
    width = len(names)
    table = np.empty((len(blocks[0]), 2 * width + len(context)), np.float32)
    np.concatenate(blocks, 1, out=table[:, :width])
    np.subtract(table[:, :width], least, out=table[:, width : 2 * width])
    table[:, 2 * width :] = context
    return table, [*names, *(name + ABOVE_LEAST for name in names), *context_names]


def physical_sums(graph: Graph) -> tuple[np.ndarray, list[str]]:
    """Sum :func:`fastslow.rankers.node_costs.state_terms` over the nodes of each kind of a graph, and copies.

    Returns:
        ``(C, V)`` float32 and the V names. Bytes and FLOPs are shares of the unpadded bytes of all
        configurable tensors and of the FLOPs of all nodes. A difference of two configurations then weighs the
        same in a program of any size.
    """
    kinds = graph.node_opcode[graph.config_index]
    parts, names = [], []
    for kind, opcode in CONFIGURED.items():
        nodes = np.flatnonzero(kinds == opcode)
        states = LayoutStates(graph.choices, tensor_positions(nodes[:, None], np.arange(len(ROLES))))
        terms, term_names = state_terms(graph, kind, nodes[states.item], states.codes)
        parts.append(states.sum(terms))
        names += term_names
    copies, copy_names = _copy_sums(graph)
    names += copy_names
    moved = [i for i, name in enumerate(names) if name.endswith(("copied_bytes", "reshape_moved_bytes"))]
    names.append("moved_bytes")
    totals = {"_bytes": graph_tensor_bytes(graph).sum(), "_flops": node_flops(graph).sum()}
    whole = np.array([max(1, totals.get(name[-len("_bytes") :], 0)) for name in names])
    sums = np.concatenate([*parts, copies], 1)
    sums = np.column_stack([sums, sums[:, moved].sum(1)]) / whole
    names = [f"{name}_share" if name.endswith(tuple(totals)) else name for name in names]
    return sums.astype(np.float32), names


def _copy_sums(graph: Graph) -> tuple[np.ndarray, list[str]]:
    """Sum copies, their bytes and padded bytes of both sides, ``(C, F)`` by kinds and role, with names."""
    states = PairStates(graph)
    producer, consumer, role = states.pairs.T
    nodes = np.stack([producer, consumer], 1)
    roles = np.stack([np.zeros_like(role), role], 1)
    dims = graph.tensor_sizes[nodes, roles]  # (S, 2, 6), of the producer and the consumer
    element_bytes = graph.tensor_bytes[nodes, roles].astype(np.int64)
    tiling = tile(dims, states.layouts)
    moved = (tiling.padded_volume * tiling.fits * element_bytes).sum(1)
    each = np.stack([np.ones_like(moved), tiling.volume[:, 1] * element_bytes[:, 1], moved], 1)
    each = (each * states.copied[:, None]).astype(np.float64)
    kinds = graph.node_opcode[graph.config_index]
    groups: dict[str, np.ndarray] = {}
    for first, producer_kind in CONFIGURED.items():
        for second, consumer_kind in CONFIGURED.items():
            joined = (kinds[producer] == producer_kind) & (kinds[consumer] == consumer_kind)
            for name in roles_of(second)[1:]:
                groups[f"{first}_to_{second}_{name}"] = joined & (role == ROLES.index(name))
    terms = [in_group * weight for weight in each.T for in_group in groups.values()]
    units = ("copies", "copied_bytes", "copied_padded_bytes")
    return states.sum(np.stack(terms, 1)), [f"{name}_{unit}" for unit in units for name in groups]


_COUNTS = tuple(f"count_{opcode_name(opcode)}" for opcode in range(len(OPCODES) + 1))


def context_features(graph: Graph, kind: str) -> tuple[np.ndarray, list[str]]:
    """Compute what is equal for all configurations of a ``layout`` or ``tile`` graph: size and operations.

    Returns:
        ``(W,)`` float32 and the names: log(1 + count) of nodes, edges and of the nodes of each opcode, log(1
        + elements) of the outputs of convolutions, dots and reshapes, and the sizes of the output of the last
        root, 0 without a root; all of the nodes that pruning kept. For layout also log(1 + x) of the pairs of
        configurable tensors, and per kind of the configurable nodes, of their FLOPs and of their bytes.
    """
    elements = graph.node_feat[:, node_columns.SHAPE_PRODUCT]
    counts = np.bincount(graph.node_opcode, minlength=len(OPCODES) + 1)[: len(OPCODES) + 1]
    roots = np.flatnonzero(graph.node_feat[:, node_columns.IS_ROOT] == 1)
    output = graph.node_feat[roots[-1], node_columns.SHAPE] if len(roots) else np.zeros(LAYOUT_WIDTH)
    values = {"nodes": graph.num_nodes, "edges": len(graph.edge_index)}
    values |= dict(zip(_COUNTS, counts, strict=True))
    for name, opcode in CONFIGURED.items():
        values[f"elements_{name}"] = elements[graph.node_opcode == opcode].sum()
    values |= {f"output_size_{axis}": max(size, 0) for axis, size in enumerate(output)}
    if kind == "layout":
        kinds = graph.node_opcode[graph.config_index]
        size = graph_tensor_bytes(graph).sum(1)
        flops = node_flops(graph)
        values["pairs"] = len(graph.pairs)
        for name, opcode in CONFIGURED.items():
            of_kind = kinds == opcode
            values[f"configurable_{name}"] = of_kind.sum()
            values[f"flops_{name}"] = flops[of_kind].sum()
            values[f"bytes_{name}"] = size[of_kind].sum()
    logs = np.log1p(np.array(list(values.values()), np.float64)).astype(np.float32)
    return logs, [f"{CONTEXT}{name}_log" for name in values]
