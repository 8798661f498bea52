"""Protobuf messages of HLO modules.

The message definitions hold only the fields that are used here, numbered as in OpenXLA's public ``hlo.proto``
and ``xla_data.proto`` and in TpuGraphs' ``tuning.proto``. Parsing and serialising keeps all other fields
unchanged.
"""

import re

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fastslow.competition.node_columns import ELEMENT_TYPES

PRIMITIVE_TYPES = dict(
    zip(ELEMENT_TYPES, (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17), strict=True)
)
"""Number of each element type in XLA's ``PrimitiveType``."""

MAX_BYTES = 1 << 31
"""Size of the largest message that protobuf reads."""
_SCHEMA = """
message Layout { repeated int64 minor_to_major = 1; }
message Shape {
  int64 element_type = 2; repeated int64 dimensions = 3; repeated Shape tuple_shapes = 4;
  Layout layout = 5; repeated bool is_dynamic_dimension = 6;
}
message WindowDimension {
  int64 size = 1; int64 stride = 2; int64 padding_low = 3; int64 padding_high = 4;
  int64 window_dilation = 5; int64 base_dilation = 6; bool window_reversal = 7;
}
message Window { repeated WindowDimension dimensions = 1; }
message ConvolutionDimensionNumbers {
  int64 kernel_input_feature = 3; int64 kernel_output_feature = 4; repeated int64 kernel_spatial = 6;
  int64 input_batch = 7; int64 input_feature = 8; int64 output_batch = 9; int64 output_feature = 10;
  repeated int64 input_spatial = 11; repeated int64 output_spatial = 12;
}
message DotDimensionNumbers {
  repeated int64 lhs_contracting = 1; repeated int64 rhs_contracting = 2; repeated int64 lhs_batch = 3;
  repeated int64 rhs_batch = 4;
}
message RaggedDotDimensionNumbers { DotDimensionNumbers dot = 1; repeated int64 rhs_group = 3; }
message GatherDimensionNumbers {
  repeated int64 offset_dims = 1; repeated int64 collapsed_slice_dims = 2;
  repeated int64 start_index_map = 3; int64 index_vector_dim = 4;
  repeated int64 operand_batching_dims = 5;
}
message ScatterDimensionNumbers {
  repeated int64 update_window_dims = 1; repeated int64 inserted_window_dims = 2;
  repeated int64 scatter_dims_to_operand_dims = 3; int64 index_vector_dim = 4;
  repeated int64 input_batching_dims = 5;
}
message SliceDimension { int64 start = 1; int64 limit = 2; int64 stride = 3; }
message EdgePadding { int64 low = 1; int64 high = 2; int64 interior = 3; }
message PaddingConfig { repeated EdgePadding dimensions = 1; }
message ReplicaGroup { repeated int64 replica_ids = 1; }
message TriangularSolveOptions { bool left_side = 1; }
message Literal { repeated int32 s32s = 4; repeated int64 s64s = 5; }
message Instruction {
  string name = 1; string opcode = 2; Shape shape = 3; bytes metadata = 7; Literal literal = 8;
  int64 parameter_number = 9; int64 tuple_index = 13; repeated int64 dimensions = 14; Window window = 15;
  ConvolutionDimensionNumbers convolution = 16; repeated SliceDimension slice_dimensions = 17;
  repeated int64 dynamic_slice_sizes = 20; PaddingConfig padding_config = 21;
  string custom_call_target = 28; DotDimensionNumbers dot = 30; int64 fft_type = 31;
  repeated int64 fft_length = 32; GatherDimensionNumbers gather = 33;
  repeated int64 gather_slice_sizes = 34; int64 id = 35; repeated int64 operand_ids = 36;
  repeated int64 called_computation_ids = 38; bytes backend_config = 43;
  repeated ReplicaGroup replica_groups = 49; int64 feature_group_count = 50;
  ScatterDimensionNumbers scatter = 48; bool constrain_layout = 56;
  repeated Shape operand_shapes_with_layout = 57; int64 batch_group_count = 58;
  TriangularSolveOptions triangular_solve_options = 59; bool is_stable = 60;
  string comparison_direction = 63; RaggedDotDimensionNumbers ragged_dot = 90;
}
message OpMetadata { string op_name = 2; }
message Computation {
  string name = 1; repeated Instruction instructions = 2; int64 id = 5; int64 root_id = 6;
}
message Module {
  string name = 1; string entry_computation_name = 2; repeated Computation computations = 3; int64 id = 5;
  int64 entry_computation_id = 6; bytes schedule = 7; bytes stack_frame_index = 17;
}
message HloProto { Module hlo_module = 1; }
message TensorLayout { repeated int32 dims = 1; }
message NodeLayout { repeated TensorLayout tensors = 1; }
message LayoutConfig { repeated NodeLayout nodes = 1; }
message ModuleConfig { LayoutConfig layout_config = 1; }
message TileSizeConfig {
  repeated int64 kernel_bounds = 1; repeated int64 output_bounds = 2; repeated int64 input_bounds = 3;
}
message OpConfig { TileSizeConfig tile_size_config = 1; }
message ExecutionProfile { int64 compute_time_ns = 4; }
message Run {
  OpConfig op_config = 1; ModuleConfig module_config = 2; bool error = 3; ExecutionProfile profile = 4;
  bool is_default = 5;
}
message ModuleTuningData {
  Module module = 1; uint64 fingerprint = 2; repeated Run runs = 3;
  repeated uint64 config_index_to_node = 4;
}
message TuningData { repeated ModuleTuningData modules = 1; }
"""
_CHECKED = """
message GatherDimensionNumbers {
  repeated int64 offset_dims = 1; repeated int64 collapsed_slice_dims = 2;
  repeated int64 start_index_map = 3; int64 index_vector_dim = 4;
  repeated int64 operand_batching_dims = 5; repeated int64 indices_batching_dims = 6;
}
message ScatterDimensionNumbers {
  repeated int64 update_window_dims = 1; repeated int64 inserted_window_dims = 2;
  repeated int64 scatter_dims_to_operand_dims = 3; int64 index_vector_dim = 4;
  repeated int64 operand_batching_dims = 5; repeated int64 indices_batching_dims = 6;
}
message TriangularSolveOptions { bool left_side = 1; int64 transpose_a = 4; }
message SourceTarget { int64 source = 1; int64 target = 2; }
message IotaGroups {
  int64 num_groups = 1; int64 num_devices_per_group = 2; repeated int64 reshape_dims = 3;
  repeated int64 transpose_perm = 4;
}
message RaggedDotDimensionNumbers {
  DotDimensionNumbers dot = 1; repeated int64 lhs_ragged = 2; repeated int64 rhs_group = 3;
}
message Literal {
  Shape shape = 1; repeated bool preds = 2; bytes u8s = 3; repeated int32 s32s = 4; repeated int64 s64s = 5;
  repeated uint32 u32s = 6; repeated uint64 u64s = 7; repeated float f32s = 8; repeated double f64s = 9;
  bytes f16s = 11; repeated float c64s = 12; bytes bf16s = 13; bytes s8s = 15; bytes u16s = 16;
  bytes s16s = 17; repeated double c128s = 18;
}
message ProgramShape { repeated Shape parameters = 1; Shape result = 2; }
message Computation {
  string name = 1; repeated Instruction instructions = 2; ProgramShape program_shape = 4; int64 id = 5;
  int64 root_id = 6;
}
message Module {
  string name = 1; string entry_computation_name = 2; repeated Computation computations = 3;
  ProgramShape program_shape = 4; int64 id = 5; int64 entry_computation_id = 6;
}
message DeviceList { repeated ReplicaGroup replica_groups = 1; IotaGroups iota_groups = 2; }
"""
"""Messages with the fields that only checks read. They are apart: a declared field has its place in the
bytes, an unknown one is at the end, and the keys of kept labels are digests of the bytes of a ``Module``."""
_INSTRUCTION = """
  string comparison_direction = 63; int64 exponent_bits = 18; int64 mantissa_bits = 19;
  int64 feature_index = 25; int64 channel_id = 26; repeated SourceTarget source_target_pairs = 52;
  int64 rng_algorithm = 70; bool use_global_device_ids = 71; int64 k = 81; DeviceList devices = 87;
  IotaGroups iota_groups = 92;
"""
"""The same for an instruction, in the place of its last field but one."""


def message_classes(package: str, schema: str) -> dict[str, type]:
    """Create protobuf message classes.

    Args:
        package: Name of the protobuf package, unique in the process.
        schema: Messages in the syntax of a ``.proto`` file, with fields of scalar types or of these messages.

    Returns:
        Message class by name.
    """
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    messages = dict(re.findall(r"message (\w+) \{(.*?)\}", schema, re.DOTALL))
    for message, fields in messages.items():
        descriptor = file.message_type.add(name=message)
        for repeated, kind, name, number in re.findall(r"(repeated )?(\w+) (\w+) = (\d+);", fields):
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            field = descriptor.field.add(name=name, number=int(number), label=label)
            if kind in messages:
                field.type = kinds.TYPE_MESSAGE
                field.type_name = f".{package}.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    types = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in messages}
    return {name: message_factory.GetMessageClass(kind) for name, kind in types.items()}


_MESSAGES = message_classes("fastslow.hlo", _SCHEMA)
_WITH_CHECKED = _SCHEMA.replace("string comparison_direction = 63;", _INSTRUCTION) + _CHECKED
CheckedModule = message_classes("fastslow.hlo.checked", _WITH_CHECKED)["Module"]
"""A module with the fields that only checks read."""
Module, HloProto, Instruction, ModuleTuningData, TuningData, OpMetadata = (
    _MESSAGES[name]
    for name in ("Module", "HloProto", "Instruction", "ModuleTuningData", "TuningData", "OpMetadata")
)
