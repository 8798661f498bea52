"""Convert an HLO module to the arrays of a competition file, and to features that those lack.

Nodes are the instructions of the module, computation by computation, in the module's order. The 140 features
are TpuGraphs' features (arXiv 2308.13490, appendix) and equal its npz files in every value.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.layouts import LAYOUT_WIDTH
from fastslow.competition.node_columns import COLUMN_NAMES, LISTS
from fastslow.competition.opcodes import opcode_number
from fastslow.competition.schema import NODE_FEATURES
from fastslow.hlo.messages import PRIMITIVE_TYPES, Instruction, Module

# Field of the protobuf message: list of node_feat.
_WINDOW = {
    "size": "window_size",
    "stride": "window_stride",
    "padding_low": "window_padding_low",
    "padding_high": "window_padding_high",
    "window_dilation": "window_dilation",
    "base_dilation": "base_dilation",
    "window_reversal": "window_reversal",
}
_SLICE = {"start": "slice_start", "stride": "slice_stride", "limit": "slice_limit"}
_EDGE_PADDING = {"low": "edge_padding_low", "high": "edge_padding_high"}
_CONVOLUTION = ("input_batch", "input_feature", "kernel_input_feature", "kernel_output_feature")
_CONVOLUTION += ("output_batch", "output_feature")
_NARROW_UNSIGNED = (22, 27, 31)  # u4, u2, u1 in XLA's PrimitiveType
_MAJOR_COMPUTATIONS = ("cluster", "while", "cond")

_DIMENSION_NUMBERS = {
    "dot": ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch"),
    "gather": ("offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim"),
    "scatter": (
        "update_window_dims",
        "inserted_window_dims",
        "scatter_dims_to_operand_dims",
        "index_vector_dim",
    ),
}
EXTRA_OPERANDS = 3
"""Number of operands whose shapes are in ``node_extra_feat``."""
_SINGLE = ("is_entry_root", "operands", "gather_index_vector_dim", "scatter_index_vector_dim")
_EXTRA_LISTS = (
    "is_entry_root",
    "operands",
    *(f"operand_{place}_shape" for place in range(EXTRA_OPERANDS)),
    *(f"{kind}_{name}" for kind, names in _DIMENSION_NUMBERS.items() for name in names),
    "gather_slice_sizes",
    "dynamic_slice_sizes",
)
EXTRA_NAMES: tuple[str, ...] = tuple(
    name if name in _SINGLE else f"{name}_{entry}"
    for name in _EXTRA_LISTS
    for entry in range(1 if name in _SINGLE else 6)
)
"""Names of the columns of ``node_extra_feat``: HLO attributes, the first six values of each list."""


def graph_arrays(module: Module, fill: float = 0, extra: bool = False) -> dict[str, np.ndarray]:
    """Return the graph of a module under the keys of the competition's npz files.

    Args:
        module: A module without dangling references, as :func:`fastslow.hlo.reader.read_hlo` returns.
        fill: Value of ``node_feat`` after the end of a list: 0 as in the competition, or -1, which is not a
            valid axis number.
        extra: Add ``node_extra_feat``, attributes that the 140 columns lack.

    Returns:
        ``node_feat`` (N, 140) float32, see :mod:`fastslow.competition.node_columns`. ``node_opcode`` (N,)
        uint8, see :func:`fastslow.competition.opcodes.opcode_number`. ``edge_index`` (E, 2) int64, rows
        (consumer, operand) and (caller, root of the called computation), sorted and distinct. ``node_splits``
        (1, S) int64, ends of the computations named cluster, while or cond. With ``extra`` also
        ``node_extra_feat`` (N, X) float32 with columns :data:`EXTRA_NAMES`.
    """
    nodes = [inst for part in module.computations for inst in part.instructions]
    arrays = {
        "node_feat": _node_features(module, nodes, fill),
        "node_opcode": np.array([opcode_number(inst.opcode) for inst in nodes], np.uint8),
        "edge_index": _edges(module),
        "node_splits": np.array([_splits(module)], np.int64),
    }
    return arrays | {"node_extra_feat": _extra_features(module, nodes, fill)} if extra else arrays


def operand_nodes(module: Module) -> list[list[int]]:
    """Return the operands of every node in their order; an operand that is used twice is listed twice."""
    operands: list[list[int]] = []
    for part in module.computations:
        number = {inst.id: node for node, inst in enumerate(part.instructions, start=len(operands))}
        operands += [[number[operand] for operand in inst.operand_ids] for inst in part.instructions]
    return operands


def _edges(module: Module) -> np.ndarray:
    """Return the sorted edges, (E, 2) int64."""
    operands = operand_nodes(module)
    roots, callers, first = {}, [], 0
    for part in module.computations:
        for node, inst in enumerate(part.instructions, start=first):
            if inst.id == part.root_id:
                roots[part.id] = node
            callers += [(node, called) for called in inst.called_computation_ids]
        first += len(part.instructions)
    edges = {(node, operand) for node, used in enumerate(operands) for operand in used}
    edges.update((node, roots[called]) for node, called in callers)
    return np.array(sorted(edges), np.int64).reshape(-1, 2)


def _splits(module: Module) -> list[int]:
    """Return 0, the end of each major computation, and the number of nodes."""
    splits = [0]
    end = 0
    for part in module.computations:
        end += len(part.instructions)
        if any(word in part.name for word in _MAJOR_COMPUTATIONS):
            splits.append(end)
    return splits if splits[-1] == end else [*splits, end]


def _node_features(module: Module, nodes: list[Instruction], fill: float) -> np.ndarray:
    """Return ``node_feat``, (N, 140) float32."""
    empty = np.zeros(NODE_FEATURES, np.float32)  # the row of an instruction all of whose lists are empty
    for block in chain.from_iterable(LISTS.values()):
        empty[block] = fill
    empty[[name.endswith("_product") for name in COLUMN_NAMES]] = 1
    node_feat = np.tile(empty, (len(nodes), 1))
    node_feat[:, node_columns.IS_ROOT] = [
        inst.id == part.root_id for part in module.computations for inst in part.instructions
    ]
    types = np.array([inst.shape.element_type for inst in nodes])
    columns = [*PRIMITIVE_TYPES.values()]
    # one without a column, such as f8e4m3fn, has less than a byte or one
    types[np.isin(types, _NARROW_UNSIGNED)] = PRIMITIVE_TYPES["u8"]
    types[~np.isin(types, columns)] = PRIMITIVE_TYPES["s8"]
    node_feat[:, node_columns.ELEMENT_TYPE] = types[:, None] == columns
    _write(node_feat, COLUMN_NAMES, map(_lists, nodes))
    return node_feat


def _lists(inst: Instruction) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield the lists of ``node_feat`` that an instruction has; a single value is a list of one."""
    shape = inst.shape
    yield "shape", shape.dimensions
    yield "layout", shape.layout.minor_to_major
    yield "tuple_shapes", [len(shape.tuple_shapes)]
    yield "dimensions", inst.dimensions
    if inst.opcode == "parameter":
        yield "parameter_number", [inst.parameter_number]
    if inst.opcode == "sort":
        yield "is_stable", [inst.is_stable]
    if inst.HasField("window"):
        yield from _fields(inst.window.dimensions, _WINDOW)
        reversed_ = sum(dimension.window_reversal for dimension in inst.window.dimensions)
        yield "window_reversed", [reversed_]
        yield "window_not_reversed", [len(inst.window.dimensions) - reversed_]
    if inst.HasField("convolution"):
        for name in _CONVOLUTION:
            yield name, [getattr(inst.convolution, name)]
        yield "input_spatial", inst.convolution.input_spatial
        yield "kernel_spatial", inst.convolution.kernel_spatial
    if inst.feature_group_count:
        yield "feature_group_count", [inst.feature_group_count]
    if inst.batch_group_count:
        yield "batch_group_count", [inst.batch_group_count]
    yield from _fields(inst.slice_dimensions, _SLICE)
    yield "dynamic_slice_size", inst.dynamic_slice_sizes
    yield from _fields(inst.padding_config.dimensions, _EDGE_PADDING)


def _extra_features(module: Module, nodes: list[Instruction], fill: float) -> np.ndarray:
    """Return ``node_extra_feat``, (N, X) float32."""
    extra = np.full((len(nodes), len(EXTRA_NAMES)), fill, np.float32)
    entry_roots = [
        part.id == module.entry_computation_id and inst.id == part.root_id
        for part in module.computations
        for inst in part.instructions
    ]
    shapes = [inst.shape.dimensions for inst in nodes]
    _write(extra, EXTRA_NAMES, map(_extra_lists, nodes))
    _write(extra, EXTRA_NAMES, ([("is_entry_root", [is_root])] for is_root in entry_roots))
    _write(
        extra,
        EXTRA_NAMES,
        (
            [("operands", [len(used)])]
            + [(f"operand_{place}_shape", shapes[node]) for place, node in enumerate(used[:EXTRA_OPERANDS])]
            for used in operand_nodes(module)
        ),
    )
    return extra


def tile_config_feat(*windows: Sequence[int]) -> list[int]:
    """Return the 24 ``config_feat`` of a tile (TpuGraphs, arXiv 2308.13490, appendix).

    Args:
        windows: Bounds of the kernel, output and input window; empty where there is none or it is unknown.

    Returns:
        For each window the first six bounds, 0-padded, and sum and product of all its bounds (0 if empty).
    """
    values: list[int] = []
    for bounds in windows:
        padding = [0] * (LAYOUT_WIDTH - len(bounds))
        values += [*bounds[:LAYOUT_WIDTH], *padding, sum(bounds), math.prod(bounds) if bounds else 0]
    return values


def _extra_lists(inst: Instruction) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield the lists of ``node_extra_feat`` that depend on nothing but the instruction."""
    for kind, names in _DIMENSION_NUMBERS.items():
        if inst.HasField(kind):
            for name in names:
                values = getattr(getattr(inst, kind), name)
                yield f"{kind}_{name}", [values] if isinstance(values, int) else values
    yield "gather_slice_sizes", inst.gather_slice_sizes
    yield "dynamic_slice_sizes", inst.dynamic_slice_sizes


def _fields(messages: Sequence, names: dict[str, str]) -> Iterator[tuple[str, list[int]]]:
    """Yield one list per field: its value in each of the messages."""
    if messages:
        for field, name in names.items():
            yield name, [getattr(message, field) for message in messages]


def _write(features: np.ndarray, names: Sequence[str], lists_of_nodes: Iterable) -> None:
    """Write lists into the columns of their names, with sum and product where such columns exist.

    Args:
        features: (N, X) float32, written in place; values beyond the columns of a list are dropped.
        names: X column names: ``shape_0``, ``shape_1``, ..., ``shape_sum``, ``shape_product``; or bare names.
        lists_of_nodes: For each node, (name, values) of each of its lists.
    """
    column = {name: number for number, name in enumerate(names)}
    gathered: dict[str, tuple[list[int], list[Sequence[int]]]] = defaultdict(lambda: ([], []))
    for node, lists in enumerate(lists_of_nodes):
        for name, values in lists:
            if values:
                node_ids, rows = gathered[name]
                node_ids.append(node)
                rows.append(values)
    for name, (node_ids, rows) in gathered.items():
        length = np.fromiter(map(len, rows), np.int64, len(rows))
        values = np.fromiter(chain.from_iterable(rows), np.int64, length.sum())
        starts = length.cumsum() - length
        listed = [column[each] for each in (name, *(f"{name}_{at}" for at in range(6))) if each in column]
        entry = np.arange(len(values)) - np.repeat(starts, length)
        fits = entry < len(listed)
        features[np.repeat(node_ids, length)[fits], listed[0] + entry[fits]] = values[fits]
        if f"{name}_sum" in column:
            features[node_ids, column[f"{name}_sum"]] = np.add.reduceat(values, starts)
            features[node_ids, column[f"{name}_product"]] = np.multiply.reduceat(values, starts)
