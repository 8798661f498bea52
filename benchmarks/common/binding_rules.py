"""From a measured configuration to a program to compile, and from its costs to cycles by several rules."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastslow.competition.layouts import ROLES
from fastslow.competition.opcodes import opcode_name
from fastslow.competition.reader import Program
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
from fastslow_programs.compiler.layout_constraints import constrain
from fastslow_programs.compiler.layout_space import INPUT, OUTPUT, ConfigurableNode
from fastslow_programs.compiler.libtpu import Compiler

Costs = list[tuple[str, int | None, int, int]]
"""Working instructions: opcode, the compiler's cycles, bytes read and written, how often it runs."""

BOUND = {"convolution": (OUTPUT,), "dot": (OUTPUT,), "reshape": (OUTPUT, INPUT)}
"""By opcode, the tensors whose layouts a configuration imposes."""


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
            cycles = own_cycles(instruction)
            if instruction.opcode == "while":
                times = trip_count(instruction, computation, computations)
                found += [(*row[:3], row[3] * times) for row in rows(called[0])]
            elif instruction.opcode in ("call", "conditional"):
                found += max(map(rows, called), key=filled)
            elif cycles is not None or instruction.opcode not in FREE:
                shapes = [instruction.shape, *(shape_of[i] for i in instruction.operand_ids)]
                found.append((instruction.opcode, cycles, sum(map(padded_bytes, shapes)), 1))
        return found

    return rows(computations[optimized.entry_computation_id])


def filled(costs: Costs) -> int:
    """Return all cycles, as the product counts them: missing estimates follow from the bytes moved."""
    return sum(
        times * (CYCLES_PER_INSTRUCTION + size // BYTES_PER_CYCLE if cycles is None else cycles)
        for _, cycles, size, times in costs
    )


def without_copies(costs: Costs) -> int:
    """Return all cycles without the cycles of copies."""
    return filled([row for row in costs if row[0] != "copy"])


COMMITTED = "committed"
RULES: dict[str, tuple[str, Callable[[Costs], int]]] = {
    COMMITTED: ("the rule of the labels", filled),
    "no copies": ("copies count 0", without_copies),
}
"""By short name, the rule in words, and how the costs of a compiled program are summed."""


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
        self, module: Module, nodes: list[ConfigurableNode], file: Program, layout_codes: np.ndarray
    ):
        self.module, self.nodes = module, nodes
        self._layouts = [tuple(int(d) for d in layout if d >= 0) for layout in file.layouts]
        self._instructions, self._operands = _numbered(module)
        pairs = self._match(file)
        self.matched = np.array([row for row, _ in pairs], np.int64)
        self._own = [node for _, node in pairs]  # the program's node of each matched row
        self._codes = layout_codes[:, self.matched]

    def _match(self, file: Program) -> list[tuple[int, ConfigurableNode]]:
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

    def bound_tensors(self) -> np.ndarray:
        """Return the tensors whose layouts are imposed, ``(M, 3)`` bool."""
        mask = np.zeros((len(self._own), len(ROLES)), bool)
        for row, node in enumerate(self._own):
            mask[row, list(BOUND.get(node.opcode, ()))] = True
        return mask

    def bound(self) -> np.ndarray:
        """Return the layouts that are imposed, ``(C, M, 3)`` codes, 0 for none."""
        return np.where(self.bound_tensors(), self._codes, 0)

    def impose(self, codes: np.ndarray) -> bytes:
        """Return the serialised program with some layouts, ``(M, 3)`` codes, imposed."""
        layouts = {
            node.node: tuple(self._layouts[code] for code in row)
            for node, row in zip(self._own, codes, strict=True)
        }
        return constrain(self.module, layouts, self.nodes).SerializeToString(deterministic=True)


def _numbered(module: Module) -> tuple[list[Instruction], list[list[Instruction]]]:
    """Return the instructions of all computations by number, and the operands of each."""
    instructions, operands = [], []
    for computation in module.computations:
        by_id = {instruction.id: instruction for instruction in computation.instructions}
        instructions += by_id.values()
        operands += [[by_id[i] for i in instruction.operand_ids] for instruction in by_id.values()]
    return instructions, operands
