"""Values of a competition file that no program can have: each check names the first one and its position.

Published files obey all of these rules, those at hand were compared. Normalizers of a file may differ a
little, since a kernel was measured on several machines, and every computation of a program has a root. What
an opcode allows is in :mod:`fastslow.competition.rules`.
"""

from pathlib import Path

import numpy as np

from fastslow.competition.layouts import LAYOUT_WIDTH, MAX_DIMENSION, layouts_of
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
from fastslow.competition.opcodes import OPCODES, opcode_name
from fastslow.competition.rules.node_rules import first_fault
from fastslow.competition.schema import (
    DEFAULTS,
    FLOAT,
    NODE_FEATURES,
    REMEDY,
    TILE_DIMENSIONS,
    TILE_ROLES,
    TILE_WIDTH,
)
from fastslow.competition.tied_choices import Choices
from fastslow.core.errors import DataError, counted, with_article

_UNLABELLED = "A train or valid file needs positive runtimes: is this a test file?"
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
_IS_CONFIGURABLE = _of("convolution dot reshape")


def _refuse(
    path: Path, key: str, array: np.ndarray, bad: np.ndarray, wanted: str, remedy: str = REMEDY, row: int = 0
) -> None:
    """Refuse the first bad value of an array, whose first row is ``row`` of the file."""
    if bad.any():
        position = np.argwhere(bad)[0].tolist()
        value = array[tuple(position)]
        position[0] += row
        raise DataError(path, f"{key}{position} is {value}, {wanted} wanted", remedy)


def check_values(path: Path, arrays: dict[str, np.ndarray], labelled: bool) -> None:
    """Check the values of the arrays, by key, of an npz; with ``labelled``, runtimes must be positive.

    Raises:
        DataError: An integer is out of range, another number not finite, a size or axis not whole, a node
            consumes its own output, or a configurable node has no operand.
    """
    num_nodes = len(arrays["node_feat"])
    largest = np.iinfo(np.int64).max
    ranges = {
        "edge_index": (0, num_nodes - 1),
        "node_config_ids": (0, num_nodes - 1),
        "node_opcode": (0, len(OPCODES)),
        "config_runtime": (1 if labelled else 0, largest),
        "config_runtime_normalizers": (1, largest),
    }
    for key, array in arrays.items():
        if key in ranges:
            low, high = ranges[key]
            wanted = f"{low} or more" if high == largest else f"{low} to {high}"
            remedy = _UNLABELLED if key == "config_runtime" and labelled else REMEDY
            _refuse(path, key, array, (array < low) | (array > high), wanted, remedy)
        elif array.dtype.kind in FLOAT and key != "node_feat":
            with np.errstate(over="ignore"):  # a float64 too large becomes infinite here, and is refused
                finite = np.isfinite(array.astype(np.float32, copy=False))
            _refuse(path, key, array, ~finite, "a finite float32")
    if "config_runtime_normalizers" in arrays:
        key = "config_runtime_normalizers"
        largest_one = _MACHINES * float(arrays[key].min())
        _refuse(path, key, arrays[key], arrays[key] > largest_one, f"at most {_MACHINES} times the smallest")
    _check_acyclic(path, arrays["edge_index"], num_nodes)
    node_feat, opcodes = arrays["node_feat"], arrays["node_opcode"]
    _refuse_numbers(path, node_feat)
    if "config_feat" in arrays:
        bounds = arrays["config_feat"]
        wrong = (bounds < 0) | (bounds != np.rint(bounds))
        _refuse(path, "config_feat", bounds, wrong, "a whole size from 0")
        _check_bounds(path, bounds, node_feat)
    _check_graph(path, node_feat, opcodes, arrays["edge_index"])
    if "node_config_ids" in arrays:
        _check_configurable(path, arrays["node_config_ids"], opcodes)


def _refuse_numbers(path: Path, node_feat: np.ndarray) -> None:
    """Refuse node features that are no whole number in the range of their column."""
    bad = ~((node_feat >= _LOW) & (node_feat <= _HIGH) & (node_feat == np.rint(node_feat)))
    if bad.any():
        column = np.argwhere(bad)[0, 1]
        low, high = (f"{limit[column]:.10g}" for limit in (_LOW, _HIGH))
        within = f" from {low} to {high}" if _WHAT[column] != "number" else f", from {low}" * (low == "0")
        wanted = f"a whole {_WHAT[column]}{within}"
        _refuse(path, "node_feat", node_feat, bad, wanted, _MINUS_ONE if -1 in node_feat[bad] else REMEDY)


def _check_graph(path: Path, node_feat: np.ndarray, opcodes: np.ndarray, edges: np.ndarray) -> None:
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
            what = f"{COLUMN_NAMES[column]} of {with_article(opcode_name(opcodes[node]))}"
            problem = f"node_feat[{node}, {column}] is {node_feat[node, column]:g}, {wanted} wanted ({what})"
            raise DataError(path, problem, REMEDY)
    if not opcodes.any():
        raise DataError(path, "node_opcode is 0 everywhere, opcodes from 1 wanted", REMEDY)
    if not columns[IS_ROOT].any():
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
    _refuse(path, "edge_index", edges, edges == edges[:, ::-1], "a node other than its operand")
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
    other = ~_IS_CONFIGURABLE[opcodes[ids]]
    if other.any():
        position = int(np.argmax(other))
        node = ids[position]
        problem = f"node_config_ids[{position}] names node {node}, {with_article(opcode_name(opcodes[node]))}"
        raise DataError(path, f"{problem}; configurable are convolution, dot and reshape", REMEDY)


def _ranks(node_feat: np.ndarray) -> np.ndarray:
    """Return the number of dimensions of nodes' outputs ``(K,)``, six where it is not known."""
    return np.where(node_feat[:, SHAPE_PRODUCT] > 0, (node_feat[:, SHAPE] > 0).sum(1), LAYOUT_WIDTH)


def check_ranks(
    path: Path, node_feat: np.ndarray, layouts: np.ndarray, choices: Choices, defaults: np.ndarray | None
) -> None:
    """Refuse an output layout that names an axis which the tensor does not have.

    Published layouts leave axes out, so that a layout may be shorter than the rank, and its axes have gaps.
    Ranks of inputs and kernels are inferred, and ranks of tuples and empty tensors are unknown: neither is
    checked.

    Takes the features ``(K, 140)`` of the configurable nodes, the distinct layouts ``(L, 6)``, and the
    compiler's own layouts ``(K, 3, 6)``, if the file has them.

    Raises:
        DataError: A layout of a configuration, or of the compiler, names such an axis.
    """
    ranks = _ranks(node_feat)
    option = np.arange(choices.codes.shape[2])
    used = option < choices.options[choices.group[:, 0], None]  # (K, O)
    axis = layouts[choices.codes[:, 0]].max(2)
    beyond = used & (axis >= ranks[:, None])
    if beyond.any():
        node, chosen = np.argwhere(beyond)[0].tolist()
        row = int(np.argmax(choices.values[:, choices.group[node, 0]] == chosen))
        layout = layouts[choices.codes[node, 0, chosen]].tolist()
        named = axis[node, chosen]
        position = [row, node, layout.index(named)]
        rank = counted(int(ranks[node]), "dimension")
        problem = f"node_config_feat{position} is {named}, but the node's output has {rank}"
        raise DataError(path, problem, REMEDY)
    if defaults is not None:
        beyond = defaults[:, 0] >= ranks[:, None]
        if beyond.any():
            node, entry = np.argwhere(beyond)[0].tolist()
            problem = f"{DEFAULTS}[{node}, {entry}] is {defaults[node, 0, entry]}"
            rank = counted(int(ranks[node]), "dimension")
            raise DataError(path, f"{problem}, but the node's output has {rank}", REMEDY)


def check_entries(path: Path, key: str, chunk: np.ndarray, row: int) -> None:
    """Refuse what is no whole number from -1 to 5 in an array's rows ``(n, K, 18)`` from ``row`` on."""
    bad = ~((chunk >= -1) & (chunk <= MAX_DIMENSION) & (chunk == np.rint(chunk)))
    _refuse(path, key, chunk, bad, f"a whole number from -1 to {MAX_DIMENSION}", row=row)


def check_layouts(path: Path, key: str, number: np.ndarray, distinct: np.ndarray, row: int) -> None:
    """Refuse the first layout that names an axis twice or has a hole.

    Takes the numbers ``(n, K, 3)`` of the layouts of each tensor and those that occur; ``row`` is the
    position of the first of these rows in the file.
    """
    layouts = layouts_of(distinct)
    ascending = np.sort(layouts, axis=1)
    repeats = ((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)).any(1)
    holes = ((layouts[:, 1:] >= 0) & (layouts[:, :-1] < 0)).any(1)
    if (repeats | holes).any():
        first, node, role = np.argwhere(np.isin(number, distinct[repeats | holes]))[0].tolist()
        layout = layouts_of(number[first, node, role, None])[0].tolist()
        entry, wrong = next(
            (i, "names twice" if axis in layout[:i] else "names after padding")
            for i, axis in enumerate(layout)
            if axis >= 0 and (axis in layout[:i] or -1 in layout[:i])
        )
        position = [row + first, node, role * LAYOUT_WIDTH + entry]
        problem = f"{key}{position} is {layout[entry]}, an axis that its layout {layout} {wrong}"
        raise DataError(path, problem, REMEDY)
