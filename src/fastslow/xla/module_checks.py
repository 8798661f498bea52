"""What an HLO module must be before anything is computed from it: whole, acyclic, of fitting shapes."""

from collections.abc import Callable, Iterable
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path

from fastslow.core.errors import DataError
from fastslow.xla.messages import Instruction, Module

_WRITE_AGAIN = "Write or download the file again"
_OPERANDS = {"convolution": 2, "dot": 2, "reshape": 1}  # of the instructions whose layouts can be chosen


def check_module(path: Path, module: Module) -> None:
    """Check what the reader of a module relies on.

    Raises:
        DataError: An instruction or computation is missing, is there twice, or uses itself; a convolution,
            dot or reshape has other operands or axes than such an instruction; or a layout is no permutation.
    """

    def refuse(problem: str):
        raise DataError(path, f"HLO module {module.name!r}: {problem}", _WRITE_AGAIN)

    _check_references(module, refuse)
    calls = {
        part.id: {called for inst in part.instructions for called in inst.called_computation_ids}
        for part in module.computations
    }
    if _has_cycle(calls):
        refuse("a computation calls itself")
    for part in module.computations:
        if _has_cycle({inst.id: inst.operand_ids for inst in part.instructions}):
            refuse(f"an instruction of computation {part.name} uses its own result")
        by_id = {inst.id: inst for inst in part.instructions}
        for inst in part.instructions:
            rank, order = len(inst.shape.dimensions), inst.shape.layout.minor_to_major
            if order and sorted(order) != list(range(rank)):
                refuse(f"the layout {list(order)} of {inst.opcode} {inst.name} is no order of {rank} axes")
            if problem := _misfit(inst, [by_id[operand] for operand in inst.operand_ids]):
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


def _misfit(inst: Instruction, operands: list[Instruction]) -> str:
    """Return why an instruction is no convolution, dot or reshape; empty where it is, or claims another."""
    if inst.opcode not in _OPERANDS:
        return ""
    if len(operands) != _OPERANDS[inst.opcode]:
        return f"has {len(operands)} operands, {_OPERANDS[inst.opcode]} wanted"
    shapes = [inst.shape, *(operand.shape for operand in operands)]
    if any(size < 0 for shape in shapes for size in shape.dimensions):
        return "has a size below 0"
    if inst.opcode == "reshape":
        sizes = [prod(shape.dimensions) for shape in shapes]
        return "" if sizes[0] == sizes[1] else f"has {sizes[0]} elements, its operand {sizes[1]}"
    if inst.opcode == "dot":
        numbers = inst.dot
        sides = [
            (*numbers.lhs_contracting, *numbers.lhs_batch),
            (*numbers.rhs_contracting, *numbers.rhs_batch),
        ]
        named = [(), *sides]
        free = sum(len(s.dimensions) - len(side) for s, side in zip(shapes[1:], sides, strict=True))
        if len(inst.shape.dimensions) != free + len(inst.dot.lhs_batch):
            return f"has {len(inst.shape.dimensions)} dimensions, {free + len(inst.dot.lhs_batch)} wanted"
    else:
        numbers = inst.convolution
        named = [
            (numbers.output_batch, numbers.output_feature),
            (numbers.input_batch, numbers.input_feature),
            (numbers.kernel_input_feature, numbers.kernel_output_feature),
        ]
    for shape, axes in zip(shapes, named, strict=True):
        if len({*axes}) < len(axes) or any(not 0 <= axis < len(shape.dimensions) for axis in axes):
            return f"names the axes {list(axes)} of a tensor of {len(shape.dimensions)} dimensions"
    return ""
