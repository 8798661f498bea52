"""Reference implementation of the 140 node features, instruction by instruction, for padding and extraction.

Also synthetic modules: :class:`Program` builds one, :func:`random_program` samples one.
"""

import itertools
import math

import numpy as np

from fastslow.competition.node_columns import ELEMENT_TYPES
from fastslow.competition.opcodes import OPCODES
from fastslow.hlo.messages import PRIMITIVE_TYPES, Module

_DIMENSION_FIELDS = "size stride padding_low padding_high window_dilation base_dilation".split()  # noqa: SIM905


def _padded(values, columns: int, fill: float, aggregates: bool = True) -> list[float]:
    """Return the first values of a list, padded, then its sum and int64 product if wanted."""
    values = list(values)
    row = [float(value) for value in values[:columns]] + [fill] * (columns - len(values))
    if aggregates:
        product = (math.prod(values) + 2**63) % 2**64 - 2**63
        row += [float(sum(values)), float(product)]
    return row


def node_features(instruction, is_root: bool, fill: float) -> list[float]:
    """Return the 140 features of one instruction, with ``fill`` (0 as published, or -1) after a list's end.

    An attribute that the instruction does not have is a list of length 0.
    """
    shape, window = instruction.shape, instruction.window.dimensions
    numbers, opcode = instruction.convolution, instruction.opcode

    def scalars(present: bool, *values: float) -> list[float]:
        return [float(value) if present else fill for value in values]

    row = [float(is_root), 0.0]
    known = shape.element_type
    if known not in PRIMITIVE_TYPES.values():  # a narrow one
        known = PRIMITIVE_TYPES["u8" if known in (22, 27, 31) else "s8"]
    row += [float(known == PRIMITIVE_TYPES[name]) for name in ELEMENT_TYPES]
    row += _padded(shape.dimensions, 6, fill) + [float(len(shape.tuple_shapes))]
    row += scalars(opcode == "parameter", instruction.parameter_number)
    row += _padded(instruction.dimensions, 6, fill, aggregates=False)
    for name in _DIMENSION_FIELDS:
        row += _padded([getattr(dimension, name) for dimension in window], 6, fill)
    reversal = [dimension.window_reversal for dimension in window]
    row += _padded(reversal, 6, fill, aggregates=False) + [float(sum(reversal)), float(reversal.count(False))]
    has_numbers = instruction.HasField("convolution")
    row += scalars(has_numbers, numbers.input_batch, numbers.input_feature)
    row += _padded(numbers.input_spatial, 4, fill, aggregates=False)
    row += scalars(has_numbers, numbers.kernel_input_feature, numbers.kernel_output_feature)
    row += _padded(numbers.kernel_spatial, 4, fill, aggregates=False)
    row += scalars(has_numbers, numbers.output_batch, numbers.output_feature)
    for count in (instruction.feature_group_count, instruction.batch_group_count):
        row += scalars(count != 0, count)
    for name in ("start", "stride", "limit"):
        row += _padded([getattr(bound, name) for bound in instruction.slice_dimensions], 2, fill)
    row += _padded(instruction.dynamic_slice_sizes, 2, fill)
    for name in ("low", "high"):
        row += _padded([getattr(edge, name) for edge in instruction.padding_config.dimensions], 2, fill)
    row += scalars(opcode == "sort", instruction.is_stable)
    return row + _padded(shape.layout.minor_to_major, 6, fill, aggregates=False)


def graph(module, fill: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a module as TpuGraphs arrays: node_feat (N, 140), node_opcode (N,), edge_index (E, 2).

    Args:
        module: A :class:`fastslow.hlo.messages.Module`.
        fill: Value of ``node_feat`` after a list's end.
    """
    nodes = [(part, inst) for part in module.computations for inst in part.instructions]
    number = {(part.id, inst.id): node for node, (part, inst) in enumerate(nodes)}
    root = {part.id: number[part.id, part.root_id] for part in module.computations}
    edges = set()
    for part, inst in nodes:
        used = [number[part.id, operand] for operand in inst.operand_ids]
        used += [root[called] for called in inst.called_computation_ids]
        edges |= {(number[part.id, inst.id], node) for node in used}
    node_feat = [node_features(inst, inst.id == part.root_id, fill) for part, inst in nodes]
    node_opcode = [OPCODES.get(inst.opcode, 0) for _, inst in nodes]
    return (
        np.array(node_feat, dtype=np.float32),
        np.array(node_opcode, dtype=np.uint8),
        np.array(sorted(edges), dtype=np.int64).reshape(-1, 2),
    )


class Program:
    """An HLO module under construction: one computation, and the reducers that its reduces call."""

    def __init__(self):
        self.module = Module()
        self.computation = self.module.computations.add(id=1)
        self.reducers = {}

    def add(self, opcode, dims=(), operands=(), *, elements=None, layout=None, **fields):
        """Append an instruction and return its node; ``elements`` makes its output a tuple of as many."""
        part = {"element_type": PRIMITIVE_TYPES["f32"], "dimensions": dims}
        shape = {"element_type": PRIMITIVE_TYPES["tuple"], "tuple_shapes": [part] * (elements or 0)}
        if elements is None:
            order = range(len(dims))[::-1] if layout is None else layout
            shape = {"element_type": PRIMITIVE_TYPES["f32"], "dimensions": dims}
            shape["layout"] = {"minor_to_major": order}
        node = len(self.computation.instructions)
        self.computation.instructions.add(opcode=opcode, shape=shape, operand_ids=operands, id=node, **fields)
        return node

    def calls_reducer(self, inputs=1):
        """Return the field that names the reducer of so many inputs, which is made once."""
        if inputs not in self.reducers:
            reducer = self.module.computations.add(id=1 + inputs)
            number = {"element_type": PRIMITIVE_TYPES["f32"]}
            for place in range(2 * inputs):
                reducer.instructions.add(opcode="parameter", shape=number, id=place, parameter_number=place)
            if inputs > 1:
                pair = {"element_type": PRIMITIVE_TYPES["tuple"], "tuple_shapes": [number] * inputs}
                reducer.root_id = 2 * inputs
                reducer.instructions.add(
                    opcode="tuple", shape=pair, id=reducer.root_id, operand_ids=range(inputs)
                )
            self.reducers[inputs] = reducer
        return {"called_computation_ids": [self.reducers[inputs].id]}

    def reduce(self, dims, inputs, axes, **fields):
        """Append a reduce of inputs over axes, with its initial values and its reducer."""
        called = self.calls_reducer(len(inputs))
        operands = [*inputs, *(self.add("constant") for _ in inputs)]
        return self.add("reduce", dims, operands, dimensions=axes, **called, **fields)


def window(rank, **values):
    """Return a window of as many dimensions, each with these values."""
    return {
        "dimensions": [{"size": 1, "stride": 1, "window_dilation": 1, "base_dilation": 1, **values}] * rank
    }


def random_program(seed):
    """Return 30 instructions with random opcodes, ranks, axes and layouts and, rarely, a size of 0."""
    rng = np.random.default_rng(seed)
    program, tensors, numbers = Program(), [], itertools.count()

    def add(opcode, dims, operands=(), **fields):
        fields["layout"] = rng.permutation(len(dims)).tolist()
        tensors.append((program.add(opcode, dims, operands, **fields), list(dims)))

    for _ in range(30):
        dims = rng.integers(0 if rng.random() < 0.05 else 1, 5, rng.integers(0, 7)).tolist()
        source, source_dims = tensors[rng.integers(len(tensors))] if tensors else (None, None)
        choice = rng.integers(7) if tensors else 0
        rank = len(source_dims or ())
        if choice == 0 or rank == 0:
            add("parameter", dims, parameter_number=next(numbers))
        elif choice == 1:
            order = rng.permutation(rank).tolist()
            add("transpose", [source_dims[axis] for axis in order], [source], dimensions=order)
        elif choice == 2:
            axes = rng.choice(rank, rng.integers(1, rank + 1), replace=False).tolist()
            kept = [size for axis, size in enumerate(source_dims) if axis not in axes]
            inputs = [source] * int(rng.integers(1, 3))
            if len(inputs) == 1:
                tensors.append((program.reduce(kept, inputs, axes), kept))
            else:
                add("get-tuple-element", kept, [program.reduce(kept, inputs, axes, elements=2)])
        elif choice == 3:
            axes = sorted(rng.choice(6, rank, replace=False).tolist())
            sizes = [source_dims[axes.index(axis)] if axis in axes else 2 for axis in range(6)]
            add("broadcast", sizes, [source], dimensions=axes)
        elif choice == 4:
            low, high = rng.integers(-2, 3, (2, rank)).tolist()
            sizes = [max(0, sum(each)) for each in zip(source_dims, low, high, strict=True)]
            high = [s - d - edge for s, d, edge in zip(sizes, source_dims, low, strict=True)]
            edges = [{"low": a, "high": b} for a, b in zip(low, high, strict=True)]
            zero = program.add("constant")
            add("pad", sizes, [source, zero], padding_config={"dimensions": edges})
        elif choice == 5:
            bounds = [
                {"start": min(size, int(rng.integers(2))), "limit": size, "stride": 1} for size in source_dims
            ]
            sizes = [bound["limit"] - bound["start"] for bound in bounds]
            add("slice", sizes, [source], slice_dimensions=bounds)
        else:
            low = int(rng.integers(-2, 3))
            zero = program.add("constant")
            add(
                "reduce-window",
                [max(0, size + low) for size in source_dims],
                [source, zero],
                **program.calls_reducer(),
                window=window(rank, padding_low=low),
            )
    program.computation.root_id = program.computation.instructions[-1].id
    return program
