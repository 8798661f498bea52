"""Simplify an HLO module as the compiler does before layout assignment, where that is simple and sure.

A call gives way to the instructions of its computation. What changes neither type nor order of the elements
gives way to its operand: a copy, a reshape or conversion to what is there already, a slice of everything, a
part of a tuple that is put together before. Of reshapes or transposes in a row the last remains, unless it
undoes the others. What nobody uses is left out. A dynamic dimension has its bound as size.
"""

import itertools
import sys
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from fastslow.core.errors import DataError
from fastslow.hlo.messages import Instruction, Module, message_classes

_Whole = message_classes(  # what else a module has: shapes of whole programs, and what an order depends on
    "fastslow.shapes",
    """
message Shape {
  repeated int64 dimensions = 3; repeated Shape tuple_shapes = 4; repeated bool is_dynamic_dimension = 6;
}
message Instruction {
  Shape shape = 3; int64 id = 35; repeated int64 control_predecessor_ids = 37;
  bool custom_call_has_side_effect = 65;
}
message ProgramShape { repeated Shape parameters = 1; Shape result = 2; }
message Computation { repeated Instruction instructions = 2; ProgramShape program_shape = 4; }
message Module { repeated Computation computations = 3; ProgramShape program_shape = 4; }
""",
)["Module"]

_EFFECTS = {"parameter", "infeed", "outfeed", "send", "send-done", "recv", "recv-done"}
_EFFECTS |= {"rng", "rng-get-and-update-state"}
_EFFECTS |= {f"{name}-{end}" for name in ("all-reduce", "all-gather") for end in ("start", "done")}
_EFFECTS |= {"collective-permute-start", "collective-permute-done"}
"""Opcodes of instructions that stay where nobody uses them, as XLA's ``HasSideEffect`` has it."""
_LARGEST = 2_000_000  # instructions: a program of the competition has up to 44 thousand
_LOCAL = 2**32
"""What divides an instruction's id: in XLA's newer modules the rest is its number within its computation."""
_MAY_DO_NOTHING = {"bitcast", "bitcast-convert", "broadcast", "concatenate", "convert", "copy", "reshape"}
_MAY_DO_NOTHING |= {"set-dimension-size", "slice", "transpose"}
"""Opcodes that do nothing where the result has the type and the sizes of the first operand."""


def check_inlined(source: str | Path, module: Module) -> None:
    """Refuse a module that is too large once every call gave way to what it calls; calls of calls multiply.

    Raises:
        DataError: It is; ``source`` is its origin, for the message.
    """
    parts = {part.id: part for part in module.computations}
    calls = {
        number: {c for i in part.instructions for c in i.called_computation_ids if c in parts}
        for number, part in parts.items()
    }
    sizes: dict[int, int] = {}
    for number in TopologicalSorter(calls).static_order():
        instructions = parts[number].instructions
        inlined = (sizes[c] for i in instructions if i.opcode == "call" for c in i.called_computation_ids)
        sizes[number] = len(instructions) + sum(inlined)
    if (size := sum(sizes.values())) > _LARGEST:
        problem = f"has {size:,} instructions once its calls are inlined, at most {_LARGEST:,} are read"
        raise DataError(source, problem, "Give a part of the program")


def refuse_unbounded(source: str | Path, module: Module) -> None:
    """Refuse a module of which a size is not known before it runs, nor a bound of it.

    Raises:
        DataError: It has such a dimension; ``source`` is the origin of the module, for the message.
    """
    for instruction in (i for part in module.computations for i in part.instructions):
        if _is_unbounded(instruction.shape):
            problem = f"the shape of {instruction.opcode} {instruction.name} is dynamic, without a bound"
            raise DataError(source, problem, "Give every dimension a fixed size")


def warn_of_bounds(source: str | Path, module: Module) -> None:
    """Print a warning if sizes of a module are dynamic: their bounds count."""
    if any(is_dynamic(i.shape) for part in module.computations for i in part.instructions):
        print(f"warning: {source}: dynamic dimensions have their bounds as sizes", file=sys.stderr)


def simplify(module: Module) -> Module:
    """Return a simplified copy of a module before layout assignment."""
    copy = Module()
    copy.CopyFrom(module)
    if any(is_dynamic(i.shape) for c in module.computations for i in c.instructions):
        copy = _with_bounds(module)
    return _Simplifier(copy).run()


class _Simplifier:
    def __init__(self, module: Module):
        self._module = module
        self._computations = {computation.id: computation for computation in module.computations}
        numbers = [i.id for computation in module.computations for i in computation.instructions]
        first = max(numbers, default=0) // _LOCAL * _LOCAL + max((n % _LOCAL for n in numbers), default=0) + 1
        self._new_ids = itertools.count(first)
        self._done: set[int] = set()
        self._names: set[str] = set()
        self._fixed = _fixed(module)

    def run(self) -> Module:
        """Simplify every computation, and drop those that are inlined everywhere or that nobody calls now."""
        called = self._called()
        for computation in self._module.computations:
            self._inline(computation)
        for computation in self._module.computations:
            self._shorten(computation)
            self._drop_unused(computation)
        while True:  # a computation that goes may have called others
            uncalled = called - self._called()
            left = [c for c in self._module.computations if c.id not in uncalled]
            if len(left) == len(self._module.computations):
                return self._module
            _replace(self._module.computations, left)

    def _called(self) -> set[int]:
        """Return the computations that some instruction calls."""
        every = (i for computation in self._module.computations for i in computation.instructions)
        return {number for instruction in every for number in instruction.called_computation_ids}

    def _inline(self, computation) -> None:
        """Put the instructions of called computations in the place of calls."""
        if computation.id in self._done:
            return
        self._done.add(computation.id)
        kept: dict[int, Instruction] = {}
        moved: dict[int, int] = {}  # what replaces an instruction for those after it
        for instruction in computation.instructions:
            instruction.operand_ids[:] = [moved.get(i, i) for i in instruction.operand_ids]
            callee = self._callee(instruction)
            if callee is not None:
                self._inline(callee)
                numbers = dict(self._copies(callee, instruction.operand_ids, kept))
                moved[instruction.id] = numbers[callee.root_id]
            else:
                kept[instruction.id] = instruction
        computation.root_id = moved.get(computation.root_id, computation.root_id)
        _replace(computation.instructions, kept.values())

    def _shorten(self, computation) -> None:
        """Leave out what changes nothing, and read past what the next instruction undoes."""
        kept: dict[int, Instruction] = {}
        moved: dict[int, int] = {}
        for instruction in computation.instructions:
            instruction.operand_ids[:] = [moved.get(i, i) for i in instruction.operand_ids]
            kept[instruction.id] = instruction
            if instruction.id not in self._fixed:
                _read_past(instruction, kept)
                if (source := _equal_value(instruction, kept)) is not None:
                    moved[instruction.id] = source
                    del kept[instruction.id]
        computation.root_id = moved.get(computation.root_id, computation.root_id)
        _replace(computation.instructions, kept.values())

    def _drop_unused(self, computation) -> None:
        """Drop the instructions that no other one uses, and that have no effect of their own."""
        by_id = {instruction.id: instruction for instruction in computation.instructions}
        used: set[int] = set()
        ahead = [computation.root_id, *(i.id for i in computation.instructions if self._has_effect(i))]
        while ahead:
            number = ahead.pop()
            if number not in used:
                used.add(number)
                ahead.extend(by_id[number].operand_ids)
        if len(used) < len(by_id):
            _replace(computation.instructions, [i for i in computation.instructions if i.id in used])

    def _has_effect(self, instruction: Instruction) -> bool:
        if instruction.opcode in _EFFECTS or instruction.id in self._fixed:
            return True
        called = (self._computations.get(number) for number in instruction.called_computation_ids)
        inner = (i for computation in called if computation for i in computation.instructions)
        return any(i.opcode != "parameter" and self._has_effect(i) for i in inner)

    def _callee(self, instruction: Instruction):
        """Return the computation that a call calls; None for any other instruction and a broken call."""
        if instruction.opcode != "call" or len(instruction.called_computation_ids) != 1:
            return None
        callee = self._computations.get(instruction.called_computation_ids[0])
        if callee is None:
            return None
        numbers = sorted(i.parameter_number for i in callee.instructions if i.opcode == "parameter")
        return callee if numbers == list(range(len(instruction.operand_ids))) else None

    def _copies(self, callee, operands, kept: dict[int, Instruction]) -> Iterator[tuple[int, int]]:
        """Copy a computation to the end of another one; yield the old and new id of each instruction."""
        numbers: dict[int, int] = {}
        for instruction in callee.instructions:
            if instruction.opcode == "parameter":
                number = operands[instruction.parameter_number]
            else:
                number = next(self._new_ids)
                copy = Instruction.FromString(instruction.SerializeToString())
                kept[number] = copy
                if copy.id in self._fixed:
                    self._fixed.add(number)
                copy.id = number
                copy.operand_ids[:] = [numbers[i] for i in copy.operand_ids]
                if copy.name in self._names:
                    copy.name = f"{copy.name}.{number}"
                self._names.add(copy.name)
            numbers[instruction.id] = number
            yield instruction.id, number


def is_dynamic(shape) -> bool:
    """Return whether a size of a shape, or of a tuple's parts, is known at run time only."""
    return any(shape.is_dynamic_dimension) or any(is_dynamic(part) for part in shape.tuple_shapes)


def _is_unbounded(shape) -> bool:
    """Return whether a size of a shape, or of a tuple's parts, is below 0: it has no bound."""
    return any(size < 0 for size in shape.dimensions) or any(map(_is_unbounded, shape.tuple_shapes))


def _with_bounds(module: Module) -> Module:
    """Return a copy of a module with the bounds of dynamic dimensions as sizes."""
    whole = _Whole.FromString(module.SerializeToString())
    shapes = [i.shape for c in whole.computations for i in c.instructions]
    for program in (whole.program_shape, *(c.program_shape for c in whole.computations)):
        shapes += [*program.parameters, program.result]
    for shape in shapes:
        _take_bounds(shape)
    return Module.FromString(whole.SerializeToString())


def _take_bounds(shape) -> None:
    """Make a shape static; a dimension without a bound, whose size is negative, stays dynamic."""
    if any(shape.is_dynamic_dimension):
        shape.is_dynamic_dimension[:] = [size < 0 for size in shape.dimensions]
    for part in shape.tuple_shapes:
        _take_bounds(part)


def _fixed(module: Module) -> set[int]:
    """Return the instructions that stay as they are: custom calls with effects, and what others wait for."""
    fixed: set[int] = set()
    for computation in _Whole.FromString(module.SerializeToString()).computations:
        for instruction in computation.instructions:
            if instruction.custom_call_has_side_effect or instruction.control_predecessor_ids:
                fixed |= {instruction.id, *instruction.control_predecessor_ids}
    return fixed


def _read_past(instruction: Instruction, kept: dict[int, Instruction]) -> None:
    """Let a reshape of a reshape, and a transpose of a transpose, read what the first of them reads.

    To a reshape, a transpose that moves only axes of size 1 is another reshape.
    """
    while (source := kept.get(instruction.operand_ids[0]) if instruction.operand_ids else None) is not None:
        if instruction.opcode == source.opcode == "transpose":
            instruction.dimensions[:] = [source.dimensions[d] for d in instruction.dimensions]
        elif instruction.opcode != "reshape" or not (source.opcode == "reshape" or _keeps_order(source)):
            return
        instruction.operand_ids[0] = source.operand_ids[0]


def _keeps_order(transpose: Instruction) -> bool:
    """Return whether an instruction is a transpose that moves only axes of size 1."""
    sizes = zip(transpose.dimensions, transpose.shape.dimensions, strict=False)
    moved = [axis for axis, size in sizes if size != 1]
    return transpose.opcode == "transpose" and moved == sorted(moved)


def _equal_value(instruction: Instruction, kept: dict[int, Instruction]) -> int | None:
    """Return the instruction whose value this one repeats; None where it is another value."""
    source = kept.get(instruction.operand_ids[0]) if instruction.operand_ids else None
    if source is None:
        return None
    if instruction.opcode == "get-tuple-element" and source.opcode == "tuple":
        return source.operand_ids[instruction.tuple_index]
    same = (
        instruction.shape.element_type == source.shape.element_type
        and instruction.shape.dimensions == source.shape.dimensions
    )
    in_order = list(instruction.dimensions) == sorted(instruction.dimensions)  # of transpose and broadcast
    return source.id if same and in_order and instruction.opcode in _MAY_DO_NOTHING else None


def _replace(field, messages: Iterable) -> None:
    """Put copies of messages, some of which are in it now, into a repeated field."""
    copies = [type(message).FromString(message.SerializeToString()) for message in messages]
    del field[:]
    field.extend(copies)
