"""Check that an HLO module is one, before anything is computed from it."""

from collections.abc import Callable, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from google.protobuf.message import DecodeError

from fastslow.core.errors import DataError, counted
from fastslow.hlo.messages import PRIMITIVE_TYPES, CheckedModule, Module
from fastslow.hlo.shape_rules import TUPLE, Signature, Site, misfit, same_shape, shown

WRITE_AGAIN = "Write or download the file again"
_WITHOUT_SIZES = {PRIMITIVE_TYPES[name]: name for name in ("tuple", "token", "opaque")}
_LARGEST_TYPE = 63  # XLA numbers its element types up to 36 and adds a few a year
LARGEST_SIZE = 2**31 - 1  # of a dimension in a competition file


def check_module(path: Path, module: Module) -> None:
    """Check that a module is whole, acyclic, and of fitting shapes.

    Raises:
        DataError: An instruction or computation is missing, is there twice, or uses itself; an instruction
            has another number of operands or computations than its opcode, or a shape that its operands do
            not give; or a layout is no permutation.
    """

    def refuse(problem: str):
        raise DataError(path, f"HLO module {module.name!r}: {problem}", WRITE_AGAIN)

    try:
        module = CheckedModule.FromString(module.SerializeToString())
    except DecodeError as error:  # in a field that only checks read
        refuse(f"an attribute cannot be read ({error})")
    _check_references(module, refuse)
    calls = {
        part.id: {called for inst in part.instructions for called in inst.called_computation_ids}
        for part in module.computations
    }
    if _has_cycle(calls):
        refuse("a computation calls itself")
    signatures, whole = {}, {}
    for part in module.computations:
        if _has_cycle({inst.id: inst.operand_ids for inst in part.instructions}):
            refuse(f"an instruction of computation {part.name} uses its own result")
        parameters = [inst for inst in part.instructions if inst.opcode == "parameter"]
        parameters.sort(key=lambda inst: inst.parameter_number)
        numbers = [inst.parameter_number for inst in parameters]
        if numbers != list(range(len(numbers))):
            refuse(f"the parameters of computation {part.name} have the numbers {numbers}")
        root = next(inst for inst in part.instructions if inst.id == part.root_id)
        signatures[part.id] = Signature([inst.shape for inst in parameters], root.shape)
        whole[part.id] = [*parameters, root]
        if part.HasField("program_shape"):
            problem = _odd_signature(part.program_shape, whole[part.id])
            if problem:
                refuse(f"{problem} in the program_shape of computation {part.name}")
    if module.HasField("program_shape"):
        problem = _odd_signature(module.program_shape, whole[module.entry_computation_id])
        if problem:
            refuse(f"{problem} in the program_shape of the module")
    if any(module.entry_computation_id in called for called in calls.values()):
        refuse(f"the entry computation {module.entry_computation_name} is called")
    for part in module.computations:
        by_id = {inst.id: inst for inst in part.instructions}
        for inst in part.instructions:
            operands = [by_id[operand] for operand in inst.operand_ids]
            shapes = [operand.shape for operand in operands]
            made_by = [operand.opcode for operand in operands]
            called = [signatures[number] for number in inst.called_computation_ids]
            problem = _odd_shape(inst.shape) or misfit(Site(inst, shapes, made_by, called))
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


def _odd_signature(program_shape, instructions: Sequence) -> str:
    """Return which parameter, or the root after them, has another shape than in a ``ProgramShape``."""
    given = [*program_shape.parameters, program_shape.result]
    if len(given) != len(instructions):
        return f"{counted(len(instructions) - 1, 'parameter')}, and {len(given) - 1}"
    for shape, inst in zip(given, instructions, strict=True):
        if not same_shape(shape, inst.shape):
            return f"{inst.opcode} {inst.name} is {shown(inst.shape)}, and {shown(shape)}"
    return ""


def _has_cycle(uses: dict[int, Iterable[int]]) -> bool:
    try:
        TopologicalSorter(uses).prepare()
    except CycleError:
        return True
    return False


def _odd_shape(shape) -> str:
    """Return what no shape of XLA has; empty where it has nothing of that kind."""
    kind = shape.element_type
    rank = len(shape.dimensions)
    order = shape.layout.minor_to_major
    dynamic = shape.is_dynamic_dimension
    if not 0 < kind <= _LARGEST_TYPE:
        return f"has the element type {kind}, 1 to {_LARGEST_TYPE} wanted"
    if kind in _WITHOUT_SIZES and (rank or order):
        return f"is a {_WITHOUT_SIZES[kind]} with sizes or a layout"
    if dynamic and len(dynamic) != rank:
        return f"marks {len(dynamic)} axes as dynamic or not, and has {rank}"
    if kind != TUPLE and kind in PRIMITIVE_TYPES.values() and shape.tuple_shapes:
        return f"has {len(shape.tuple_shapes)} tuple_shapes and the element type {kind}, which is no tuple"
    if any(size < 0 for size in shape.dimensions) and not any(dynamic):
        return "has a size below 0"
    if max(shape.dimensions, default=0) > LARGEST_SIZE:
        return f"has the size {max(shape.dimensions)}, at most {LARGEST_SIZE} wanted"
    if shape.HasField("layout") and sorted(order) != list(range(rank)):
        return f"has the layout {list(order)}, an order of {rank} axes wanted"
    return next((problem for part in shape.tuple_shapes if (problem := _odd_shape(part))), "")
