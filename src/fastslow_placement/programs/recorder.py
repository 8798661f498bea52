"""Records the operators of a program. Nodes or a parameter make a value, or it is a tuple of values."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastslow_placement.programs.cost_graph import CostGraph, build, components
from fastslow_placement.programs.roofline import Device, names

_SHARED = 16_384  # bytes of a parameter from which on all its readers must be on one device
PASS = names("bitcast opt-barrier domain copy-done add-dependency")
"""Opcodes whose value is the value of their first operand."""
LEAVES = names("constant iota after-all partition-id replica-id rng-get-and-update-state")
"""Opcodes that every device can do for itself."""
OF_LEAVES = names("broadcast reshape bitcast-convert")
"""Opcodes that are done again where they are needed if they read only parameters and constants."""
SPARSE = names("gather dynamic-slice dynamic-update-slice slice")
"""Opcodes that read no more than they write."""

Value = int | frozenset | list
"""A symbolic value: number of the node that makes it, the leaves that it is made of, or a tuple of values."""


@dataclass
class Recorder:
    """Collects the operators and edges of a program; :meth:`graph` returns them as a cost graph.

    Args:
        source: Origin of the program, for messages.
        device: Device whose roofline gives the seconds of an operator.

    Attributes:
        uncounted: The loops whose trip count is not known, by anything that tells them apart.
    """

    source: str | Path
    device: Device

    def __post_init__(self):
        self._nodes: list[tuple] = []  # opcode, name, shape, seconds, flops, bytes written, resident, read
        self.uncounted: set = set()
        self._edges: set[tuple[int, int]] = set()
        self._leaf_bytes: list[float] = []
        self._readers: list[list[int]] = []  # operators that read each leaf

    def leaf(self, size: float) -> frozenset:
        """Return the value of a new parameter or constant of this many bytes."""
        self._leaf_bytes.append(size)
        self._readers.append([])
        return frozenset([len(self._leaf_bytes) - 1])

    def add(self, opcode, name, shape, size, values: Sequence[Value], flops: float, seconds=None) -> int:
        """Record an operator and return its number.

        Args:
            opcode: HLO opcode.
            name: Its name in the program.
            shape: Dimensions of the output.
            size: Bytes of the output.
            values: Operands.
            flops: Floating-point operations.
            seconds: Its time, if known; by default the roofline's.
        """
        node = len(self._nodes)
        producers = set()
        leaves = set()
        for value in values:
            _flatten(value, producers, leaves)
        self._edges.update((producer, node) for producer in producers)
        read = sum(self._leaf_bytes[leaf] for leaf in leaves)
        if seconds is None:
            moved = read + sum(self._nodes[producer][5] for producer in producers)
            seconds = self.device.seconds(flops, size + (min(moved, size) if opcode in SPARSE else moved))
        resident = sum(self._leaf_bytes[leaf] for leaf in leaves if not self._readers[leaf])
        self._nodes.append((opcode, name, tuple(shape), seconds, flops, size, resident, read))
        for leaf in leaves:
            self._readers[leaf].append(node)
        return node

    def graph(self, name: str) -> CostGraph:
        """Return the recorded graph; operators that read the same weights are one co-location group."""
        opcodes, labels, shapes, *values = zip(*self._nodes, strict=True) if self._nodes else [()] * 8
        columns = ("seconds", "flops", "output_bytes", "parameter_bytes", "read_bytes")
        leaves = zip(self._leaf_bytes, self._readers, strict=True)
        shared = [readers for size, readers in leaves if size >= _SHARED]
        together = [(readers[0], other) for readers in shared for other in readers[1:]]
        groups = components(np.array(together, np.int64).reshape(-1, 2), len(opcodes))
        values = dict(zip(columns, values, strict=True))
        more = {"groups": groups, "names": labels, "uncounted_loops": len(self.uncounted)}
        return build(self.source, name, opcodes, shapes, self._edges, **more, **values)


def _flatten(value: Value, nodes: set[int], leaves: set[int]) -> None:
    if isinstance(value, list):
        for part in value:
            _flatten(part, nodes, leaves)
    elif isinstance(value, frozenset):
        leaves |= value
    else:
        nodes.add(value)
