"""Nodes of a competition file that no program has: the table of opcodes, and a rule for each list of columns.

The columns show less than HLO: operands have no order, an operand that is used twice has one edge, and lists
end after six values, or two. The rules hold as far as columns go; :mod:`fastslow.hlo.shape_rules` sees more.
"""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from fastslow.competition import node_columns as columns
from fastslow.competition.node_columns import COLUMN_NAMES, ELEMENT_TYPES
from fastslow.competition.opcodes import OPCODES, opcode_number
from fastslow.competition.rules.opcode_rules import (
    CLAMP,
    MANY,
    OPCODE_RULES,
    OTHER,
    PRED,
    SAME,
    SELECT,
    SIZES,
    TYPE,
)

_COUNT = len(OPCODES) + 1  # opcode 0 is one that TpuGraphs does not know
_WIDTH = 6  # sizes and axes that show
_PLACES = np.arange(_WIDTH)
_EXACT = 1 << 23  # whole numbers up to here are exact in float32, with room for a sum
_TYPE = {name: number for number, name in enumerate(ELEMENT_TYPES)}
_FLOATS = [_TYPE[name] for name in ("f16", "f32", "f64", "bf16")]  # XLA ignores their precision
Fault = tuple[int, str]
"""A node, and what is wrong with it."""


def _table() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return by opcode number the smallest and largest number of edges, whether it calls, and its output.

    Several opcodes may have one number, newer ones the nearest known opcode's: any of them may be meant.
    """
    low = np.full(_COUNT, MANY)
    high = np.zeros(_COUNT, np.int64)
    calls = np.zeros(_COUNT, bool)
    output = [""] * _COUNT
    for name, rule in OPCODE_RULES.items():
        number = opcode_number(name)
        low[number] = min(low[number], min(1, rule.operands[0]) + min(1, rule.called[0]))
        high[number] = max(high[number], rule.operands[1] + rule.called[1])
        calls[number] |= rule.called[1] > 0
        output[number] = rule.output if output[number] in ("", rule.output) else OTHER
    low[0], high[0], calls[0] = 0, MANY, True
    return low, high, calls, np.array(output)


_LOW, _HIGH, _CALLS, _OUTPUT = _table()
_IS_SAME, _IS_PRED, _IS_SELECT, _IS_CLAMP, _IS_TYPE, _IS_SIZES = (
    np.equal(_OUTPUT, output) for output in (SAME, PRED, SELECT, CLAMP, TYPE, SIZES)
)
_IS_ELEMENTWISE = (_IS_SAME | _IS_PRED | _IS_SELECT | _IS_CLAMP | _IS_SIZES) & ~_CALLS
_COLUMN = {name: number for number, name in enumerate(COLUMN_NAMES)}
_CLASS = np.arange(len(ELEMENT_TYPES))  # of an element type: one for all floating-point types
_CLASS[_FLOATS] = _TYPE["f32"]


class Nodes:
    """The nodes of a file, and what several rules ask of them.

    Args:
        node_feat: (N, 140) whole numbers, whose sums and products are right.
        opcodes: (N,) 0 to 120.
        edges: (E, 2) distinct rows (consumer, operand).
    """

    def __init__(self, node_feat: np.ndarray, opcodes: np.ndarray, edges: np.ndarray):
        self.feat = node_feat
        self.opcodes = opcodes.astype(np.int64)
        if (np.diff(edges[:, 0]) < 0).any():  # published ones are in order
            edges = edges[np.argsort(edges[:, 0], kind="stable")]
        self.users, self.operands = edges.T.astype(np.int64)
        self.degree = np.bincount(self.users, minlength=len(opcodes))
        self.first = np.cumsum(self.degree) - self.degree  # edge

    @cached_property
    def sizes(self) -> np.ndarray:
        """Sizes (N, 6) that show."""
        return np.ascontiguousarray(self.feat[:, columns.SHAPE])

    @cached_property
    def elements(self) -> np.ndarray:
        """Product (N,) of all sizes."""
        elements: np.ndarray = self.feat[:, columns.SHAPE_PRODUCT]
        return elements

    @cached_property
    def rank(self) -> np.ndarray:
        """Number of dimensions (N,), -1 where it is not known: a size is 0, or more may be there."""
        shown = (self.sizes > 0).sum(1)
        total = self.feat[:, columns.SHAPE_SUM]
        whole = (shown < _WIDTH) | ((total == self.sizes.sum(1)) & (total < _EXACT))
        return np.where((self.elements > 0) & whole, shown, -1)

    @cached_property
    def types(self) -> np.ndarray:
        """Position (N,) of each element type, one for all floating-point types."""
        types: np.ndarray = _CLASS[self.feat[:, columns.ELEMENT_TYPE].argmax(1)]
        return types

    def of(self, opcode: str, degree: int | None = None) -> np.ndarray:
        """Return the nodes of an opcode, or those with so many operands, and a tensor as output."""
        nodes = (self.opcodes == OPCODES[opcode]) & (self.types != _TYPE["tuple"])
        return np.flatnonzero(nodes & (self.degree == degree) if degree is not None else nodes)

    def operands_of(self, nodes: np.ndarray, degree: int) -> np.ndarray:
        """Return the operands (n, degree) of nodes that have so many."""
        operands: np.ndarray = self.operands[self.first[nodes][:, None] + np.arange(degree)]
        return operands

    def list_of(self, nodes: np.ndarray, name: str, width: int) -> np.ndarray:
        """Return the first values (n, width) of a list."""
        start = _COLUMN[f"{name}_0"]
        values: np.ndarray = self.feat[nodes, start : start + width]
        return values


def _first(nodes: np.ndarray, broken: np.ndarray, problem: str) -> Iterator[Fault]:
    """Yield the first of some nodes where a rule is broken."""
    if broken.any():
        yield int(nodes[np.argmax(broken)]), problem


def _repeats(axes: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Return which rows (n,) of axes (n, 6) name one twice inside, or are not empty after it."""
    ordered = np.sort(np.where(inside, axes, _PLACES + 100), 1)
    repeats: np.ndarray = (np.diff(ordered, axis=1) == 0).any(1) | ((axes != 0) & ~inside).any(1)
    return repeats


def _counts(nodes: Nodes) -> Iterator[Fault]:
    degree, opcodes = nodes.degree, nodes.opcodes
    few = degree < _LOW[opcodes]
    many = degree > _HIGH[opcodes]
    if len(degree) > 1:  # a kernel of one node has no edge
        for node, _ in _first(np.arange(len(degree)), few | many, ""):
            wanted = f"{_LOW[opcodes[node]]} to {_HIGH[opcodes[node]]}"
            if _HIGH[opcodes[node]] >= MANY:
                wanted = f"{_LOW[opcodes[node]]} or more"
            yield node, f"has {degree[node]} operands and called computations, {wanted} wanted (edge_index)"


def _types(nodes: Nodes) -> Iterator[Fault]:
    every = np.arange(len(nodes.opcodes))
    yield from _first(every, nodes.types == _TYPE["invalid"], "has the element type invalid")
    is_tuple = nodes.types == _TYPE["tuple"]
    filled = nodes.sizes.any(1) | nodes.feat[:, columns.LAYOUT].any(1) | (nodes.elements != 1)
    yield from _first(every, is_tuple & filled, "is a tuple with sizes or a layout")
    made = nodes.opcodes == OPCODES["tuple"]
    yield from _first(every, made & ~is_tuple, "has another element type than tuple")
    parts = nodes.feat[:, columns.TUPLE_SHAPES]
    yield from _first(every, made & (parts < nodes.degree), "has fewer elements than operands")
    taken = nodes.opcodes[nodes.users] == OPCODES["get-tuple-element"]
    yield from _first(nodes.users, taken & ~is_tuple[nodes.operands], "takes an element of what is no tuple")


def _elementwise(nodes: Nodes) -> Iterator[Fault]:
    """Yield a node whose operands have other sizes or element types than in the table."""
    users, operands = nodes.users, nodes.operands
    opcodes = nodes.opcodes[users]
    shape = nodes.feat[:, columns.SHAPE.start : columns.SHAPE_PRODUCT + 1]
    edges = np.flatnonzero(_IS_ELEMENTWISE[opcodes])
    other = (shape[users[edges]] != shape[operands[edges]]).any(1)
    scalar = (_IS_SELECT | _IS_CLAMP)[opcodes[edges]] & (nodes.elements[operands[edges]] == 1)
    yield from _first(users[edges], other & ~scalar, "has other sizes than an operand (node_feat, shape)")
    types, given, pred = nodes.types[users], nodes.types[operands], _TYPE["pred"]
    same = types == given
    strict = (_IS_SAME | _IS_CLAMP)[opcodes] | (_IS_SELECT[opcodes] & (given != pred))
    yield from _first(users, strict & ~same, "has another element type than an operand")
    compared = _IS_PRED[opcodes]
    yield from _first(users, compared & (types != pred), "has another element type than pred")
    first = nodes.types[operands[nodes.first[users]]]
    yield from _first(users, compared & (given != first), "has operands of several element types")
    fed = np.flatnonzero(nodes.degree)
    asked = fed[_IS_TYPE[nodes.opcodes[fed]]]
    has = np.bincount(users, same, len(nodes.opcodes)) > 0
    yield from _first(asked, ~has[asked], "has the element type of none of its operands")
    asked = fed[_IS_SELECT[nodes.opcodes[fed]]]
    chosen = np.bincount(users, given == pred, len(nodes.opcodes)) > 0
    yield from _first(asked, ~chosen[asked], "has no predicate among its operands")


def _roots(nodes: Nodes) -> Iterator[Fault]:
    """Yield a second root that no caller names, but an instruction of its own computation uses."""
    caller = _CALLS[nodes.opcodes[nodes.users]]
    called, used = np.zeros((2, len(nodes.opcodes)), bool)
    called[nodes.operands[caller]] = True
    used[nodes.operands[~caller]] = True
    alone = np.flatnonzero((nodes.feat[:, columns.IS_ROOT] > 0) & ~called)
    if len(alone) > 1:
        yield from _first(
            alone, used[alone], "is a root that no computation's caller names (node_feat, is_root)"
        )


def _parameters(nodes: Nodes) -> Iterator[Fault]:
    """Yield a parameter whose number no computation has: each numbers its own from 0."""
    found = np.flatnonzero(nodes.opcodes == OPCODES["parameter"])
    numbers = nodes.feat[found, _COLUMN["parameter_number"]]
    beyond = numbers >= len(found)
    yield from _first(found, beyond, f"has a number beyond {len(found)} parameters (parameter_number)")
    if not beyond.any():
        counts = np.bincount(numbers.astype(np.int64), minlength=1)
        lonely = np.append(False, np.diff(counts) > 0)[numbers.astype(np.int64)]
        yield from _first(found, lonely, "has a number without the one before it (parameter_number)")


def _broadcast(nodes: Nodes) -> Iterator[Fault]:
    found = nodes.of("broadcast", 1)
    source = nodes.operands_of(found, 1)[:, 0]
    keep = (nodes.rank[found] >= 0) & (nodes.rank[source] >= 0)
    found, source = found[keep], source[keep]
    axes = nodes.feat[found, columns.DIMENSIONS]
    inside = nodes.rank[source][:, None] > _PLACES
    sizes = np.take_along_axis(nodes.sizes[found], np.minimum(axes, 5).astype(np.int64), 1)
    off = (inside & ((axes >= nodes.rank[found][:, None]) | (sizes != nodes.sizes[source]))).any(1)
    yield from _first(
        found, off | _repeats(axes, inside), "has axes that its operand does not fit (dimensions)"
    )


def _transpose(nodes: Nodes) -> Iterator[Fault]:
    found = nodes.of("transpose", 1)
    source = nodes.operands_of(found, 1)[:, 0]
    rank = nodes.rank[source]
    keep = (rank >= 0) & (nodes.rank[found] >= 0)
    found, source, rank = found[keep], source[keep], rank[keep]
    axes = nodes.feat[found, columns.DIMENSIONS]
    inside = rank[:, None] > _PLACES
    sizes = np.take_along_axis(nodes.sizes[source], np.minimum(axes, 5).astype(np.int64), 1)
    off = (np.where(inside, sizes, 0) != nodes.sizes[found]).any(1) | (inside & (axes >= rank[:, None])).any(
        1
    )
    yield from _first(
        found, off | _repeats(axes, inside), "has axes that its operand does not fit (dimensions)"
    )


def _reshape(nodes: Nodes) -> Iterator[Fault]:
    found = nodes.of("reshape", 1)
    other = nodes.elements[found] != nodes.elements[nodes.operands_of(found, 1)[:, 0]]
    yield from _first(found, other, "has another number of elements than its operand (shape_product)")


def _tensor_of(nodes: Nodes, found: np.ndarray, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the only operand (n,) that is no single number, and which nodes have none or several."""
    operands = nodes.operands_of(found, degree)
    large = nodes.rank[operands] != 0
    return operands[np.arange(len(found)), large.argmax(1)], large.sum(1) != 1


def _reduce(nodes: Nodes) -> Iterator[Fault]:
    found = nodes.of("reduce", 3)  # a tensor, its start, and the root of the computation
    tensor, unclear = _tensor_of(nodes, found, 3)
    several = (nodes.rank[nodes.operands_of(found, 3)] > 0).sum(1) > 1
    yield from _first(found, several, "has more than one tensor among a start and a computation's root")
    keep = ~unclear & (nodes.rank[found] >= 0) & (nodes.rank[tensor] >= 0)
    found, tensor = found[keep], tensor[keep]
    rank, kept = nodes.rank[tensor], nodes.rank[found]
    axes = nodes.feat[found, columns.DIMENSIONS]
    gone = np.maximum(rank - kept, 0)
    inside = gone[:, None] > _PLACES
    off = (kept > rank) | (inside & (axes >= rank[:, None])).any(1) | _repeats(axes, inside)
    reduced = np.zeros((len(found), _WIDTH), bool)
    row, place = np.nonzero(inside & (axes < _WIDTH))
    reduced[row, axes[row, place].astype(np.int64)] = True
    order = np.argsort(reduced | (rank[:, None] <= _PLACES), 1, kind="stable")
    sizes = np.where(kept[:, None] > _PLACES, np.take_along_axis(nodes.sizes[tensor], order, 1), 0)
    off |= (sizes != nodes.sizes[found]).any(1)
    yield from _first(found, off, "has axes or sizes that its operand does not fit (dimensions)")


def _slice(nodes: Nodes) -> Iterator[Fault]:
    found = nodes.of("slice", 1)
    source = nodes.operands_of(found, 1)[:, 0]
    keep = (nodes.rank[source] >= 0) & (nodes.rank[found] >= 0)
    found, source = found[keep], source[keep]
    start, stride, limit = (
        nodes.list_of(found, f"slice_{name}", 2).astype(np.float64) for name in ("start", "stride", "limit")
    )
    inside = np.arange(2) < nodes.rank[source][:, None]
    sizes = np.ceil((limit - start) / np.maximum(stride, 1))
    exact = limit < _EXACT  # larger numbers are rounded
    off = (start > limit) | (limit > nodes.sizes[source][:, :2]) | (stride < 1)
    off |= exact & (sizes != nodes.sizes[found][:, :2])
    other = nodes.rank[found] != nodes.rank[source]
    yield from _first(
        found, other | (inside & off).any(1), "has bounds that its operand does not fit (slice)"
    )


def _dynamic_slice(nodes: Nodes) -> Iterator[Fault]:
    found = nodes.of("dynamic-slice")
    taken = nodes.list_of(found, "dynamic_slice_size", 2)
    inside = np.arange(2) < nodes.rank[found][:, None]
    off = (inside & (taken != nodes.sizes[found][:, :2])).any(1)
    yield from _first(found, off, "has other sizes than it takes (dynamic_slice_size)")


def _concatenate(nodes: Nodes) -> Iterator[Fault]:
    found = nodes.of("concatenate")
    axis = nodes.feat[found, columns.DIMENSIONS.start].astype(np.int64)
    rank = nodes.rank[found]
    known = rank >= 0
    off = known & (axis >= rank)
    axis_of = np.full(len(nodes.opcodes), -1)
    axis_of[found[known & ~off]] = axis[known & ~off]
    edges = np.flatnonzero(axis_of[nodes.users] >= 0)
    users, operands = nodes.users[edges], nodes.operands[edges]
    along = axis_of[users][:, None] == _PLACES
    differs = (~along & (nodes.sizes[users] != nodes.sizes[operands])).any(1)
    yield from _first(
        users, differs & (nodes.elements[operands] > 0), "has other sizes than an operand (shape)"
    )
    total = np.bincount(users, nodes.sizes[operands][along], len(nodes.opcodes))
    size = nodes.sizes[found, np.clip(axis, 0, 5)]
    off |= known & (axis < _WIDTH) & (total[found] > size) & (size < _EXACT)
    yield from _first(found, off, "has fewer rows than its operands, or an axis that is none (dimensions)")


def _window(nodes: Nodes, found: np.ndarray, spatial: np.ndarray) -> Iterator[Fault]:
    """Yield a node whose window does not have so many dimensions (n,), with numbers from 1."""
    inside = spatial[:, None] > _PLACES
    for name in ("window_size", "window_stride", "window_dilation", "base_dilation"):
        values = nodes.list_of(found, name, _WIDTH)
        off = ((values < 1) & inside).any(1) | ((values != 0) & ~inside).any(1)
        yield from _first(found, off, f"has a window of other dimensions than it needs ({name})")


def _windowed(nodes: Nodes, found: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return how many places a window has in tensors of these sizes (n, 6), which its columns describe."""
    values = {
        name: nodes.list_of(found, name, _WIDTH).astype(np.float64)
        for name in ("window_size", "window_stride", "window_dilation", "base_dilation")
    }
    padding = sum(nodes.list_of(found, f"window_padding_{end}", _WIDTH) for end in ("low", "high"))
    base = np.where(sizes > 0, (sizes - 1) * values["base_dilation"] + 1, 0) + padding
    reach = (values["window_size"] - 1) * values["window_dilation"] + 1
    places = (base - reach) // np.maximum(values["window_stride"], 1) + 1
    return np.where(reach > base, 0, places)


def _reduce_window(nodes: Nodes) -> Iterator[Fault]:
    found = nodes.of("reduce-window", 3)
    tensor, unclear = _tensor_of(nodes, found, 3)
    keep = ~unclear & (nodes.rank[found] >= 0) & (nodes.rank[tensor] >= 0)
    found, tensor = found[keep], tensor[keep]
    yield from _window(nodes, found, nodes.rank[tensor])
    inside = nodes.rank[tensor][:, None] > _PLACES
    sizes = np.where(inside, _windowed(nodes, found, nodes.sizes[tensor]), 0)
    yield from _first(found, (sizes != nodes.sizes[found]).any(1), "has sizes that its window does not give")


def _convolution(nodes: Nodes) -> Iterator[Fault]:
    found = nodes.of("convolution")
    found = found[(nodes.degree[found] >= 1) & (nodes.degree[found] <= 2)]
    last = nodes.first[found] + nodes.degree[found] - 1
    one, two = nodes.operands[nodes.first[found]], nodes.operands[last]
    rank = nodes.rank[found]
    keep = (rank >= 2) & (nodes.rank[one] >= 0) & (nodes.rank[two] >= 0)
    found, one, two, rank = found[keep], one[keep], two[keep], rank[keep]
    yield from _first(
        found,
        (nodes.rank[one] != rank) | (nodes.rank[two] != rank),
        "has another rank than an operand (shape)",
    )
    yield from _window(nodes, found, rank - 2)
    spatial_places = np.arange(4) < (rank - 2)[:, None]
    axes = {}
    for role, names in {
        "input": ("input_batch", "input_feature"),
        "kernel": ("kernel_input_feature", "kernel_output_feature"),
        "output": ("output_batch", "output_feature"),
    }.items():
        named = np.stack([nodes.feat[found, _COLUMN[name]] for name in names], 1).astype(np.int64)
        off = (named >= rank[:, None]).any(1) | (named[:, 0] == named[:, 1])
        if role != "output":
            spatial = nodes.list_of(found, f"{role}_spatial", 4).astype(np.int64)
            every = np.concatenate([named, np.where(spatial_places, spatial, -1 - np.arange(4))], 1)
            off |= ((spatial >= rank[:, None]) & spatial_places).any(1) | (
                (spatial != 0) & ~spatial_places
            ).any(1)
            off |= (np.diff(np.sort(every, 1), axis=1) == 0).any(1)
            axes[f"{role} spatial"] = spatial
        yield from _first(found, off, f"names an {role} axis twice, or one that is none ({names[0]})")
        axes[role] = np.clip(named, 0, 5)
    groups = nodes.feat[found, columns.FEATURE_GROUP_COUNT], nodes.feat[found, columns.BATCH_GROUP_COUNT]
    groups = tuple(np.maximum(count, 1) for count in groups)  # an absent one is 1
    rows = np.arange(len(found))
    window = nodes.list_of(found, "window_size", 4)
    out = nodes.sizes[found]
    fits = np.zeros(len(found), bool)
    for image, kernel in ((one, two), (two, one)):  # edges do not say which is which
        sizes, weights = nodes.sizes[image], nodes.sizes[kernel]
        batch, feature = (sizes[rows, axes["input"][:, place]] for place in (0, 1))
        taken, made = (weights[rows, axes["kernel"][:, place]] for place in (0, 1))
        spatial = np.take_along_axis(weights, np.clip(axes["kernel spatial"], 0, 5), 1)
        fits |= (
            (feature == taken * groups[0])
            & (batch == out[rows, axes["output"][:, 0]] * groups[1])
            & (made == out[rows, axes["output"][:, 1]])
            & (made % (groups[0] * groups[1]) == 0)
            & ((spatial == window) | ~spatial_places).all(1)
        )
    yield from _first(found, ~fits, "has sizes, groups or a window that its operands do not give")


def _dot(nodes: Nodes) -> Iterator[Fault]:
    """Yield a product with a size that none of its operands has."""
    found = np.flatnonzero(nodes.opcodes == OPCODES["dot"])
    found = found[(nodes.degree[found] >= 1) & (nodes.degree[found] <= 2)]
    operands = (
        nodes.operands[nodes.first[found]],
        nodes.operands[nodes.first[found] + nodes.degree[found] - 1],
    )
    known = (nodes.rank[found] >= 0) & (nodes.rank[operands[0]] >= 0) & (nodes.rank[operands[1]] >= 0)
    given = np.concatenate([nodes.sizes[each] for each in operands], 1)
    lost = (nodes.sizes[found][:, :, None] != given[:, None, :]).all(2) & (nodes.sizes[found] > 0)
    yield from _first(found, known & lost.any(1), "has a size that none of its operands has (shape)")


def _iota(nodes: Nodes) -> Iterator[Fault]:
    found = nodes.of("iota")
    rank, axis = nodes.rank[found], nodes.feat[found, columns.DIMENSIONS.start]
    yield from _first(found, (rank > 0) & (axis >= rank), "counts along an axis that is none (dimensions)")


_GENERAL: tuple[Callable[[Nodes], Iterator[Fault]], ...] = (
    _counts,
    _types,
    _parameters,
    _roots,
    _elementwise,
)
_OF_OPCODES: dict[int, Callable[[Nodes], Iterator[Fault]]] = {
    OPCODES[name]: rule
    for name, rule in {
        "reshape": _reshape,
        "broadcast": _broadcast,
        "transpose": _transpose,
        "reduce": _reduce,
        "slice": _slice,
        "dynamic-slice": _dynamic_slice,
        "concatenate": _concatenate,
        "iota": _iota,
        "reduce-window": _reduce_window,
        "convolution": _convolution,
        "dot": _dot,
    }.items()
}


def first_fault(node_feat: np.ndarray, opcodes: np.ndarray, edges: np.ndarray) -> Fault | None:
    """Return the first node that breaks a rule, and what is wrong; arguments as for :class:`Nodes`."""
    nodes = Nodes(node_feat, opcodes, edges)
    there = np.bincount(nodes.opcodes, minlength=_COUNT)
    rules = [*_GENERAL, *(rule for opcode, rule in _OF_OPCODES.items() if there[opcode])]
    return next((fault for rule in rules for fault in rule(nodes)), None)
