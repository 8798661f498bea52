"""Simplify an HLO module as the compiler does before layout assignment, where that is simple and sure.

A call gives way to the instructions of its computation. A reshape to the same sizes, and a transpose that
moves no dimension, give way to their operands. A dynamic dimension has its bound as size.
"""

import itertools
from collections.abc import Iterator

from fastslow.hlo.messages import Instruction, Module, message_classes

_Whole = message_classes(  # a module's shapes, those of whole programs included
    "fastslow.shapes",
    """
message Shape {
  repeated int64 dimensions = 3; repeated Shape tuple_shapes = 4; repeated bool is_dynamic_dimension = 6;
}
message Instruction { Shape shape = 3; }
message ProgramShape { repeated Shape parameters = 1; Shape result = 2; }
message Computation { repeated Instruction instructions = 2; ProgramShape program_shape = 4; }
message Module { repeated Computation computations = 3; ProgramShape program_shape = 4; }
""",
)["Module"]


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
        instructions = [i for computation in module.computations for i in computation.instructions]
        self._new_ids = itertools.count(1 + max((i.id for i in instructions), default=0))
        self._done: set[int] = set()
        self._inlined: set[int] = set()
        self._names: set[str] = set()

    def run(self) -> Module:
        """Simplify every computation, and drop those that were inlined everywhere."""
        for computation in self._module.computations:
            self._simplify(computation)
        rest = (i for computation in self._module.computations for i in computation.instructions)
        called = {number for instruction in rest for number in instruction.called_computation_ids}
        kept = [c for c in self._module.computations if c.id in called or c.id not in self._inlined]
        if len(kept) < len(self._module.computations):
            copies = [type(c).FromString(c.SerializeToString()) for c in kept]
            del self._module.computations[:]
            self._module.computations.extend(copies)
        return self._module

    def _simplify(self, computation) -> None:
        if computation.id in self._done:
            return
        self._done.add(computation.id)
        kept: dict[int, Instruction] = {}
        moved: dict[int, int] = {}  # what replaces an instruction for those after it
        for instruction in computation.instructions:
            instruction.operand_ids[:] = [moved.get(i, i) for i in instruction.operand_ids]
            callee = self._callee(instruction)
            if callee is not None:
                self._simplify(callee)
                numbers = dict(self._copies(callee, instruction.operand_ids, kept))
                moved[instruction.id] = numbers[callee.root_id]
            elif _does_nothing(instruction, kept):
                moved[instruction.id] = instruction.operand_ids[0]
            else:
                kept[instruction.id] = instruction
        computation.root_id = moved.get(computation.root_id, computation.root_id)
        copies = [Instruction.FromString(i.SerializeToString()) for i in kept.values()]
        del computation.instructions[:]
        computation.instructions.extend(copies)

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
        self._inlined.add(callee.id)
        numbers: dict[int, int] = {}
        for instruction in callee.instructions:
            if instruction.opcode == "parameter":
                number = operands[instruction.parameter_number]
            else:
                number = next(self._new_ids)
                own = kept[number] = Instruction.FromString(instruction.SerializeToString())
                own.id = number
                own.operand_ids[:] = [numbers[i] for i in own.operand_ids]
                if own.name in self._names:
                    own.name = f"{own.name}.{number}"
                self._names.add(own.name)
            numbers[instruction.id] = number
            yield instruction.id, number


def is_dynamic(shape) -> bool:
    """Return whether a size of a shape, or of a tuple's parts, is known at run time only."""
    return any(shape.is_dynamic_dimension) or any(is_dynamic(part) for part in shape.tuple_shapes)


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


def _does_nothing(instruction: Instruction, kept: dict[int, Instruction]) -> bool:
    if instruction.opcode == "transpose":
        return list(instruction.dimensions) == sorted(instruction.dimensions)
    if instruction.opcode not in ("reshape", "set-dimension-size"):
        return False
    source = kept.get(instruction.operand_ids[0])
    return source is not None and instruction.shape.dimensions == source.shape.dimensions
