"""Cost graphs from HLO modules.

A module is evaluated symbolically: calls are inlined, tuples and their elements become direct edges, and
loops of few iterations are unrolled, so that operators of different iterations can run on different devices.
A longer loop, a fusion or a conditional is one operator with the cost of its body. A loop without a known
count is one round, with its condition; a condition that counts rounds costs nothing.
"""

import contextlib
import sys
from math import prod
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError

from fastslow.competition.node_columns import ELEMENT_BYTES
from fastslow.competition.opcodes import opcode_number
from fastslow.hlo.messages import PRIMITIVE_TYPES, Module, OpMetadata
from fastslow_placement.programs.cost_graph import CostGraph, topological_order
from fastslow_placement.programs.recorder import LEAVES, OF_LEAVES, PASS, SPARSE, Recorder, Value
from fastslow_placement.programs.roofline import Device, operator_flops
from fastslow_programs.compiler.cycle_estimates import own_cycles, trip_count
from fastslow_programs.compiler.libtpu import CompilerError
from fastslow_programs.program.simplify import check_inlined, refuse_unbounded, warn_of_bounds

UNROLL = 32  # loops of more iterations are one operator
_UNKNOWN = 1 << 62  # iterations of a loop that is counted once
_BYTES_OF = {number: ELEMENT_BYTES[name] for name, number in PRIMITIVE_TYPES.items()}


def graph_of_module(module: Module, source: str | Path, name: str, device: Device) -> CostGraph:
    """Return the cost graph of an HLO module's entry computation.

    Printed warnings name opcodes that the competition does not number, which count as element-wise, and say
    where a dynamic dimension has its bound as size.

    Args:
        module: A sound module, such as :mod:`fastslow.hlo.reader` gives. An instruction with the compiler's
            ``estimated_cycles`` takes that many cycles of the device's clock, all others the roofline's time.
        source: Its origin, for messages.
        name: Name of the graph.
        device: Whose roofline gives the times.

    Raises:
        DataError: Nothing in the program takes time, it is too large once its calls are inlined, or a
            dimension is dynamic and has no bound.
    """
    check_inlined(source, module)
    refuse_unbounded(source, module)
    warn_of_bounds(source, module)
    opcodes = {instruction.opcode for part in module.computations for instruction in part.instructions}
    if unknown := sorted(opcode for opcode in opcodes if not opcode_number(opcode)):
        print(f"warning: {source}: {', '.join(unknown)} count as element-wise", file=sys.stderr)
    evaluation = _Evaluation(module, Recorder(source, device))
    entry = evaluation.computations[module.entry_computation_id]
    parameters = [i for i in entry.instructions if i.opcode == "parameter"]
    arguments = {i.parameter_number: evaluation.leaf_of(i.shape) for i in parameters}
    evaluation.run(entry, arguments)
    return evaluation.recorder.graph(name)


class _Evaluation:
    """Symbolic evaluation of a module."""

    def __init__(self, module: Module, recorder: Recorder):
        self.computations = {computation.id: computation for computation in module.computations}
        self.recorder = recorder
        self._orders: dict[int, list[int]] = {}
        self._costs: dict[int, tuple[float, float]] = {}
        self._shapes: dict[int, dict] = {}

    def leaf_of(self, shape) -> Value:
        """Return a leaf of a shape; for a tuple a list of leaves."""
        if shape.tuple_shapes:
            return [self.leaf_of(part) for part in shape.tuple_shapes]
        return self.recorder.leaf(shape_bytes(shape))

    def run(self, computation, arguments) -> Value:
        """Evaluate a computation on its arguments, by parameter number, and return its root's value."""
        values: dict[int, Value] = {}
        for inst in self._ordered(computation):
            values[inst.id] = self._value(inst, [values[i] for i in inst.operand_ids], arguments, computation)
        return values[computation.root_id]

    def _ordered(self, computation):
        if computation.id not in self._orders:
            position = {inst.id: place for place, inst in enumerate(computation.instructions)}
            edges = [(position[o], position[i.id]) for i in computation.instructions for o in i.operand_ids]
            names = [inst.name for inst in computation.instructions]
            rows = np.array(edges, np.int64).reshape(-1, 2)
            distinct = np.unique(rows, axis=0)
            order = topological_order(distinct, len(names), self.recorder.source, names)
            self._orders[computation.id] = order.tolist()
        return [computation.instructions[place] for place in self._orders[computation.id]]

    def _value(self, inst, values: list[Value], arguments, computation) -> Value:
        opcode = inst.opcode
        if opcode == "parameter":
            return arguments[inst.parameter_number]
        if opcode in LEAVES:
            return self.leaf_of(inst.shape) if opcode == "constant" else frozenset()
        if opcode == "tuple":
            return values
        if opcode == "get-tuple-element":
            if not isinstance(values[0], list):
                return values[0]
            return values[0][inst.tuple_index]
        if opcode in PASS:
            return values[0]
        if opcode in OF_LEAVES and all(isinstance(v, frozenset) for v in values):
            return frozenset().union(*values)
        if opcode == "call":
            return self.run(self.computations[inst.called_computation_ids[0]], dict(enumerate(values)))
        trips = self._trips(inst, computation) if opcode == "while" else 0
        if 1 <= trips <= UNROLL:
            body = self.computations[inst.called_computation_ids[0]]
            state = values[0]
            for _ in range(trips):
                state = self.run(body, {0: state})
            return state
        flops, seconds = self._cost(inst, computation)
        size = shape_bytes(inst.shape)
        shape = inst.shape
        while shape.tuple_shapes:
            shape = shape.tuple_shapes[0]
        known = seconds if own_cycles(inst) is not None or inst.called_computation_ids and seconds else None
        return self.recorder.add(opcode, _name_of(inst), shape.dimensions, size, values, flops, known)

    def _trips(self, inst, computation) -> int:
        try:
            return trip_count(inst, computation, self.computations)
        except CompilerError:
            self.recorder.uncounted.add((computation.id, inst.id))
            return _UNKNOWN

    def _cost(self, inst, computation) -> tuple[float, float]:
        """Return FLOPs and seconds of one instruction; seconds 0 where the operands' roofline decides."""
        shape_of = self._shapes_of(computation)
        operands = [list(shape_of[i].dimensions) for i in inst.operand_ids]
        cycles = own_cycles(inst)
        flops = _own_flops(inst, operands)
        seconds = 0.0
        bodies = [self._body_cost(self.computations[i]) for i in inst.called_computation_ids]
        if inst.opcode == "while":
            trips = self._trips(inst, computation)
            if trips == _UNKNOWN:
                flops, seconds = map(sum, zip(*bodies, strict=True))
            else:
                flops, seconds = (trips * part for part in bodies[0])
        elif inst.opcode in ("conditional", "call"):
            flops, seconds = max(bodies)
        elif inst.opcode == "fusion":
            flops = bodies[0][0]
        if cycles is not None:
            seconds = cycles / self.recorder.device.clock
        return flops, seconds

    def _shapes_of(self, computation) -> dict:
        """Return the shapes of a computation's instructions by ID, made once: it may have 100,000."""
        if computation.id not in self._shapes:
            self._shapes[computation.id] = {i.id: i.shape for i in computation.instructions}
        return self._shapes[computation.id]

    def _body_cost(self, computation) -> tuple[float, float]:
        """Return the sums of FLOPs and seconds over the instructions of a computation."""
        if computation.id not in self._costs:
            total_flops = total_seconds = 0.0
            shape_of = self._shapes_of(computation)
            for inst in computation.instructions:
                if inst.opcode in LEAVES | PASS | {"parameter", "tuple", "get-tuple-element"}:
                    continue
                flops, seconds = self._cost(inst, computation)
                size = shape_bytes(inst.shape)
                moved = sum(shape_bytes(shape_of[i]) for i in inst.operand_ids)
                moved = size + (min(size, moved) if inst.opcode in SPARSE else moved)
                total_flops += flops
                total_seconds += seconds or self.recorder.device.seconds(flops, moved)
            self._costs[computation.id] = total_flops, total_seconds
        return self._costs[computation.id]


def _name_of(inst) -> str:
    """Return an instruction's name, and in parentheses the framework's operation if known."""
    with contextlib.suppress(DecodeError):  # metadata that is none explains nothing
        if source := OpMetadata.FromString(inst.metadata).op_name:
            return f"{inst.name} ({source})"
    return inst.name


def _own_flops(inst, operands: list[list[int]]) -> float:
    attributes = {}
    if inst.opcode == "dot":
        attributes["contracted"] = prod(operands[0][d] for d in inst.dot.lhs_contracting)
    elif inst.opcode == "convolution":
        attributes["output_features"] = operands[1][inst.convolution.kernel_output_feature]
    return operator_flops(inst.opcode, list(inst.shape.dimensions), operands, **attributes)


def shape_bytes(shape) -> int:
    """Return the bytes of an HLO shape; an element of a type that the competition does not know has one."""
    if shape.tuple_shapes:
        return sum(map(shape_bytes, shape.tuple_shapes))
    return prod(shape.dimensions) * _BYTES_OF.get(shape.element_type, 1)
