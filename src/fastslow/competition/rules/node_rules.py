"""Nodes of a competition file that no program has: the table of opcodes, and a rule for each list of columns.

The columns show less than HLO: operands have no order, an operand that is used twice has one edge, and lists
end after six values, or two. The rules hold as far as columns go; :mod:`fastslow.hlo.shape_rules` sees more.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial

import numpy as np

from fastslow.competition import node_columns as columns
from fastslow.competition.node_columns import COLUMN_NAMES, ELEMENT_BYTES, ELEMENT_TYPES
from fastslow.competition.opcodes import OPCODES, opcode_name, opcode_number
from fastslow.competition.rules.opcode_rules import (
    CLAMP,
    DIFFERENT,
    GIVES,
    GIVES_OPERAND,
    LEAST_RANK,
    MANY,
    NEVER_A_TUPLE,
    OF_SINGLES,
    ONE_AXIS,
    ONE_PART_IS_A_TENSOR,
    ONE_TENSOR,
    OPCODE_RULES,
    OTHER,
    PRED,
    REFUSED_ELEMENTS,
    SAME,
    SELECT,
    SIZES,
    STARTED_BY,
    TAKES_SQUARE,
    TAKES_TOKEN,
    TAKES_TUPLE,
    TAKES_WHOLE,
    TUPLE_PARTS,
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
        least = min(1, rule.operands[0]) + min(1, rule.called[0])
        low[number] = min(low[number], DIFFERENT.get(name, least))
        high[number] = max(high[number], rule.operands[1] + rule.called[1])
        calls[number] |= rule.called[1] > 0
        output[number] = rule.output if output[number] in ("", rule.output) else OTHER
    low[0], high[0], calls[0] = 0, MANY, True
    return low, high, calls, np.array(output)


_LOW, _HIGH, _CALLS, _OUTPUT = _table()


def _every(names: Iterable[str]) -> np.ndarray:
    """Return for which opcode numbers every opcode of that number has one of these names."""
    numbers = [opcode_number(name) for name in OPCODE_RULES]
    others = np.bincount(numbers, [name not in names for name in OPCODE_RULES], _COUNT)
    every: np.ndarray = others == 0
    every[0] = False
    return every


def _by_number(values: Mapping[str, int], otherwise: int) -> np.ndarray:
    """Return a value by opcode number; another one where not every opcode of that number has a value."""
    given = [values.get(opcode_name(number), otherwise) for number in range(_COUNT)]
    return np.where(_every(values), given, otherwise)


# by opcode number and element type: whether it is not given, whether it is not taken
_NOT_GIVEN = np.stack([_every([n for n in GIVES if kind not in GIVES[n]]) for kind in ELEMENT_TYPES], 1)
_REFUSED = np.stack(
    [_every([n for n in REFUSED_ELEMENTS if kind in REFUSED_ELEMENTS[n]]) for kind in ELEMENT_TYPES], 1
)
_TAKES_TUPLE = _every(TAKES_TUPLE)
_TAKES_WHOLE = _every(TAKES_WHOLE)
_TAKES_TOKEN = _every(TAKES_TOKEN)
_LEAST_RANK = _by_number(LEAST_RANK, 0)
_AT_LEAST = np.full((2, _COUNT), MANY)  # operands with called computations, and these alone
for _opcode, _rule in OPCODE_RULES.items():
    _least = _AT_LEAST[:, opcode_number(_opcode)]
    _least[:] = np.minimum(_least, (_rule.operands[0] + _rule.called[0], _rule.called[0]))
_MUST_CALL = _every([name for name, rule in OPCODE_RULES.items() if rule.called[0]])
_HANDS_ON = _every(["call", "fusion", "while", "conditional"])
_GIVES_ALL = _every(["call", "fusion", "while"])
_GIVES_ROOT = _every(["fusion", "while"])
_GIVES_OPERAND = _every(GIVES_OPERAND)
_REDUCES = _every(["reduce", "reduce-window", "scatter"])  # of a tuple the computation gives one, too
_LEAST_PARTS = MANY * _every(NEVER_A_TUPLE) + 2 * _every(ONE_PART_IS_A_TENSOR)  # of an output that is a tuple
_OF_SINGLES = _every(OF_SINGLES)
_ONE_AXIS = _every(ONE_AXIS)
_HIGH_OF_ONE = _by_number(ONE_TENSOR, MANY)
_PARTS = _by_number(TUPLE_PARTS, 0)
_OTHER_START = np.zeros((_COUNT, _COUNT), bool)  # by opcode number, and that of its operand
for _opcode, _starts in STARTED_BY.items():
    _OTHER_START[opcode_number(_opcode)] = _every([_opcode])[opcode_number(_opcode)]
    _OTHER_START[opcode_number(_opcode), [opcode_number(start) for start in _starts]] = False
_IS_SAME, _IS_PRED, _IS_SELECT, _IS_CLAMP, _IS_TYPE, _IS_SIZES = (
    np.equal(_OUTPUT, output) for output in (SAME, PRED, SELECT, CLAMP, TYPE, SIZES)
)
_IS_ELEMENTWISE = (_IS_SAME | _IS_PRED | _IS_SELECT | _IS_CLAMP | _IS_SIZES) & ~_CALLS
# whose operands are as many as the opcode says, and not often one taken twice, as in x * x
_FIXED = (np.minimum(_LOW, 1) > 0) & (_HIGH > 1) & (_HIGH < MANY) & ~_CALLS & ~_every(["multiply", "outfeed"])
_PURE = ((_IS_ELEMENTWISE | _IS_TYPE) & ~_CALLS) | np.isin(
    np.arange(_COUNT),
    [OPCODES[name] for name in ("constant", "dot", "convolution", "iota", "bitcast", "fusion", "reduce")],
)
_COLUMN = {name: number for number, name in enumerate(COLUMN_NAMES)}
_CLASS = np.arange(len(ELEMENT_TYPES))  # of an element type: one for all floating-point types
_CLASS[_FLOATS] = _TYPE["f32"]
_KIND = np.zeros(len(ELEMENT_TYPES), np.int64)  # of an element type: 2 complex, 1 floating-point, 0 another
_KIND[_FLOATS], _KIND[[_TYPE["c64"], _TYPE["c128"]]] = 1, 2
_WHOLE = [_TYPE[name] for name in ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")]
_BYTES = np.array([*ELEMENT_BYTES.values()], np.float64)
_KERNEL_SPATIAL = range(columns.KERNEL_SPATIAL.start, columns.KERNEL_SPATIAL.stop)
_CONVOLUTION_AXES = [*itertools.chain(*columns.CONVOLUTION_AXES), *_KERNEL_SPATIAL]
_HAS_WINDOW = np.isin(
    np.arange(_COUNT),
    [OPCODES[name] for name in ("convolution", "reduce-window", "select-and-scatter", "custom-call")],
)
_ROUNDING = 1e-6  # relative, of a sum or product in float32
_FROM_ONE = {0: "window_size", 1: "window_stride", 4: "window_dilation", 5: "base_dilation"}


class Nodes:
    """The nodes of a file, and what several rules ask of them.

    Args:
        node_feat: (N, 140) whole numbers, whose sums and products are right.
        opcodes: (N,) 0 to 120.
        edges: (E, 2) distinct rows (consumer, operand).

    Attributes:
        sizes: (N, 6) the first six dimension sizes, 0 beyond the rank.
        elements: (N,) number of elements of the output.
        types: (N,) number of the element type; all floating-point types share one.
        is_root: (N,) whether a node is the root of a computation.
        calls: (E,) whether an edge leads from a caller to the root of a computation that it calls.
    """

    def __init__(self, node_feat: np.ndarray, opcodes: np.ndarray, edges: np.ndarray):
        self.feat = node_feat
        self.opcodes = opcodes.astype(np.int64)
        if (np.diff(edges[:, 0]) < 0).any():  # published ones are in order
            edges = edges[np.argsort(edges[:, 0], kind="stable")]
        self.users, self.operands = edges.T.astype(np.int64)
        self.degree = np.bincount(self.users, minlength=len(opcodes))
        self.first = np.cumsum(self.degree) - self.degree  # edge
        self.sizes = np.ascontiguousarray(node_feat[:, columns.SHAPE])
        self.elements = node_feat[:, columns.SHAPE_PRODUCT]
        self.types = _CLASS[node_feat[:, columns.ELEMENT_TYPE].argmax(1)]
        self.is_root = node_feat[:, columns.IS_ROOT] > 0
        self.calls = _CALLS[self.opcodes[self.users]] & self.is_root[self.operands]

    @cached_property
    def rank(self) -> np.ndarray:
        """Number of dimensions (N,), -1 where it is not known: a size is 0, or more may be there."""
        shown = (self.sizes > 0).sum(1)
        total = self.feat[:, columns.SHAPE_SUM]
        whole = (shown < _WIDTH) | ((total == self.sizes.sum(1)) & (total < _EXACT))
        return np.where((self.elements > 0) & whole, shown, -1)

    @cached_property
    def has_whole_parts(self) -> bool:
        """Whether every part with a parameter has a root node; then each part is a computation."""
        parts = self.parts[self.opcodes == OPCODES["parameter"]]
        return bool((np.bincount(self.parts[self.is_root], minlength=len(self.opcodes))[parts] > 0).all())

    @cached_property
    def parts(self) -> np.ndarray:
        """Number (N,) of the part of a computation that each node is in, from 0.

        A file lists one computation after the other: between two parts no edge leads from one to the other
        but calls.
        """
        ends = np.stack([self.users, self.operands])[:, ~self.calls]
        open_edges = np.bincount(ends.min(0), minlength=len(self.opcodes) + 1)
        open_edges -= np.bincount(ends.max(0), minlength=len(self.opcodes) + 1)
        closed = np.cumsum(open_edges)[:-1] == 0
        parts: np.ndarray = np.cumsum(closed) - closed
        return parts

    def of(self, opcode: str, degree: int | None = None) -> np.ndarray:
        """Return the nodes (n,) of an opcode whose output is no tuple, of ``degree`` operands where given."""
        nodes = (self.opcodes == OPCODES[opcode]) & (self.types != _TYPE["tuple"])
        return np.flatnonzero(nodes & (self.degree == degree) if degree is not None else nodes)

    def operands_of(self, nodes: np.ndarray, degree: int) -> np.ndarray:
        """Return the operands (n, degree) of nodes that have so many."""
        operands: np.ndarray = self.operands[self.first[nodes][:, None] + np.arange(degree)]
        return operands

    def edges_of(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all m edges from nodes ``(n,)``: positions in ``nodes`` and numbers of edges, both (m,)."""
        position, place = _repeated(self.degree[nodes])
        return position, self.first[nodes][position] + place

    def alike(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return which nodes (n,) have the sizes, parts and element type of others (n,)."""
        sizes = slice(columns.SHAPE.start, columns.TUPLE_SHAPES + 1)
        alike: np.ndarray = (self.feat[one, sizes] == self.feat[other, sizes]).all(1)
        alike &= self.types[one] == self.types[other]
        return alike

    def window_of(self, nodes: np.ndarray) -> np.ndarray:
        """Return the lists (6, n, 6) of a window: size, stride, padding low and high, dilation, base's."""
        lists = self.feat[nodes, columns.WINDOW_SIZE.start : columns.WINDOW_REVERSAL.start]
        window: np.ndarray = lists.reshape(len(nodes), 6, 8)[:, :, :_WIDTH].transpose(1, 0, 2)
        return window

    def list_of(self, nodes: np.ndarray, name: str, width: int) -> np.ndarray:
        """Return the first ``width`` columns (n, width) of a list, such as ``slice_start``, of nodes (n,)."""
        start = _COLUMN[f"{name}_0"]
        values: np.ndarray = self.feat[nodes, start : start + width]
        return values


def _repeated(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each position repeated by its count (n,), and a number from 0 within each, both (m,)."""
    position = np.repeat(np.arange(len(counts)), counts)
    return position, np.arange(len(position)) - np.repeat(np.cumsum(counts) - counts, counts)


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
            bounds = f"{_LOW[opcodes[node]]} to {_HIGH[opcodes[node]]}"
            if _HIGH[opcodes[node]] >= MANY:
                bounds = f"{_LOW[opcodes[node]]} or more"
            yield node, f"has {degree[node]} operands and called computations, {bounds} wanted (edge_index)"
        many = (degree > _HIGH_OF_ONE[opcodes]) & (nodes.types != _TYPE["tuple"])
        said = "has more operands than one tensor is made of (edge_index)"
        yield from _first(np.arange(len(degree)), many, said)


def _types(nodes: Nodes) -> Iterator[Fault]:
    every = np.arange(len(nodes.opcodes))
    yield from _first(every, nodes.types == _TYPE["invalid"], "has the element type invalid")
    is_tuple = nodes.types == _TYPE["tuple"]
    no_tensor = is_tuple | (nodes.types == _TYPE["token"]) | (nodes.types == _TYPE["opaque"])
    filled = nodes.sizes.any(1) | nodes.feat[:, columns.LAYOUT].any(1) | (nodes.elements != 1)
    yield from _first(every, no_tensor & filled, "is a tuple, token or opaque with sizes or a layout")
    made = is_tuple & ((nodes.opcodes == OPCODES["tuple"]) | (nodes.opcodes == OPCODES["sort"]))
    given = nodes.degree - np.bincount(nodes.users[nodes.calls], minlength=len(every))
    parts = nodes.feat[:, columns.TUPLE_SHAPES]
    yield from _first(every, made & (parts < given), "has fewer elements than operands (tuple_shapes)")
    bare = made & (parts > 0) & (given == 0) & (len(every) > 1)
    yield from _first(every, bare, "is a tuple with elements, but no operand is one of them (edge_index)")
    fixed = _PARTS[nodes.opcodes]
    off = is_tuple & (fixed > 0) & (parts != fixed)
    yield from _first(every, off, "has another number of elements than its opcode gives (tuple_shapes)")
    off = is_tuple & (parts < _LEAST_PARTS[nodes.opcodes])
    yield from _first(every, off, "is a tuple where its opcode gives a tensor (element_type, tuple_shapes)")
    other = _NOT_GIVEN[nodes.opcodes, nodes.types]
    yield from _first(every, other, "has an element type that its opcode does not give (element_type)")
    taken = _TAKES_TUPLE[nodes.opcodes[nodes.users]] & ~nodes.calls
    taken |= nodes.opcodes[nodes.users] == OPCODES["get-tuple-element"]
    yield from _first(nodes.users, taken & ~is_tuple[nodes.operands], "needs a tuple as operand")
    off = _OTHER_START[nodes.opcodes[nodes.users], nodes.opcodes[nodes.operands]] & ~nodes.calls
    yield from _first(nodes.users, off, "ends an asynchronous operation of another opcode (node_opcode)")


def _elements(nodes: Nodes) -> Iterator[Fault]:
    """Yield a get-tuple-element that none of what its tuple is made of is like."""
    taken = nodes.of("get-tuple-element", 1)
    source = _made_by(nodes)[nodes.operands_of(taken, 1)[:, 0]]
    taken, source = taken[source >= 0], source[source >= 0]
    position, edges = nodes.edges_of(source)
    alike = nodes.alike(taken[position], nodes.operands[edges])
    has = np.bincount(position, alike, len(taken)) > 0
    yield from _first(taken, ~has, "has sizes or an element type of no element of its tuple")


def _made_by(nodes: Nodes) -> np.ndarray:
    """Return by node (N,) which node made the tuple that it gives, -1 where that is not known.

    A loop gives, and its computations are given, a tuple like the one that it begins with.
    """
    made = np.isin(nodes.opcodes, [OPCODES[name] for name in ("tuple", "all-reduce")])
    made_by = np.where(made, np.arange(len(made)), -1)
    loops = nodes.opcodes[nodes.users] == OPCODES["while"]
    begins = np.flatnonzero(loops & ~nodes.calls)
    made_by[nodes.users[begins]] = made_by[nodes.operands[begins]]
    for edge in np.flatnonzero(loops & nodes.calls):
        inside = nodes.parts == nodes.parts[nodes.operands[edge]]
        made_by[inside & (nodes.opcodes == OPCODES["parameter"])] = made_by[nodes.users[edge]]
    return made_by


def _elementwise(nodes: Nodes) -> Iterator[Fault]:
    """Yield a node whose operands have other sizes or element types than in the table."""
    users, operands = nodes.users, nodes.operands
    opcodes = nodes.opcodes[users]
    shape = nodes.feat[:, columns.SHAPE.start : columns.SHAPE_PRODUCT + 1]
    edges = np.flatnonzero(_IS_ELEMENTWISE[opcodes])
    other = (shape[users[edges]] != shape[operands[edges]]).any(1)
    scalar = (_IS_SELECT | _IS_CLAMP)[opcodes[edges]] & (nodes.elements[operands[edges]] == 1)
    yield from _first(users[edges], other & ~scalar, "has other sizes than an operand (node_feat, shape)")
    alike = np.bincount(users[edges], ~other, len(nodes.opcodes)) > 0
    yield from _first(users[edges], ~alike[users[edges]], "has the sizes of none of its operands")
    types, given, pred = nodes.types[users], nodes.types[operands], _TYPE["pred"]
    same = types == given
    strict = (_IS_SAME | _IS_CLAMP)[opcodes] | (_IS_SELECT[opcodes] & (given != pred))
    yield from _first(users, strict & ~same, "has another element type than an operand")
    yield from _first(users, _REFUSED[opcodes, given], "has an element type that it does not take")
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
    asked = fed[_TAKES_WHOLE[nodes.opcodes[fed]]]
    placed = np.bincount(users, np.isin(given, _WHOLE), len(nodes.opcodes)) > 0
    yield from _first(asked, ~placed[asked], "has no operand of integer indices")
    asked = fed[_TAKES_TOKEN[nodes.opcodes[fed]]]
    ordered = np.bincount(users, given == _TYPE["token"], len(nodes.opcodes)) > 0
    yield from _first(asked, ~ordered[asked], "has no token among its operands")


def _roots(nodes: Nodes) -> Iterator[Fault]:
    """Yield a root that no caller names beside the program's own, a second root, or a caller of none."""
    called, used = np.zeros((2, len(nodes.opcodes)), bool)
    called[nodes.operands[nodes.calls]] = True
    used[nodes.operands[~_CALLS[nodes.opcodes[nodes.users]]]] = True
    roots = np.flatnonzero(nodes.is_root)
    alone = roots[~called[roots]]
    if len(alone) > 1:
        said = "is a root that no computation's caller names (node_feat, is_root)"
        yield from _first(alone, used[alone], said)
    surely = nodes.operands[nodes.calls & _MUST_CALL[nodes.opcodes[nodes.users]]]
    if np.isin(roots, surely).all():
        yield int(roots[-1]), "is called, as every root is: the program's own is missing (is_root)"
    second = np.append(False, np.diff(nodes.parts[roots]) == 0)
    yield from _first(roots, second, "is the second root of a computation (node_feat, is_root)")
    calling = np.zeros(len(nodes.opcodes), bool)
    calling[nodes.users[nodes.calls]] = True
    callers = np.flatnonzero(_MUST_CALL[nodes.opcodes] & (nodes.degree > 0))
    yield from _first(callers, ~calling[callers], "calls no computation: no operand is a root (is_root)")


def _signatures(nodes: Nodes) -> Iterator[Fault]:
    """Yield what a caller gives that no parameter of its computation is like, or such a parameter."""
    calls = np.flatnonzero(nodes.calls & (_HANDS_ON | _OF_SINGLES)[nodes.opcodes[nodes.users]])
    parameters = np.flatnonzero(nodes.opcodes == OPCODES["parameter"])  # in the order of parts
    counts = np.bincount(nodes.parts[parameters], minlength=nodes.parts[-1] + 1)
    called = nodes.parts[nodes.operands[calls]]
    position, place = _repeated(counts[called])
    callers = nodes.users[calls][position]
    taken = parameters[(np.cumsum(counts) - counts)[called][position] + place]
    single = _OF_SINGLES[nodes.opcodes[callers]]
    problem = "is a parameter of a computation of single elements, and has sizes (shape)"
    yield from _first(taken, single & (nodes.elements[taken] != 1), problem)
    position, edges = nodes.edges_of(callers)
    given = nodes.operands[edges]
    alike = nodes.types[taken[position]] == nodes.types[given]
    calls_of = np.bincount(nodes.users[nodes.calls], minlength=len(nodes.opcodes))
    surely = calls_of == _AT_LEAST[1][nodes.opcodes]  # else an operand may be a root
    alike &= ~(nodes.calls[edges] & surely[nodes.users[edges]])
    alike &= single[position] | nodes.alike(taken[position], given)
    has = np.bincount(position, alike, len(taken)) > 0
    problem = "is a parameter whose shape and type match no operand of the call"
    yield from _first(taken, ~has, f"{problem} (shape, element_type)")
    fits = np.bincount(edges, alike, len(nodes.users)) > 0
    if nodes.has_whole_parts:
        many = _GIVES_ALL[nodes.opcodes[nodes.users[calls]]]
        many &= (nodes.degree - calls_of)[nodes.users[calls]] > counts[called]
        yield from _first(nodes.users[calls], many, "has more operands than its computation has parameters")
        handed = np.flatnonzero(_GIVES_ALL[nodes.opcodes[nodes.users]] & ~nodes.calls)
        problem = "has an operand whose shape and type match no parameter of the computation that it calls"
        yield from _first(nodes.users[handed], ~fits[handed], f"{problem} (shape, element_type)")


def _parameters(nodes: Nodes) -> Iterator[Fault]:
    """Yield a parameter whose number no computation has: each numbers its own from 0."""
    parameters = np.flatnonzero(nodes.opcodes == OPCODES["parameter"])
    numbers = nodes.feat[parameters, _COLUMN["parameter_number"]]
    beyond = numbers >= len(parameters)
    yield from _beyond(parameters, numbers, np.full(len(numbers), len(numbers)), "the program")
    _, first = np.unique(np.stack([nodes.parts[parameters], numbers]), axis=1, return_index=True)
    again = ~np.isin(np.arange(len(parameters)), first)
    said = "has the same parameter number as another parameter of its computation (parameter_number)"
    yield from _first(parameters, again, said)
    if nodes.has_whole_parts:
        counts = np.bincount(nodes.parts[parameters], minlength=1)[nodes.parts[parameters]]
        beyond |= numbers >= counts
        yield from _beyond(parameters, numbers, counts, "its computation")
    if not beyond.any():
        counts = np.bincount(numbers.astype(np.int64), minlength=1)
        lonely = np.append(False, np.diff(counts) > 0)[numbers.astype(np.int64)]
        yield from _first(parameters, lonely, "has a number without the one before it (parameter_number)")


def _beyond(parameters: np.ndarray, numbers: np.ndarray, counts: np.ndarray, whole: str) -> Iterator[Fault]:
    """Yield the first parameter whose number is not below the count (n,) of a whole."""
    for first in np.flatnonzero(numbers >= counts)[:1]:
        problem = f"has parameter number {numbers[first]:.0f}; {whole} has {counts[first]} parameters, from 0"
        yield int(parameters[first]), f"{problem} (parameter_number)"


def _with_operand(nodes: Nodes, opcode: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes (n,) of an opcode of one operand, and the operand (n,), where both ranks are known."""
    of_opcode = nodes.of(opcode, 1)
    operand = nodes.operands_of(of_opcode, 1)[:, 0]
    known = (nodes.rank[of_opcode] >= 0) & (nodes.rank[operand] >= 0)
    return of_opcode[known], operand[known]


def _moved_axes(nodes: Nodes, opcode: str) -> Iterator[Fault]:
    """Yield a broadcast or transpose whose axes, one for each of its operand, do not give its sizes."""
    moved, source = _with_operand(nodes, opcode)
    axes = nodes.feat[moved, columns.DIMENSIONS]
    inside = nodes.rank[source][:, None] > _PLACES
    place = np.minimum(axes, _WIDTH - 1).astype(np.int64)
    if opcode == "broadcast":  # axis of the output by axis of the operand
        sizes = np.take_along_axis(nodes.sizes[moved], place, 1)
        beyond = axes >= nodes.rank[moved][:, None]
        off = inside & (beyond | (sizes != nodes.sizes[source]))
    else:  # axis of the operand by axis of the output
        sizes = np.where(inside, np.take_along_axis(nodes.sizes[source], place, 1), 0)
        beyond = inside & (axes >= nodes.rank[source][:, None])
        off = beyond | (sizes != nodes.sizes[moved])
    broken = off.any(1) | _repeats(axes, inside)
    yield from _first(moved, broken, "has axes that its operand does not fit (dimensions)")


def _reshape(nodes: Nodes) -> Iterator[Fault]:
    reshapes = nodes.of("reshape", 1)
    other = nodes.elements[reshapes] != nodes.elements[nodes.operands_of(reshapes, 1)[:, 0]]
    yield from _first(reshapes, other, "has another number of elements than its operand (shape_product)")


def _bitcast(nodes: Nodes) -> Iterator[Fault]:
    bitcasts = np.concatenate([nodes.of(name, 1) for name in ("bitcast", "bitcast-convert")])
    operands = nodes.operands_of(bitcasts, 1)[:, 0]
    width = _BYTES[nodes.feat[:, columns.ELEMENT_TYPE].argmax(1)]
    size = nodes.elements * width
    narrow = width[bitcasts] == 1
    # the columns have no type of less than a byte: it is written as one of a byte, and has fewer bytes
    off = (narrow == (width[operands] == 1)) | (narrow != (size[bitcasts] > size[operands]))
    off &= size[bitcasts] != size[operands]
    yield from _first(bitcasts, off, "has more or fewer bytes than its operand")


def _given(nodes: Nodes) -> Iterator[Fault]:
    """Yield a node that none of what it reads and calls is like, of an opcode that gives such an output."""
    tensor = nodes.types != _TYPE["tuple"]
    asked = np.where(tensor, _GIVES_OPERAND[nodes.opcodes], _REDUCES[nodes.opcodes])
    asked = (asked | _GIVES_ROOT[nodes.opcodes]) & (nodes.degree > 0)
    edges = np.flatnonzero(asked[nodes.users])
    users = nodes.users[edges]
    has = np.bincount(users, nodes.alike(users, nodes.operands[edges]), len(nodes.opcodes)) > 0
    every = np.arange(len(asked))
    yield from _first(every, asked & ~has, "has sizes or an element type of none of what it reads or calls")


def _tensor_of(nodes: Nodes, of_opcode: np.ndarray, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the only operand (n,) that is no single number, and which nodes have none or several."""
    operands = nodes.operands_of(of_opcode, degree)
    large = nodes.rank[operands] != 0
    return operands[np.arange(len(of_opcode)), large.argmax(1)], large.sum(1) != 1


def _ranks(nodes: Nodes) -> Iterator[Fault]:
    """Yield a node of fewer dimensions than its opcode gives."""
    every = np.arange(len(nodes.opcodes))
    flat = (nodes.rank >= 0) & (nodes.rank < _LEAST_RANK[nodes.opcodes]) & (nodes.types != _TYPE["tuple"])
    yield from _first(every, flat, "has fewer dimensions than its opcode gives (shape)")


def _squares(nodes: Nodes) -> Iterator[Fault]:
    """Yield a node none of whose operands is a matrix of as many rows as columns."""
    solved = np.concatenate([nodes.of(name) for name in sorted(TAKES_SQUARE)])
    solved = solved[(nodes.rank[solved] >= 2) & (nodes.degree[solved] > 0)]
    position, edges = nodes.edges_of(solved)
    given = nodes.operands[edges]
    last = np.maximum(nodes.rank[given] - 1, 1)
    sizes = nodes.sizes[given]
    place = np.arange(len(given))
    square = (nodes.rank[given] < 0) | (sizes[place, last] == sizes[place, last - 1])
    has = np.bincount(position, square, len(solved)) > 0
    yield from _first(solved, ~has, "has no operand of as many rows as columns (shape)")


def _single_operands(nodes: Nodes) -> Iterator[Fault]:
    """Yield a node that draws between bounds that are no single numbers."""
    drawn = nodes.of("rng")
    position, edges = nodes.edges_of(drawn)
    many = nodes.elements[nodes.operands[edges]] != 1
    yield from _first(drawn[position], many, "has an operand that is no single number (shape)")


def _mapped(nodes: Nodes) -> Iterator[Fault]:
    """Yield a node that maps a tensor of other sizes than its output."""
    mapped = nodes.of("map")
    position, edges = nodes.edges_of(mapped)
    other = (nodes.sizes[mapped[position]] != nodes.sizes[nodes.operands[edges]]).any(1) & ~nodes.calls[edges]
    yield from _first(mapped[position], other, "has other sizes than an operand (shape)")


def _reductions(nodes: Nodes) -> Iterator[Fault]:
    """Yield a reduction of another type, or of several tensors: it has one, its start, and a root."""
    reductions = np.concatenate([nodes.of(name, 3) for name in ("reduce", "reduce-window")])
    operands = nodes.operands_of(reductions, 3)
    other = (nodes.types[operands] != nodes.types[reductions][:, None]).any(1)
    yield from _first(reductions, other, "has another element type than what it reduces")
    several = (nodes.rank[operands] > 0).sum(1) > 1
    yield from _first(reductions, several, "has more than one tensor among a start and a computation's root")


def _reduced(nodes: Nodes, opcode: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the reductions (n,) of one tensor and that tensor (n,), where both ranks are known."""
    reductions = nodes.of(opcode, 3)
    tensor, unclear = _tensor_of(nodes, reductions, 3)
    known = ~unclear & (nodes.rank[reductions] >= 0) & (nodes.rank[tensor] >= 0)
    return reductions[known], tensor[known]


def _reduce(nodes: Nodes) -> Iterator[Fault]:
    reduces, tensor = _reduced(nodes, "reduce")
    rank, kept = nodes.rank[tensor], nodes.rank[reduces]
    axes = nodes.feat[reduces, columns.DIMENSIONS]
    gone = np.maximum(rank - kept, 0)
    inside = gone[:, None] > _PLACES
    off = (kept > rank) | (inside & (axes >= rank[:, None])).any(1) | _repeats(axes, inside)
    reduced = np.zeros((len(reduces), _WIDTH), bool)
    row, place = np.nonzero(inside & (axes < _WIDTH))
    reduced[row, axes[row, place].astype(np.int64)] = True
    order = np.argsort(reduced | (rank[:, None] <= _PLACES), 1, kind="stable")
    sizes = np.where(kept[:, None] > _PLACES, np.take_along_axis(nodes.sizes[tensor], order, 1), 0)
    off |= (sizes != nodes.sizes[reduces]).any(1)
    yield from _first(reduces, off, "has axes or sizes that its operand does not fit (dimensions)")


def _sums(nodes: Nodes, listed: np.ndarray, names: Sequence[str]) -> Iterator[Fault]:
    """Yield a node (n,) with another sum or product of a list by its name, of which two values show."""
    inside = np.arange(2) < nodes.rank[listed][:, None]
    for name in names:
        values = nodes.list_of(listed, name, 4).astype(np.float64)
        shown = np.where(inside, values[:, :2], 0)
        whole = np.stack([shown.sum(1), np.where(inside, shown, 1).prod(1)], 1)
        off = (np.abs(whole - values[:, 2:]) > _ROUNDING * np.abs(whole)).any(1)
        off = np.where(nodes.rank[listed] <= 2, off, (whole[:, 1] == 0) & (values[:, 3] != 0))
        broken = (nodes.rank[listed] >= 0) & off
        yield from _first(listed, broken, f"has another sum or product than of its values ({name})")


def _slice(nodes: Nodes) -> Iterator[Fault]:
    slices, source = _with_operand(nodes, "slice")
    start, stride, limit = (
        nodes.list_of(slices, f"slice_{name}", 2).astype(np.float64) for name in ("start", "stride", "limit")
    )
    inside = np.arange(2) < nodes.rank[source][:, None]
    sizes = np.ceil((limit - start) / np.maximum(stride, 1))
    exact = limit < _EXACT  # larger numbers are rounded
    off = (start > limit) | (limit > nodes.sizes[source][:, :2]) | (stride < 1)
    off |= exact & (sizes != nodes.sizes[slices][:, :2])
    broken = (nodes.rank[slices] != nodes.rank[source]) | (inside & off).any(1)
    yield from _first(slices, broken, "has bounds that its operand does not fit (slice)")
    yield from _sums(nodes, slices, ("slice_start", "slice_stride", "slice_limit"))
    starts, strides, limits = (
        nodes.list_of(slices, f"slice_{name}", 4).astype(np.float64) for name in ("start", "stride", "limit")
    )
    length = limits[:, 2] - starts[:, 2] - nodes.feat[slices, columns.SHAPE_SUM]
    off = (length < 0) | ((strides[:, 3] == 1) & (length != 0))
    whole = nodes.feat[source, columns.SHAPE_SUM : columns.SHAPE_PRODUCT + 1]
    off |= (limits[:, 2] == whole[:, 0]) & (limits[:, 3] != whole[:, 1])
    off = (off & (limits[:, 2] < _EXACT)) | ((strides[:, 3] == 1) != (strides[:, 2] == nodes.rank[slices]))
    yield from _first(slices, off, "has bounds whose sums do not give its sizes (slice)")


def _dynamic_slice(nodes: Nodes) -> Iterator[Fault]:
    slices = nodes.of("dynamic-slice")
    taken = nodes.list_of(slices, "dynamic_slice_size", 2)
    inside = np.arange(2) < nodes.rank[slices][:, None]
    off = (inside & (taken != nodes.sizes[slices][:, :2])).any(1)
    whole = nodes.list_of(slices, "dynamic_slice_size", 4)[:, 2:]
    off |= (whole != nodes.feat[slices, columns.SHAPE_SUM : columns.SHAPE_PRODUCT + 1]).any(1)
    yield from _first(slices, off, "has other sizes than it takes (dynamic_slice_size)")
    known = nodes.rank[slices] >= 0
    many = known & (nodes.degree[slices] > 1 + nodes.rank[slices])
    yield from _first(slices, many, "has more starts than dimensions (edge_index)")
    position, edges = nodes.edges_of(slices)
    taking, given = slices[position], nodes.operands[edges]
    holds = (nodes.rank[given] < 0) | (nodes.rank[given] == nodes.rank[taking])
    holds &= (nodes.types[given] == nodes.types[taking]) & (nodes.sizes[given] >= nodes.sizes[taking]).all(1)
    small = np.bincount(position, holds, len(slices)) == 0
    yield from _first(slices, known & small, "is no part of one of its operands (shape)")


def _pad(nodes: Nodes) -> Iterator[Fault]:
    """Yield a padded tensor of another rank, or one that no single number pads."""
    pads = nodes.of("pad", 2)
    tensor, unclear = _tensor_of(nodes, pads, 2)
    several = (nodes.rank[nodes.operands_of(pads, 2)] > 0).sum(1) > 1
    yield from _first(pads, several, "has no single number among its operands, which pads (edge_index)")
    known = ~unclear & (nodes.rank[pads] >= 0) & (nodes.rank[tensor] >= 0)
    other = known & (nodes.rank[pads] != nodes.rank[tensor])
    yield from _first(pads, other, "has another number of dimensions than its operand (shape)")
    sizes = nodes.sizes[tensor][:, :2]
    inner = nodes.sizes[pads][:, :2] - sizes
    inner -= nodes.list_of(pads, "edge_padding_low", 2) + nodes.list_of(pads, "edge_padding_high", 2)
    off = (inner < 0) | (inner % np.maximum(sizes - 1, 1) != 0) | ((sizes <= 1) & (inner != 0))
    off &= np.arange(2) < nodes.rank[pads][:, None]
    inner = nodes.feat[pads, columns.SHAPE_SUM].astype(np.float64) - nodes.feat[tensor, columns.SHAPE_SUM]
    for name in ("low", "high"):
        inner -= nodes.list_of(pads, f"edge_padding_{name}", 3)[:, 2]
    broken = known & (off.any(1) | (inner < 0))
    yield from _first(pads, broken, "has sizes that its padding does not give (edge_padding)")
    yield from _sums(nodes, pads, ("edge_padding_low", "edge_padding_high"))


def _concatenate(nodes: Nodes) -> Iterator[Fault]:
    joined = nodes.of("concatenate")
    axis = nodes.feat[joined, columns.DIMENSIONS.start].astype(np.int64)
    rank = nodes.rank[joined]
    known = rank >= 0
    off = known & (axis >= rank)
    axis_of = np.full(len(nodes.opcodes), -1)
    axis_of[joined[known & ~off]] = axis[known & ~off]
    edges = np.flatnonzero(axis_of[nodes.users] >= 0)
    users, operands = nodes.users[edges], nodes.operands[edges]
    along = axis_of[users][:, None] == _PLACES
    differs = (~along & (nodes.sizes[users] != nodes.sizes[operands])).any(1)
    full = nodes.elements[operands] > 0
    yield from _first(users, differs & full, "has other sizes than an operand (shape)")
    total = np.bincount(users, nodes.sizes[operands][along], len(nodes.opcodes))
    size = nodes.sizes[joined, np.clip(axis, 0, _WIDTH - 1)]
    lacking = size - total[joined]  # what operands have that are there again
    divisor = np.zeros(len(nodes.opcodes), np.int64)
    np.gcd.at(divisor, users, nodes.sizes[operands][along].astype(np.int64))
    unlike = (lacking < 0) | (lacking % np.maximum(divisor[joined], 1) != 0)
    off |= known & (axis < _WIDTH) & unlike & (size < _EXACT)
    yield from _first(joined, off, "has other rows than operands, or an axis outside its rank (dimensions)")


def _window(nodes: Nodes, windowed: np.ndarray, spatial: np.ndarray) -> Iterator[Fault]:
    """Yield a node whose window does not have so many dimensions (n,), with numbers from 1."""
    lists = nodes.window_of(windowed)[list(_FROM_ONE)]
    inside = spatial[:, None] > _PLACES
    off = (inside & (lists < 1)).any(2) | (~inside & (lists != 0)).any(2)
    for name, broken in zip(_FROM_ONE.values(), off, strict=True):
        yield from _first(windowed, broken, f"has a window of other dimensions than it needs ({name})")


def _windows(nodes: Nodes) -> Iterator[Fault]:
    """Yield a window with padding or reversals of dimensions that it has not, or with another sum of them."""
    windowed = np.flatnonzero(_HAS_WINDOW[nodes.opcodes])
    if not len(windowed):
        return
    inside = nodes.feat[windowed, columns.WINDOW_SIZE] > 0
    for name in ("window_padding_low", "window_padding_high"):
        values = nodes.list_of(windowed, name, _WIDTH + 2)
        padding = np.where(inside, values[:, :_WIDTH], 0)
        off = (padding != values[:, :_WIDTH]).any(1)
        whole = np.stack([padding.sum(1), np.where(inside, padding, 1).prod(1)], 1)
        off |= (np.abs(whole - values[:, _WIDTH:]) > _ROUNDING * np.abs(whole)).any(1)
        said = f"has padding that does not match its window, or its sum column is wrong ({name})"
        yield from _first(windowed, off, said)
    reversals = nodes.feat[windowed, columns.WINDOW_REVERSAL]
    turned = nodes.feat[windowed, columns.WINDOW_REVERSED]
    unturned = nodes.feat[windowed, columns.WINDOW_NOT_REVERSED]
    off = (reversals * ~inside).any(1) | (reversals.sum(1) != turned)
    off |= inside.sum(1) != turned + unturned
    said = "has reversals that do not match its window, or its sum column is wrong (window_reversed)"
    yield from _first(windowed, off, said)


def _places(nodes: Nodes, windowed: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return how many places (n, 6) the window of nodes has in tensors of these sizes (n, 6)."""
    size, stride, low, high, dilation, base = nodes.window_of(windowed).astype(np.float64)
    whole = np.where(sizes > 0, (sizes - 1) * base + 1, 0) + low + high
    reach = (size - 1) * dilation + 1
    places = (whole - reach) // np.maximum(stride, 1) + 1
    return np.where(reach > whole, 0, places)


def _reduce_window(nodes: Nodes) -> Iterator[Fault]:
    windowed, tensor = _reduced(nodes, "reduce-window")
    yield from _window(nodes, windowed, nodes.rank[tensor])
    inside = nodes.rank[tensor][:, None] > _PLACES
    sizes = np.where(inside, _places(nodes, windowed, nodes.sizes[tensor]), 0)
    broken = (sizes != nodes.sizes[windowed]).any(1)
    yield from _first(windowed, broken, "has sizes that its window does not give")


def _select_and_scatter(nodes: Nodes) -> Iterator[Fault]:
    scattered = nodes.of("select-and-scatter")
    scattered = scattered[nodes.rank[scattered] > 0]
    yield from _window(nodes, scattered, nodes.rank[scattered])
    inside = nodes.rank[scattered][:, None] > _PLACES
    sizes = np.where(inside, _places(nodes, scattered, nodes.sizes[scattered]), 0)
    position, edges = nodes.edges_of(scattered)
    fits = (sizes[position] == nodes.sizes[nodes.operands[edges]]).all(1)
    off = np.bincount(position, fits, len(scattered)) == 0
    yield from _first(scattered, off, "has a window that gives the sizes of none of its operands")
    numbers = np.bincount(position, nodes.rank[nodes.operands[edges]] == 0, len(scattered))
    yield from _first(scattered, numbers < 3, "has no number to begin with, or calls no two computations")


def _products(nodes: Nodes, opcode: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the convolutions or dots (n,) of one or two operands, of known ranks, and both operands (n,).

    An operand that is used twice has one edge.
    """
    products = nodes.of(opcode)
    products = products[(nodes.degree[products] >= 1) & (nodes.degree[products] <= 2)]
    one = nodes.operands[nodes.first[products]]
    two = nodes.operands[nodes.first[products] + nodes.degree[products] - 1]
    known = (nodes.rank[np.stack([products, one, two])] >= 0).all(0)
    return products[known], one[known], two[known]


def _product_types(nodes: Nodes, products: np.ndarray, one: np.ndarray, two: np.ndarray) -> Iterator[Fault]:
    """Yield a product of floating-point numbers that has whole ones, or of complex that has real ones."""
    kinds = _KIND[nodes.types[np.stack([products, one, two])]]
    lost = kinds[0] < kinds[1:].max(0)
    yield from _first(products, lost, "has another element type than a product of its operands")


def _convolution(nodes: Nodes) -> Iterator[Fault]:
    products, one, two = _products(nodes, "convolution")
    flat = nodes.rank[products] >= 2
    products, one, two = products[flat], one[flat], two[flat]
    yield from _product_types(nodes, products, one, two)
    rank = nodes.rank[products]
    other = (nodes.rank[one] != rank) | (nodes.rank[two] != rank)
    yield from _first(products, other, "has another rank than an operand (shape)")
    yield from _window(nodes, products, rank - 2)
    rows = nodes.feat[products]
    spatial = np.arange(4) < (rank - 2)[:, None]
    every = np.exp2(rank) - 1  # sum of 2**axis where each axis is named once
    for role, named, places in (
        ("input", columns.CONVOLUTION_AXES[1], columns.INPUT_SPATIAL),
        ("kernel", columns.CONVOLUTION_AXES[2], columns.KERNEL_SPATIAL),
    ):
        axes = np.exp2(rows[:, named]).sum(1) + (np.exp2(rows[:, places]) * spatial).sum(1)
        off = (axes != every) | (rows[:, places] * ~spatial).any(1)
        problem = f"names an {role} axis twice, or an axis outside its rank ({COLUMN_NAMES[named[0]]})"
        yield from _first(products, off, problem)
    named = rows[:, columns.CONVOLUTION_AXES[0]]
    off = (named >= rank[:, None]).any(1) | (named[:, 0] == named[:, 1])
    yield from _first(products, off, "names an output axis twice, or an axis outside its rank (output_batch)")
    # edges do not say which operand is the kernel
    fits = _fits(nodes, products, one, two)
    if not fits.all():
        fits[~fits] = _fits(nodes, products[~fits], two[~fits], one[~fits])
    yield from _first(products, ~fits, "has sizes, groups or a window that its operands do not give")


def _fits(nodes: Nodes, products: np.ndarray, image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Return which convolutions (n,) have the sizes, groups and window of this image and this kernel."""
    rows = nodes.feat[products]
    axes = rows[:, _CONVOLUTION_AXES].astype(np.int64)
    made = np.take_along_axis(nodes.sizes[products], axes[:, :2], 1)
    given = np.take_along_axis(nodes.sizes[image], axes[:, 2:4], 1)
    weights = np.take_along_axis(nodes.sizes[kernel], axes[:, 4:], 1)
    groups = np.maximum(rows[:, columns.FEATURE_GROUP_COUNT], 1)  # an absent one is 1
    batch_groups = np.maximum(rows[:, columns.BATCH_GROUP_COUNT], 1)
    sizes = (given[:, 0] == made[:, 0] * batch_groups) & (given[:, 1] == weights[:, 0] * groups)
    sizes &= (weights[:, 1] == made[:, 1]) & (made[:, 1] % (groups * batch_groups) == 0)
    window = rows[:, columns.WINDOW_SIZE][:, :4]
    spatial = (nodes.rank[products] - 2)[:, None] > _PLACES
    sizes &= ((weights[:, 2:] == window) | ~spatial[:, :4]).all(1)
    named = np.minimum(rows[:, columns.INPUT_SPATIAL], _WIDTH - 1).astype(np.int64)
    shown = np.zeros((len(products), _WIDTH))
    shown[:, :4] = np.take_along_axis(nodes.sizes[image], named, 1)
    places = np.where(spatial, _places(nodes, products, shown), 0)
    rest = nodes.sizes[products].copy()
    np.put_along_axis(rest, axes[:, :2], 0, 1)
    # columns do not name the output's spatial axes
    fits: np.ndarray = sizes & (np.sort(places, 1) == np.sort(rest, 1)).all(1)
    return fits


def _dot(nodes: Nodes) -> Iterator[Fault]:
    """Yield a product with a size that its operands do not give, or one of theirs that nothing takes.

    Of the axes of one size, b are batches, p contracted, m and n the rest: the operands have b + m + p and
    b + n + p, the output b + m + n. Some b, m, n, p of at least 0 must be there.
    """
    ragged = nodes.of("dot", 3)
    whole = np.isin(nodes.types[nodes.operands_of(ragged, 3)], _WHOLE).sum(axis=1)
    yield from _first(
        ragged, whole == 0, "has three operands, and none that gives sizes of groups (edge_index)"
    )
    products, one, two = _products(nodes, "dot")
    yield from _product_types(nodes, products, one, two)
    sizes = np.stack([nodes.sizes[each] for each in (one, two, products)])  # (3, n, 6)
    every = np.concatenate([*sizes], 1)  # sizes (n, 18) to count, 0 where an axis is none
    left, right, out = (sizes[:, :, None, :] == every[None, :, :, None]).sum(3)
    contracted = np.maximum(np.maximum(left - out, right - out), 0)
    off = (2 * contracted > left + right - out) & (every > 0)
    yield from _first(products, off.any(1), "has sizes that a product of its operands has not (shape)")


def _axes(nodes: Nodes) -> Iterator[Fault]:
    """Yield a node that names an axis which none of its tensors has, an axis twice, or two for one."""
    rank = np.where(nodes.types == _TYPE["tuple"], 0, nodes.rank)
    unknown = np.bincount(nodes.users, rank[nodes.operands] < 0, len(rank)) > 0
    highest = rank.copy()
    np.maximum.at(highest, nodes.users, rank[nodes.operands])
    one = _ONE_AXIS[nodes.opcodes]
    asked = np.flatnonzero((one | (nodes.opcodes == OPCODES["reverse"])) & ~unknown & (highest > 0))
    axes = nodes.feat[asked, columns.DIMENSIONS]
    ordered = np.sort(axes, 1)
    off = axes.max(1) >= highest[asked]
    off |= ((np.cumsum(axes == 0, 1) > 1) & (axes > 0)).any(1)  # after the end
    off |= ((np.diff(ordered, axis=1) == 0) & (ordered[:, 1:] > 0)).any(1)
    off |= one[asked] & axes[:, 1:].any(1)
    yield from _first(asked, off, "names an axis outside its rank, or an axis twice (dimensions)")


def _lost(nodes: Nodes) -> Iterator[Fault]:
    """Yield a node with fewer operands than its opcode has, where the one node that nothing uses fits it.

    Either is legal: code that nothing uses, and an operand that is taken twice, which has one edge. So both
    must be there, and no other code that nothing uses.
    """
    single = (nodes.opcodes == OPCODES["parameter"]) & (nodes.elements == 1)  # as of a reduction
    used = nodes.is_root | ~(_PURE[nodes.opcodes] | single)
    used[nodes.operands] = True
    if used.sum() != len(used) - 1:
        return
    unused = int(np.flatnonzero(~used)[0])
    roots = np.append(np.flatnonzero(nodes.is_root), len(used))
    end = roots[np.searchsorted(roots, unused)]  # of its computation
    users = np.arange(unused + 1, min(end + 1, len(used)))
    degree = nodes.degree[users]
    users = users[_FIXED[nodes.opcodes[users]] & (degree > 0) & (degree < _AT_LEAST[0, nodes.opcodes[users]])]
    opcodes = nodes.opcodes[users]
    fits = (nodes.sizes[users] == nodes.sizes[unused]).all(1)
    fits |= (_IS_SELECT | _IS_CLAMP)[opcodes] & (nodes.elements[unused] == 1)
    fits &= _IS_ELEMENTWISE[opcodes]
    fits &= (nodes.types[users] == nodes.types[unused]) | ~_IS_SAME[opcodes]
    if not single[unused]:
        fits |= ~_IS_ELEMENTWISE[opcodes]
    problem = f"has one operand less than its opcode, and nothing uses node {unused} (edge_index)"
    yield from _first(users, fits, problem)


_GENERAL: tuple[Callable[[Nodes], Iterator[Fault]], ...] = (
    _counts,
    _types,
    _roots,
    _parameters,
    _signatures,
    _elementwise,
    _given,
    _ranks,
    _squares,
    _reductions,
    _windows,
    _axes,
    _lost,
)
_OF_OPCODES: dict[str, Callable[[Nodes], Iterator[Fault]]] = {
    "get-tuple-element": _elements,
    "rng": _single_operands,
    "map": _mapped,
    "reshape": _reshape,
    "bitcast": _bitcast,
    "bitcast-convert": _bitcast,
    "broadcast": partial(_moved_axes, opcode="broadcast"),
    "transpose": partial(_moved_axes, opcode="transpose"),
    "reduce": _reduce,
    "slice": _slice,
    "dynamic-slice": _dynamic_slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
    "convolution": _convolution,
    "dot": _dot,
}


def first_fault(node_feat: np.ndarray, opcodes: np.ndarray, edges: np.ndarray) -> Fault | None:
    """Return the first node that breaks a rule, and what is wrong; arguments as for :class:`Nodes`."""
    nodes = Nodes(node_feat, opcodes, edges)
    there = np.bincount(nodes.opcodes, minlength=_COUNT)
    rules = [*_GENERAL, *(rule for name, rule in _OF_OPCODES.items() if there[OPCODES[name]])]
    return next((fault for rule in rules for fault in rule(nodes)), None)
