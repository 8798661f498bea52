"""Values of a competition file that no program can have: each check names the first one and its position."""

from pathlib import Path

import numpy as np

from fastslow.competition.invariants import check_bounds, check_graph
from fastslow.competition.layouts import LAYOUT_WIDTH, MAX_DIMENSION, layouts_of
from fastslow.competition.node_columns import (
    COLUMN_NAMES,
    DIMENSIONS,
    ELEMENT_TYPE,
    IS_ROOT,
    LAYOUT,
    SHAPE,
    SHAPE_PRODUCT,
)
from fastslow.competition.opcodes import OPCODES, opcode_name
from fastslow.competition.schema import DEFAULTS, FLOAT, NODE_FEATURES, REMEDY
from fastslow.competition.tied_choices import Choices
from fastslow.core.errors import DataError

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
    (IS_ROOT, 1, "number"),
    (ELEMENT_TYPE, 1, "number"),
):
    _HIGH[_columns], _WHAT[_columns] = _largest, _what
_WITHOUT_OPERANDS = ("parameter", "constant")  # their layout is given: no compiler chooses it


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
    """Check all values of the arrays that are read whole; with ``labelled``, runtimes must be positive.

    Raises:
        DataError: An integer is out of range, another number not finite, a size or axis not whole, a node
            consumes its own output, or a configurable node has no operand.
    """
    num_nodes, largest = len(arrays["node_feat"]), np.iinfo(np.int64).max
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
    _check_acyclic(path, arrays["edge_index"], num_nodes)
    node_feat, opcodes = arrays["node_feat"], arrays["node_opcode"]
    _refuse_numbers(path, node_feat)
    if "config_feat" in arrays:
        bounds = arrays["config_feat"]
        wrong = (bounds < 0) | (bounds != np.rint(bounds))
        _refuse(path, "config_feat", bounds, wrong, "a whole size from 0")
        check_bounds(path, bounds, node_feat)
    nodes = np.flatnonzero(opcodes == OPCODES["transpose"])
    axes, ranks = node_feat[nodes, DIMENSIONS], _ranks(node_feat[nodes])
    _refuse_beyond(path, "node_feat", axes, ranks, nodes, DIMENSIONS.start)
    if "node_config_ids" in arrays:
        _check_configurable(path, arrays["node_config_ids"], opcodes)
    check_graph(path, node_feat, opcodes, arrays["edge_index"])


def _refuse_numbers(path: Path, node_feat: np.ndarray) -> None:
    """Refuse node features that are no whole number in the range of their column."""
    bad = ~((node_feat >= _LOW) & (node_feat <= _HIGH) & (node_feat == np.rint(node_feat)))
    if bad.any():
        column = np.argwhere(bad)[0, 1]
        wanted = f"a whole {_WHAT[column]} from {_LOW[column]:g} to {_HIGH[column]:.10g}"
        _refuse(path, "node_feat", node_feat, bad, wanted, _MINUS_ONE if -1 in node_feat[bad] else REMEDY)


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
    """Refuse configurable nodes that are named twice or have no operand that could be laid out."""
    if len(np.unique(ids)) < len(ids):
        raise DataError(path, "node_config_ids names a node twice", REMEDY)
    for position, node in enumerate(ids.tolist()):
        if (name := opcode_name(opcodes[node])) in _WITHOUT_OPERANDS:
            problem = f"node_config_ids[{position}] names node {node}, a {name}"
            raise DataError(path, f"{problem}: no compiler chooses its layout", REMEDY)


def _ranks(node_feat: np.ndarray) -> np.ndarray:
    """Return the number of dimensions of nodes' outputs ``(K,)``, six where it is not known."""
    return np.where(node_feat[:, SHAPE_PRODUCT] > 0, (node_feat[:, SHAPE] > 0).sum(1), LAYOUT_WIDTH)


def _refuse_beyond(
    path: Path, key: str, axes: np.ndarray, ranks: np.ndarray, nodes: np.ndarray, column: int
) -> None:
    """Name the first axis ``(n, 6)`` that is not below the rank ``(n,)``; six or more columns may be cut."""
    beyond = (axes >= ranks[:, None]) & ((axes >= LAYOUT_WIDTH) | (ranks[:, None] < LAYOUT_WIDTH))
    if beyond.any():
        row, entry = np.argwhere(beyond)[0].tolist()
        problem = f"{key}[{nodes[row]}, {column + entry}] is {axes[row, entry]:g}"
        raise DataError(path, f"{problem}, but the node's output has {ranks[row]} dimensions", REMEDY)


def check_ranks(
    path: Path, node_feat: np.ndarray, layouts: np.ndarray, choices: Choices, defaults: np.ndarray | None
) -> None:
    """Refuse an output layout that names an axis which the tensor does not have.

    Published layouts leave axes out, so that a layout may be shorter than the rank, and its axes have gaps.
    Ranks of inputs and kernels are inferred, and ranks of tuples and empty tensors are unknown: neither is
    checked.

    Takes the features ``(K, 140)`` of the configurable nodes, the distinct layouts ``(L, 6)``, and the
    compiler's own layouts ``(K, 3, 6)``, if the file has them.
    """
    ranks = _ranks(node_feat)
    option = np.arange(choices.codes.shape[2])
    used = option < choices.options[choices.group[:, 0], None]  # (K, O)
    axis = layouts[choices.codes[:, 0]].max(2)
    beyond = used & (axis >= ranks[:, None])
    if beyond.any():
        node, chosen = np.argwhere(beyond)[0].tolist()
        row = int(np.argmax(choices.values[:, choices.group[node, 0]] == chosen))
        layout, named = layouts[choices.codes[node, 0, chosen]].tolist(), axis[node, chosen]
        position = [row, node, layout.index(named)]
        problem = f"node_config_feat{position} is {named}, but the node's output has {ranks[node]} dimensions"
        raise DataError(path, problem, REMEDY)
    if defaults is not None:
        _refuse_beyond(path, DEFAULTS, defaults[:, 0], ranks, np.arange(len(defaults)), 0)


def check_entries(path: Path, key: str, chunk: np.ndarray, row: int) -> None:
    """Refuse a value of rows ``(n, K, 18)`` of layouts that is no whole number from -1 to 5."""
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
