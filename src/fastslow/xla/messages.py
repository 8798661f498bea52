"""Protobuf messages of HLO modules.

The message definitions hold only the fields that are used here, numbered as in OpenXLA's public ``hlo.proto``
and ``xla_data.proto`` and in TpuGraphs' ``tuning.proto``. Parsing and serialising keeps all other fields
unchanged.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fastslow.competition.node_columns import ELEMENT_TYPES

PRIMITIVE_TYPES = dict(
    zip(ELEMENT_TYPES, (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17), strict=True)
)
"""Number of each element type in XLA's ``PrimitiveType``."""

# Message: field: (number, type). ``*`` marks a repeated field; a capitalised type is another message.
_SCHEMA = {
    "Layout": {"minor_to_major": (1, "int64*")},
    "Shape": {
        "element_type": (2, "int64"),
        "dimensions": (3, "int64*"),
        "tuple_shapes": (4, "Shape*"),
        "layout": (5, "Layout"),
        "is_dynamic_dimension": (6, "bool*"),
    },
    "WindowDimension": {
        "size": (1, "int64"),
        "stride": (2, "int64"),
        "padding_low": (3, "int64"),
        "padding_high": (4, "int64"),
        "window_dilation": (5, "int64"),
        "base_dilation": (6, "int64"),
        "window_reversal": (7, "bool"),
    },
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
        "output_spatial": (12, "int64*"),
    },
    "DotDimensionNumbers": {
        "lhs_contracting": (1, "int64*"),
        "rhs_contracting": (2, "int64*"),
        "lhs_batch": (3, "int64*"),
        "rhs_batch": (4, "int64*"),
    },
    "GatherDimensionNumbers": {
        "offset_dims": (1, "int64*"),
        "collapsed_slice_dims": (2, "int64*"),
        "start_index_map": (3, "int64*"),
        "index_vector_dim": (4, "int64"),
    },
    "ScatterDimensionNumbers": {
        "update_window_dims": (1, "int64*"),
        "inserted_window_dims": (2, "int64*"),
        "scatter_dims_to_operand_dims": (3, "int64*"),
        "index_vector_dim": (4, "int64"),
    },
    "SliceDimension": {"start": (1, "int64"), "limit": (2, "int64"), "stride": (3, "int64")},
    "EdgePadding": {"low": (1, "int64"), "high": (2, "int64")},
    "PaddingConfig": {"dimensions": (1, "EdgePadding*")},
    "Literal": {"s32s": (4, "int32*"), "s64s": (5, "int64*")},
    "Instruction": {
        "name": (1, "string"),
        "opcode": (2, "string"),
        "shape": (3, "Shape"),
        "metadata": (7, "bytes"),
        "literal": (8, "Literal"),
        "parameter_number": (9, "int64"),
        "tuple_index": (13, "int64"),
        "dimensions": (14, "int64*"),
        "window": (15, "Window"),
        "convolution": (16, "ConvolutionDimensionNumbers"),
        "slice_dimensions": (17, "SliceDimension*"),
        "dynamic_slice_sizes": (20, "int64*"),
        "padding_config": (21, "PaddingConfig"),
        "custom_call_target": (28, "string"),
        "dot": (30, "DotDimensionNumbers"),
        "gather": (33, "GatherDimensionNumbers"),
        "gather_slice_sizes": (34, "int64*"),
        "id": (35, "int64"),
        "operand_ids": (36, "int64*"),
        "called_computation_ids": (38, "int64*"),
        "backend_config": (43, "bytes"),
        "feature_group_count": (50, "int64"),
        "scatter": (52, "ScatterDimensionNumbers"),
        "constrain_layout": (56, "bool"),
        "operand_shapes_with_layout": (57, "Shape*"),
        "batch_group_count": (58, "int64"),
        "is_stable": (60, "bool"),
        "comparison_direction": (63, "string"),
    },
    "Computation": {
        "name": (1, "string"),
        "instructions": (2, "Instruction*"),
        "id": (5, "int64"),
        "root_id": (6, "int64"),
    },
    "Module": {
        "name": (1, "string"),
        "entry_computation_name": (2, "string"),
        "computations": (3, "Computation*"),
        "id": (5, "int64"),
        "entry_computation_id": (6, "int64"),
        "stack_frame_index": (17, "bytes"),
    },
    "HloProto": {"hlo_module": (1, "Module")},
    "TensorLayout": {"dims": (1, "int32*")},
    "NodeLayout": {"tensors": (1, "TensorLayout*")},
    "LayoutConfig": {"nodes": (1, "NodeLayout*")},
    "ModuleConfig": {"layout_config": (1, "LayoutConfig")},
    "TileSizeConfig": {
        "kernel_bounds": (1, "int64*"),
        "output_bounds": (2, "int64*"),
        "input_bounds": (3, "int64*"),
    },
    "OpConfig": {"tile_size_config": (1, "TileSizeConfig")},
    "ExecutionProfile": {"compute_time_ns": (4, "int64")},
    "Run": {
        "op_config": (1, "OpConfig"),
        "module_config": (2, "ModuleConfig"),
        "error": (3, "bool"),
        "profile": (4, "ExecutionProfile"),
        "is_default": (5, "bool"),
    },
    "ModuleTuningData": {
        "module": (1, "Module"),
        "fingerprint": (2, "uint64"),
        "runs": (3, "Run*"),
        "config_index_to_node": (4, "uint64*"),
    },
    "TuningData": {"modules": (1, "ModuleTuningData*")},
}


def message_classes(package: str, schema: dict[str, dict[str, tuple[int, str]]]) -> dict[str, type]:
    """Create protobuf message classes from a table of fields.

    Args:
        package: Name of the protobuf package, unique in the process.
        schema: Number and type of each field by message and name: a scalar type of protobuf (``int64``) or a
            message of the table, followed by ``*`` if the field is repeated.

    Returns:
        Message class by name.
    """
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for message, fields in schema.items():
        descriptor = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            field = descriptor.field.add(name=name, number=number)
            field.label = field_type.LABEL_REPEATED if kind.endswith("*") else field_type.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind in schema:
                field.type, field.type_name = field_type.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                field.type = getattr(field_type, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    types = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in schema}
    return {name: message_factory.GetMessageClass(kind) for name, kind in types.items()}


_MESSAGES = message_classes("fastslow.hlo", _SCHEMA)
Module, HloProto, Instruction, ModuleTuningData, TuningData = (
    _MESSAGES[name] for name in ("Module", "HloProto", "Instruction", "ModuleTuningData", "TuningData")
)
