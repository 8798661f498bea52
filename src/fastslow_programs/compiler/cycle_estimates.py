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


def trip_count(instruction, computations: dict) -> int:
    """Return the trip count of a ``while`` whose condition is ``i < N``, i = 0, 1, ..., as JAX lowers loops.

    Raises:
        CompilerError: The condition has another form, so the trip count is unknown.
    """
    condition = computations[instruction.called_computation_ids[1]]
    by_id = {i.id: i for i in condition.instructions}
    root = by_id[condition.root_id]
    if root.opcode == "compare" and root.comparison_direction == "LT":
        bound = by_id[root.operand_ids[1]]
        literal = [*bound.literal.s32s, *bound.literal.s64s]
        if bound.opcode == "constant" and len(literal) == 1:
            return max(0, literal[0])
    raise CompilerError(
        f"{instruction.name}: its condition is not i < constant, so its trip count is unknown"
    )


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
            cycles += trip_count(instruction, computations) * body.cycles
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
