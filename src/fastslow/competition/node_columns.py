"""Names of the 140 columns of ``node_feat`` (TpuGraphs, arXiv 2308.13490, appendix).

A list of varying length fills a fixed number of columns: its first values, 0 where it is shorter. Most lists
carry their sum and product over *all* values as well; the product of an empty list is 1. ``X``, ``X_SUM`` and
``X_PRODUCT`` name the three parts.
"""

IS_ROOT = 0
CONSTANT = 1
"""0 in every file."""
ELEMENT_TYPE = slice(2, 21)
"""One-hot over ``ELEMENT_TYPES``."""

SHAPE = slice(21, 27)
"""Sizes of the output tensor's dimensions in the program's order; ``LAYOUT`` is their order in memory."""
SHAPE_SUM = 27
SHAPE_PRODUCT = 28
TUPLE_SHAPES = 29
"""Number of elements of a tuple-shaped output; 0 for a tensor."""
PARAMETER_NUMBER = 30
DIMENSIONS = slice(31, 37)
"""HLO's ``dimensions`` attribute: axis numbers whose meaning depends on the opcode; no sum and product."""

WINDOW_SIZE = slice(37, 43)
WINDOW_SIZE_SUM = 43
WINDOW_SIZE_PRODUCT = 44
WINDOW_STRIDE = slice(45, 51)
WINDOW_STRIDE_SUM = 51
WINDOW_STRIDE_PRODUCT = 52
WINDOW_PADDING_LOW = slice(53, 59)
WINDOW_PADDING_LOW_SUM = 59
WINDOW_PADDING_LOW_PRODUCT = 60
WINDOW_PADDING_HIGH = slice(61, 67)
WINDOW_PADDING_HIGH_SUM = 67
WINDOW_PADDING_HIGH_PRODUCT = 68
WINDOW_DILATION = slice(69, 75)
WINDOW_DILATION_SUM = 75
WINDOW_DILATION_PRODUCT = 76
BASE_DILATION = slice(77, 83)
BASE_DILATION_SUM = 83
BASE_DILATION_PRODUCT = 84
WINDOW_REVERSAL = slice(85, 91)
"""0 or 1 per window dimension."""
WINDOW_REVERSED = 91
"""Number of reversed window dimensions."""
WINDOW_NOT_REVERSED = 92
"""Number of window dimensions that are not reversed: 91 plus 92 is the number of window dimensions."""

INPUT_BATCH = 93
INPUT_FEATURE = 94
INPUT_SPATIAL = slice(95, 99)
KERNEL_INPUT_FEATURE = 99
KERNEL_OUTPUT_FEATURE = 100
KERNEL_SPATIAL = slice(101, 105)
OUTPUT_BATCH = 105
OUTPUT_FEATURE = 106
CONVOLUTION_AXES = (
    (OUTPUT_BATCH, OUTPUT_FEATURE),
    (INPUT_BATCH, INPUT_FEATURE),
    (KERNEL_INPUT_FEATURE, KERNEL_OUTPUT_FEATURE),
)
"""Columns of the two non-spatial axes of a convolution's tensors, in the order of ``schema.ROLES``."""
FEATURE_GROUP_COUNT = 107
BATCH_GROUP_COUNT = 108

SLICE_START = slice(109, 111)
SLICE_START_SUM = 111
SLICE_START_PRODUCT = 112
SLICE_STRIDE = slice(113, 115)
SLICE_STRIDE_SUM = 115
SLICE_STRIDE_PRODUCT = 116
SLICE_LIMIT = slice(117, 119)
SLICE_LIMIT_SUM = 119
SLICE_LIMIT_PRODUCT = 120
DYNAMIC_SLICE_SIZE = slice(121, 123)
DYNAMIC_SLICE_SIZE_SUM = 123
DYNAMIC_SLICE_SIZE_PRODUCT = 124
EDGE_PADDING_LOW = slice(125, 127)
"""Low padding of the ``pad`` instruction; negative where it crops."""
EDGE_PADDING_LOW_SUM = 127
EDGE_PADDING_LOW_PRODUCT = 128
EDGE_PADDING_HIGH = slice(129, 131)
EDGE_PADDING_HIGH_SUM = 131
EDGE_PADDING_HIGH_PRODUCT = 132
IS_STABLE = 133
"""Whether a sort keeps the order of equal keys."""
LAYOUT = slice(134, 140)
"""Minor-to-major order of the output tensor's axes: entry 0 is the axis whose elements are contiguous."""

ELEMENT_BYTES: dict[str, int] = {
    "invalid": 0,
    "pred": 1,
    "s8": 1,
    "s16": 2,
    "s32": 4,
    "s64": 8,
    "u8": 1,
    "u16": 2,
    "u32": 4,
    "u64": 8,
    "f16": 2,
    "f32": 4,
    "f64": 8,
    "bf16": 2,
    "c64": 8,
    "c128": 16,
    "tuple": 0,
    "opaque": 0,
    "token": 0,
}
"""Bytes per element by type, in the order of the one-hot columns; 0 for types without elements."""
ELEMENT_TYPES = tuple(ELEMENT_BYTES)


def _list_names(name: str, length: int, aggregates: bool = True) -> list[str]:
    """Column names of one list: ``name_0`` ..., then ``name_sum`` and ``name_product``."""
    entries = [f"{name}_{entry}" for entry in range(length)]
    return entries + [f"{name}_sum", f"{name}_product"] if aggregates else entries


COLUMN_NAMES: tuple[str, ...] = (
    "is_root",
    "constant",
    *(f"element_type_{name}" for name in ELEMENT_TYPES),
    *_list_names("shape", 6),
    "tuple_shapes",
    "parameter_number",
    *_list_names("dimensions", 6, aggregates=False),
    *_list_names("window_size", 6),
    *_list_names("window_stride", 6),
    *_list_names("window_padding_low", 6),
    *_list_names("window_padding_high", 6),
    *_list_names("window_dilation", 6),
    *_list_names("base_dilation", 6),
    *_list_names("window_reversal", 6, aggregates=False),
    "window_reversed",
    "window_not_reversed",
    "input_batch",
    "input_feature",
    *_list_names("input_spatial", 4, aggregates=False),
    "kernel_input_feature",
    "kernel_output_feature",
    *_list_names("kernel_spatial", 4, aggregates=False),
    "output_batch",
    "output_feature",
    "feature_group_count",
    "batch_group_count",
    *_list_names("slice_start", 2),
    *_list_names("slice_stride", 2),
    *_list_names("slice_limit", 2),
    *_list_names("dynamic_slice_size", 2),
    *_list_names("edge_padding_low", 2),
    *_list_names("edge_padding_high", 2),
    "is_stable",
    *_list_names("layout", 6, aggregates=False),
)
"""One name per column, in order."""
