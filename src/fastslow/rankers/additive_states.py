"""Rows of the additive ranker: the distinct states of a graph's configurable nodes and of its copies.

A configuration picks one state of every node (its output, input and kernel layout) and one of every pair of
configurable tensors that are one tensor to the program (the layouts on the two sides). What depends on a
state alone is told once, however many configurations share it.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from fastslow.competition import node_columns
from fastslow.competition.opcodes import CONVOLUTION, RESHAPE
from fastslow.competition.schema import ROLES
from fastslow.features.copies import disagreements
from fastslow.features.store import Graph
from fastslow.features.tpu_tiling import LANES, tile
from fastslow.rankers.node_costs import KINDS, is_bitcast, is_reordered, node_flops
from fastslow.rankers.table_features import config_pairs, layout_context_features

COPY = len(KINDS) + 1  # the ``kind`` of a row of a pair; nodes have 0 to 3
_LEAST_SHARE = 1e-6
_CONVOLUTION_AXES = (
    (node_columns.OUTPUT_BATCH, node_columns.OUTPUT_FEATURE),
    (node_columns.INPUT_BATCH, node_columns.INPUT_FEATURE),
    (node_columns.KERNEL_INPUT_FEATURE, node_columns.KERNEL_OUTPUT_FEATURE),
)
_NODE_COLUMNS = {
    "window": node_columns.WINDOW_SIZE_PRODUCT,
    "stride": node_columns.WINDOW_STRIDE_PRODUCT,
    "base_dilation": node_columns.BASE_DILATION_PRODUCT,
    "feature_groups": node_columns.FEATURE_GROUP_COUNT,
    "batch_groups": node_columns.BATCH_GROUP_COUNT,
}


class AdditiveRows(NamedTuple):
    """The states of a graph whose costs a configuration adds up.

    Args:
        rows: ``(S, F)`` float32, features of each state; NaN: does not apply.
        picks: ``(C, S)`` float64, 1 where a configuration has the state.
        columns: Names of the F columns, the same for every graph.
    """

    rows: np.ndarray
    picks: sparse.csr_array
    columns: list[str]


class _Sizes(NamedTuple):
    """What of a graph's configurable nodes does not depend on the layouts."""

    dims: np.ndarray  # (K, 3, 6)
    tensor_bytes: np.ndarray  # (K, 3)
    bytes: np.ndarray  # (K,)
    flops: np.ndarray  # (K,)
    kind: np.ndarray  # (K,) position in KINDS, or their number
    outgoing: np.ndarray  # (K,) pairs that read the output
    incoming: np.ndarray  # (K,) pairs that give the input or the kernel
    paired: np.ndarray  # (K, 3)


def additive_rows(
    graph: Graph, configs: np.ndarray | slice = slice(None), shared: bool = False
) -> AdditiveRows:
    """The states of a graph under some configurations.

    Args:
        graph: A layout graph.
        configs: Positions of the configurations; all of them unless told.
        shared: Keep the states that all of these configurations share, which tell them not apart from each
            other, only from those of another call.
    """
    codes, base = np.asarray(graph.codes[configs]), len(graph.layouts)
    sizes, pairs = _sizes(graph), config_pairs(graph)
    node, node_codes, node_picks = _distinct(base, *(codes[..., role] for role in range(len(ROLES))))
    producer = codes[:, pairs.producer_index, 0]
    consumer = codes[:, pairs.consumer_index, pairs.consumer_role]
    pair, pair_codes, pair_picks = _distinct(base, producer, consumer)
    parts = [
        _node_columns(graph, sizes, node, node_codes),
        _pair_columns(graph, sizes, pairs, pair, pair_codes),
    ]
    names = list(dict.fromkeys(name for part in parts for name in part))
    lengths = np.cumsum([0, len(node), len(pair)])
    context, context_names = _context(graph, sizes)
    rows = np.full((lengths[-1], len(names) + len(context)), np.nan, np.float32)
    rows[:, len(names) :] = context
    for part, start, stop in zip(parts, lengths[:-1], lengths[1:], strict=True):
        for name, values in part.items():
            rows[start:stop, names.index(name)] = values
    picks = sparse.hstack([node_picks, pair_picks], format="csr")
    if not shared:
        varies = np.bincount(picks.indices, minlength=picks.shape[1]) < len(codes)
        rows, picks = rows[varies], picks[:, varies]
    return AdditiveRows(rows, picks, names + context_names)


def _distinct(base: int, *codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, sparse.csr_array]:
    """The distinct combinations of codes in each column of D (C, M) arrays of codes below ``base``.

    Returns:
        (S,) column of each, ascending; (S, D) its codes; (C, S) which of them each row has.
    """
    num_rows, width = codes[0].shape
    column, found, index = np.arange(width), np.zeros((width, 0), np.int64), np.arange(width)
    for code in codes:
        # a combination so far and the next code give a slot; the slots that occur are the new combinations
        slots = np.multiply(index, base, dtype=np.int64) + code
        taken = np.zeros(len(column) * base, bool)
        taken[slots] = True
        before, last = np.divmod(np.flatnonzero(taken), base)
        column, found = column[before], np.column_stack([found[before], last])
        index = (np.cumsum(taken, dtype=np.int32) - 1).take(slots)
    starts = np.arange(num_rows + 1, dtype=np.int64) * width
    picks = sparse.csr_array((np.ones(index.size), index.ravel(), starts), shape=(num_rows, len(column)))
    return column, found, picks


def _sizes(graph: Graph) -> _Sizes:
    dims = graph.tensor_sizes.astype(np.int64)
    tensor_bytes = np.where(dims > 0, dims, 1).prod(2) * (dims[..., 0] > 0) * graph.tensor_bytes
    opcodes = graph.node_opcode[graph.config_index]
    kind = np.select([opcodes == opcode for opcode in KINDS.values()], range(len(KINDS)), len(KINDS))
    producer, consumer, role = graph.pairs.astype(np.int64).T
    paired = np.zeros((len(dims), len(ROLES)), bool)
    paired[producer, 0] = paired[consumer, role] = True
    degrees = (np.bincount(side, minlength=len(dims)) for side in (producer, consumer))
    return _Sizes(dims, tensor_bytes, tensor_bytes.sum(1), node_flops(graph), kind, *degrees, paired)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.log(part / (whole.sum() + 1) + _LEAST_SHARE)


def _tensor_columns(dims: np.ndarray, layouts: np.ndarray, element_bytes: np.ndarray) -> dict:
    """How tensors (n, 6) lie under layouts (n, 6); NaN where there is none, or the layout does not fit."""
    tiling, rank = tile(dims, layouts), (dims > 0).sum(1)
    minor = np.where(tiling.is_default, rank - 1, layouts[:, 0])
    values = {
        "given": ~tiling.is_default,
        "largest_not_minor": tiling.violates,
        "log_padded_over_volume": np.log(tiling.padded_volume / tiling.volume),
        "log_minor_size": np.log1p(tiling.minor_size),
        "log_second_minor_size": np.log1p(tiling.second_size),
        "minor_from_last": rank - 1 - minor,
        "larger_than_minor": (dims > tiling.minor_size[:, None]).sum(1),
        "empty_lanes": -tiling.minor_size % LANES / LANES,
        "empty_sublanes": tiling.second_padded - tiling.second_size,
        "log_padded_bytes": np.log1p(tiling.padded_volume * element_bytes),
        "reordered": is_reordered(dims, layouts),
        "log_largest_size": np.log1p(dims.max(1, initial=0)),
    }
    there = tiling.fits & (dims[:, 0] > 0)
    return {name: np.where(there, value, np.nan) for name, value in values.items()} | {"rank": rank}


def _node_columns(graph: Graph, sizes: _Sizes, node: np.ndarray, codes: np.ndarray) -> dict:
    """Columns of the states of nodes: (S,) nodes under (S, 3) layouts."""
    kind, dims = sizes.kind[node], sizes.dims[node]
    layouts = graph.layouts[codes].astype(np.int64)
    features = graph.node_feat[graph.config_index[node]]
    is_convolution = graph.node_opcode[graph.config_index[node]] == CONVOLUTION
    is_reshape = graph.node_opcode[graph.config_index[node]] == RESHAPE
    found = {"kind": kind}
    minors, padded = [], np.zeros(len(node))
    for role, name in enumerate(ROLES):
        element_bytes = graph.tensor_bytes[node, role].astype(np.float64)
        own = _tensor_columns(dims[:, role], layouts[:, role], element_bytes)
        padded += np.nan_to_num(np.expm1(own["log_padded_bytes"]))
        rank = own["rank"]
        minors.append(np.where(layouts[:, role, 0] < 0, rank - 1, layouts[:, role, 0]))
        for place, axis in zip(("first", "second"), _CONVOLUTION_AXES[role], strict=True):
            own[f"minor_is_{place}"] = np.where(is_convolution, minors[-1] == features[:, axis], np.nan)
        own["log_bytes"] = np.log1p(sizes.tensor_bytes[node, role])
        own["paired"] = sizes.paired[node, role]
        found |= {f"{name}_{column}": values for column, values in own.items()}
    moved = ~is_bitcast(dims[:, 1], layouts[:, 1], dims[:, 0], layouts[:, 0])
    wasted = np.maximum(padded - sizes.bytes[node], 0)
    found |= {
        "turned": minors[0] != minors[1],
        "moved": np.where(is_reshape, moved, np.nan),
        "log_padded_bytes": np.log1p(padded),
        "log_wasted_bytes": np.log1p(wasted),
        "log_wasted_share": _share(wasted, sizes.bytes),
        "log_bytes": np.log1p(sizes.bytes[node]),
        "log_flops": np.log1p(sizes.flops[node]),
        "log_flops_over_bytes": np.log1p(sizes.flops[node]) - np.log1p(sizes.bytes[node]),
        "log_bytes_share": _share(sizes.bytes[node], sizes.bytes),
        "log_flops_share": _share(sizes.flops[node], sizes.flops),
        "outgoing": sizes.outgoing[node],
        "incoming": sizes.incoming[node],
    }
    found |= {f"log_{name}": np.log1p(features[:, column].clip(0)) for name, column in _NODE_COLUMNS.items()}
    return found | {f"log_size_{axis}": np.log1p(dims[:, 0, axis]) for axis in range(6)}


def _pair_columns(graph: Graph, sizes: _Sizes, pairs, pair: np.ndarray, codes: np.ndarray) -> dict:
    """Columns of the states of pairs: (S,) pairs under (S, 2) layouts, the producer's and the consumer's."""
    ways, way = np.unique(pairs.axes, axis=0, return_inverse=True)
    differ = disagreements(graph.layouts, ways)[way.ravel()[pair], codes[:, 0], codes[:, 1]]
    producer, consumer = pairs.producer_index[pair], pairs.consumer_index[pair]
    role = pairs.consumer_role[pair]
    sides, padded = {}, np.zeros(len(pair))
    for side, (name, node, number) in enumerate(((ROLES[0], producer, 0), (ROLES[1], consumer, role))):
        own = _tensor_columns(
            sizes.dims[node, number],
            graph.layouts[codes[:, side]].astype(np.int64),
            graph.tensor_bytes[node, number].astype(np.float64),
        )
        padded += np.nan_to_num(np.expm1(own["log_padded_bytes"]))
        sides |= {f"{name}_{column}": values for column, values in own.items()}
    given = graph.layouts[codes, 0] >= 0
    size = pairs.weights[pair, 2]
    found = sides | {
        "kind": np.full(len(pair), COPY),
        "copy_producer_kind": sizes.kind[producer],
        "copy_consumer_kind": sizes.kind[consumer] * len(ROLES) + role,
        "copy_differs": differ,
        "copy_given": 2 * given[:, 0] + given[:, 1],
        "log_copied_padded_bytes": np.log1p(padded * differ),
        "log_copied_share": _share(padded * differ, sizes.bytes),
        "log_bytes": np.log1p(size),
        "log_bytes_share": _share(size, sizes.bytes),
        "outgoing": sizes.outgoing[producer],
        "incoming": sizes.incoming[consumer],
        "log_flops": np.log1p(sizes.flops[consumer]),
        "log_producer_flops": np.log1p(sizes.flops[producer]),
    }
    return found | {f"log_size_{axis}": np.log1p(sizes.dims[producer, 0, axis]) for axis in range(6)}


def _context(graph: Graph, sizes: _Sizes) -> tuple[np.ndarray, list[str]]:
    """What is the same for all states of a graph."""
    values, names = layout_context_features(graph)
    totals = np.log1p([len(sizes.kind), sizes.flops.sum(), sizes.bytes.sum()])
    names = [*names, "graph_configurable_log", "graph_flops_log", "graph_bytes_log"]
    return np.concatenate([values, totals]), names
