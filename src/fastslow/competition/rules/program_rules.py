"""What no program can have: each check names the first such value of a competition file and its position.

Published files obey all of these rules, those at hand were compared. Normalizers of a file may differ a
little, since a kernel was measured on several machines, and every computation of a program has a root. What
an opcode allows is in :mod:`fastslow.competition.rules.node_rules`.
"""

from pathlib import Path

import numpy as np

from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES
from fastslow.competition.node_columns import (
    COLUMN_NAMES,
    CONSTANT,
    DIMENSIONS,
    ELEMENT_TYPE,
    ELEMENT_TYPES,
    IS_ROOT,
    LAYOUT,
    LISTS,
    SHAPE,
    SHAPE_PRODUCT,
    TUPLE_SHAPES,
    WINDOW_REVERSAL,
)
from fastslow.competition.opcodes import CONFIGURED, OPCODES, opcode_name
from fastslow.competition.reader import Program
from fastslow.competition.rules.node_rules import first_fault
from fastslow.competition.schema import (
    DEFAULTS,
    NODE_FEATURES,
    REMEDY,
    TILE_DIMENSIONS,
    TILE_ROLES,
    TILE_WIDTH,
    refuse,
)
from fastslow.core.errors import DataError, counted, with_article

_MINUS_ONE = "A competition file pads lists with 0; -1 is written by the feature step (features.padding=-1)"
_MAX_AXIS = 63  # a tensor may have more dimensions than the six columns show; numpy's limit is 64
_CROPS = ("window_padding", "edge_padding")  # first words of columns that may be negative
# of the columns of node_feat: the smallest and largest number, and what it is
_HIGH = np.full(NODE_FEATURES, float(np.finfo(np.float32).max))
_LOW = np.where([name.startswith(_CROPS) for name in COLUMN_NAMES], -_HIGH, 0)
_WHAT = np.full(NODE_FEATURES, "number", object)
for _columns, _largest, _what in (
    (SHAPE, np.iinfo(np.int32).max, "size"),
    (LAYOUT, _MAX_AXIS, "axis"),
    (DIMENSIONS, _MAX_AXIS, "axis"),
    (IS_ROOT, 1, "flag"),
    (CONSTANT, 0, "number"),
    (LISTS["is_stable"][0], 1, "flag"),
    (WINDOW_REVERSAL, 1, "flag"),
    (ELEMENT_TYPE, 1, "flag"),
):
    _HIGH[_columns], _WHAT[_columns] = _largest, _what
_LISTS = ("shape", "window_size", "window_stride", "window_dilation", "base_dilation")
_LIST_COLUMNS = np.array([COLUMN_NAMES.index(f"{name}_0") for name in _LISTS])[:, None] + np.arange(8)
_WIDTH = TILE_DIMENSIONS  # values of such a list, before its sum and product
_TUPLE = ELEMENT_TYPE.start + ELEMENT_TYPES.index("tuple")
_MACHINES = 2  # of the default's runtimes on several machines, which TpuGraphs calls slightly different
_ERROR = 6e-8  # relative, of a number that is stored as float32
_TPU_TILE = 8 * 128  # numbers that one number may take in a TPU's memory
_FILLED_BY = {  # first words of columns that are empty but in these instructions
    "parameter_number": "parameter",
    "window_ base_dilation": "convolution reduce-window select-and-scatter custom-call",
    "input_ kernel_ output_": "convolution custom-call",
    "slice_": "slice",
    "dynamic_slice_": "dynamic-slice",
    "edge_padding_": "pad",
    "is_stable": "sort",
    "dimensions_": """
broadcast concatenate iota map reduce reverse sort transpose get-dimension-size set-dimension-size
all-gather all-gather-start all-to-all reduce-scatter
""",
    "feature_group_count batch_group_count": "convolution custom-call",
}


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


def check_program(program: Program) -> None:
    """Refuse what no program can have. Every command asks this of a file that it is given.

    Args:
        program: What :func:`fastslow.competition.reader.read_npz` read, or ``program_of`` made.

    Raises:
        DataError: Names the file, the first value that breaks a rule, its position, and the rule.
    """
    path = program.path
    check_graph(path, program.node_feat, program.node_opcode, program.edge_index)
    if program.node_config_ids is None:
        _check_tiles(path, program)
    else:
        _check_configurable(path, program.node_config_ids, program.node_opcode)
        _check_ranks(path, program)


def check_graph(path: Path, node_feat: np.ndarray, opcodes: np.ndarray, edges: np.ndarray) -> None:
    """Refuse nodes and edges that no program has.

    Args:
        path: Their file, for the message.
        node_feat: (N, 140) features as published, 0-padded.
        opcodes: (N,) 0 to 120.
        edges: (E, 2) rows (consumer, operand).

    Raises:
        DataError: A size or axis is not whole or out of range, a node consumes its own output, or a node
            breaks a rule of its opcode.
    """
    _check_acyclic(path, edges, len(opcodes))
    _check_numbers(path, node_feat)
    _check_lists(path, node_feat, opcodes)
    _check_nodes(path, node_feat, opcodes, edges)


def _check_tiles(path: Path, program: Program) -> None:
    """Refuse bounds and normalizers that no kernel has."""
    bounds, normalizers = program.config_feat, program.normalizers
    assert bounds is not None and normalizers is not None, "a tile file has them"
    largest = _MACHINES * float(normalizers.min())
    said = f"at most {_MACHINES} times the smallest"
    refuse(path, "config_runtime_normalizers", normalizers, normalizers > largest, said)
    refuse(path, "config_feat", bounds, (bounds < 0) | (bounds != np.rint(bounds)), "a whole size from 0")
    _check_bounds(path, bounds, program.node_feat)


def _check_numbers(path: Path, node_feat: np.ndarray) -> None:
    """Refuse node features that are no whole number in the range of their column."""
    bad = ~((node_feat >= _LOW) & (node_feat <= _HIGH) & (node_feat == np.rint(node_feat)))
    if bad.any():
        column = np.argwhere(bad)[0, 1]
        low, high = (f"{limit[column]:.10g}" for limit in (_LOW, _HIGH))
        within = f" from {low} to {high}" if _WHAT[column] != "number" else f", from {low}" * (low == "0")
        wanted = f"a whole {_WHAT[column]}{within}"
        refuse(path, "node_feat", node_feat, bad, wanted, _MINUS_ONE if -1 in node_feat[bad] else REMEDY)


def _check_lists(path: Path, node_feat: np.ndarray, opcodes: np.ndarray) -> None:
    """Refuse whole numbers ``(N, 140)`` whose sums, products, axes or types no node of these opcodes has."""
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
            what = f"{COLUMN_NAMES[column]} of {with_article(opcode_name(opcodes[node]))}"
            problem = f"node_feat[{node}, {column}] is {node_feat[node, column]:g}, {wanted} wanted ({what})"
            raise DataError(path, problem, REMEDY)


def _check_nodes(path: Path, node_feat: np.ndarray, opcodes: np.ndarray, edges: np.ndarray) -> None:
    """Refuse a graph without opcodes or roots, an edge that is there twice, and what an opcode forbids."""
    if not opcodes.any():
        raise DataError(path, "node_opcode is 0 everywhere, opcodes from 1 wanted", REMEDY)
    if not node_feat[:, IS_ROOT].any():
        raise DataError(path, f"node_feat[:, {IS_ROOT}] is 0 everywhere, a root wanted", REMEDY)
    codes = edges[:, 0].astype(np.int64) * len(opcodes) + edges[:, 1]
    if not (np.diff(codes) > 0).all():  # else they are in order, as published ones are
        again = np.delete(np.arange(len(codes)), np.unique(codes, return_index=True)[1])
        if len(again):
            problem = f"edge_index[{again[0]}] is {edges[again[0]].tolist()}, an edge of an earlier row"
            raise DataError(path, problem, REMEDY)
    if fault := first_fault(node_feat, opcodes, edges):
        node, problem = fault
        raise DataError(path, f"node {node}, {with_article(opcode_name(opcodes[node]))}, {problem}", REMEDY)


def _check_bounds(path: Path, config_feat: np.ndarray, node_feat: np.ndarray) -> None:
    """Refuse bounds of tiles that no kernel has.

    Args:
        path: Their file, for the message.
        config_feat: (C, 24) whole numbers from 0.
        node_feat: (N, 140) features of the kernel.

    Raises:
        DataError: A sum or product is another one, or a window is larger than every tensor.
    """
    windows = config_feat.T.reshape(len(TILE_ROLES), TILE_WIDTH, -1)
    length, off = _misfits(windows)
    off[:, 1] = np.where(length > 0, off[:, 1], windows[:, -1] != 0)  # the product of no bounds is 0 here
    size = node_feat[:, SHAPE].max()
    product = max(1.0, float(node_feat[:, SHAPE_PRODUCT].max()))
    padded = max(1.0, np.ceil(size / _TPU_TILE)) * _TPU_TILE
    largest = np.array([padded] * _WIDTH + [padded * _WIDTH, product * _TPU_TILE])
    for broken, first, wanted in (
        (off, _WIDTH, "the sum and the product of the bounds before"),
        (windows > largest[:, None], 0, "no more than the largest tensor with its padding"),
    ):
        if broken.any():
            role, which, config = np.argwhere(broken)[0].tolist()
            which += first
            value = windows[role, which, config]
            place = role * TILE_WIDTH + which
            problem = f"config_feat[{config}, {place}] is {value:g}, {wanted} wanted"
            raise DataError(path, f"{problem} ({TILE_ROLES[role]} window)", REMEDY)


def _misfits(lists: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compare lists with their sums and products.

    Args:
        lists: (L, 8, n) of n lists of each kind six values, 0-padded, the sum and product of all values.

    Returns:
        Lengths (L, n) up to the last value that is not 0, and (L, 2, n) whether sum and product are others.
        Of lists of six values or more not all may show: their sum and product may be larger.
    """
    values = lists[:, :_WIDTH].astype(np.float64)
    inside = values != 0
    for place in reversed(range(_WIDTH - 1)):
        inside[:, place] |= inside[:, place + 1]
    found = np.stack([values.sum(1), np.where(inside, values, 1).prod(1)], 1)
    stored = lists[:, _WIDTH:]
    off = np.abs(found - stored) > _ERROR * np.abs(found)
    # a full list has no hole, and what does not show makes both larger
    below = (stored < found * (1 - _ERROR)) | ((found == 0) & (stored != 0))
    below[:, 1] &= stored[:, 1] != 0
    return inside.sum(1), np.where(inside[:, -1:], below, off)


def _check_acyclic(path: Path, edges: np.ndarray, num_nodes: int) -> None:
    """Refuse a node that consumes its own output, directly or through others: no program computes it."""
    refuse(path, "edge_index", edges, edges == edges[:, ::-1], "a node other than its operand")
    if (edges[:, 0] > edges[:, 1]).all():  # so in every published file: operands come first
        return
    from scipy.sparse import coo_array, csgraph  # takes 0.2 seconds

    graph = coo_array((np.ones(len(edges), bool), edges.T.astype(np.int64)), (num_nodes, num_nodes))
    part = csgraph.connected_components(graph, connection="strong")[1][edges]
    if (inside := part[:, 0] == part[:, 1]).any():
        row = int(np.argmax(inside))
        user, operand = edges[row].tolist()
        problem = f"edge_index[{row}] is [{user}, {operand}], but node {operand} needs node {user}: a cycle"
        raise DataError(path, problem, REMEDY)


def _check_configurable(path: Path, ids: np.ndarray, opcodes: np.ndarray) -> None:
    """Refuse configurable nodes that are named twice or of other opcodes than TpuGraphs configures."""
    if len(np.unique(ids)) < len(ids):
        raise DataError(path, "node_config_ids names a node twice", REMEDY)
    other = ~np.isin(opcodes[ids], [*CONFIGURED.values()])
    if other.any():
        position = int(np.argmax(other))
        node = ids[position]
        problem = f"node_config_ids[{position}] names node {node}, {with_article(opcode_name(opcodes[node]))}"
        raise DataError(path, f"{problem}; configurable are convolution, dot and reshape", REMEDY)


def _ranks(program: Program) -> np.ndarray:
    """Return the number of dimensions of configurable nodes' tensors ``(K, 3)``, six where it is not known.

    Edges have no order: either operand of a dot may be the input.
    """
    sizes, (users, operands) = program.node_feat[:, SHAPE], program.edge_index.T
    rank = np.where(program.node_feat[:, SHAPE_PRODUCT] > 0, (sizes > 0).sum(1), LAYOUT_WIDTH)
    highest = np.zeros_like(rank)
    np.maximum.at(highest, users, rank[operands])
    kernel = np.where(program.node_opcode == OPCODES["reshape"], 0, highest)
    ranks: np.ndarray = np.stack([rank, highest, kernel], 1)[program.node_config_ids]
    return ranks


def _check_ranks(path: Path, program: Program) -> None:
    """Refuse a layout, of a configuration or the compiler, that names an axis its tensor has not.

    Published layouts leave axes out, so that a layout may be shorter than the rank, and its axes have gaps.
    Ranks of tuples and empty tensors are unknown, and not checked.
    """
    layouts, choices, defaults = program.layouts, program.choices, program.default_layouts
    assert layouts is not None and choices is not None, "a layout file has them"
    ranks = _ranks(program)
    used = np.arange(choices.codes.shape[2]) < choices.options[choices.group][..., None]  # (K, 3, O)
    axis = layouts.max(1)[choices.codes]
    beyond = used & (axis >= ranks[..., None])
    if beyond.any():
        node, role, chosen = np.argwhere(beyond)[0].tolist()
        row = int(np.argmax(choices.values[:, choices.group[node, role]] == chosen))
        named = axis[node, role, chosen]
        entry = layouts[choices.codes[node, role, chosen]].tolist().index(named)
        problem = f"node_config_feat{[row, node, role * LAYOUT_WIDTH + entry]} is {named}"
    elif defaults is not None and (defaults >= ranks[..., None]).any():
        node, role, entry = np.argwhere(defaults >= ranks[..., None])[0].tolist()
        problem = f"{DEFAULTS}[{node}, {role * LAYOUT_WIDTH + entry}] is {defaults[node, role, entry]}"
    else:
        return
    rank = counted(int(ranks[node, role]), "dimension")
    raise DataError(path, f"{problem}, but the node's {ROLES[role]} has {rank}", REMEDY)
