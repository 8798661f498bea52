"""The layout space of an HLO module: configurable nodes and the choices of each.

The space is the same as TpuGraphs' (Phothilimthana et al. 2023, arXiv 2308.13490), read off its public files.
Configurable are convolutions, dots and reshapes.

- A convolution orders batch and feature of its output and input, and the two feature dimensions of its
  kernel; which of the two is minor-most is one choice per tensor.
- A dot orders the last free and the last contracting dimension of its operands, and both sides' last free
  dimensions in its output. A dot of two matrices may leave both operands to the compiler, never its output.
- A reshape chooses layouts of output and input together, such that no element moves.

:mod:`fastslow_programs.compiler.layout_choices` ties the choices of alike nodes.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES
from fastslow.competition.opcodes import NEAREST
from fastslow.hlo.messages import Instruction, Module

Layout = tuple[int, ...]
"""Minor-to-major order, the first two dimensions for a convolution or a dot; () leaves it to the compiler."""

Layouts = dict[int, tuple[Layout, ...]]
"""Layouts of output, input and kernel by node; a node that is not in it is left to the compiler."""

OUTPUT, INPUT, KERNEL = range(len(ROLES))
MAX_PERMUTATIONS = 24  # options of a reshape: all orders of up to four blocks, the first ones of more


@dataclass(frozen=True)
class NodeChoice:
    """A choice of one node: layouts of some of its tensors, chosen together.

    Args:
        roles: The tensors: 0 output, 1 input, 2 kernel.
        options: Possible layouts of these tensors: first, where that is possible, all left to the compiler
            (empty), then row-major.
    """

    roles: tuple[int, ...]
    options: tuple[tuple[Layout, ...], ...]

    @property
    def weights(self) -> tuple[int, ...]:
        """Relative probability of each option in a random configuration.

        All are equal, but the operands of a dot of two matrices, with two layouts each, are both left to the
        compiler in one of eight configurations (measured: 0.105 to 0.135 on four groups of dots, mean 0.120).
        """
        left = self.roles == (INPUT, KERNEL)
        return tuple(4 if left and not any(option) else 7 for option in self.options)


@dataclass(frozen=True)
class ConfigurableNode:
    """A node whose layouts can be chosen.

    Args:
        node: Its number in the graph.
        opcode: ``convolution``, ``dot`` or ``reshape``.
        choices: Its choices; none for tensors that have one layout only, such as scalars.
        default: The compiler's own layouts of output, input and kernel, complete minor-to-major orders; empty
            where they are not known.
    """

    node: int
    opcode: str
    choices: tuple[NodeChoice, ...]
    default: tuple[Layout, ...] = ()


def _both_ways(role: int, one: int, other: int) -> NodeChoice:
    row_major = (max(one, other), min(one, other))
    return NodeChoice((role,), ((row_major,), (row_major[::-1],)))


def _convolution_choices(instruction: Instruction, operands) -> list[NodeChoice]:
    numbers = instruction.convolution
    return [
        _both_ways(OUTPUT, numbers.output_feature, numbers.output_batch),
        _both_ways(INPUT, numbers.input_feature, numbers.input_batch),
        _both_ways(KERNEL, numbers.kernel_output_feature, numbers.kernel_input_feature),
    ]


def _dot_choices(instruction: Instruction, operands) -> list[NodeChoice]:
    """Pair the last free with the last contracting dimension; in the output, both sides' last free ones."""
    ragged = instruction.ragged_dot
    numbers = ragged.dot if instruction.opcode == "ragged-dot" else instruction.dot
    operands = operands[:2]  # sizes of groups and scales follow
    sides = []
    for shape, contracting, batch in zip(
        operands,
        (numbers.lhs_contracting, numbers.rhs_contracting),
        (numbers.lhs_batch, [*numbers.rhs_batch, *ragged.rhs_group]),
        strict=True,
    ):
        taken = {*contracting, *batch}
        sides.append(([d for d in range(len(shape.dimensions)) if d not in taken], contracting))
    (lhs_free, _), (rhs_free, _) = sides
    rank = len(instruction.shape.dimensions)
    choices = [
        _both_ways(role, max(free), max(contracting))
        for role, (free, contracting) in enumerate(sides, INPUT)
        if free and contracting
    ]
    if len(choices) == 2 and all(len(shape.dimensions) == 2 for shape in operands):
        left = ((), ())
        both = itertools.product(*(choice.options for choice in choices))
        choices = [NodeChoice((INPUT, KERNEL), (left, *(one + other for one, other in both)))]
    if lhs_free and rhs_free:
        choices.insert(0, _both_ways(OUTPUT, rank - 1, rank - len(rhs_free) - 1))
    return choices


def _reshape_choices(instruction: Instruction, operands) -> list[NodeChoice]:
    """Permute the blocks of dimensions that output and input have in common, as one choice for both."""
    sides = [tuple(instruction.shape.dimensions), tuple(operands[0].dimensions)]
    if max(map(len, sides)) > LAYOUT_WIDTH or not all(map(prod, sides)):
        return []
    blocks = common_blocks(*sides)
    orders = itertools.permutations(range(len(blocks) - 1, -1, -1))
    options = [
        tuple(_arrange([block[side] for block in blocks], order, len(sides[side])) for side in range(2))
        for order in itertools.islice(orders, MAX_PERMUTATIONS)
    ]
    if min(map(len, sides)) < 2:
        options.insert(0, ((), ()))
    return [NodeChoice((OUTPUT, INPUT), tuple(dict.fromkeys(options)))]  # of two scalars, both are empty


def common_blocks(output: tuple[int, ...], operand: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Divide two shapes of equal size, without zeros, into the shortest runs of dimensions of equal product.

    Returns:
        The dimensions, of output and operand, of each run, major to minor; dimensions of size 1 are in none.
    """
    remaining = [[d for d, size in enumerate(sizes) if size > 1] for sizes in (output, operand)]
    blocks: list[tuple[list[int], list[int]]] = []
    products = [1, 1]
    while any(remaining):
        if products[0] == products[1]:
            blocks.append(([], []))
        side = int(products[0] > products[1])
        dimension = remaining[side].pop(0)
        blocks[-1][side].append(dimension)
        products[side] *= (output, operand)[side][dimension]
    return blocks


def _arrange(blocks: list[list[int]], order: tuple[int, ...], rank: int) -> Layout:
    """Return the minor-to-major order of blocks, each row-major; dimensions of size 1 are major-most."""
    return complete(tuple(dimension for block in order for dimension in reversed(blocks[block])), rank)


def complete(layout: Layout, rank: int) -> Layout:
    """Return a complete minor-to-major order: dimensions that are not chosen follow in row-major order."""
    return layout + tuple(d for d in range(rank - 1, -1, -1) if d not in layout)


_CHOICES = {"convolution": _convolution_choices, "dot": _dot_choices, "reshape": _reshape_choices}
_CHOICES |= {opcode: _dot_choices for opcode, known in NEAREST.items() if known == "dot"}
CONFIGURABLE = frozenset(_CHOICES)
"""Opcodes of the configurable instructions."""


def configurable_nodes(
    module: Module, defaults: Mapping[str, Sequence[Sequence[int]]] | None = None
) -> list[ConfigurableNode]:
    """Return the configurable nodes of a module, in the order of the graph's nodes.

    As in TpuGraphs, a node counts as configurable even if none of its tensors has two possible layouts (a
    reshape between vectors, for example).

    Args:
        module: The module before layout assignment.
        defaults: The compiler's own layouts of output, input and kernel by the instruction's name, from
            :meth:`fastslow_programs.compiler.libtpu.Compiler.layout_assignment`.
    """
    nodes, node = [], 0
    for computation in module.computations:
        by_id = {instruction.id: instruction for instruction in computation.instructions}
        for instruction in computation.instructions:
            if instruction.opcode in _CHOICES:
                operands = [by_id[i].shape for i in instruction.operand_ids]
                choices = tuple(_CHOICES[instruction.opcode](instruction, operands))
                default = tuple(map(tuple, (defaults or {}).get(instruction.name, ())))
                opcode = NEAREST.get(instruction.opcode, instruction.opcode)
                nodes.append(ConfigurableNode(node, opcode, choices, default))
            node += 1
    return nodes


def encode(layouts: Layouts, nodes: list[ConfigurableNode]) -> np.ndarray:
    """Return layouts as a row of ``node_config_feat``, (K, 18) float32.

    A row has the minor-to-major orders of output, input and kernel, six values each, -1 padded.
    """
    features = np.full((len(nodes), len(ROLES), LAYOUT_WIDTH), -1, np.float32)
    for row, node in enumerate(nodes):
        for tensor, layout in enumerate(layouts.get(node.node, ())):
            features[row, tensor, : len(layout)] = layout
    return features.reshape(len(nodes), len(ROLES) * LAYOUT_WIDTH)


def decode(row: np.ndarray, nodes: list[ConfigurableNode]) -> Layouts:
    """Return the layouts of a row (K, 18) of ``node_config_feat``, the inverse of :func:`encode`."""
    tensors = row.reshape(len(nodes), len(ROLES), LAYOUT_WIDTH).astype(int)
    return {
        node.node: tuple(tuple(d for d in layout if d >= 0) for layout in layouts.tolist())
        for node, layouts in zip(nodes, tensors, strict=True)
    }
