"""The layout configurations of an HLO module: which nodes have a choice, drawing one, imposing it.

The space is the one of TpuGraphs (Phothilimthana et al. 2023, https://arxiv.org/abs/2308.13490), read off its
public files: convolutions, dots and reshapes are configurable. A convolution or a dot chooses which of two
dimensions of each tensor is minor-most and which comes next; a reshape chooses whole permutations of its
output and its input. A node is configured in all of its tensors or left to the compiler altogether.
"""

import itertools
import random
from dataclasses import dataclass

import numpy as np

from fastslow.xla.messages import Instruction, Module

Layout = tuple[int, ...]
"""Dimensions from minor to major, of a convolution or a dot the first two; () leaves it to the compiler."""

Configuration = dict[int, tuple[Layout, ...]]
"""By node, the layouts of output, input and kernel; a node left out is left to the compiler."""

MAX_PERMUTATIONS = 24  # of one tensor of a reshape: all of rank 4, the first of a higher rank
MAX_RANK = 6  # values a tensor has in node_config_feat
TENSORS = 3  # output, input, kernel


@dataclass(frozen=True)
class ConfigurableNode:
    """A node with a choice of layouts.

    Args:
        node: Its number in the graph.
        opcode: ``convolution``, ``dot`` or ``reshape``.
        options: The layouts to choose from for output, input and kernel; none for a scalar, for a tensor the
            node does not have, and where a dot has no pair of dimensions to choose from.
    """

    node: int
    opcode: str
    options: tuple[tuple[Layout, ...], ...]


def _both_ways(*pair: int) -> tuple[Layout, ...]:
    return (pair, pair[::-1])


def _convolution_options(instruction, operands) -> list[tuple[Layout, ...]]:
    numbers = instruction.convolution
    return [
        _both_ways(numbers.output_feature, numbers.output_batch),
        _both_ways(numbers.input_feature, numbers.input_batch),
        _both_ways(numbers.kernel_output_feature, numbers.kernel_input_feature),
    ]


def _dot_options(instruction, operands) -> list[tuple[Layout, ...]]:
    """Pairs of the last free and the last contracting dimension; of the output, each side's last free one."""
    numbers = instruction.dot
    sides = []
    for shape, contracting, batch in zip(
        operands,
        (numbers.lhs_contracting, numbers.rhs_contracting),
        (numbers.lhs_batch, numbers.rhs_batch),
        strict=True,
    ):
        taken = {*contracting, *batch}
        sides.append(([d for d in range(len(shape.dimensions)) if d not in taken], contracting))
    pairs = [(max(free), max(contracting)) if free and contracting else () for free, contracting in sides]
    (lhs_free, _), (rhs_free, _) = sides
    first = len(numbers.lhs_batch)
    rank = len(instruction.shape.dimensions)
    output = (rank - 1, first + len(lhs_free) - 1) if lhs_free and rhs_free else ()
    return [_both_ways(*pair) if pair else () for pair in (output, *pairs)]


def _reshape_options(instruction, operands) -> list[tuple[Layout, ...]]:
    def permutations(shape) -> tuple[Layout, ...]:
        rank = len(shape.dimensions)
        if not 1 <= rank <= MAX_RANK:
            return ()
        orders = itertools.permutations(range(rank - 1, -1, -1))
        return tuple(itertools.islice(orders, MAX_PERMUTATIONS))

    return [permutations(instruction.shape), permutations(operands[0]), ()]


_OPTIONS = {"convolution": _convolution_options, "dot": _dot_options, "reshape": _reshape_options}


def configurable_nodes(module: Module) -> list[ConfigurableNode]:
    """The configurable nodes of a module, in the order of the graph's nodes.

    A node of which no tensor has two layouts to choose from (a reshape between vectors, say) counts as
    configurable in TpuGraphs; so it does here.
    """
    nodes, node = [], 0
    for computation in module.computations:
        by_id = {instruction.id: instruction for instruction in computation.instructions}
        for instruction in computation.instructions:
            if instruction.opcode in _OPTIONS:
                operands = [by_id[i].shape for i in instruction.operand_ids]
                options = _OPTIONS[instruction.opcode](instruction, operands)
                nodes.append(ConfigurableNode(node, instruction.opcode, tuple(options)))
            node += 1
    return nodes


def _choose(node: ConfigurableNode, rng: random.Random) -> tuple[Layout, ...]:
    return tuple(rng.choice(options) if options else () for options in node.options)


def draw(nodes: list[ConfigurableNode], rng: random.Random, rate: float) -> Configuration:
    """A random configuration.

    Args:
        nodes: The configurable nodes.
        rng: Where chance comes from.
        rate: Probability in [0, 1] that a node is configured; its layouts are then drawn evenly.
    """
    return {node.node: _choose(node, rng) for node in nodes if rng.random() < rate}


def mutate(
    configuration: Configuration, nodes: list[ConfigurableNode], rng: random.Random, rate: float
) -> Configuration:
    """A configuration with at least one node, and at most a ``rate`` of all, drawn anew or set to default."""
    changed = dict(configuration)
    for node in rng.sample(nodes, 1 + int(rng.random() * rate * (len(nodes) - 1))):
        changed.pop(node.node, None)
        if rng.random() >= 0.25:
            changed[node.node] = _choose(node, rng)
    return changed


def cross(one: Configuration, other: Configuration, rng: random.Random) -> Configuration:
    """Each node as in one of two configurations, by chance."""
    child = {}
    for node in sorted({*one, *other}):
        parent = one if rng.random() < 0.5 else other
        if node in parent:
            child[node] = parent[node]
    return child


def encode(configuration: Configuration, nodes: list[ConfigurableNode]) -> np.ndarray:
    """A row of ``node_config_feat``, (K, 18) float32: output, input, kernel, minor to major, -1 padded."""
    features = np.full((len(nodes), TENSORS, MAX_RANK), -1, np.float32)
    for row, node in enumerate(nodes):
        for tensor, layout in enumerate(configuration.get(node.node, ())):
            features[row, tensor, : len(layout)] = layout
    return features.reshape(len(nodes), TENSORS * MAX_RANK)


def _complete(layout: Layout, rank: int) -> Layout:
    """A whole minor-to-major order: the dimensions that are not chosen follow, the last one first."""
    return layout + tuple(d for d in range(rank - 1, -1, -1) if d not in layout)


def _constraint(source: Instruction, layout: Layout, new_id: int) -> Instruction:
    constraint = Instruction(
        name=f"layout_constraint.{new_id}",
        opcode="custom-call",
        custom_call_target="LayoutConstraint",
        id=new_id,
        operand_ids=[source.id],
        constrain_layout=True,
    )
    constraint.shape.CopyFrom(source.shape)
    order = _complete(layout, len(source.shape.dimensions))
    constraint.shape.layout.minor_to_major[:] = order
    # without the operand's layout the compiler ignores the constraint
    constraint.operand_shapes_with_layout.add().CopyFrom(constraint.shape)
    return constraint


def constrain(module: Module, configuration: Configuration) -> Module:
    """A copy of the module in which ``LayoutConstraint`` custom calls fix the layouts of a configuration.

    A constraint binds a value, before or behind its node, and not the node itself as in TpuGraphs: close to
    it, not identical.
    """
    constrained, node = Module(), 0
    constrained.CopyFrom(module)
    for computation in constrained.computations:
        by_id = {instruction.id: instruction for instruction in computation.instructions}
        new_ids = itertools.count(max(by_id) + 1)
        instructions, moved = [], {}

        def add(source, layout, new_ids=new_ids, by_id=by_id, instructions=instructions) -> int:
            constraint = _constraint(source, layout, next(new_ids))
            by_id[constraint.id] = constraint
            instructions.append(constraint)
            return constraint.id

        for instruction in computation.instructions:
            operands = [moved.get(i, i) for i in instruction.operand_ids]
            output, *inputs = configuration.get(node, ((),))
            for position, layout in enumerate(inputs):
                if layout:
                    operands[position] = add(by_id[operands[position]], layout)
            instruction.operand_ids[:] = operands
            instructions.append(instruction)
            if output:
                moved[instruction.id] = add(instruction, output)
            node += 1
        computation.root_id = moved.get(computation.root_id, computation.root_id)
        copies = [type(i).FromString(i.SerializeToString()) for i in instructions]
        del computation.instructions[:]
        computation.instructions.extend(copies)
    return constrained
