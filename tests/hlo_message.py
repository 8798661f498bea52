"""HLO modules as protobuf messages and their 140 node features: the reference that padding is tested against.

Also made-up modules: :class:`Program` builds one, :func:`random_program` draws one.

The message definition is our own and holds only the fields read here, numbered as in OpenXLA's public
``hlo.proto`` and ``xla_data.proto`` and in TpuGraphs' ``tuning.proto``; parsing sets the others aside.
"""

import math

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fastslow.columns import ELEMENT_TYPES
from fastslow.opcodes import OPCODES

PRIMITIVE_TYPES = dict(
    zip(ELEMENT_TYPES, (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17), strict=True)
)
"""Number of each element type in XLA's ``PrimitiveType``."""

_DIMENSION_FIELDS = "size stride padding_low padding_high window_dilation base_dilation".split()  # noqa: SIM905

# Message: field: (number, type). ``*`` marks a repeated field; a capital letter another message.
_SCHEMA = {
    "Layout": {"minor_to_major": (1, "int64*")},
    "Shape": {
        "element_type": (2, "int64"),
        "dimensions": (3, "int64*"),
        "tuple_shapes": (4, "Shape*"),
        "layout": (5, "Layout"),
    },
    "WindowDimension": {name: (number, "int64") for number, name in enumerate(_DIMENSION_FIELDS, start=1)}
    | {"window_reversal": (7, "bool")},
    "Window": {"dimensions": (1, "WindowDimension*")},
    "ConvolutionDimensionNumbers": {
        "kernel_input_feature": (3, "int64"),
        "kernel_output_feature": (4, "int64"),
        "kernel_spatial": (6, "int64*"),
        "input_batch": (7, "int64"),
        "input_feature": (8, "int64"),
        "output_batch": (9, "int64"),
        "output_feature": (10, "int64"),
        "input_spatial": (11, "int64*"),
    },
    "SliceDimension": {"start": (1, "int64"), "limit": (2, "int64"), "stride": (3, "int64")},
    "EdgePadding": {"low": (1, "int64"), "high": (2, "int64")},
    "PaddingConfig": {"dimensions": (1, "EdgePadding*")},
    "Instruction": {
        "opcode": (2, "string"),
        "shape": (3, "Shape"),
        "parameter_number": (9, "int64"),
        "dimensions": (14, "int64*"),
        "window": (15, "Window"),
        "convolution": (16, "ConvolutionDimensionNumbers"),
        "slice_dimensions": (17, "SliceDimension*"),
        "dynamic_slice_sizes": (20, "int64*"),
        "padding_config": (21, "PaddingConfig"),
        "id": (35, "int64"),
        "operand_ids": (36, "int64*"),
        "called_computation_ids": (38, "int64*"),
        "feature_group_count": (50, "int64"),
        "batch_group_count": (58, "int64"),
        "is_stable": (60, "bool"),
    },
    "Computation": {"instructions": (2, "Instruction*"), "id": (5, "int64"), "root_id": (6, "int64")},
    "Module": {"computations": (3, "Computation*")},
    "ModuleTuningData": {"module": (1, "Module")},
}


def _messages() -> dict[str, type]:
    """Message classes of the schema, by name."""
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="fastslow_test_hlo.proto", package="hlo", syntax="proto3")
    for message, fields in _SCHEMA.items():
        descriptor = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            field = descriptor.field.add(name=name, number=number)
            field.label = field_type.LABEL_REPEATED if kind.endswith("*") else field_type.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind in _SCHEMA:
                field.type, field.type_name = field_type.TYPE_MESSAGE, f".hlo.{kind}"
            else:
                field.type = getattr(field_type, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    types = {name: pool.FindMessageTypeByName(f"hlo.{name}") for name in _SCHEMA}
    return {name: message_factory.GetMessageClass(kind) for name, kind in types.items()}


MESSAGES = _messages()
Module, ModuleTuningData = MESSAGES["Module"], MESSAGES["ModuleTuningData"]


def _padded(values, columns: int, fill: float, aggregates: bool = True) -> list[float]:
    """The first values of a list, filled up, then its sum and int64 product if wanted."""
    values = list(values)
    row = [float(value) for value in values[:columns]] + [fill] * (columns - len(values))
    if aggregates:
        product = (math.prod(values) + 2**63) % 2**64 - 2**63
        row += [float(sum(values)), float(product)]
    return row


def node_features(instruction, is_root: bool, fill: float) -> list[float]:
    """The 140 features of one instruction, with ``fill`` (0 as published, or -1) where a list has ended.

    An attribute that the instruction does not have is a list of length 0.
    """
    shape, window = instruction.shape, instruction.window.dimensions
    numbers, opcode = instruction.convolution, instruction.opcode

    def scalars(present: bool, *values: float) -> list[float]:
        return [float(value) if present else fill for value in values]

    row = [float(is_root), 0.0]
    row += [float(shape.element_type == PRIMITIVE_TYPES[name]) for name in ELEMENT_TYPES]
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
    """Arrays of a module as TpuGraphs makes them: node_feat (N, 140), node_opcode (N,), edge_index (E, 2).

    Args:
        module: A ``Module`` message.
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
    """An HLO module under construction: one computation, and the reducer that its reduces call."""

    def __init__(self):
        self.module = Module()
        self.computation = self.module.computations.add(id=1)
        self.reducer = None

    def add(self, opcode, dims=(), operands=(), *, elements=None, layout=None, **fields):
        """Append an instruction and return its node; ``elements`` makes its output a tuple of as many."""
        shape = {"element_type": PRIMITIVE_TYPES["tuple"], "tuple_shapes": [{}] * (elements or 0)}
        if elements is None:
            order = range(len(dims))[::-1] if layout is None else layout
            shape = {"element_type": PRIMITIVE_TYPES["f32"], "dimensions": dims}
            shape["layout"] = {"minor_to_major": order}
        node = len(self.computation.instructions)
        self.computation.instructions.add(opcode=opcode, shape=shape, operand_ids=operands, id=node, **fields)
        return node

    def reduce(self, dims, inputs, axes, **fields):
        """Append a reduce of inputs over axes, with its initial values and its reducer."""
        if self.reducer is None:
            self.reducer = self.module.computations.add(id=2)
            self.reducer.instructions.add(opcode="add", shape={"element_type": PRIMITIVE_TYPES["f32"]})
        operands = [*inputs, *(self.add("constant") for _ in inputs)]
        called = {"called_computation_ids": [self.reducer.id]}
        return self.add("reduce", dims, operands, dimensions=axes, **called, **fields)


def window(rank, **values):
    """A window of as many dimensions, each with these values."""
    return {
        "dimensions": [{"size": 1, "stride": 1, "window_dilation": 1, "base_dilation": 1, **values}] * rank
    }


def random_program(seed):
    """A program of 30 instructions with random opcodes, ranks, axes and layouts; now and then a size is 0."""
    rng = np.random.default_rng(seed)
    program, tensors = Program(), []

    def add(opcode, dims, operands=(), **fields):
        fields["layout"] = rng.permutation(len(dims)).tolist()
        tensors.append((program.add(opcode, dims, operands, **fields), list(dims)))

    for _ in range(30):
        dims = rng.integers(0 if rng.random() < 0.05 else 1, 5, rng.integers(0, 7)).tolist()
        source, source_dims = tensors[rng.integers(len(tensors))] if tensors else (None, None)
        choice = rng.integers(7) if tensors else 0
        rank = len(source_dims or ())
        if choice == 0 or rank == 0:
            add("parameter", dims, parameter_number=int(rng.integers(3)))
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
                add("get-tuple-element", kept, [program.reduce((), inputs, axes, elements=2)])
        elif choice == 3:
            axes = sorted(rng.choice(6, rank, replace=False).tolist())
            sizes = [source_dims[axes.index(axis)] if axis in axes else 2 for axis in range(6)]
            add("broadcast", sizes, [source], dimensions=axes)
        elif choice == 4:
            low, high = rng.integers(-2, 3, (2, rank)).tolist()
            edges = [{"low": a, "high": b} for a, b in zip(low, high, strict=True)]
            add("pad", source_dims, [source], padding_config={"dimensions": edges})
        elif choice == 5:
            bounds = [{"start": int(rng.integers(2)), "limit": size, "stride": 1} for size in source_dims]
            add("slice", source_dims, [source], slice_dimensions=bounds)
        else:
            add(
                "reduce-window",
                source_dims,
                [source],
                window=window(rank, padding_low=int(rng.integers(-2, 3))),
            )
    return program
