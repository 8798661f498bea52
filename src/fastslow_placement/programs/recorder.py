"""Records the operators of a program. Nodes or a parameter make a value, or it is a tuple of values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fastslow.competition.opcodes import OPCODES
from fastslow.core.errors import DataError
from fastslow_placement.programs.cost_graph import CostGraph, build, components
from fastslow_placement.programs.roofline import Device, names

SHARED = 16_384  # bytes of a parameter from which on all its readers must be on one device
PASS = names("bitcast opt-barrier domain copy-done add-dependency")
"""Opcodes whose value is that of their first operand."""
LEAVES = names("constant iota after-all partition-id replica-id rng-get-and-update-state")
"""Opcodes that every device can do for itself."""
OF_LEAVES = names("broadcast reshape bitcast-convert")
"""Opcodes that, of parameters and constants alone, are done again where they are needed."""
SPARSE = names("gather dynamic-slice dynamic-update-slice slice")
"""Opcodes that read no more than they write."""

Value = int | frozenset | list
"""A symbolic value: number of the node that makes it, the leaves that it is made of, or a tuple of values."""


@dataclass
class Recorder:
    """The operators found so far.

    Args:
        source: Where the program is from, for messages.
        device: Whose roofline gives the times.
        allow_unknown: Count operators that the competition does not number as element-wise.
    """

    source: str | Path
    device: Device
    allow_unknown: bool = False
    opcodes: list[str] = field(default_factory=list)
    shapes: list[Sequence[int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    flops: list[float] = field(default_factory=list)
    output_bytes: list[float] = field(default_factory=list)
    parameter_bytes: list[float] = field(default_factory=list)
    read_bytes: list[float] = field(default_factory=list)
    edges: set[tuple[int, int]] = field(default_factory=set)
    leaf_bytes: list[float] = field(default_factory=list)
    readers: list[list[int]] = field(default_factory=list)
    _used: set[int] = field(default_factory=set)

    def leaf(self, size: float) -> frozenset:
        """Return the value of a new parameter or constant of this many bytes."""
        self.leaf_bytes.append(size)
        self.readers.append([])
        return frozenset([len(self.leaf_bytes) - 1])

    def known(self, opcode: str, name: str) -> None:
        """Raise :class:`DataError` if an opcode is not one of HLO's that the competition numbers."""
        if opcode not in OPCODES and not self.allow_unknown:
            remedy = "To count such operators as element-wise set allow_unknown=True"
            raise DataError(self.source, f"unknown opcode {opcode!r} of {name}", remedy)

    def add(self, opcode, shape, size, values: Sequence[Value], flops: float, seconds=None) -> int:
        """Record an operator and return its number.

        Args:
            opcode: HLO opcode.
            shape: Dimensions of the output.
            size: Bytes of the output.
            values: Operands.
            flops: Floating-point operations.
            seconds: Its time, if known; by default the roofline's.
        """
        node = len(self.opcodes)
        nodes, leaves = set(), set()
        for value in values:
            _flatten(value, nodes, leaves)
        self.edges.update((producer, node) for producer in nodes)
        read = sum(self.leaf_bytes[leaf] for leaf in leaves)
        if seconds is None:
            moved = read + sum(self.output_bytes[producer] for producer in nodes)
            seconds = self.device.seconds(flops, size + (min(moved, size) if opcode in SPARSE else moved))
        self.opcodes.append(opcode)
        self.shapes.append(tuple(shape))
        self.seconds.append(seconds)
        self.flops.append(flops)
        self.output_bytes.append(size)
        self.parameter_bytes.append(sum(self.leaf_bytes[leaf] for leaf in leaves - self._used))
        self.read_bytes.append(read)
        self._used |= leaves
        for leaf in leaves:
            self.readers[leaf].append(node)
        return node

    def graph(self, name: str) -> CostGraph:
        """Return what was recorded; operators that read the same weights are one co-location group."""
        columns = ("seconds", "flops", "output_bytes", "parameter_bytes", "read_bytes")
        values = {column: getattr(self, column) for column in columns}
        shared = [
            readers for size, readers in zip(self.leaf_bytes, self.readers, strict=True) if size >= SHARED
        ]
        together = [(readers[0], other) for readers in shared for other in readers[1:]]
        groups = components(np.array(together, np.int64).reshape(-1, 2), len(self.opcodes))
        return build(self.source, name, self.opcodes, self.shapes, self.edges, groups=groups, **values)


def _flatten(value: Value, nodes: set[int], leaves: set[int]) -> None:
    if isinstance(value, list):
        for part in value:
            _flatten(part, nodes, leaves)
    elif isinstance(value, frozenset):
        leaves |= value
    else:
        nodes.add(value)
