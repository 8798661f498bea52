"""The table that the ranker learns from or predicts: the rows of one split, per graph."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pandas as pd

from fastslow.competition import node_columns
from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES, num_elements
from fastslow.competition.opcodes import OPCODES, opcode_name
from fastslow.core.errors import DataError
from fastslow.features.configs.copies import CopyPairs, disagreements
from fastslow.features.configs.layout_states import LayoutStates, node_tensors
from fastslow.features.configs.tpu_tiling import tile
from fastslow.features.graph import Graph, GraphSet, derived, draw_rows
from fastslow.rankers.node_costs import KINDS, graph_tensor_bytes, node_flops, roles_of, state_terms


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
        """Positions ``(H,)`` of the columns that describe the graph, equal for all of its configurations."""
        return np.flatnonzero([name.startswith(CONTEXT) for name in self.columns])

    @cached_property
    def distinct(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The distinct rows of each graph and the position of each row, see :func:`distinct_by_hash`."""
        return [distinct_by_hash(rows) for rows in self.rows]

    def select(self, columns: Sequence[str]) -> "Table":
        """Return the table of some columns, by name."""
        if list(columns) == self.columns:
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
    """Return the hash of each row ``(n, F)`` as :func:`pandas.util.hash_pandas_object` does, ``(n,)`` uint64.

    That calls several functions for each column, which takes longer than all else where rows are few.
    """
    varies = (rows != rows[:1]).any(0)
    first = _hash_values(rows[:1])
    other = iter(_hash_values(rows[:, varies]).T)
    combined = np.full(len(rows), 0x345678, np.uint64)
    factor = 1000003
    for place, vary in enumerate(varies):
        combined = (combined ^ (next(other) if vary else first[:, place])) * np.uint64(factor)
        factor += 82520 + 2 * (rows.shape[1] - place)
    return combined + np.uint64(97531)


def _hash_values(rows: np.ndarray) -> np.ndarray:
    """Return the hash of every value, ``(n, F)`` uint64."""
    # adding 0 turns -0.0 into 0.0: the two are equal but hash differently
    return pd.util.hash_array((rows + 0).ravel(), categorize=False).reshape(rows.shape)


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

    ``samples`` has for each sample the names of its graphs and the maximum number of configurations of one,
    or None for all. Other arguments, and errors, are as for :func:`read_table`.
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


ABOVE_LEAST = "_above_least"
"""Suffix of the min-subtracted columns."""
CONTEXT = "graph_"
"""Prefix of the columns that are equal for all configurations of a graph."""
COPY_GROUPS = tuple(
    (f"{producer}_to_{consumer}_{role}", KINDS[producer], KINDS[consumer], ROLES.index(role))
    for producer in KINDS
    for consumer in KINDS
    for role in roles_of(consumer)[1:]
)
"""(name, producer's opcode, consumer's opcode, consumer's role) of the groups in which copies are summed."""


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
    context, context_names = context_features(graph)
    if kind == "layout":
        sums, sum_names = derived(graph, "physical sums", lambda: physical_sums(graph))
        blocks.append(sums)
        names += sum_names
        totals, total_names = layout_context_features(graph)
        context = np.concatenate([context, totals])
        context_names = context_names + total_names
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
        same in a program of any size. (With log(1 + x), the step from nothing to something is equally large,
        however little it is.)
    """
    kinds = graph.node_opcode[graph.config_index]
    parts, names = [], []
    for kind, opcode in KINDS.items():
        nodes = np.flatnonzero(kinds == opcode)
        states = LayoutStates(graph.choices, node_tensors(nodes))
        terms, term_names = state_terms(graph, kind, nodes[states.item], states.codes)
        parts.append((states.classes, states.per_class(terms)))
        names += term_names
    copies, terms, term_names = _copy_terms(graph)
    parts.append((copies.classes, copies.per_class(terms)))
    names += term_names
    moved = [i for i, name in enumerate(names) if name.endswith(("copied_bytes", "reshape_moved_bytes"))]
    names.append("moved_bytes")
    totals = {"_bytes": graph_tensor_bytes(graph).sum(), "_flops": node_flops(graph).sum()}
    whole = np.array([max(1, totals.get(name[-len("_bytes") :], 0)) for name in names])
    sums = np.concatenate([classes.sum(table) for classes, table in parts], 1)
    sums = np.column_stack([sums, sums[:, moved].sum(1)]) / whole
    names = [f"{name}_share" if name.endswith(tuple(totals)) else name for name in names]
    return sums.astype(np.float32), names


def config_pairs(graph: Graph) -> CopyPairs:
    """Return the graph's pairs of configurable tensors that are one tensor to the program."""
    producer, consumer, role = graph.pairs.astype(np.int64).T
    dims = graph.tensor_sizes[consumer, role].astype(np.int64)
    return CopyPairs(
        producer_index=producer,
        consumer_index=consumer,
        consumer_role=role,
        elements=num_elements(dims),
        element_bytes=graph.tensor_bytes[consumer, role].astype(np.int64),
        axes=graph.pair_axes.astype(np.int64),
    )


def _copy_terms(graph: Graph) -> tuple[LayoutStates, np.ndarray, list[str]]:
    """Compute copies, their bytes and the padded bytes of both sides in each of ``COPY_GROUPS``.

    Returns:
        The states of the pairs, their ``(S, 3 groups)`` float64 terms, and the names of these.
    """
    pairs = config_pairs(graph)
    kinds = graph.node_opcode[graph.config_index]
    ways, way = np.unique(pairs.axes, axis=0, return_inverse=True)
    disagree = disagreements(graph.layouts, ways)
    tiling = tile(graph.tensor_sizes[:, :, None], graph.layouts)  # (K, 3, L)
    padded = tiling.padded_volume * tiling.fits * graph.tensor_bytes[..., None].astype(np.float64)
    groups = np.array(
        [
            (kinds[pairs.producer_index] == producer)
            & (kinds[pairs.consumer_index] == consumer)
            & (pairs.consumer_role == role)
            for _, producer, consumer, role in COPY_GROUPS
        ]
    ).T.astype(np.float64)
    states = LayoutStates(graph.choices, pairs.tensors)
    producer, consumer = states.codes.T
    differ = disagree[way.ravel()[states.item], producer, consumer]
    moved = padded[pairs.producer_index[states.item], 0, producer]
    moved += padded[pairs.consumer_index[states.item], pairs.consumer_role[states.item], consumer]
    each = np.stack([np.ones(len(states)), pairs.weights[states.item, 2], moved]) * differ
    terms = np.concatenate([groups[states.item] * weight[:, None] for weight in each], 1)
    units = ("copies", "copied_bytes", "copied_padded_bytes")
    return states, terms, [f"{name}_{unit}" for unit in units for name, *_ in COPY_GROUPS]


_COUNT_COLUMNS = tuple(f"graph_count_{opcode_name(opcode)}_log" for opcode in range(len(OPCODES) + 1))


def context_features(graph: Graph) -> tuple[np.ndarray, list[str]]:
    """Compute what is equal for all configurations of a graph: its size and its operations.

    Returns:
        ``(W,)`` float32 and the names: log(1 + count) of nodes, edges and of the nodes of each opcode, log(1
        + elements) of the outputs of convolutions, dots and reshapes, and the sizes of the last root's
        output.
    """
    elements = graph.node_feat[:, node_columns.SHAPE_PRODUCT]
    counts = np.bincount(graph.node_opcode, minlength=len(OPCODES) + 1)[: len(OPCODES) + 1]
    roots = np.flatnonzero(graph.node_feat[:, node_columns.IS_ROOT] == 1)
    output = graph.node_feat[roots[-1], node_columns.SHAPE] if len(roots) else np.zeros(LAYOUT_WIDTH)
    values = [
        graph.num_nodes,
        len(graph.edge_index),
        *counts,
        *(elements[graph.node_opcode == opcode].sum() for opcode in KINDS.values()),
        *np.maximum(output, 0),
    ]
    names = [
        "graph_nodes_log",
        "graph_edges_log",
        *_COUNT_COLUMNS,
        *(f"graph_elements_{kind}_log" for kind in KINDS),
        *(f"graph_output_size_{d}_log" for d in range(LAYOUT_WIDTH)),
    ]
    return np.log1p(np.array(values, np.float64)).astype(np.float32), names


def layout_context_features(graph: Graph) -> tuple[np.ndarray, list[str]]:
    """Compute the context that layout graphs alone have.

    Returns:
        ``(W,)`` float32 and the names: log(1 + x) of the pairs of configurable tensors, and per kind of the
        configurable nodes, of their FLOPs and of the bytes of their tensors.
    """
    kinds = graph.node_opcode[graph.config_index]
    size = graph_tensor_bytes(graph).sum(1)
    flops = node_flops(graph)
    values = [len(graph.pairs)]
    names = ["graph_pairs_log"]
    for kind, opcode in KINDS.items():
        of_kind = kinds == opcode
        values += [of_kind.sum(), flops[of_kind].sum(), size[of_kind].sum()]
        names += [f"graph_{what}_{kind}_log" for what in ("configurable", "flops", "bytes")]
    return np.log1p(np.array(values, np.float64)).astype(np.float32), names
