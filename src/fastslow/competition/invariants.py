"""What the features of every published file obey, since a valid program made them.

A file that breaks one of these rules was damaged, or its columns, rows or edges were put in another order.
The rules hold for all published files beside the repository and for the committed sample. Not among them:
``config_runtime_normalizers`` differ by row where a kernel was measured on several machines, and every
computation of a program has a root.
"""

from pathlib import Path

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.node_columns import (
    COLUMN_NAMES,
    ELEMENT_TYPE,
    IS_ROOT,
    LAYOUT,
    SHAPE_PRODUCT,
    TUPLE_SHAPES,
)
from fastslow.competition.opcodes import OPCODES, opcode_name
from fastslow.competition.schema import REMEDY, TILE_DIMENSIONS, TILE_ROLES, TILE_WIDTH
from fastslow.core.errors import DataError

_LISTS = ("shape", "window_size", "window_stride", "window_dilation", "base_dilation")
_LIST_COLUMNS = np.array([COLUMN_NAMES.index(f"{name}_0") for name in _LISTS])[:, None] + np.arange(8)
_WIDTH = TILE_DIMENSIONS  # values of such a list, before its sum and product
_TUPLE = ELEMENT_TYPE.start + node_columns.ELEMENT_TYPES.index("tuple")
_ERROR = 1e-5  # relative, of a product in float32
_TPU_TILE = 8 * 128  # numbers that one number may take in a TPU's memory
_FILLED_BY = {  # first words of columns that are empty but in these instructions
    "parameter_number": "parameter",
    "window_ base_dilation": "convolution reduce-window select-and-scatter custom-call",
    "input_ kernel_ output_": "convolution custom-call",
    "slice_": "slice",
    "dynamic_slice_": "dynamic-slice",
    "edge_padding_": "pad",
    "is_stable": "sort",
}
_LEAVES = "parameter constant iota"
_LEAVES_OR_NOT = """
custom-call after-all partition-id replica-id rng rng-get-and-update-state tuple infeed recv all-reduce domain
async-start async-update async-done
"""


def _of(names: str) -> np.ndarray:
    """Return which opcodes ``(121,)`` have one of these names; 0 is one that TpuGraphs does not know."""
    return np.isin(np.arange(len(OPCODES) + 1), [OPCODES[name] for name in names.split()])


def _foreign() -> np.ndarray:
    """Return which columns are empty in instructions of each opcode, (121, 140)."""
    foreign = np.zeros((len(OPCODES) + 1, len(COLUMN_NAMES)), bool)
    for words, names in _FILLED_BY.items():
        columns = [name.startswith(tuple(words.split())) for name in COLUMN_NAMES]
        foreign |= ~_of(names)[:, None] & columns
    foreign[0] = False
    return foreign


_FOREIGN = _foreign()
_OF_NO_LIST = np.array([name.endswith("_product") for name in COLUMN_NAMES], np.float32)
_IS_LEAF = _of(_LEAVES)
_IS_NO_LEAF = ~_of(_LEAVES + _LEAVES_OR_NOT)
_IS_NO_LEAF[0] = False


def check_graph(path: Path, node_feat: np.ndarray, opcodes: np.ndarray, edges: np.ndarray) -> None:
    """Refuse node features and edges that no program has.

    Args:
        path: Their file, for the message.
        node_feat: (N, 140) whole numbers in the ranges of :mod:`fastslow.competition.value_checks`.
        opcodes: (N,) 0 to 120.
        edges: (E, 2) rows (consumer, operand).

    Raises:
        DataError: Names the first node that breaks a rule, the column and the rule.
    """
    columns = node_feat.T  # numpy is slow along an axis of six
    lists, layout, product = columns[_LIST_COLUMNS], columns[LAYOUT], columns[SHAPE_PRODUCT]
    length, off = _misfits(lists)
    rank = length[0]
    # a product of 0 is right where a size of 0 follows those that show: then the layout has its axis
    off[0, 1] &= (product != 0) | ((rank > 1) & (layout.max(0) < rank))
    in_rank = np.arange(_WIDTH)[:, None] < rank
    axes = (np.exp2(layout) * in_rank).sum(0)  # 2**rank - 1 where each axis is there once, else another sum
    no_order = (axes != np.exp2(rank) - 1) | (layout * ~in_rank).any(0)
    no_order &= layout.any() & (rank < _WIDTH) & (product != 0)  # the other ranks are not known
    many_types = columns[ELEMENT_TYPE].sum(0) != 1
    no_tuple = (columns[TUPLE_SHAPES] > 0) & (columns[_TUPLE] != 1)
    foreign = _FOREIGN[opcodes] & (node_feat != _OF_NO_LIST)
    rules = (  # where it is broken, the columns of node_feat of these places, what is wanted
        (off, _LIST_COLUMNS[:, _WIDTH:], "the sum and the product of the values before"),
        (many_types, ELEMENT_TYPE.start, "one element type, a single 1 in columns 2 to 20,"),
        (no_tuple, TUPLE_SHAPES, "0, since the output is no tuple,"),
        (no_order, LAYOUT.start, "each axis of the tensor once, then 0,"),
        (foreign.T, np.arange(len(COLUMN_NAMES)), "an empty column"),
    )
    for broken, places, wanted in rules:
        if broken.any():
            *place, node = np.argwhere(broken)[0].tolist()
            column = int(np.asarray(places)[tuple(place)])
            what = f"{COLUMN_NAMES[column]} of a {opcode_name(opcodes[node])}"
            problem = f"node_feat[{node}, {column}] is {node_feat[node, column]:g}, {wanted} wanted ({what})"
            raise DataError(path, problem, REMEDY)
    if not opcodes.any():
        raise DataError(path, "node_opcode is 0 everywhere, opcodes from 1 wanted", REMEDY)
    if not columns[IS_ROOT].any():
        raise DataError(path, f"node_feat[:, {IS_ROOT}] is 0 everywhere, a root wanted", REMEDY)
    has_operands = np.zeros(len(opcodes), bool)
    has_operands[edges[:, 0]] = True
    codes = edges[:, 0].astype(np.int64) * len(opcodes) + edges[:, 1]
    if not (np.diff(codes) > 0).all():  # else they are in order, as published ones are
        again = np.delete(np.arange(len(codes)), np.unique(codes, return_index=True)[1])
        if len(again):
            problem = f"edge_index[{again[0]}] is {edges[again[0]].tolist()}, an edge of an earlier row"
            raise DataError(path, problem, REMEDY)
    wrong = np.where(has_operands, _IS_LEAF[opcodes], _IS_NO_LEAF[opcodes] & (len(edges) > 0))
    if wrong.any():
        node = int(np.argmax(wrong))
        problem = f"node {node}, a {opcode_name(opcodes[node])}, has {'an' if has_operands[node] else 'no'}"
        raise DataError(path, f"edge_index: {problem} operand", REMEDY)


def check_bounds(path: Path, config_feat: np.ndarray, node_feat: np.ndarray) -> None:
    """Refuse bounds of tiles that no kernel has.

    Args:
        path: Their file, for the message.
        config_feat: (C, 24) whole numbers from 0.
        node_feat: (N, 140) features of the kernel.

    Raises:
        DataError: A sum or product is not that of the bounds, or a window is larger than every tensor.
    """
    windows = config_feat.T.reshape(len(TILE_ROLES), TILE_WIDTH, -1)
    length, off = _misfits(windows)
    off[:, 1] = np.where(length > 0, off[:, 1], windows[:, -1] != 0)  # the product of no bounds is 0 here
    largest = _TPU_TILE * max(1.0, node_feat[:, SHAPE_PRODUCT].max())
    for broken, wanted in (
        (off, "the sum and the product of the bounds before"),
        (windows[:, _WIDTH:] > largest, f"at most {largest:g}, the largest tensor with all padding,"),
    ):
        if broken.any():
            role, which, config = np.argwhere(broken)[0].tolist()
            value, place = windows[role, _WIDTH + which, config], role * TILE_WIDTH + _WIDTH + which
            problem = f"config_feat[{config}, {place}] is {value:g}, {wanted} wanted"
            raise DataError(path, f"{problem} ({TILE_ROLES[role]} window)", REMEDY)


def _misfits(lists: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compare lists with their sums and products.

    Args:
        lists: (L, 8, n) of n lists of each kind six values, 0-padded, the sum and product of all values.

    Returns:
        Lengths (L, n) up to the last value that is not 0, and (L, 2, n) whether sum and product are others.
        Lists of six values or more are not compared, since not all values may show.
    """
    values = lists[:, :_WIDTH]
    inside = values != 0
    for place in reversed(range(_WIDTH - 1)):
        inside[:, place] |= inside[:, place + 1]
    found = np.stack([values.sum(1), np.where(inside, values, 1).prod(1)], 1)
    off = np.abs(found - lists[:, _WIDTH:]) > _ERROR * np.abs(found)
    return inside.sum(1), off & ~inside[:, -1:]
