"""Impose layouts on a module, so that the compiler's estimate behaves as measured runtimes do.

On the measurements of AlexNet's training step (TpuGraphs, 23,856 configurations) the layouts of operands of
convolutions and dots have no effect on the runtime (Kendall tau within 0.02 of 0). The layouts of outputs
have an effect wherever they differ from the compiler's own; the layouts of reshapes have a small one. A
``LayoutConstraint`` binds a value, and the compiler folds it away, or carries it on to producers and
consumers: a barrier keeps it. So the operands of convolutions and dots are left to the compiler. Their
outputs are bound, and followed by a barrier where they differ from the default. A reshape that differs from
the default is bound between barriers, with default layouts on their far side. ``benchmarks/label_truth.py``
compares the estimates under this rule with the measurements.
"""

import itertools
from collections.abc import Callable, Sequence

from fastslow.hlo.messages import PRIMITIVE_TYPES, Instruction, Module
from fastslow_programs.compiler.layout_space import INPUT, OUTPUT, ConfigurableNode, Layout, Layouts, complete

AS_COMPILED = "the program as compiled"
"""What a module without constraints is called. Those that bind its default layouts may cost cycles, too."""
UNBOUND = "the compiler takes the program, but not with the constraints that bind its default layouts"
MEASURE_INSTEAD = (
    "Measure in place of estimates: fastslow measure, or tune with evaluator=device or options=auto"
)
"""Remedy where :data:`UNBOUND` is the problem."""


def constrain(module: Module, layouts: Layouts, nodes: list[ConfigurableNode]) -> Module:
    """Return a copy of a module in which ``LayoutConstraint`` custom calls impose layouts.

    Args:
        module: The module before layout assignment.
        layouts: The layouts; () leaves a tensor to the compiler.
        nodes: The module's configurable nodes with the compiler's default layouts; where these are not known,
            row-major counts as the default.
    """
    return _rewrite(module, layouts, nodes, _Edit.bind)


def bind_differences(module: Module, layouts: Layouts, nodes: list[ConfigurableNode]) -> Module:
    """Return a copy of a module with a constraint on each output that differs from the default.

    For XLA of this machine: the barriers of :func:`constrain` only hinder fusion there. Arguments as for it.
    """
    return _rewrite(module, layouts, nodes, _Edit.bind_difference)


def _rewrite(module: Module, layouts: Layouts, nodes: list[ConfigurableNode], bind: Callable) -> Module:
    rewritten = Module()
    rewritten.CopyFrom(module)
    by_number = {node.node: node for node in nodes}
    numbers = itertools.count()
    names = {instruction.name for part in rewritten.computations for instruction in part.instructions}
    for computation in rewritten.computations:
        edit = _Edit(computation, names)
        for instruction in computation.instructions:
            number = next(numbers)
            if number in by_number:
                bind(edit, instruction, by_number[number], layouts.get(number, ()))
            else:
                edit.add(instruction)
        edit.finish()
    return rewritten


def taken(node: ConfigurableNode, layouts: Sequence[Layout]) -> tuple[Layout, ...]:
    """Return the layouts of a node that the compiler can be made to take.

    Two configurations that agree in this at every node are one program to it. The operands of convolutions
    and dots are left to the compiler, and a layout of its own is as good as none.

    Args:
        node: The node.
        layouts: Of output, input and kernel; missing ones are left to the compiler.

    Returns:
        The layout of the output, and of a reshape of the operand too; nothing where all of these are the
        compiler's own.
    """
    output, operand = (*layouts, (), ())[:2]
    bound = {OUTPUT: output, INPUT: operand} if node.opcode == "reshape" else {OUTPUT: output}
    by_default = all(is_default(node, role, layout) for role, layout in bound.items())
    return () if by_default else tuple(bound.values())


def taken_here(node: ConfigurableNode, layouts: Sequence[Layout]) -> tuple[Layout, ...]:
    """Return the layout that XLA of this machine is made to take at a node, see :func:`bind_differences`.

    Args:
        node: The node.
        layouts: Of output, input and kernel; missing ones are left to the compiler.

    Returns:
        The layout of the output; nothing where that is the compiler's own.
    """
    output = (*layouts, ())[0]
    return () if is_default(node, OUTPUT, output) else (output,)


def is_default(node: ConfigurableNode, role: int, layout: Layout) -> bool:
    """Return whether a layout leaves a tensor as the compiler's own layout has it.

    Args:
        node: The node.
        role: Which of its tensors: 0 output, 1 input, 2 kernel.
        layout: Minor to major; () leaves the tensor to the compiler, so it is the default.
    """
    default = default_layout(node, role) or sorted(layout, reverse=True)
    return tuple(d for d in default if d in layout) == layout


def default_layout(node: ConfigurableNode, role: int) -> Layout:
    """Return the compiler's own layout of one of a node's tensors, () where it is not known."""
    return node.default[role] if node.default else ()


def layout_constraint(source: Instruction, layout: Layout, new_id: int) -> Instruction:
    """Return a custom call that binds the layout of an instruction's output.

    Args:
        source: The instruction.
        layout: The minor-most dimensions; the others follow in row-major order.
        new_id: Id of the custom call, unique in its computation.
    """
    target = {"custom_call_target": "LayoutConstraint", "constrain_layout": True}
    constraint = Instruction(
        name=f"custom-call.{new_id}", opcode="custom-call", id=new_id, operand_ids=[source.id], **target
    )
    constraint.shape.CopyFrom(source.shape)
    constraint.shape.layout.minor_to_major[:] = complete(layout, len(source.shape.dimensions))
    # without the operand's layout the compiler ignores the constraint
    constraint.operand_shapes_with_layout.add().CopyFrom(constraint.shape)
    return constraint


class _Edit:
    """The instructions of a computation, rewritten in order.

    Args:
        computation: The computation.
        names: Names of all instructions of its module; new instructions add theirs.
    """

    def __init__(self, computation, names: set[str]):
        self._computation, self._names = computation, names
        self._by_id = {instruction.id: instruction for instruction in computation.instructions}
        self._new_ids = itertools.count(max(self._by_id) + 1)
        self._instructions: list[Instruction] = []
        self._moved: dict[int, int] = {}  # what replaces a value for the instructions after it

    def add(self, instruction: Instruction) -> None:
        """Append an instruction of the module."""
        self._read_moved(instruction)
        self._append(instruction)

    def bind(self, instruction: Instruction, node: ConfigurableNode, layouts: tuple[Layout, ...]) -> None:
        """Append a configurable instruction with constraints on its output and on a reshape's operand."""
        output, operand = (*layouts, (), ())[:2]
        is_reshape = node.opcode == "reshape"
        bound = taken(node, layouts)
        self._read_moved(instruction)
        if is_reshape and bound:
            source = self._constraint(self._by_id[instruction.operand_ids[0]], default_layout(node, INPUT))
            instruction.operand_ids[0] = self._constraint(self._barrier(source), operand).id
        self._append(instruction)
        if output:
            last = self._constraint(instruction, output)
            if bound:
                last = self._barrier(last)
                if is_reshape:
                    last = self._constraint(last, default_layout(node, OUTPUT))
            self._moved[instruction.id] = last.id

    def bind_difference(
        self, instruction: Instruction, node: ConfigurableNode, layouts: tuple[Layout, ...]
    ) -> None:
        """Append a configurable instruction, with a constraint on an output other than the default."""
        self.add(instruction)
        for output in taken_here(node, layouts):
            self._moved[instruction.id] = self._constraint(instruction, output).id

    def finish(self) -> None:
        """Replace the computation's instructions."""
        root = self._computation.root_id
        self._computation.root_id = self._moved.get(root, root)
        copies = [Instruction.FromString(i.SerializeToString()) for i in self._instructions]
        del self._computation.instructions[:]
        self._computation.instructions.extend(copies)

    def _read_moved(self, instruction: Instruction) -> None:
        instruction.operand_ids[:] = [self._moved.get(i, i) for i in instruction.operand_ids]

    def _append(self, instruction: Instruction) -> Instruction:
        self._by_id[instruction.id] = instruction
        self._instructions.append(instruction)
        return instruction

    def _new_id(self, opcode: str) -> int:
        """Return the next id of the computation by which no instruction of the module is named."""
        new_id = next(number for number in self._new_ids if f"{opcode}.{number}" not in self._names)
        self._names.add(f"{opcode}.{new_id}")
        return new_id

    def _new(self, opcode: str, source: Instruction) -> Instruction:
        new_id = self._new_id(opcode)
        name = f"{opcode}.{new_id}"
        return self._append(Instruction(name=name, opcode=opcode, id=new_id, operand_ids=[source.id]))

    def _barrier(self, source: Instruction) -> Instruction:
        """Append a barrier in its usual form, around a tuple."""
        packed = self._new("tuple", source)
        packed.shape.element_type = PRIMITIVE_TYPES["tuple"]
        packed.shape.tuple_shapes.add().CopyFrom(source.shape)
        barrier = self._new("opt-barrier", packed)
        barrier.shape.CopyFrom(packed.shape)
        result = self._new("get-tuple-element", barrier)
        result.shape.CopyFrom(source.shape)
        return result

    def _constraint(self, source: Instruction, layout: Layout) -> Instruction:
        return self._append(layout_constraint(source, layout, self._new_id("custom-call")))
