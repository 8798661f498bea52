"""Rules from a measured configuration to a program to compile, and from a compiled one to cycles.

``label_truth.py`` compares them. The product has one rule,
:func:`fastslow_programs.compiler.layout_constraints.constrain`.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fastslow.competition.layouts import ROLES
from fastslow.competition.opcodes import opcode_name
from fastslow.competition.reader import CompetitionFile
from fastslow.features.configs.config_tensors import config_tensors
from fastslow.hlo.messages import Instruction, Module
from fastslow_programs.compiler.cycle_estimates import (
    BYTES_PER_CYCLE,
    CYCLES_PER_INSTRUCTION,
    FREE,
    own_cycles,
    padded_bytes,
    trip_count,
)
from fastslow_programs.compiler.layout_constraints import Layouts, constrain, layout_constraint
from fastslow_programs.compiler.layout_space import INPUT, OUTPUT, ConfigurableNode, Layout
from fastslow_programs.compiler.libtpu import Compiler

Costs = list[tuple[str, int | None, int, int]]
"""Working instructions: opcode, the compiler's cycles, bytes read and written, how often it runs."""

_OUTPUTS = {"convolution": (OUTPUT,), "dot": (OUTPUT,)}
_RESHAPES = {"reshape": (OUTPUT, INPUT)}


def instruction_costs(compiler: Compiler, module: bytes, log: Path) -> dict:
    """Compile a program; return ``instructions``, its costs. A task of the compile pool."""
    return {"instructions": costs_of(compiler.compile(module))}


def costs_of(optimized: Module) -> Costs:
    """Return the costs of the working instructions of an optimised module; of branches, the costliest."""
    computations = {computation.id: computation for computation in optimized.computations}

    def rows(computation) -> Costs:
        found = []
        shape_of = {instruction.id: instruction.shape for instruction in computation.instructions}
        for instruction in computation.instructions:
            called = [computations[i] for i in instruction.called_computation_ids]
            own = own_cycles(instruction)
            if instruction.opcode == "while":
                times = trip_count(instruction, computations)
                found += [(*row[:3], row[3] * times) for row in rows(called[0])]
            elif instruction.opcode in ("call", "conditional"):
                found += max(map(rows, called), key=filled)
            elif own is not None or instruction.opcode not in FREE:
                shapes = [instruction.shape, *(shape_of[i] for i in instruction.operand_ids)]
                found.append((instruction.opcode, own, sum(map(padded_bytes, shapes)), 1))
        return found

    return rows(computations[optimized.entry_computation_id])


def filled(costs: Costs) -> int:
    """Return all cycles, as the product counts them: missing estimates follow from the bytes moved."""
    return sum(
        times * (CYCLES_PER_INSTRUCTION + size // BYTES_PER_CYCLE if own is None else own)
        for _, own, size, times in costs
    )


def estimated_alone(costs: Costs) -> int:
    """Return the cycles that the compiler estimates; instructions without an estimate count 0."""
    return sum(times * (own or 0) for _, own, _, times in costs)


def without_copies(costs: Costs) -> int:
    """Return all cycles without the cycles of copies."""
    return filled([row for row in costs if row[0] != "copy"])


@dataclass(frozen=True)
class Rule:
    """A rule from a configuration to estimated cycles.

    Args:
        name: The bound tensors, in words.
        roles: By opcode, the tensors whose layouts it imposes: 0 output, 1 input, 2 kernel.
        barriers: Keep layouts that differ from the compiler's own by barriers, as the product does.
        cycles: How the costs of a compiled program are summed.
    """

    name: str
    roles: Mapping[str, Sequence[int]]
    barriers: bool = True
    cycles: Callable[[Costs], int] = filled


COMMITTED = "committed"
RULES = {
    "outputs": Rule("outputs and reshapes, no barriers", _OUTPUTS | _RESHAPES, False),
    "products": Rule("outputs of convolutions and dots, no barriers", _OUTPUTS, False),
    COMMITTED: Rule("outputs and reshapes, barriers (the rule of the labels)", _OUTPUTS | _RESHAPES),
    "unfilled": Rule("the same, missing estimates count 0", _OUTPUTS | _RESHAPES, cycles=estimated_alone),
    "no copies": Rule("the same, copies count 0", _OUTPUTS | _RESHAPES, cycles=without_copies),
}
"""The rules by their short names."""


class BoundProgram:
    """A program and its match with the configurable nodes of a measured file.

    Args:
        module: The program before layout assignment.
        nodes: Its configurable nodes with the compiler's default layouts.
        file: The measured file.
        layout_codes: ``(C, K, 3)``, position in ``file.layouts`` of each tensor's layout.

    Attributes:
        matched: ``(M,)`` rows of the file's configurable nodes that the program has.
    """

    def __init__(
        self, module: Module, nodes: list[ConfigurableNode], file: CompetitionFile, layout_codes: np.ndarray
    ):
        self.module, self.nodes = module, nodes
        self._layouts = [tuple(int(d) for d in layout if d >= 0) for layout in file.layouts]
        self._instructions, self._operands = _numbered(module)
        pairs = self._match(file)
        self.matched = np.array([row for row, _ in pairs], np.int64)
        self._own = [node for _, node in pairs]  # the program's node of each matched row
        self._codes = layout_codes[:, self.matched]

    def _match(self, file: CompetitionFile) -> list[tuple[int, ConfigurableNode]]:
        """Pair nodes of equal opcode and shapes, in the order of both programs."""
        tensors = config_tensors(file.node_feat, file.node_opcode, file.edge_index, file.node_config_ids)
        waiting: dict[tuple, list[ConfigurableNode]] = {}
        for node in self.nodes:
            instructions = [self._instructions[node.node], *self._operands[node.node]]
            shapes = [tuple(each.shape.dimensions) for each in instructions[: len(ROLES)]]
            waiting.setdefault((node.opcode, *shapes), []).append(node)
        pairs = []
        for row, (dims, rank, known) in enumerate(
            zip(tensors.dims, tensors.rank, tensors.known, strict=True)
        ):
            shapes = [tuple(dims[role, : rank[role]].tolist()) for role in np.flatnonzero(known)]
            key = (opcode_name(int(file.node_opcode[file.node_config_ids[row]])), *shapes)
            if waiting.get(key):
                pairs.append((row, waiting[key].pop(0)))
        return pairs

    def bound_tensors(self, rule: Rule) -> np.ndarray:
        """Return the tensors that a rule may bind, ``(M, 3)`` bool."""
        mask = np.zeros((len(self._own), len(ROLES)), bool)
        for row, node in enumerate(self._own):
            mask[row, list(rule.roles.get(node.opcode, ()))] = True
        return mask

    def bound(self, rule: Rule) -> np.ndarray:
        """Return the layouts that a rule imposes, ``(C, M, 3)`` codes, 0 for none."""
        return np.where(self.bound_tensors(rule), self._codes, 0)

    def impose(self, rule: Rule, codes: np.ndarray) -> bytes:
        """Return the serialised program with some layouts, ``(M, 3)`` codes, imposed by a rule."""
        layouts = {
            node.node: tuple(self._layouts[code] for code in row)
            for node, row in zip(self._own, codes, strict=True)
        }
        nodes = self.nodes if rule.barriers else [_at_home(node, layouts) for node in self.nodes]
        module = constrain(self.module, layouts, nodes)
        if not rule.barriers:
            named = {self._instructions[node.node].name: layouts[node.node][1:] for node in self._own}
            bind_operands(module, named)
        return module.SerializeToString(deterministic=True)


def _numbered(module: Module) -> tuple[list[Instruction], list[list[Instruction]]]:
    """Return the instructions of all computations by number, and the operands of each."""
    instructions, operands = [], []
    for computation in module.computations:
        by_id = {instruction.id: instruction for instruction in computation.instructions}
        instructions += by_id.values()
        operands += [[by_id[i] for i in instruction.operand_ids] for instruction in by_id.values()]
    return instructions, operands


def _at_home(node: ConfigurableNode, layouts: Layouts) -> ConfigurableNode:
    """Return the node with its layouts as the compiler's own, so that no barrier is needed."""
    return replace(node, default=layouts.get(node.node, ()))


def bind_operands(module: Module, layouts: Mapping[str, Sequence[Layout]]) -> None:
    """Bind operands in place, without barriers.

    Args:
        module: The module.
        layouts: By the instruction's name, the layouts of its operands; () binds nothing.
    """
    for computation in module.computations:
        by_id = {instruction.id: instruction for instruction in computation.instructions}
        new_ids = itertools.count(max(by_id) + 1)
        instructions = []
        for instruction in computation.instructions:
            for position, layout in enumerate(layouts.get(instruction.name, ())):
                if layout:
                    source = by_id[instruction.operand_ids[position]]
                    instructions.append(layout_constraint(source, layout, next(new_ids)))
                    instruction.operand_ids[position] = instructions[-1].id
            instructions.append(instruction)
        copies = [Instruction.FromString(i.SerializeToString()) for i in instructions]
        del computation.instructions[:]
        computation.instructions.extend(copies)
