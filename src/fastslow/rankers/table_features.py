"""The ranker's table: one row of physical features for every configuration of a graph.

No column depends on the order of the configurations, nor on how often a layout occurs in the graph's data,
except for the compiler's own layouts, which are taken to be the commonest ones (``default_layouts.py``).
"""

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES
from fastslow.competition.opcodes import OPCODES, opcode_name
from fastslow.competition.tensors import num_elements
from fastslow.features.configs.copies import CopyPairs, disagreements
from fastslow.features.configs.layout_states import LayoutStates, node_tensors
from fastslow.features.configs.tpu_tiling import tile
from fastslow.features.derived import derived
from fastslow.features.graph import Graph
from fastslow.rankers.node_costs import KINDS, graph_tensor_bytes, node_flops, roles_of, state_terms

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
        *(f"graph_count_{opcode_name(opcode)}_log" for opcode in range(len(counts))),
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
