"""Shapes that HLO instructions cannot have: one rule an opcode, with the numbers of its attributes.

Every rule takes a :class:`Site` and returns what is wrong, empty where nothing is. Counts and element types
stand in :mod:`fastslow.competition.rules.opcode_rules`. Differences of floating-point precision pass, as
XLA allows them. Of dynamic sizes the bounds are compared; sizes without a bound are not.

Source: XLA's ``ShapeInference`` and ``HloVerifier``.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import ceil, prod
from typing import Any, NamedTuple

from fastslow.competition.rules.opcode_rules import (
    CLAMP,
    GIVES,
    MOVES,
    NEVER_A_TUPLE,
    ONE_PART_IS_A_TENSOR,
    OPCODE_RULES,
    PRED,
    REFUSED_ELEMENTS,
    SAME,
    SELECT,
    SIZES,
    STARTED_BY,
    TYPE,
    Rule,
    count_wanted,
)
from fastslow.core.errors import counted
from fastslow.hlo.messages import PRIMITIVE_TYPES, Instruction

TUPLE = PRIMITIVE_TYPES["tuple"]
_PRED = PRIMITIVE_TYPES["pred"]
_TOKEN = PRIMITIVE_TYPES["token"]
_INTEGERS = {PRIMITIVE_TYPES[name] for name in ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")}
_FLOATS = frozenset({10, 11, 12, 16, 19, 20, 23, 24, 25, 28, 29, 32, 33})  # f16 f32 f64 bf16 f8... f4...
_COMPLEX = {15: 11, 18: 12}  # the type of its parts
_BITS = {1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 8, 7: 16, 8: 32, 9: 64, 10: 16, 11: 32, 12: 64, 15: 64, 16: 16}
_BITS |= {18: 128, 21: 4, 22: 4, 26: 2, 27: 2, 30: 1, 31: 1, 32: 4} | dict.fromkeys(
    (19, 20, 23, 24, 25, 28, 29, 33), 8
)
# how many numbers or bytes of its literal a constant's element has, in the field of its type's name
_PARTS = dict.fromkeys(("pred", "s8", "s32", "s64", "u8", "u32", "u64", "f32", "f64"), 1)
_PARTS |= dict.fromkeys(("s16", "u16", "f16", "bf16", "c64", "c128"), 2)
_VALUES = {PRIMITIVE_TYPES[name]: (f"{name}s", parts) for name, parts in _PARTS.items()}
_INT32 = 1 << 31
_IRFFT, _RFFT = 3, 2  # of XLA's FftType
_S32, _U32, _U64 = (PRIMITIVE_TYPES[name] for name in ("s32", "u32", "u64"))
_UNSIGNED = {PRIMITIVE_TYPES[name] for name in ("u8", "u16", "u32", "u64")}
_STATE_TYPES = (_U32, _U64)
_STATES = {1: (2,), 2: (2, 3)}  # sizes by XLA's RandomAlgorithm: ThreeFry, Philox; 0 is any
_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
# what may have dynamic sizes though nothing that it takes has one
_STARTS_DYNAMIC = {
    "parameter",
    "constant",
    "custom-call",
    "infeed",
    "recv",
    "iota",
    "rng",
    "broadcast",
    "dynamic-reshape",
    "set-dimension-size",
}


class Signature(NamedTuple):
    """Shapes of a computation's parameters, by number, and of its root."""

    parameters: Sequence[Any]
    root: Any


class Site(NamedTuple):
    """An instruction, the shapes and opcodes of its operands, and the computations that it calls."""

    inst: Instruction
    operands: Sequence[Any]
    made_by: Sequence[str]
    called: Sequence[Signature]

    @property
    def out(self):
        """Shape of the output."""
        return self.inst.shape

    @property
    def sizes(self) -> list[list[int]]:
        """Sizes of the operands."""
        return [list(shape.dimensions) for shape in self.operands]


def misfit(site: Site) -> str:
    """Return why an instruction cannot be; empty where it can, or where its opcode is not known."""
    rule = OPCODE_RULES.get(site.inst.opcode)
    if not rule:
        return ""
    if problem := _odd_counts(site, rule):
        return problem
    if problem := _odd_dynamic(site):
        return problem
    check = _RULES.get(site.inst.opcode)
    if any(map(_is_unbounded, (site.out, *site.operands))):
        return check(site) if check is _dot else ""
    problem = _odd_output(site, rule.output) or _odd_element(site) or _odd_tuple(site)
    problem = problem or _odd_start(site) or _odd_groups(site)
    return problem or (check(site) if check else "")


def is_dynamic(shape) -> bool:
    """Return whether a size of a shape, or of a part of it, is dynamic."""
    return any(shape.is_dynamic_dimension) or any(map(is_dynamic, shape.tuple_shapes))


def _is_unbounded(shape) -> bool:
    """Return whether a size of a shape, or of a part of it, has no bound."""
    return any(size < 0 for size in shape.dimensions) or any(map(_is_unbounded, shape.tuple_shapes))


def _odd_dynamic(site: Site) -> str:
    """Return what is wrong if sizes are dynamic that follow from sizes which are not."""
    sources = [*site.operands, *(signature.root for signature in site.called)]
    if not is_dynamic(site.out) or any(map(is_dynamic, sources)) or site.inst.opcode in _STARTS_DYNAMIC:
        return ""
    return f"has a dynamic size, and none of {_of(site)} has one"


def shown(shape) -> str:
    """Return a shape as HLO text shows it, without its layout."""
    if shape.element_type == TUPLE:
        return f"({', '.join(map(shown, shape.tuple_shapes))})"
    name = next((name for name, number in PRIMITIVE_TYPES.items() if number == shape.element_type), "")
    return f"{name or f'type {shape.element_type} '}[{','.join(map(str, shape.dimensions))}]"


def _same_type(first, second) -> bool:
    kinds = {first.element_type, second.element_type}
    return len(kinds) == 1 or kinds <= _FLOATS


def same_shape(first, second) -> bool:
    """Return whether two shapes are equal but for layouts and sizes without a bound.

    What hands a value on, such as a tuple or a call, does not change the precision of its numbers.
    """
    return first.element_type == second.element_type and _like(first, second, same_shape)


def _similar(first, second) -> bool:
    """Return whether two shapes are equal but for layouts and the precision of floating-point numbers."""
    return _same_type(first, second) and _like(first, second, _similar)


def _like(first, second, alike: Callable[[Any, Any], bool]) -> bool:
    """Return whether two shapes have equal sizes, and parts that are alike."""
    if len(first.tuple_shapes) != len(second.tuple_shapes):
        return False
    parts = zip(first.tuple_shapes, second.tuple_shapes, strict=True)
    same = _is_unbounded(first) or _is_unbounded(second) or list(first.dimensions) == list(second.dimensions)
    return same and all(alike(*pair) for pair in parts)


def _may_equal(first: Sequence[int], second: Sequence[int]) -> bool:
    """Return whether sizes are equal, as far as both are known; one without a bound is below 0."""
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(a == b or min(a, b) < 0 for a, b in pairs)


def _is_scalar(shape) -> bool:
    return shape.element_type != TUPLE and not shape.dimensions


def _of(site: Site) -> str:
    """Return the operands' shapes, for a message."""
    return f"its operands {', '.join(map(shown, site.operands)) or 'none'}"


def _wanted(site: Site, sizes: Sequence[int]) -> str:
    """Return what is wrong if the output has other sizes than these."""
    if list(site.out.dimensions) == list(sizes):
        return ""
    return f"has the sizes {list(site.out.dimensions)}, {list(sizes)} wanted ({_of(site)})"


def _axes(axes: Iterable[int], rank: int) -> str:
    """Return what is wrong if these are no different axes of a tensor."""
    axes = list(axes)
    if len({*axes}) == len(axes) and all(0 <= axis < rank for axis in axes):
        return ""
    return f"names the axes {axes} of a tensor of {counted(rank, 'dimension')}"


def _odd_counts(site: Site, rule: Rule) -> str:
    operands = len(site.operands)
    called = len(site.called)
    if not rule.operands[0] <= operands <= rule.operands[1]:
        return f"has {counted(operands, 'operand')}, {count_wanted(rule.operands)} wanted"
    if not rule.called[0] <= called <= rule.called[1]:
        return f"calls {counted(called, 'computation')}, {count_wanted(rule.called)} wanted"
    return ""


def _odd_output(site: Site, output: str) -> str:
    """Return what is wrong with the output by the table's word for it."""
    out, operands = site.out, site.operands
    if output in (SAME, SIZES, PRED, SELECT, CLAMP):
        may_be_scalars = {SELECT: (0,), CLAMP: (0, 2)}.get(output, ())
        for place, sizes in enumerate(site.sizes):
            if sizes != list(out.dimensions) and (sizes or place not in may_be_scalars):
                return f"has the sizes {list(out.dimensions)}, {_of(site)}"
    alike = {SAME: [out, *operands], CLAMP: [out, *operands], SELECT: [out, *operands[1:]], PRED: operands}
    alike[TYPE] = [out, *operands[:1]]
    if not all(_same_type(first, second) for first in alike.get(output, ()) for second in alike[output]):
        return f"is {shown(out)}, {_of(site)}"
    truths = {PRED: [out], SELECT: operands[:1]}.get(output, [])
    if any(shape.element_type != _PRED for shape in truths):
        return f"is {shown(out)}, {_of(site)}: pred wanted"
    return ""


def _odd_element(site: Site) -> str:
    refused = REFUSED_ELEMENTS.get(site.inst.opcode, ())
    types = [shape.element_type for shape in site.operands]
    if any(PRIMITIVE_TYPES[name] in types for name in refused):
        return f"does not take {_of(site).removeprefix('its operands ')}"
    kinds = {shape.element_type for shape in (site.out, *site.operands[:1])}
    if site.inst.opcode in MOVES and TUPLE not in kinds and len(kinds) > 1:
        return f"is {shown(site.out)}, {_of(site)}: its type wanted"
    given = GIVES.get(site.inst.opcode, PRIMITIVE_TYPES)
    known = site.out.element_type in PRIMITIVE_TYPES.values()  # a newer type has no name here
    if known and site.out.element_type not in [PRIMITIVE_TYPES[name] for name in given]:
        return f"is {shown(site.out)}, {' or '.join(sorted(given))} wanted"
    return ""


def _odd_tuple(site: Site) -> str:
    """Return what is wrong with a tuple where XLA gives a tensor, as it does for a single operand."""
    if site.out.element_type != TUPLE:
        return ""
    is_one = site.inst.opcode in ONE_PART_IS_A_TENSOR and len(site.out.tuple_shapes) == 1
    if not is_one and site.inst.opcode not in NEVER_A_TUPLE:
        return ""
    return f"is the tuple {shown(site.out)}, a tensor wanted ({_of(site)})"


def _odd_start(site: Site) -> str:
    started = STARTED_BY.get(site.inst.opcode)
    if not started or site.made_by[0] in started:
        return ""
    return f"ends a {site.made_by[0]}, {' or '.join(started)} wanted"


def _calls(
    site: Site, number: int, parameters: Sequence[Any], root: Any = None, scalars: bool = False
) -> str:
    """Return what is wrong with the signature of a called computation.

    Args:
        site: The caller.
        number: Position of the computation among those that are called.
        parameters: Shapes that it is given.
        root: Shape that it must return; None for any.
        scalars: It is given single elements of these shapes, and returns one.
    """
    taken, given = site.called[number]
    alike = _similar if site.inst.opcode == "fusion" else same_shape
    if len(taken) != len(parameters):
        return f"gives its computation {counted(len(parameters), 'operand')}, it takes {len(taken)}"
    for parameter, shape in zip(taken, parameters, strict=True):
        fits = _is_scalar(parameter) and _same_type(parameter, shape) if scalars else alike(parameter, shape)
        if not fits:
            return f"calls a computation that takes {shown(parameter)} for {shown(shape)}"
    if root is not None and not (_elementwise(given, root) if scalars else alike(given, root)):
        return f"is {shown(site.out)}, its computation gives {shown(given)}"
    return ""


def _elementwise(given, shape) -> bool:
    """Return whether a computation of single elements gives a shape's elements, or a tuple's."""
    if shape.element_type != TUPLE:
        return _is_scalar(given) and _same_type(given, shape)
    if given.element_type != TUPLE or len(given.tuple_shapes) != len(shape.tuple_shapes):
        return False
    return all(_elementwise(*pair) for pair in zip(given.tuple_shapes, shape.tuple_shapes, strict=True))


def _broadcast(site: Site) -> str:
    axes = list(site.inst.dimensions)
    (sizes,) = site.sizes
    out = site.out.dimensions
    if problem := _axes(axes, len(out)):
        return problem
    if sizes == [out[axis] for axis in axes]:
        return ""
    return f"has the sizes {list(out)}, {_of(site)} and its axes are {axes}"


def _transpose(site: Site) -> str:
    axes = list(site.inst.dimensions)
    (sizes,) = site.sizes
    if sorted(axes) != list(range(len(sizes))):
        return f"has the axes {axes}, each of {len(sizes)} axes once wanted"
    return _wanted(site, [sizes[axis] for axis in axes])


def _reshape(site: Site) -> str:
    elements = [prod(site.out.dimensions), prod(site.operands[0].dimensions)]
    if elements[0] == elements[1]:
        return ""
    return f"has {counted(elements[0], 'element')}, its operand {elements[1]}"


def _dynamic_reshape(site: Site) -> str:
    sizes = site.operands[1:]
    is_size = all(_is_scalar(size) and size.element_type == _S32 for size in sizes)
    if not is_size or len(sizes) != len(site.out.dimensions):
        rank = len(site.out.dimensions)
        return f"is {shown(site.out)}, {_of(site)}: {counted(rank, 'size')} of s32[] wanted"
    return _reshape(site)


def _bits(shape) -> int | None:
    width = _BITS.get(shape.element_type)
    return None if width is None else width * prod(shape.dimensions)


def _bitcast(site: Site) -> str:
    sizes = _bits(site.out), _bits(site.operands[0])
    if None in sizes or sizes[0] == sizes[1]:
        return ""
    return f"is {shown(site.out)}, {_of(site)}: as many bits wanted"


def _bitcast_convert(site: Site) -> str:
    widths = [_BITS.get(shape.element_type) for shape in (site.out, site.operands[0])]
    if None in widths:
        return ""
    if (site.out.element_type in _COMPLEX) != (site.operands[0].element_type in _COMPLEX):
        return f"is {shown(site.out)}, {_of(site)}: both complex or none wanted"
    out = list(site.out.dimensions)
    source = site.sizes[0]
    if widths[0] < widths[1]:  # the new last axis holds the pieces of an element
        source = [*source, widths[1] // widths[0]]
    elif widths[0] > widths[1]:
        out = [*out, widths[0] // widths[1]]
    return "" if out == source else f"is {shown(site.out)}, {_of(site)}: as many bits wanted"


def _slice(site: Site) -> str:
    bounds, (sizes,) = site.inst.slice_dimensions, site.sizes
    if len(bounds) != len(sizes):
        return f"has bounds of {counted(len(bounds), 'dimension')}, {_of(site)}"
    for bound, size in zip(bounds, sizes, strict=True):
        if not (0 <= bound.start <= bound.limit <= size and bound.stride >= 1):
            return f"takes {bound.start}:{bound.limit}:{bound.stride} of the sizes {sizes}"
    return _wanted(site, [ceil((bound.limit - bound.start) / bound.stride) for bound in bounds])


def _concatenate(site: Site) -> str:
    first = site.sizes[0]
    axes = list(site.inst.dimensions)
    if len(axes) != 1:
        return f"has the axes {axes}, one wanted"
    if problem := _axes(axes, len(first)):
        return problem
    (axis,) = axes
    rests = [sizes[:axis] + sizes[axis + 1 :] for sizes in site.sizes]
    alike = all(_same_type(shape, site.operands[0]) for shape in site.operands)
    if not alike or any(len(s) != len(first) for s in site.sizes) or any(rest != rests[0] for rest in rests):
        return f"is {shown(site.out)}, {_of(site)} and its axis is {axis}"
    return _wanted(site, first[:axis] + [sum(sizes[axis] for sizes in site.sizes)] + first[axis + 1 :])


def _pad(site: Site) -> str:
    edges, sizes = site.inst.padding_config.dimensions, site.sizes[0]
    if len(edges) != len(sizes):
        return f"has padding of {counted(len(edges), 'dimension')}, {_of(site)}"
    if not _is_scalar(site.operands[1]) or not _same_type(*site.operands):
        return f"fills with {shown(site.operands[1])}, one {shown(site.operands[0])} number wanted"
    if any(edge.interior < 0 for edge in edges):
        return "has padding below 0 between elements"
    return _wanted(
        site,
        [
            edge.low + edge.high + size + max(0, size - 1) * edge.interior
            for edge, size in zip(edges, sizes, strict=True)
        ],
    )


def _reverse(site: Site) -> str:
    return _axes(site.inst.dimensions, len(site.sizes[0]))


def _odd_starts(site: Site, starts: Sequence[Any], rank: int) -> str:
    """Return what is wrong with the start of a slice: one number an axis, or a vector of them."""
    vector = len(starts) == 1 and list(starts[0].dimensions) == [rank]
    scalars = len(starts) == rank and all(map(_is_scalar, starts))
    types = {shape.element_type for shape in starts}
    if not (vector or scalars) or not types <= _INTEGERS or len(types) > 1:
        given = ", ".join(map(shown, starts)) or "nothing"
        return f"starts at {given}, one whole number of one type for each of {rank} axes wanted"
    return ""


def _within(part: Sequence[int], whole: Sequence[int]) -> bool:
    return len(part) == len(whole) and all(0 <= p <= w for p, w in zip(part, whole, strict=True))


def _dynamic_slice(site: Site) -> str:
    sizes = site.sizes[0]
    taken = list(site.inst.dynamic_slice_sizes)
    if not _within(taken, sizes):
        return f"takes the sizes {taken}, {_of(site)}"
    return _odd_starts(site, site.operands[1:], len(sizes)) or _wanted(site, taken)


def _dynamic_update_slice(site: Site) -> str:
    sizes, update = site.sizes[:2]
    if not _within(update, sizes) or not _same_type(*site.operands[:2]):
        return f"is {shown(site.out)}, {_of(site)}"
    return _odd_starts(site, site.operands[2:], len(sizes)) or _wanted(site, sizes)


def _index_sizes(indices: Sequence[int], vector: int) -> list[int]:
    """Return the sizes of indices without the sizes of their vectors."""
    return [size for axis, size in enumerate(indices) if axis != vector]


def _odd_batching(site: Site, numbers: Any, indexed: Sequence[int]) -> str:
    """Return what is wrong with the axes of the tensor and of the indices that are taken in step.

    Args:
        site: A gather or a scatter.
        numbers: Its dimension numbers.
        indexed: Axes of the tensor that an index chooses.
    """
    sizes, places = (list(site.operands[place].dimensions) for place in (0, len(site.operands) // 2))
    axes = list(numbers.operand_batching_dims)
    of_indices = list(numbers.indices_batching_dims)
    if problem := _axes([*axes, *indexed], len(sizes)) or _axes(of_indices, len(places)):
        return problem
    fits = [sizes[axis] for axis in axes] == [places[axis] for axis in of_indices]
    if not fits or numbers.index_vector_dim in of_indices:
        return f"takes the axes {axes} in step with the axes {of_indices} of its indices, {_of(site)}"
    return ""


def _gather(site: Site) -> str:
    numbers = site.inst.gather
    taken = list(site.inst.gather_slice_sizes)
    sizes, indices = site.sizes
    if site.operands[1].element_type not in _INTEGERS:
        return f"has the indices {shown(site.operands[1])}, whole numbers wanted"
    if not _within(taken, sizes):
        return f"takes the sizes {taken}, {_of(site)}"
    gone = [*numbers.collapsed_slice_dims, *numbers.operand_batching_dims]
    problem = _axes(gone, len(sizes)) or _odd_batching(site, numbers, numbers.start_index_map)
    if problem or not 0 <= numbers.index_vector_dim <= len(indices):
        return problem or f"has index_vector_dim={numbers.index_vector_dim}, {_of(site)}"
    vector = indices[numbers.index_vector_dim] if numbers.index_vector_dim < len(indices) else 1
    if vector != len(numbers.start_index_map) or any(taken[axis] > 1 for axis in gone):
        return f"takes the sizes {taken} by indices of {vector} numbers, {_of(site)}"
    window = [size for axis, size in enumerate(taken) if axis not in gone]
    batch = _index_sizes(indices, numbers.index_vector_dim)
    offsets = list(numbers.offset_dims)
    rank = len(window) + len(batch)
    if problem := _axes(offsets, rank):
        return problem
    if len(offsets) != len(window):
        return f"has offset_dims={offsets}, {len(window)} axes wanted"
    rest = iter(batch)
    by_axis = dict(zip(offsets, window, strict=True))
    return _wanted(site, [by_axis[axis] if axis in by_axis else next(rest) for axis in range(rank)])


def _scatter(site: Site) -> str:
    numbers = site.inst.scatter
    count = len(site.operands) // 2
    if len(site.operands) % 2 == 0:
        return f"has {counted(len(site.operands), 'operand')}, an odd number wanted"
    inputs, indices, updates = site.operands[:count], site.operands[count], site.operands[count + 1 :]
    if indices.element_type not in _INTEGERS:
        return f"has the indices {shown(indices)}, whole numbers wanted"
    if not _gives(site.out, inputs):
        return f"is {shown(site.out)}, {_of(site)}"
    sizes = list(inputs[0].dimensions)
    places = list(indices.dimensions)
    gone = [*numbers.inserted_window_dims, *numbers.operand_batching_dims]
    problem = _axes(gone, len(sizes)) or _odd_batching(site, numbers, numbers.scatter_dims_to_operand_dims)
    if problem or not 0 <= numbers.index_vector_dim <= len(places):
        return problem or f"has index_vector_dim={numbers.index_vector_dim}, {_of(site)}"
    vector = places[numbers.index_vector_dim] if numbers.index_vector_dim < len(places) else 1
    largest = [size for axis, size in enumerate(sizes) if axis not in gone]
    batch = _index_sizes(places, numbers.index_vector_dim)
    for place, shape in enumerate(updates):
        given = list(shape.dimensions)
        window = list(numbers.update_window_dims)
        fits = vector == len(numbers.scatter_dims_to_operand_dims) and not _axes(window, len(given))
        fits = fits and _within([given[axis] for axis in window], largest)
        fits = fits and [size for axis, size in enumerate(given) if axis not in window] == batch
        if not (fits and _same_type(shape, inputs[place])):
            return f"scatters {shown(shape)}, {_of(site)}"
    return _calls(site, 0, [*inputs, *updates], site.out, scalars=True)


def _gives(out, shapes: Sequence[Any]) -> bool:
    """Return whether an output is this shape, or the tuple of these."""
    if len(shapes) == 1 and out.element_type != TUPLE:
        return _similar(out, shapes[0])
    parts = out.tuple_shapes
    return len(parts) == len(shapes) and all(_similar(*pair) for pair in zip(parts, shapes, strict=True))


def _parts(out) -> list:
    return list(out.tuple_shapes) if out.element_type == TUPLE else [out]


def _odd_inputs(site: Site) -> str:
    """Return what is wrong with the tensors and initial values of a reduction."""
    count = len(site.operands) // 2
    if len(site.operands) != 2 * count:
        return f"has {counted(len(site.operands), 'operand')}, an even number wanted"
    inputs, starts, first = site.operands[:count], site.operands[count:], site.sizes[0]
    for tensor, start in zip(inputs, starts, strict=True):
        if list(tensor.dimensions) != first or not _is_scalar(start) or not _same_type(tensor, start):
            return f"reduces {shown(tensor)} from {shown(start)}, one number of the type wanted"
    return _calls(site, 0, [*starts, *starts], site.out, scalars=True)


def _odd_reduced(site: Site, sizes: list[int]) -> str:
    """Return what is wrong where the output, or a part of it, has other sizes than these."""
    for part, tensor in zip(_parts(site.out), site.operands[: len(site.operands) // 2], strict=False):
        if list(part.dimensions) != sizes or not _same_type(part, tensor):
            return f"is {shown(site.out)}, the sizes {sizes} wanted ({_of(site)})"
    if len(_parts(site.out)) != len(site.operands) // 2:
        return f"is {shown(site.out)}, {_of(site)}"
    return ""


def _reduce(site: Site) -> str:
    axes = list(site.inst.dimensions)
    sizes = site.sizes[0]
    if problem := _axes(axes, len(sizes)):
        return problem
    kept = [size for axis, size in enumerate(sizes) if axis not in axes]
    return _odd_reduced(site, kept) or _odd_inputs(site)


def _windowed(window, sizes: Sequence[int]) -> tuple[list[int], str]:
    """Return how many places a window has in a tensor, by axis, and what is wrong with it."""
    dimensions = window.dimensions
    if len(dimensions) != len(sizes):
        return [], f"has a window of {counted(len(dimensions), 'dimension')}, {len(sizes)} wanted"
    places = []
    for axis, size in zip(dimensions, sizes, strict=True):
        numbers = {"size": axis.size, "stride": axis.stride}
        numbers |= {"window dilation": axis.window_dilation, "base dilation": axis.base_dilation}
        for name, number in numbers.items():
            if number < 1:
                return [], f"has a window with the {name} {number}, 1 or more wanted"
        base = axis.padding_low + axis.padding_high + ((size - 1) * axis.base_dilation + 1 if size else 0)
        reach = (axis.size - 1) * axis.window_dilation + 1
        places.append(0 if reach > base else (base - reach) // axis.stride + 1)
    return places, ""


def _reduce_window(site: Site) -> str:
    sizes, problem = _windowed(site.inst.window, site.sizes[0])
    return problem or _odd_reduced(site, sizes) or _odd_inputs(site)


def _select_and_scatter(site: Site) -> str:
    tensor, source, start = site.operands
    sizes, problem = _windowed(site.inst.window, site.sizes[0])
    if problem:
        return problem
    fits = list(source.dimensions) == sizes and _similar(site.out, tensor)
    if not (fits and _same_type(source, tensor) and _is_scalar(start) and _same_type(start, tensor)):
        return f"is {shown(site.out)}, {_of(site)}: a source of the sizes {sizes} wanted"
    if site.called[0].root.element_type != _PRED:
        return f"selects by {shown(site.called[0].root)}, pred wanted"
    select = _calls(site, 0, [start, start], scalars=True)
    return select or _calls(site, 1, [start, start], site.out, scalars=True)


def _sort(site: Site) -> str:
    problem = _axes(site.inst.dimensions, len(site.sizes[0]))
    if problem or len(site.inst.dimensions) != 1:
        return problem or f"has the axes {list(site.inst.dimensions)}, one wanted"
    if any(sizes != site.sizes[0] for sizes in site.sizes) or not _gives(site.out, site.operands):
        return f"is {shown(site.out)}, {_of(site)}"
    if not (_is_scalar(site.called[0].root) and site.called[0].root.element_type == _PRED):
        return f"sorts by {shown(site.called[0].root)}, pred wanted"
    return _calls(site, 0, [shape for shape in site.operands for _ in range(2)], scalars=True)


def _map(site: Site) -> str:
    axes = list(site.inst.dimensions)
    if axes not in ([], list(range(len(site.out.dimensions)))):
        return f"has the axes {axes}, all {len(site.out.dimensions)} in order wanted"
    return _calls(site, 0, site.operands, site.out, scalars=True)


def _call(site: Site) -> str:
    return _calls(site, 0, site.operands, site.out)


def _while(site: Site) -> str:
    if not same_shape(site.out, site.operands[0]):
        return f"is {shown(site.out)}, {_of(site)}"
    condition = site.called[1].root
    if not (_is_scalar(condition) and condition.element_type == _PRED):
        return f"has the condition {shown(condition)}, pred[] wanted"
    return _calls(site, 0, site.operands, site.out) or _calls(site, 1, site.operands)


def _conditional(site: Site) -> str:
    which, *given = site.operands
    branches = len(site.called)
    if not (_is_scalar(which) and (which.element_type in (_PRED, PRIMITIVE_TYPES["s32"]))):
        return f"chooses by {shown(which)}, pred[] or s32[] wanted"
    if len(given) != branches or (which.element_type == _PRED and branches != 2):
        return f"has {branches} branches for {shown(which)} and {counted(len(given), 'operand')}"
    return next(filter(None, (_calls(site, n, [branch], site.out) for n, branch in enumerate(given))), "")


def _like_operands(site: Site) -> str:
    return "" if _gives(site.out, site.operands) else f"is {shown(site.out)}, {_of(site)}"


def _all_reduce(site: Site) -> str:
    # one computation combines the elements of all operands, which may have several types
    parameters = site.called[0].parameters
    if len(parameters) != 2 or not all(map(_is_scalar, (*parameters, site.called[0].root))):
        return "calls a computation that does not make one number of two"
    first = site.operands[0]
    return _like_operands(site) or _calls(site, 0, [first, first], _parts(site.out)[0], scalars=True)


def _scaled_axis(site: Site, made: Any, down: bool) -> str:
    """Return what is wrong with a gather or a scatter of shards along one axis, by what it makes."""
    axes = list(site.inst.dimensions)
    outs = _parts(made)
    if len(axes) != 1 or len(outs) != len(site.operands):
        return f"is {shown(site.out)}, {_of(site)} and its axes are {axes}"
    for out, source in zip(outs, site.operands, strict=True):
        small, large = (out, source) if down else (source, out)
        small_sizes = list(small.dimensions)
        large_sizes = list(large.dimensions)
        fits = len(small_sizes) == len(large_sizes) and not _axes(axes, len(small_sizes))
        if fits and small_sizes[axes[0]]:
            fits = large_sizes[axes[0]] % small_sizes[axes[0]] == 0
            large_sizes[axes[0]] = small_sizes[axes[0]]
        if not (fits and small_sizes == large_sizes and _same_type(out, source)):
            return f"is {shown(site.out)}, {_of(site)} and its axis is {axes[0]}"
    shards = _group_sizes(site.inst)
    axis = axes[0]
    if not _counts_replicas(site.inst) and len({*shards}) == 1:
        ends = [
            (source, out) if not down else (out, source)
            for out, source in zip(outs, site.operands, strict=True)
        ]
        if any(small.dimensions[axis] * shards[0] != large.dimensions[axis] for small, large in ends):
            return f"is {shown(site.out)}, {_of(site)}: {shards[0]} shards along axis {axis} wanted"
    return ""


def _iota_groups(inst: Instruction) -> Any:
    """Return the groups of devices that a newer XLA counts in place of a list; None where it does not."""
    if inst.HasField("iota_groups"):
        return inst.iota_groups
    return inst.devices.iota_groups if inst.devices.HasField("iota_groups") else None


def _group_sizes(inst: Instruction) -> list[int]:
    """Return how many devices each group has; empty where all devices are one group."""
    if counted := _iota_groups(inst):
        return [counted.num_devices_per_group] * min(counted.num_groups, 2)
    groups = inst.replica_groups or inst.devices.replica_groups  # of an older and a newer XLA
    return [len(group.replica_ids) for group in groups]


def _counts_replicas(inst: Instruction) -> bool:
    """Return whether the groups name replicas, of which each is several devices."""
    return bool(inst.channel_id) and not inst.use_global_device_ids


def _odd_groups(site: Site) -> str:
    """Return what is wrong with groups of devices: each device from 0 is in one, and sends or takes once."""
    inst = site.inst
    pairs = inst.source_target_pairs
    for ends in ([pair.source for pair in pairs], [pair.target for pair in pairs]):
        if len({*ends}) < len(ends) or min(ends, default=0) < 0:
            return f"sends from or to the devices {ends}, each once wanted"
    if counted := _iota_groups(inst):
        sizes = list(counted.reshape_dims)
        order = list(counted.transpose_perm)
        devices = counted.num_groups * counted.num_devices_per_group
        if devices < 1 or prod(sizes) != devices or (order and sorted(order) != list(range(len(sizes)))):
            groups = f"{counted.num_groups} groups of {counted.num_devices_per_group} devices"
            return f"has {groups} in the sizes {sizes} and the order {order}"
    groups = [list(group.replica_ids) for group in inst.replica_groups or inst.devices.replica_groups]
    if sorted(chain(*groups)) != list(range(sum(map(len, groups)))) or not all(groups):
        return f"has the groups {groups}, each device from 0 in one wanted"
    return ""


def _all_gather(site: Site) -> str:
    return _scaled_axis(site, site.out, down=False)


def _reduce_scatter(site: Site) -> str:
    first = site.operands[0]
    problem = _scaled_axis(site, site.out, down=True)
    return problem or _calls(site, 0, [first, first], _parts(site.out)[0], scalars=True)


def _collective_permute(site: Site) -> str:
    return _like_operands(site) if len(site.operands) != 4 else ""  # of four, two are offsets in tensors


def _tuple(site: Site) -> str:
    parts = site.out.tuple_shapes
    fits = site.out.element_type == TUPLE and len(parts) == len(site.operands)
    fits = fits and all(same_shape(*pair) for pair in zip(parts, site.operands, strict=True))
    return "" if fits else f"is {shown(site.out)}, {_of(site)}"


def _get_tuple_element(site: Site) -> str:
    parts, place = site.operands[0].tuple_shapes, site.inst.tuple_index
    if not 0 <= place < len(parts):
        return f"takes element {place} of a tuple of {len(parts)}"
    return "" if same_shape(site.out, parts[place]) else f"is {shown(site.out)}, {shown(parts[place])} wanted"


def _like_first(site: Site) -> str:
    return "" if same_shape(site.out, site.operands[0]) else f"is {shown(site.out)}, {_of(site)}"


def _iota(site: Site) -> str:
    axes = list(site.inst.dimensions)
    return _axes(axes, len(site.out.dimensions)) if len(axes) == 1 else f"has the axes {axes}, one wanted"


def _odd_product(site: Site) -> str:
    """Return what is wrong if a product of floating-point numbers has whole ones, or of complex real ones."""
    if _kind(site.out) < max(map(_kind, site.operands)):
        return f"is {shown(site.out)}, {_of(site)}"
    return ""


def _kind(shape) -> int:
    """Return 2 for complex numbers, 1 for floating-point numbers, 0 for others."""
    if shape.element_type in _COMPLEX:
        return 2
    return int(shape.element_type in _FLOATS)


def _dot(site: Site) -> str:
    if problem := _odd_product(site):
        return problem
    numbers = site.inst.dot
    out = list(site.out.dimensions)
    lhs, rhs = site.sizes[:2]
    sides = [(lhs, numbers.lhs_contracting, numbers.lhs_batch)]
    sides += [(rhs, numbers.rhs_contracting, numbers.rhs_batch)]
    for sizes, contracted, batch in sides:
        if problem := _axes([*contracted, *batch], len(sizes)):
            return problem
    inner, outer = ([[side[0][axis] for axis in side[at]] for side in sides] for at in (1, 2))
    free = [
        size
        for sizes, contracted, batch in sides
        for axis, size in enumerate(sizes)
        if axis not in contracted and axis not in batch
    ]
    if not (_may_equal(*inner) and _may_equal(*outer)):
        return f"contracts {inner[0]} with {inner[1]}, its batches are {outer[0]} and {outer[1]}"
    wanted = outer[0] + free
    return "" if _may_equal(out, wanted) else f"has the sizes {out}, {wanted} wanted"


def _convolution(site: Site) -> str:
    if problem := _odd_product(site):
        return problem
    numbers = site.inst.convolution
    inst = site.inst
    out = list(site.out.dimensions)
    (image, kernel) = site.sizes
    axes = {
        "input": [numbers.input_batch, numbers.input_feature, *numbers.input_spatial],
        "kernel": [numbers.kernel_input_feature, numbers.kernel_output_feature, *numbers.kernel_spatial],
        "output": [numbers.output_batch, numbers.output_feature, *numbers.output_spatial],
    }
    for (role, named), sizes in zip(axes.items(), (image, kernel, out), strict=True):
        if sorted(named) != list(range(len(sizes))):
            return f"names the {role} axes {named}, {_of(site)} and it has the sizes {out}"
    spatial = [image[axis] for axis in numbers.input_spatial]
    places, problem = _windowed(inst.window, spatial)
    if problem:
        return problem
    groups = inst.feature_group_count or 1
    batch_groups = inst.batch_group_count or 1
    if min(groups, batch_groups) != 1:
        return f"has {groups} feature groups and {batch_groups} batch groups"
    window = [axis.size for axis in inst.window.dimensions]
    kernel_wanted = [0] * len(kernel)
    kernel_wanted[numbers.kernel_input_feature] = image[numbers.input_feature] // groups
    kernel_wanted[numbers.kernel_output_feature] = out[numbers.output_feature]
    for axis, size in zip(numbers.kernel_spatial, window, strict=True):
        kernel_wanted[axis] = size
    features = kernel[numbers.kernel_output_feature]
    divisible = image[numbers.input_feature] % groups == 0 and features % (groups * batch_groups) == 0
    if kernel != kernel_wanted or not divisible or image[numbers.input_batch] % batch_groups:
        return f"has the sizes {out}, a window of {window} and {counted(groups, 'group')}, {_of(site)}"
    out_wanted = [0] * len(out)
    out_wanted[numbers.output_batch] = image[numbers.input_batch] // batch_groups
    out_wanted[numbers.output_feature] = features
    for axis, size in zip(numbers.output_spatial, places, strict=True):
        out_wanted[axis] = size
    return _wanted(site, out_wanted)


def _fft(site: Site) -> str:
    lengths = list(site.inst.fft_length)
    sizes = site.sizes[0]
    kind = site.inst.fft_type
    if not 1 <= len(lengths) <= min(3, len(sizes)):
        return f"has the lengths {lengths}, {_of(site)}"
    halved = [*lengths[:-1], lengths[-1] // 2 + 1]
    given, made = (halved if kind == half else lengths for half in (_IRFFT, _RFFT))
    real, complex_ = site.operands[0].element_type, site.out.element_type
    if kind == _IRFFT:
        real, complex_ = complex_, real
    types = real == complex_ if kind not in (_RFFT, _IRFFT) else _COMPLEX.get(complex_) == real
    if sizes[-len(lengths) :] != given or not types or (kind not in (_RFFT, _IRFFT) and real not in _COMPLEX):
        return f"is {shown(site.out)}, {_of(site)} and its lengths are {lengths}"
    return _wanted(site, sizes[: -len(lengths)] + made)


def _cholesky(site: Site) -> str:
    (sizes,) = site.sizes
    if len(sizes) < 2 or sizes[-1] != sizes[-2]:
        return f"has the operand {shown(site.operands[0])}, square matrices wanted"
    return _wanted(site, sizes)


def _triangular_solve(site: Site) -> str:
    matrix, right = site.sizes
    options = site.inst.triangular_solve_options
    side = -2 if options.left_side else -1
    if not 1 <= options.transpose_a <= 3:
        return f"has transpose_a={options.transpose_a}, 1 (no), 2 (yes) or 3 (adjoint) wanted"
    fits = len(matrix) == len(right) >= 2 and matrix[-1] == matrix[-2] == right[side]
    if not (fits and matrix[:-2] == right[:-2] and _same_type(*site.operands)):
        return f"is {shown(site.out)}, {_of(site)}"
    return _wanted(site, right)


def _batch_norm(site: Site) -> str:
    tensor, *vectors = site.operands
    parts = _parts(site.out)
    tensors = parts[:1]
    made = parts[1:]
    axis = site.inst.feature_index
    if problem := _axes([axis], len(tensor.dimensions)):
        return problem
    if site.inst.opcode == "batch-norm-grad":
        tensors.append(vectors.pop())
    fits = all(_similar(shape, tensor) for shape in tensors)
    fits = fits and all(_same_type(vector, tensor) for vector in [*vectors, *made])
    fits = fits and all(list(v.dimensions) == [tensor.dimensions[axis]] for v in [*vectors, *made])
    fits = fits and len(made) == (0 if site.inst.opcode == "batch-norm-inference" else 2)
    return "" if fits else f"is {shown(site.out)}, {_of(site)}: a number for each size of axis {axis} wanted"


def _reduce_precision(site: Site) -> str:
    exponent = site.inst.exponent_bits
    mantissa = site.inst.mantissa_bits
    if 1 <= exponent < _INT32 and 0 <= mantissa < _INT32:
        return ""
    return f"keeps {exponent} bits of the exponent and {mantissa} of the mantissa, from 1 and from 0 wanted"


def _token(site: Site) -> str:
    return "" if site.out.element_type == _TOKEN else f"is {shown(site.out)}, token[] wanted"


def _after_all(site: Site) -> str:
    odd = [shape for shape in site.operands if shape.element_type != _TOKEN]
    return f"waits for {shown(odd[0])}, token[] wanted" if odd else _token(site)


def _outfeed(site: Site) -> str:
    if len(site.operands) == 2 and site.operands[1].element_type != _TOKEN:
        return f"waits for {shown(site.operands[1])}, token[] wanted"
    return _token(site)


def _add_dependency(site: Site) -> str:
    if site.operands[1].element_type != _TOKEN:
        return f"waits for {shown(site.operands[1])}, token[] wanted"
    return _like_first(site)


def _received(site: Site) -> str:
    """Return what is wrong with an infeed or a receive: a tuple that ends with a token is wanted."""
    parts = site.out.tuple_shapes
    waits = all(shape.element_type == _TOKEN for shape in site.operands)
    return _carried(site, waits and bool(parts) and parts[-1].element_type == _TOKEN)


def _async_update(site: Site) -> str:
    return _carried(site, bool(site.out.tuple_shapes)) or _like_first(site)


def _scalar(site: Site) -> str:
    return "" if _is_scalar(site.out) else f"is {shown(site.out)}, one number wanted"


def _dimension_size(site: Site) -> str:
    axes = list(site.inst.dimensions)
    problem = _axes(axes, len(site.sizes[0])) if len(axes) == 1 else f"has the axes {axes}, one wanted"
    if problem or site.inst.opcode == "get-dimension-size":
        return problem or _scalar(site)
    size = site.operands[1]
    if not (_is_scalar(size) and size.element_type == _S32):
        return f"sets a size to {shown(size)}, s32[] wanted"
    return _wanted(site, site.sizes[0])


def _complex(site: Site) -> str:
    real = {_COMPLEX.get(site.out.element_type)}
    fits = {shape.element_type for shape in site.operands} == real
    return "" if fits else f"is {shown(site.out)}, {_of(site)}"


def _real_part(site: Site) -> str:
    kind = site.operands[0].element_type
    real = _COMPLEX.get(kind, kind)
    if site.out.element_type == real or {site.out.element_type, real} <= _FLOATS:
        return ""
    return f"is {shown(site.out)}, {_of(site)}"


def _all_to_all(site: Site) -> str:
    if site.out.element_type == TUPLE:
        odd = [count for count in _group_sizes(site.inst) if count != len(site.operands)]
        if not all(same_shape(shape, site.operands[0]) for shape in site.operands):
            return f"sends {_of(site)}, tensors of one shape wanted"
        if odd:
            devices = counted(odd[0], "device")
            return f"has {len(site.operands)} operands for groups of {devices}, one for each wanted"
        return _like_operands(site)
    axes = list(site.inst.dimensions)
    if len(axes) != 1:
        return f"has the axes {axes}, one wanted"
    if problem := _axes(axes, len(site.sizes[0])):
        return problem
    shards = _group_sizes(site.inst)
    if any(site.sizes[0][axes[0]] % count for count in shards):
        return f"splits axis {axes[0]} of {_of(site)} among {counted(shards[0], 'device')}"
    return _like_operands(site)


def _constant(site: Site) -> str:
    if not site.inst.HasField("literal"):  # text may leave the values out
        return ""
    literal = site.inst.literal
    if not same_shape(site.out, literal.shape):
        return f"is {shown(site.out)}, its value is {shown(literal.shape)}"
    if site.out.element_type not in _VALUES:
        return ""
    field, parts = _VALUES[site.out.element_type]
    there = len(getattr(literal, field))
    parts *= prod(site.out.dimensions)
    return "" if there == parts else f"has {there} {field} as its value, {parts} wanted"


def _custom_call(site: Site) -> str:
    if not site.inst.custom_call_target:
        return "has no custom_call_target"
    shapes = site.inst.operand_shapes_with_layout
    fits = len(shapes) == len(site.operands) and all(map(same_shape, shapes, site.operands))
    if fits or not site.inst.constrain_layout:
        return ""
    return f"constrains the layouts of {', '.join(map(shown, shapes)) or 'nothing'}, {_of(site)}"


def _topk(site: Site) -> str:
    parts = site.out.tuple_shapes
    sizes = site.sizes[0]
    fits = len(parts) == 2 and bool(sizes) and _same_type(parts[0], site.operands[0])
    fits = fits and parts[1].element_type == _S32 and parts[0].dimensions == parts[1].dimensions
    fits = fits and [*parts[0].dimensions] == [*sizes[:-1], site.inst.k] and 0 <= site.inst.k <= sizes[-1]
    return "" if fits else f"is {shown(site.out)}, {_of(site)} and k is {site.inst.k}"


def _random_bits(site: Site) -> str:
    parts = _parts(site.out)  # the next state, and the bits
    state = site.operands[0]
    algorithm = site.inst.rng_algorithm
    if algorithm not in (0, *_STATES):
        return f"has the rng_algorithm {algorithm}, 0 to {max(_STATES)} wanted"
    lengths = _STATES.get(algorithm)
    fits = state.element_type in _STATE_TYPES and len(state.dimensions) == 1
    fits = fits and (lengths is None or (state.element_type == _U64 and state.dimensions[0] in lengths))
    if not fits:
        numbers = f"u64[{' or '.join(map(str, lengths))}]" if lengths else "a list of u32 or u64"
        return f"has the state {shown(state)}, {numbers} wanted"
    fits = site.out.element_type != TUPLE or (len(parts) == 2 and same_shape(parts[0], state))
    return "" if fits else f"is {shown(site.out)}, {_of(site)}"


def _random(site: Site) -> str:
    """Return what is wrong with random numbers: two bounds or moments of their type are wanted."""
    fits = len(site.operands) == 2 and all(map(_is_scalar, site.operands))
    fits = fits and all(_same_type(shape, site.out) for shape in site.operands)
    return "" if fits else f"is {shown(site.out)}, {_of(site)}: two numbers of its type wanted"


def _ragged_dot(site: Site) -> str:
    if problem := _odd_product(site):
        return problem
    if site.operands[2].element_type not in _INTEGERS:
        return f"has groups of {shown(site.operands[2])} rows, whole numbers wanted"
    numbers = site.inst.ragged_dot
    lhs, rhs, group_sizes = site.sizes
    dot = numbers.dot
    groups = list(numbers.rhs_group)
    problem = _axes([*dot.lhs_contracting, *dot.lhs_batch], len(lhs))
    problem = problem or _axes([*dot.rhs_contracting, *dot.rhs_batch, *groups], len(rhs))
    problem = problem or _axes(numbers.lhs_ragged, len(lhs))
    if problem or len(numbers.lhs_ragged) != 1 or not group_sizes:
        return problem or f"has the ragged axes {list(numbers.lhs_ragged)}, one wanted ({_of(site)})"
    inner = [lhs[axis] for axis in dot.lhs_contracting], [rhs[axis] for axis in dot.rhs_contracting]
    outer = [lhs[axis] for axis in dot.lhs_batch], [rhs[axis] for axis in dot.rhs_batch]
    if inner[0] != inner[1] or outer[0] != outer[1]:
        return f"contracts {inner[0]} with {inner[1]}, its batches are {outer[0]} and {outer[1]}"
    ragged = numbers.lhs_ragged[0]
    of_rows = ragged not in dot.lhs_contracting and ragged not in dot.lhs_batch
    if [rhs[axis] for axis in groups] != group_sizes[-1:] * of_rows:
        return f"has the group axes {groups}, {_of(site)}"
    left = [size for axis, size in enumerate(lhs) if axis not in {*dot.lhs_contracting, *dot.lhs_batch}]
    used = {*dot.rhs_contracting, *dot.rhs_batch, *groups}
    right = [size for axis, size in enumerate(rhs) if axis not in used]
    first = group_sizes[-1:] if ragged in dot.lhs_contracting else []
    return _wanted(site, [*first, *outer[0], *left, *right])


def _scaled_dot(site: Site) -> str:
    for tensor, scale in zip(site.sizes[:2], site.sizes[2:], strict=True):
        blocks = len(tensor) == len(scale)
        blocks = blocks and all(part and size % part == 0 for size, part in zip(tensor, scale, strict=True))
        if scale and not blocks:
            return f"scales {tensor} by {scale}, a number for each block of equal size wanted"
    return _dot(site)


def _ragged_all_to_all(site: Site) -> str:
    source, target, *numbers = site.operands
    fits = same_shape(site.out, target) and _same_type(source, target)
    fits = fits and list(source.dimensions[1:]) == list(target.dimensions[1:])
    fits = fits and all(_like(number, numbers[0], same_shape) for number in numbers)
    fits = fits and all(number.element_type in _INTEGERS for number in numbers)
    return "" if fits else f"is {shown(site.out)}, {_of(site)}"


def _stochastic_convert(site: Site) -> str:
    """Return what is wrong with rounding by random bits: as many of them as the number has are wanted."""
    number, bits = site.operands
    widths = {_BITS.get(shape.element_type) for shape in site.operands} - {None}
    fits = number.element_type in _FLOATS and bits.element_type in _UNSIGNED and len(widths) < 2
    return "" if fits else f"rounds {_of(site)}: a floating-point number and its unsigned bits wanted"


def _compare(site: Site) -> str:
    direction = site.inst.comparison_direction
    return "" if direction in _DIRECTIONS else f"compares by {direction!r}, {' '.join(_DIRECTIONS)} are known"


def _carried(site: Site, fits: bool) -> str:
    """Return what is wrong with an asynchronous operation whose output does not fit what it carries."""
    return "" if fits else f"is {shown(site.out)}, {_of(site)}"


def _is_context(shape) -> bool:
    """Return whether a shape is a context: the number by which the end of an operation finds its start."""
    return _is_scalar(shape) and shape.element_type == _U32


def _copy_start(site: Site) -> str:
    parts = site.out.tuple_shapes  # destination, source, context
    carried = len(parts) == 3 and all(same_shape(part, site.operands[0]) for part in parts[:2])
    return _carried(site, carried and _is_context(parts[2]))


def _all_gather_start(site: Site) -> str:
    parts = site.out.tuple_shapes  # operands, outputs
    carried = len(parts) == 2 and _gives(parts[0], site.operands)
    return _carried(site, carried) or _scaled_axis(site, parts[1], down=False)


def _collective_permute_start(site: Site) -> str:
    if len(site.operands) == 4:  # two are offsets in tensors
        return ""
    parts = site.out.tuple_shapes  # operands, outputs, contexts
    carried = 2 <= len(parts) <= 4 and all(_gives(part, site.operands) for part in parts[:2])
    contexts = all(_is_scalar(part) and part.element_type in (_S32, _U32) for part in parts[2:])
    return _carried(site, carried and contexts)


def _async_start(site: Site) -> str:
    parts = site.out.tuple_shapes  # operands, output, contexts
    carried = len(parts) >= 2 and len(parts[0].tuple_shapes) == len(site.operands)
    carried = carried and all(
        same_shape(*pair) for pair in zip(parts[0].tuple_shapes, site.operands, strict=True)
    )
    problem = _carried(site, carried)
    return problem or (_calls(site, 0, site.operands, parts[1]) if site.called else "")


def _copy_done(site: Site) -> str:
    parts = site.operands[0].tuple_shapes
    return _carried(site, len(parts) >= 2 and same_shape(site.out, parts[0]))


def _done(site: Site) -> str:
    parts = site.operands[0].tuple_shapes
    return _carried(site, len(parts) >= 2 and same_shape(site.out, parts[1]))


def _send(site: Site) -> str:
    parts = site.out.tuple_shapes  # tensor, context, token
    ends = site.operands[1].element_type == _TOKEN and len(parts) == 3 and parts[2].element_type == _TOKEN
    return _carried(site, ends and same_shape(parts[0], site.operands[0]))


def _recv_done(site: Site) -> str:
    parts = site.operands[0].tuple_shapes
    made = site.out.tuple_shapes
    return _carried(site, len(parts) == 3 and len(made) == 2 and same_shape(made[0], parts[0]))


_RULES: dict[str, Callable[[Site], str]] = {
    "abs": _real_part,
    "add-dependency": _add_dependency,
    "after-all": _after_all,
    "all-gather": _all_gather,
    "all-gather-done": _done,
    "all-gather-start": _all_gather_start,
    "all-reduce": _all_reduce,
    "all-reduce-done": _like_first,
    "all-reduce-start": _all_reduce,
    "all-to-all": _all_to_all,
    "async-done": _done,
    "async-start": _async_start,
    "async-update": _async_update,
    "batch-norm-grad": _batch_norm,
    "batch-norm-inference": _batch_norm,
    "batch-norm-training": _batch_norm,
    "bitcast": _bitcast,
    "bitcast-convert": _bitcast_convert,
    "broadcast": _broadcast,
    "call": _call,
    "cholesky": _cholesky,
    "collective-broadcast": _like_operands,
    "collective-permute": _collective_permute,
    "collective-permute-done": _done,
    "collective-permute-start": _collective_permute_start,
    "compare": _compare,
    "complex": _complex,
    "concatenate": _concatenate,
    "conditional": _conditional,
    "constant": _constant,
    "convolution": _convolution,
    "copy-done": _copy_done,
    "copy-start": _copy_start,
    "custom-call": _custom_call,
    "domain": _like_first,
    "dot": _dot,
    "dynamic-reshape": _dynamic_reshape,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "fft": _fft,
    "fusion": _call,
    "gather": _gather,
    "get-dimension-size": _dimension_size,
    "get-tuple-element": _get_tuple_element,
    "imag": _real_part,
    "infeed": _received,
    "iota": _iota,
    "map": _map,
    "opt-barrier": _like_first,
    "outfeed": _outfeed,
    "pad": _pad,
    "partition-id": _scalar,
    "ragged-all-to-all": _ragged_all_to_all,
    "ragged-dot": _ragged_dot,
    "real": _real_part,
    "recv": _received,
    "recv-done": _recv_done,
    "reduce": _reduce,
    "reduce-precision": _reduce_precision,
    "reduce-scatter": _reduce_scatter,
    "reduce-window": _reduce_window,
    "replica-id": _scalar,
    "reshape": _reshape,
    "reverse": _reverse,
    "rng": _random,
    "rng-bit-generator": _random_bits,
    "scaled-dot": _scaled_dot,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "send": _send,
    "send-done": _token,
    "set-dimension-size": _dimension_size,
    "slice": _slice,
    "sort": _sort,
    "stochastic-convert": _stochastic_convert,
    "topk": _topk,
    "transpose": _transpose,
    "triangular-solve": _triangular_solve,
    "tuple": _tuple,
    "while": _while,
}
"""The rule of each opcode whose output does not follow from the table."""
