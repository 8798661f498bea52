"""Rows of the additive ranker: the distinct states of a graph's configurable nodes and of its copies.

A configuration has one state of every node (its output, input and kernel layout) and one of every pair of
configurable tensors that are one tensor to the program (the layouts on the two sides). What depends on a
state alone is computed once, however many configurations share it.
"""

from typing import NamedTuple

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.default_layouts import is_off_default
from fastslow.competition.group_sets import Classes
from fastslow.competition.opcodes import CONVOLUTION, RESHAPE
from fastslow.competition.schema import LAYOUT_WIDTH, ROLES
from fastslow.features.copies import disagreements
from fastslow.features.store import Graph
from fastslow.features.tpu_tiling import LANES, tile
from fastslow.rankers.node_costs import (
    KINDS,
    is_bitcast,
    is_reordered,
    node_flops,
    paired_tensors,
    tensor_bytes,
)
from fastslow.rankers.node_layouts import LayoutStates, node_tensors
from fastslow.rankers.table_features import config_pairs, layout_context_features, pair_tensors

COPY = len(KINDS) + 1  # the ``kind`` of a row of a pair; nodes have 0 to 3
_MIN_SHARE = 1e-6
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
        class_index: ``(S,)`` class of the configurations that have the state.
        classes: Classes of the C configurations under the sets of groups of nodes and pairs.
        columns: Names of the F columns, the same for every graph.
    """

    rows: np.ndarray
    class_index: np.ndarray
    classes: Classes
    columns: list[str]

    def sum(self, costs: np.ndarray) -> np.ndarray:
        """Sum the costs ``(S,)`` of each configuration's states: ``(C,)``."""
        per_class = np.bincount(self.class_index, costs, minlength=len(self.classes))
        return self.classes.sum(per_class[:, None])[:, 0]


class _Sizes(NamedTuple):
    """Properties of a graph's configurable nodes that do not depend on the layouts."""

    dims: np.ndarray  # (K, 3, 6)
    tensor_bytes: np.ndarray  # (K, 3)
    bytes: np.ndarray  # (K,)
    flops: np.ndarray  # (K,)
    kind: np.ndarray  # (K,) position in KINDS, or their number
    outgoing: np.ndarray  # (K,) pairs that read the output
    incoming: np.ndarray  # (K,) pairs that give the input or the kernel
    paired: np.ndarray  # (K, 3)


def additive_rows(graph: Graph, configs: np.ndarray | slice = slice(None)) -> AdditiveRows:
    """Compute the states of a graph under some configurations.

    States that all of these share are left out: they add the same to each prediction.

    Args:
        graph: A layout graph.
        configs: Positions of the configurations; by default all of them.
    """
    sizes, pairs = _sizes(graph), config_pairs(graph)
    num_nodes = len(graph.config_index)
    both = pair_tensors(pairs)[:, [0, 1, 1]]  # as many columns as the tensors of a node
    states = LayoutStates(
        graph.choices.take(configs), np.concatenate([node_tensors(np.arange(num_nodes)), both])
    )
    varies = states.classes.count[states.class_index] < states.classes.index.shape[1]
    item, codes = states.item[varies], states.codes[varies]
    nodes, copies = item < num_nodes, item >= num_nodes
    parts = [
        _node_columns(graph, sizes, item[nodes], codes[nodes]),
        _pair_columns(graph, sizes, pairs, item[copies] - num_nodes, codes[copies]),
    ]
    names = list(dict.fromkeys(name for part in parts for name in part))
    context, context_names = _context(graph, sizes)
    rows = np.full((len(item), len(names) + len(context)), np.nan, np.float32)
    rows[:, len(names) :] = context
    for part, own in zip(parts, (nodes, copies), strict=True):
        for name, values in part.items():
            rows[own, names.index(name)] = values
    return AdditiveRows(rows, states.class_index[varies], states.classes, names + context_names)


def _sizes(graph: Graph) -> _Sizes:
    dims, size = graph.tensor_sizes.astype(np.int64), tensor_bytes(graph)
    opcodes = graph.node_opcode[graph.config_index]
    kind = np.select([opcodes == opcode for opcode in KINDS.values()], range(len(KINDS)), len(KINDS))
    producer, consumer, _ = graph.pairs.astype(np.int64).T
    degrees = (np.bincount(side, minlength=len(dims)) for side in (producer, consumer))
    return _Sizes(dims, size, size.sum(1), node_flops(graph), kind, *degrees, paired_tensors(graph))


def _log_share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.log(part / (whole.sum() + 1) + _MIN_SHARE)


def _tensor_columns(dims: np.ndarray, layouts: np.ndarray, element_bytes: np.ndarray) -> dict:
    """Return columns of tensors (n, 6) under layouts (n, 6); NaN where none fits."""
    tiling, rank = tile(dims, layouts), (dims > 0).sum(1)
    values = {
        "given": ~tiling.is_left,
        "largest_not_minor": tiling.violates,
        "log_padded_over_volume": np.log(tiling.padded_volume / tiling.volume),
        "log_minor_size": np.log1p(tiling.minor_size),
        "log_second_minor_size": np.log1p(tiling.second_size),
        "minor_from_last": rank - 1 - tiling.minor_axis,
        "larger_than_minor": (dims > tiling.minor_size[:, None]).sum(1),
        "empty_lanes": -tiling.minor_size % LANES / LANES,
        "empty_sublanes": tiling.second_padded - tiling.second_size,
        "log_padded_bytes": np.log1p(tiling.padded_volume * element_bytes),
        "reordered": is_reordered(dims, layouts),
        "log_largest_size": np.log1p(dims.max(1, initial=0)),
    }
    there = tiling.fits & (dims[:, 0] > 0)
    return {name: np.where(there, value, np.nan) for name, value in values.items()} | {"rank": rank}


def _default_columns(dims: np.ndarray, layouts: np.ndarray, defaults: np.ndarray) -> dict:
    """Return columns of tensors under layouts beside the compiler's own; NaN where that is not known."""
    known = (defaults[:, 0] >= 0) & (dims[:, 0] > 0)
    padded, own = (tile(dims, of).padded_volume for of in (layouts, defaults))
    values = {
        "off_default": is_off_default(layouts, defaults),
        "log_padded_over_default": np.log(padded / own),
    }
    return {name: np.where(known, value, np.nan) for name, value in values.items()}


def _node_columns(graph: Graph, sizes: _Sizes, node: np.ndarray, codes: np.ndarray) -> dict:
    """Return columns of the states of nodes: (S,) nodes under (S, 3) layouts."""
    kind, dims = sizes.kind[node], sizes.dims[node]
    layouts = graph.layouts[codes].astype(np.int64)
    features = graph.node_feat[graph.config_index[node]]
    is_convolution = graph.node_opcode[graph.config_index[node]] == CONVOLUTION
    is_reshape = graph.node_opcode[graph.config_index[node]] == RESHAPE
    found = {"kind": kind}
    minor, padded = tile(dims, layouts).minor_axis, np.zeros(len(node))
    for role, name in enumerate(ROLES):
        element_bytes = graph.tensor_bytes[node, role].astype(np.float64)
        own = _tensor_columns(dims[:, role], layouts[:, role], element_bytes)
        padded += np.nan_to_num(np.expm1(own["log_padded_bytes"]))
        for place, axis in zip(("first", "second"), node_columns.CONVOLUTION_AXES[role], strict=True):
            own[f"minor_is_{place}"] = np.where(is_convolution, minor[:, role] == features[:, axis], np.nan)
        own["log_bytes"] = np.log1p(sizes.tensor_bytes[node, role])
        own |= _default_columns(dims[:, role], layouts[:, role], graph.default_layouts[node, role])
        own["paired"] = sizes.paired[node, role]
        found |= {f"{name}_{column}": values for column, values in own.items()}
    moved = ~is_bitcast(dims[:, 1], layouts[:, 1], dims[:, 0], layouts[:, 0])
    wasted = np.maximum(padded - sizes.bytes[node], 0)
    found |= {
        "turned": minor[:, 0] != minor[:, 1],
        "moved": np.where(is_reshape, moved, np.nan),
        "log_padded_bytes": np.log1p(padded),
        "log_wasted_bytes": np.log1p(wasted),
        "log_wasted_share": _log_share(wasted, sizes.bytes),
        "log_bytes": np.log1p(sizes.bytes[node]),
        "log_flops": np.log1p(sizes.flops[node]),
        "log_flops_over_bytes": np.log1p(sizes.flops[node]) - np.log1p(sizes.bytes[node]),
        "log_bytes_share": _log_share(sizes.bytes[node], sizes.bytes),
        "log_flops_share": _log_share(sizes.flops[node], sizes.flops),
        "outgoing": sizes.outgoing[node],
        "incoming": sizes.incoming[node],
    }
    found |= {f"log_{name}": np.log1p(features[:, column].clip(0)) for name, column in _NODE_COLUMNS.items()}
    return found | {f"log_size_{axis}": np.log1p(dims[:, 0, axis]) for axis in range(LAYOUT_WIDTH)}


def _pair_columns(graph: Graph, sizes: _Sizes, pairs, pair: np.ndarray, codes: np.ndarray) -> dict:
    """Return columns of the states of pairs: (S,) pairs under (S, 2) layouts of producer and consumer."""
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
        "log_copied_share": _log_share(padded * differ, sizes.bytes),
        "log_bytes": np.log1p(size),
        "log_bytes_share": _log_share(size, sizes.bytes),
        "outgoing": sizes.outgoing[producer],
        "incoming": sizes.incoming[consumer],
        "log_flops": np.log1p(sizes.flops[consumer]),
        "log_producer_flops": np.log1p(sizes.flops[producer]),
    }
    return found | {
        f"log_size_{axis}": np.log1p(sizes.dims[producer, 0, axis]) for axis in range(LAYOUT_WIDTH)
    }


def _context(graph: Graph, sizes: _Sizes) -> tuple[np.ndarray, list[str]]:
    """Return the columns that are equal for all states of a graph."""
    values, names = layout_context_features(graph)
    totals = np.log1p([len(sizes.kind), sizes.flops.sum(), sizes.bytes.sum()])
    names = [*names, "graph_configurable_log", "graph_flops_log", "graph_bytes_log"]
    return np.concatenate([values, totals]), names
