"""The compiler's own estimate of a program's cost: cycles, summed over the optimised module.

The compiler estimates fusions and copies. A few instructions that do work have no estimate (reshapes that
move data, ``select-and-scatter``, gathers): these count the bytes they read and write at the rate of a copy.
"""

import json
from dataclasses import dataclass
from math import prod

from fastslow.competition.node_columns import ELEMENT_BYTES
from fastslow.hlo.messages import PRIMITIVE_TYPES, Module
from fastslow_programs.compiler.libtpu import CompilerError

TILE = (128, 8)  # the minor-most and the second-minor dimension are padded to multiples of these
BYTES_PER_CYCLE = 350  # of copies between row-major layouts, v3: 310 to 370
CYCLES_PER_INSTRUCTION = 260  # of the smallest estimates
_DIGITS = 15  # of an estimate: 10^15 cycles are days
_NO_SUM = ("divide", "maximum", "minimum", "multiply", "power", "select", "shift-left", "subtract")

_BYTES_OF = {number: ELEMENT_BYTES[name] for name, number in PRIMITIVE_TYPES.items()}

FREE = {
    "after-all",
    "bitcast",
    "call",
    "conditional",
    "constant",
    "get-tuple-element",
    "iota",
    "opt-barrier",
    "parameter",
    "partition-id",
    "replica-id",
    "tuple",
    "while",
}
"""Opcodes that cost nothing by themselves in a scheduled computation."""


@dataclass(frozen=True)
class Estimate:
    """The compiler's estimate for one program.

    Args:
        cycles: Sum of cycles over the schedule of the entry computation: the body of a
            ``while`` times its trip count, the slowest branch of a ``conditional``. A serial sum, not
            measured time.
        estimated: Number of instructions with an estimate, each counted once.
        without_estimate: Number of instructions that do work but have no estimate (reshapes, gathers, custom
            calls, some copies inside loops); their bytes are in ``cycles``.
    """

    cycles: int
    estimated: int
    without_estimate: int


def own_cycles(instruction) -> int | None:
    """Return the TPU compiler's estimate for one instruction, None where it gives none.

    Other compilers write other things into ``backend_config``: MLIR attributes, bytes, null.
    """
    try:
        config = json.loads(instruction.backend_config)
    except (ValueError, RecursionError):
        return None
    window = config.get("window_config") if isinstance(config, dict) else None
    cycles = str(window.get("estimated_cycles")) if isinstance(window, dict) else ""
    return int(cycles) if cycles.isdecimal() and len(cycles) <= _DIGITS else None


def trip_count(instruction, computation, computations: dict) -> int:
    """Return the trip count of a ``while`` whose condition is ``i < N``, as JAX lowers loops.

    The start and the step of ``i`` are the constants of the program. Where one is not visible, as in a fusion
    or an argument, it is taken for the usual one: from 0, by 1. A body that visibly does not add, as in
    ``i = 2 * i``, leaves the count unknown.

    Args:
        instruction: The ``while``.
        computation: The computation that it is in.
        computations: All computations by ID.

    Raises:
        CompilerError: The condition or the step has another form, so the trip count is unknown.
    """
    body, condition = (computations[number] for number in instruction.called_computation_ids)
    inside = {i.id: i for i in condition.instructions}
    root = inside[condition.root_id]
    if root.opcode == "compare" and root.comparison_direction == "LT":
        counter, bound = (_source(number, inside) for number in root.operand_ids)
        last = _constant(bound)
        if last is not None and _is_counter(counter, counter, inside):
            start, step = 0, _step(body, counter)
            around = {i.id: i for i in computation.instructions}
            if first := _element(instruction.operand_ids[0], counter, around):
                start = _constant(first) or 0
            if step > 0:
                return max(0, -((start - last) // step))
    raise CompilerError(
        f"{instruction.name}: its condition is not i < constant, so its trip count is unknown"
    )


def _source(number: int, by_id: dict):
    """Return the instruction that gives a value, which others only copy or convert."""
    found = by_id[number]
    while found.opcode in ("bitcast", "convert", "copy") and found.operand_ids:
        found = by_id[found.operand_ids[0]]
    return found


def _constant(instruction) -> int | None:
    """Return the integer of a constant; None of anything else."""
    literal = [*instruction.literal.s32s, *instruction.literal.s64s]
    return literal[0] if instruction.opcode == "constant" and len(literal) == 1 else None


def _is_counter(instruction, counter, by_id: dict) -> bool:
    """Return whether an instruction is the element of the loop's state that ``counter`` is, or all of it."""
    if instruction.opcode == "get-tuple-element":
        is_same = instruction.tuple_index == counter.tuple_index
        return is_same and _source(instruction.operand_ids[0], by_id).opcode == "parameter"
    return instruction.opcode == counter.opcode == "parameter"


def _element(number: int, counter, by_id: dict):
    """Return the instruction that gives the counter's element of a state; None where it is not visible."""
    state = _source(number, by_id)
    if counter.opcode == "parameter":
        return state
    return _source(state.operand_ids[counter.tuple_index], by_id) if state.opcode == "tuple" else None


def _step(body, counter) -> int:
    """Return the constant added to the counter; 1 where it is not visible, 0 where it is no sum."""
    by_id = {i.id: i for i in body.instructions}
    changed = _element(body.root_id, counter, by_id)
    if changed is None:
        return 1
    if changed.opcode in _NO_SUM:
        return 0
    if changed.opcode == "add":
        parts = [_source(number, by_id) for number in changed.operand_ids]
        steps = [step for step in map(_constant, parts) if step is not None]
        if len(steps) == 1 and any(_is_counter(part, counter, by_id) for part in parts):
            return steps[0]
    return 1


def estimate(optimized: Module) -> Estimate:
    """Return the estimate for an optimised module.

    Raises:
        CompilerError: The trip count of a ``while`` is unknown, or no instruction has an estimate.
    """
    computations = {computation.id: computation for computation in optimized.computations}
    done: dict[int, Estimate] = {}

    def total(computation_id: int) -> Estimate:
        if computation_id not in done:
            done[computation_id] = _total(computations[computation_id], computations, total)
        return done[computation_id]

    result = total(optimized.entry_computation_id)
    if not result.estimated:
        raise CompilerError("the compiler left no estimated_cycles in the optimised module")
    return result


def _total(computation, computations: dict, total) -> Estimate:
    cycles = estimated = without = 0
    shape_of = {instruction.id: instruction.shape for instruction in computation.instructions}
    for instruction in computation.instructions:
        called = list(instruction.called_computation_ids)
        estimate = own_cycles(instruction)
        inner = []
        if instruction.opcode == "while":
            body = total(called[0])
            cycles += trip_count(instruction, computation, computations) * body.cycles
            inner = [body]
        elif instruction.opcode in ("call", "conditional"):
            inner = [total(branch) for branch in called]
            cycles += max(branch.cycles for branch in inner)
        elif estimate is not None:
            cycles += estimate
            estimated += 1
        elif instruction.opcode not in FREE:
            without += 1
            shapes = [instruction.shape, *(shape_of[i] for i in instruction.operand_ids)]
            cycles += CYCLES_PER_INSTRUCTION + sum(map(padded_bytes, shapes)) // BYTES_PER_CYCLE
        estimated += sum(part.estimated for part in inner)
        without += sum(part.without_estimate for part in inner)
    return Estimate(cycles, estimated, without)


def padded_bytes(shape) -> int:
    """Return the bytes of a shape in its layout, the two minor-most dimensions padded to 8 by 128.

    Element types that the competition does not number (such as f8) count one byte.
    """
    if shape.tuple_shapes:
        return sum(map(padded_bytes, shape.tuple_shapes))
    order = shape.layout.minor_to_major or range(len(shape.dimensions))[::-1]
    sizes = [shape.dimensions[d] for d in order]
    sizes[:2] = [-(-size // tile) * tile for size, tile in zip(sizes, TILE, strict=False)]
    return prod(sizes) * _BYTES_OF.get(shape.element_type, 1)
