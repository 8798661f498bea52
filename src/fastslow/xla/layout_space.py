"""The space of layout configurations of an HLO module: list configurable nodes, sample layouts, impose them.

The space is that of TpuGraphs (Phothilimthana et al. 2023, arXiv 2308.13490), inferred from its public files:
convolutions, dots and reshapes are configurable. A convolution or a dot chooses the order of the two
minor-most dimensions of each tensor; a reshape chooses whole permutations of its output and its input. Either
all tensors of a node are configured, or the node is left to the compiler.
"""

import itertools
import random
from dataclasses import dataclass

import numpy as np

from fastslow.competition.schema import LAYOUT_WIDTH, ROLES
from fastslow.xla.messages import Instruction, Module

Layout = tuple[int, ...]
"""Minor-to-major order, the first two dimensions for a convolution or a dot; () leaves it to the compiler."""

Configuration = dict[int, tuple[Layout, ...]]
"""Layouts of output, input and kernel by node; a node that is not in it is left to the compiler."""

MAX_PERMUTATIONS = 24  # of one tensor of a reshape: all up to rank 4, the first ones of a higher rank


@dataclass(frozen=True)
class ConfigurableNode:
    """A node whose layouts can be chosen.

    Args:
        node: Its number in the graph.
        opcode: ``convolution``, ``dot`` or ``reshape``.
        options: Possible layouts of output, input and kernel; none for a scalar, for a tensor that the node
            does not have, and where a dot has no pair of dimensions to choose from.
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
    """Pair the last free with the last contracting dimension; in the output, both sides' last free ones."""
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
        if not 1 <= rank <= LAYOUT_WIDTH:
            return ()
        orders = itertools.permutations(range(rank - 1, -1, -1))
        return tuple(itertools.islice(orders, MAX_PERMUTATIONS))

    return [permutations(instruction.shape), permutations(operands[0]), ()]


_OPTIONS = {"convolution": _convolution_options, "dot": _dot_options, "reshape": _reshape_options}


def configurable_nodes(module: Module) -> list[ConfigurableNode]:
    """Return the configurable nodes of a module, in the order of the graph's nodes.

    As in TpuGraphs, a node counts as configurable even if none of its tensors has two possible layouts (a
    reshape between vectors, for example).
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
    """Sample a random configuration.

    Args:
        nodes: The configurable nodes.
        rng: Random generator.
        rate: Probability in [0, 1] that a node is configured; its layouts are then drawn uniformly.
    """
    return {node.node: _choose(node, rng) for node in nodes if rng.random() < rate}


def mutate(
    configuration: Configuration, nodes: list[ConfigurableNode], rng: random.Random, rate: float
) -> Configuration:
    """Return a copy with some nodes resampled or, with probability 1/4, reset to the compiler's default.

    Args:
        configuration: The parent.
        nodes: The configurable nodes.
        rng: Random generator.
        rate: Maximum share of nodes to change, in [0, 1]; at least one node is changed.
    """
    changed = dict(configuration)
    for node in rng.sample(nodes, 1 + int(rng.random() * rate * (len(nodes) - 1))):
        changed.pop(node.node, None)
        if rng.random() >= 0.25:
            changed[node.node] = _choose(node, rng)
    return changed


def cross(one: Configuration, other: Configuration, rng: random.Random) -> Configuration:
    """Return the uniform crossover of two configurations: each node as in either, with equal probability."""
    child = {}
    for node in sorted({*one, *other}):
        parent = one if rng.random() < 0.5 else other
        if node in parent:
            child[node] = parent[node]
    return child


def encode(configuration: Configuration, nodes: list[ConfigurableNode]) -> np.ndarray:
    """Return a configuration as a row of ``node_config_feat``.

    Returns:
        (K, 18) float32: minor-to-major orders of output, input and kernel, six values each, -1 padded.
    """
    features = np.full((len(nodes), len(ROLES), LAYOUT_WIDTH), -1, np.float32)
    for row, node in enumerate(nodes):
        for tensor, layout in enumerate(configuration.get(node.node, ())):
            features[row, tensor, : len(layout)] = layout
    return features.reshape(len(nodes), len(ROLES) * LAYOUT_WIDTH)


def _complete(layout: Layout, rank: int) -> Layout:
    """Return a complete minor-to-major order: dimensions that are not chosen follow in row-major order."""
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
    """Return a copy of a module in which ``LayoutConstraint`` custom calls impose a configuration.

    A constraint binds the value before or after a node, not the node itself as in TpuGraphs: close to it, not
    identical.
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
