"""Check that an HLO module is one, before anything is computed from it.

jaxlib has XLA's parser, which compares numbers of operands, but not XLA's verifier, which compares shapes.
"""

from collections.abc import Callable, Iterable
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path

from fastslow.core.errors import DataError
from fastslow.hlo.messages import PRIMITIVE_TYPES, Instruction, Module

WRITE_AGAIN = "Write or download the file again"
_LARGEST_TYPE = 63  # XLA numbers its element types up to 36 and adds a few a year
_LARGEST_SIZE = 2**31 - 1  # of a dimension in a competition file
_TUPLE = PRIMITIVE_TYPES["tuple"]
_ELEMENTWISE = {  # by number of operands, all of the output's sizes
    1: """abs cbrt ceil convert copy cosine count-leading-zeros exponential exponential-minus-one floor imag
    is-finite log log-plus-one logistic negate not popcnt real reduce-precision round-nearest-afz
    round-nearest-even rsqrt sign sine sqrt tan tanh""",
    2: """add and atan2 compare complex divide maximum minimum multiply or power remainder shift-left
    shift-right-arithmetic shift-right-logical stochastic-convert subtract xor""",
    3: "clamp select",
}
_OPERANDS = {opcode: count for count, names in _ELEMENTWISE.items() for opcode in names.split()}
_SAME_SIZES = frozenset(_OPERANDS)
_OPERANDS |= {"parameter": 0, "constant": 0, "iota": 0, "bitcast": 1, "bitcast-convert": 1, "broadcast": 1}
_OPERANDS |= {"get-tuple-element": 1, "reshape": 1, "reverse": 1, "slice": 1, "transpose": 1, "while": 1}
_OPERANDS |= {"copy-done": 1, "add-dependency": 2, "convolution": 2, "dot": 2, "pad": 2}
_OPERANDS |= {"select-and-scatter": 3}
_CALLED = {"call": 1, "fusion": 1, "map": 1, "reduce": 1, "reduce-window": 1, "scatter": 1}
_CALLED |= {"select-and-scatter": 2, "sort": 1, "while": 2}


def check_module(path: Path, module: Module) -> None:
    """Check that a module is whole, acyclic, and of fitting shapes.

    Raises:
        DataError: An instruction or computation is missing, is there twice, or uses itself; an instruction
            has another number of operands or computations than its opcode, or a shape that its operands do
            not give; or a layout is no permutation.
    """

    def refuse(problem: str):
        raise DataError(path, f"HLO module {module.name!r}: {problem}", WRITE_AGAIN)

    _check_references(module, refuse)
    calls = {
        part.id: {called for inst in part.instructions for called in inst.called_computation_ids}
        for part in module.computations
    }
    if _has_cycle(calls):
        refuse("a computation calls itself")
    taken = {}  # parameters by computation
    for part in module.computations:
        if _has_cycle({inst.id: inst.operand_ids for inst in part.instructions}):
            refuse(f"an instruction of computation {part.name} uses its own result")
        numbers = sorted(inst.parameter_number for inst in part.instructions if inst.opcode == "parameter")
        if numbers != list(range(len(numbers))):
            refuse(f"the parameters of computation {part.name} have the numbers {numbers}")
        taken[part.id] = len(numbers)
    for part in module.computations:
        by_id = {inst.id: inst for inst in part.instructions}
        for inst in part.instructions:
            operands, called = [by_id[operand] for operand in inst.operand_ids], inst.called_computation_ids
            problem = (
                _odd_shape(inst.shape)
                or _odd_numbers(inst, [taken[number] for number in called])
                or _misfit(inst, [inst.shape, *(operand.shape for operand in operands)])
            )
            if problem:
                refuse(f"{inst.opcode} {inst.name} {problem}")


def _check_references(module: Module, refuse: Callable[[str], None]) -> None:
    """Refuse a reference to an instruction or computation that the module lacks, or has twice."""
    computations = {part.id for part in module.computations}
    if len(computations) < len(module.computations):
        refuse("two computations have the same id")
    if module.entry_computation_id not in computations:
        refuse(f"the entry computation {module.entry_computation_name} is missing")
    for part in module.computations:
        ids = {inst.id for inst in part.instructions}
        if len(ids) < len(part.instructions):
            refuse(f"two instructions of computation {part.name} have the same id")
        if part.root_id not in ids:
            refuse(f"the root of computation {part.name} is missing")
        for inst in part.instructions:
            if not ids.issuperset(inst.operand_ids):
                refuse(f"an operand of {inst.opcode} {inst.name} is missing")
            if not computations.issuperset(inst.called_computation_ids):
                refuse(f"a computation that {inst.opcode} {inst.name} calls is missing")


def _has_cycle(uses: dict[int, Iterable[int]]) -> bool:
    try:
        TopologicalSorter(uses).prepare()
    except CycleError:
        return True
    return False


def _odd_shape(shape) -> str:
    """Return what no shape of XLA has; empty where it has nothing of that kind."""
    kind, rank, order = shape.element_type, len(shape.dimensions), shape.layout.minor_to_major
    if not 0 < kind <= _LARGEST_TYPE:
        return f"has the element type {kind}, 1 to {_LARGEST_TYPE} wanted"
    if kind == _TUPLE and (rank or order):
        return "is a tuple with sizes or a layout"
    if kind != _TUPLE and kind in PRIMITIVE_TYPES.values() and shape.tuple_shapes:
        return f"has {len(shape.tuple_shapes)} tuple_shapes and the element type {kind}, which is no tuple"
    if any(size < 0 for size in shape.dimensions) and not any(shape.is_dynamic_dimension):
        return "has a size below 0"
    if max(shape.dimensions, default=0) > _LARGEST_SIZE:
        return f"has the size {max(shape.dimensions)}, at most {_LARGEST_SIZE} wanted"
    if order and sorted(order) != list(range(rank)):
        return f"has the layout {list(order)}, an order of {rank} axes wanted"
    return next((problem for part in shape.tuple_shapes if (problem := _odd_shape(part))), "")


def _odd_numbers(inst: Instruction, taken: list[int]) -> str:
    """Return what is wrong with the numbers of operands and called computations, which take so many."""
    operands, opcode = len(inst.operand_ids), inst.opcode
    if operands != (wanted := _OPERANDS.get(opcode, operands)):
        return f"has {operands} operands, {wanted} wanted"
    if len(taken) != (wanted := _CALLED.get(opcode, len(taken))) or (opcode == "conditional" and not taken):
        return f"calls {len(taken)} computations, {wanted or 'one or more'} wanted"
    if opcode in ("call", "fusion", "map") and operands != taken[0]:
        return f"has {operands} operands, its computation takes {taken[0]}"
    return ""


def _misfit(inst: Instruction, shapes: list) -> str:
    """Return why an instruction's shape, the first, is not what it makes of its operands'; empty if it is."""
    if any(any(shape.is_dynamic_dimension) for shape in shapes):
        return ""
    out, *sources = [list(shape.dimensions) for shape in shapes]
    opcode, axes = inst.opcode, list(inst.dimensions)
    ranks = [len(sizes) for sizes in sources]
    if opcode in _SAME_SIZES:
        scalars = {"clamp": (0, 2), "select": (0,)}.get(opcode, ())
        same = all(sizes == out or (not sizes and at in scalars) for at, sizes in enumerate(sources))
        return "" if same else f"has the sizes {out}, its operands {sources}"
    if opcode == "transpose":
        fits = sorted(axes) == list(range(ranks[0])) and out == [sources[0][axis] for axis in axes]
    elif opcode == "broadcast":
        fits = _are_axes(axes, len(out)) and sources[0] == [out[axis] for axis in axes]
    elif opcode == "reduce" and shapes[0].element_type != _TUPLE:
        kept = [size for axis, size in enumerate(sources[0] if sources else []) if axis not in axes]
        fits = len(sources) == 2 and _are_axes(axes, ranks[0]) and out == kept
    elif opcode == "tuple":
        fits = [list(part.dimensions) for part in shapes[0].tuple_shapes] == sources
    elif opcode == "get-tuple-element":
        parts, at = shapes[1].tuple_shapes, inst.tuple_index
        if not 0 <= at < len(parts):
            return f"takes element {at} of a tuple of {len(parts)}"
        fits = out == list(parts[at].dimensions)
    elif opcode == "reshape":
        sizes = [prod(out), prod(sources[0])]
        return "" if sizes[0] == sizes[1] else f"has {sizes[0]} elements, its operand {sizes[1]}"
    elif opcode == "dot":
        return _misfit_of_dot(inst.dot, out, *sources)
    elif opcode == "convolution":
        numbers = inst.convolution
        named = [
            (numbers.output_batch, numbers.output_feature),
            (numbers.input_batch, numbers.input_feature),
            (numbers.kernel_input_feature, numbers.kernel_output_feature),
        ]
        fits = all(_are_axes(own, len(sizes)) for own, sizes in zip(named, [out, *sources], strict=True))
        fits = fits and out[numbers.output_feature] == sources[1][numbers.kernel_output_feature]
    else:
        return ""
    return "" if fits else f"has the sizes {out}, its operands {sources} and its axes are {axes}"


def _are_axes(axes: Iterable[int], rank: int) -> bool:
    """Return whether these are different axes of a tensor."""
    axes = list(axes)
    return len({*axes}) == len(axes) and all(0 <= axis < rank for axis in axes)


def _misfit_of_dot(numbers, out: list[int], lhs: list[int], rhs: list[int]) -> str:
    sides = [(lhs, numbers.lhs_contracting, numbers.lhs_batch)]
    sides += [(rhs, numbers.rhs_contracting, numbers.rhs_batch)]
    for sizes, contracted, batch in sides:
        if not _are_axes([*contracted, *batch], len(sizes)):
            return f"names the axes {[*contracted, *batch]} of a tensor of {len(sizes)} dimensions"
    inner, outer = ([[side[0][axis] for axis in side[at]] for side in sides] for at in (1, 2))
    free = [
        size
        for sizes, contracted, batch in sides
        for axis, size in enumerate(sizes)
        if axis not in contracted and axis not in batch
    ]
    if inner[0] != inner[1] or outer[0] != outer[1]:
        return f"contracts {inner[0]} with {inner[1]}, its batches are {outer[0]} and {outer[1]}"
    return "" if out == outer[0] + free else f"has the sizes {out}, {outer[0] + free} wanted"
