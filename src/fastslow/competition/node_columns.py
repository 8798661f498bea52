"""Names of the 140 columns of ``node_feat`` (TpuGraphs, arXiv 2308.13490, appendix).

A list of varying length fills a fixed number of columns: its first values, 0 where it is shorter. Most lists
carry their sum and product over *all* values as well; the product of an empty list is 1. Columns that the
code reads have a constant here.
"""

_BYTES = """
invalid:0 pred:1 s8:1 s16:2 s32:4 s64:8 u8:1 u16:2 u32:4 u64:8 f16:2 f32:4 f64:8 bf16:2 c64:8 c128:16
tuple:0 opaque:0 token:0
"""
ELEMENT_BYTES = {name: int(size) for name, size in (entry.split(":") for entry in _BYTES.split())}
"""Bytes per element by type, in the order of the one-hot columns; 0 for types without elements."""
ELEMENT_TYPES = tuple(ELEMENT_BYTES)

# in order: a column, a list with the number of its columns, or such a list with + for its sum and product
_TABLE = """
is_root constant element_type:19 shape:6+ tuple_shapes parameter_number dimensions:6
window_size:6+ window_stride:6+ window_padding_low:6+ window_padding_high:6+ window_dilation:6+
base_dilation:6+ window_reversal:6 window_reversed window_not_reversed
input_batch input_feature input_spatial:4 kernel_input_feature kernel_output_feature kernel_spatial:4
output_batch output_feature feature_group_count batch_group_count
slice_start:2+ slice_stride:2+ slice_limit:2+ dynamic_slice_size:2+ edge_padding_low:2+ edge_padding_high:2+
is_stable layout:6
"""


def _names(entry: str) -> list[str]:
    """Return the names of the columns of an entry of the table."""
    name, _, length = entry.partition(":")
    if name == "element_type":
        return [f"{name}_{element}" for element in ELEMENT_TYPES]
    entries = [f"{name}_{number}" for number in range(int(length.removesuffix("+")))] if length else [name]
    return entries + [f"{name}_sum", f"{name}_product"] * length.endswith("+")


COLUMN_NAMES: tuple[str, ...] = tuple(name for entry in _TABLE.split() for name in _names(entry))
"""One name per column, in order."""

IS_ROOT = 0
CONSTANT = 1
"""A column that is 0 in every published file."""
ELEMENT_TYPE = slice(2, 21)
"""One-hot over ``ELEMENT_TYPES``."""
SHAPE = slice(21, 27)
"""Sizes of the output tensor's dimensions in the program's order; ``LAYOUT`` is their order in memory."""
SHAPE_SUM, SHAPE_PRODUCT = 27, 28
TUPLE_SHAPES = 29
"""Number of elements of a tuple-shaped output; 0 for a tensor."""
DIMENSIONS = slice(31, 37)
"""HLO's ``dimensions`` attribute: axis numbers whose meaning depends on the opcode."""
WINDOW_SIZE = slice(37, 43)
WINDOW_REVERSAL = slice(85, 91)
WINDOW_REVERSED, WINDOW_NOT_REVERSED = 91, 92
"""Numbers of window dimensions that are reversed and not: together all of them."""
INPUT_BATCH, INPUT_FEATURE = 93, 94
INPUT_SPATIAL = slice(95, 99)
KERNEL_INPUT_FEATURE = 99
KERNEL_OUTPUT_FEATURE = 100
KERNEL_SPATIAL = slice(101, 105)
OUTPUT_BATCH, OUTPUT_FEATURE = 105, 106
CONVOLUTION_AXES = (
    (OUTPUT_BATCH, OUTPUT_FEATURE),
    (INPUT_BATCH, INPUT_FEATURE),
    (KERNEL_INPUT_FEATURE, KERNEL_OUTPUT_FEATURE),
)
"""Columns of the two non-spatial axes of a convolution's tensors, in the order of ``layouts.ROLES``."""
FEATURE_GROUP_COUNT, BATCH_GROUP_COUNT = 107, 108
LAYOUT = slice(134, 140)
"""Minor-to-major order of the output tensor's axes: entry 0 is the axis whose elements are contiguous."""

LISTS: dict[str, tuple[slice, ...]] = {
    "shape": (SHAPE,),
    "parameter_number": (slice(30, 31),),
    "dimensions": (DIMENSIONS,),
    # size, stride, padding low and high, dilation, dilation of the base, reversal
    "window": (*(slice(start, start + 6) for start in range(37, 78, 8)), WINDOW_REVERSAL),
    "convolution": (slice(93, 95), slice(99, 101), slice(105, 107)),  # batch and feature of the tensors
    "convolution_spatial": (INPUT_SPATIAL, KERNEL_SPATIAL),
    "feature_group_count": (slice(107, 108),),
    "batch_group_count": (slice(108, 109),),
    "slice": (slice(109, 111), slice(113, 115), slice(117, 119)),  # start, stride, limit
    "dynamic_slice": (slice(121, 123),),
    "edge_padding": (slice(125, 127), slice(129, 131)),  # of the pad instruction; negative where it crops
    "is_stable": (slice(133, 134),),
    "layout": (LAYOUT,),
}
"""Columns that may hold padding, by list; all slices of a list have one length. No other column is padded."""
