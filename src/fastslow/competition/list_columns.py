"""Columns of the 140 node features that hold lists of varying length, and so may hold padding."""

from fastslow.competition import node_columns


def _single(column: int) -> slice:
    """Return one column as a list of at most one value."""
    return slice(column, column + 1)


LISTS: dict[str, tuple[slice, ...]] = {
    "shape": (node_columns.SHAPE,),
    "parameter_number": (_single(node_columns.PARAMETER_NUMBER),),
    "dimensions": (node_columns.DIMENSIONS,),
    "window": (
        node_columns.WINDOW_SIZE,
        node_columns.WINDOW_STRIDE,
        node_columns.WINDOW_PADDING_LOW,
        node_columns.WINDOW_PADDING_HIGH,
        node_columns.WINDOW_DILATION,
        node_columns.BASE_DILATION,
        node_columns.WINDOW_REVERSAL,
    ),
    "convolution": (
        slice(node_columns.INPUT_BATCH, node_columns.INPUT_FEATURE + 1),
        slice(node_columns.KERNEL_INPUT_FEATURE, node_columns.KERNEL_OUTPUT_FEATURE + 1),
        slice(node_columns.OUTPUT_BATCH, node_columns.OUTPUT_FEATURE + 1),
    ),
    "convolution_spatial": (node_columns.INPUT_SPATIAL, node_columns.KERNEL_SPATIAL),
    "feature_group_count": (_single(node_columns.FEATURE_GROUP_COUNT),),
    "batch_group_count": (_single(node_columns.BATCH_GROUP_COUNT),),
    "slice": (node_columns.SLICE_START, node_columns.SLICE_STRIDE, node_columns.SLICE_LIMIT),
    "dynamic_slice": (node_columns.DYNAMIC_SLICE_SIZE,),
    "edge_padding": (node_columns.EDGE_PADDING_LOW, node_columns.EDGE_PADDING_HIGH),
    "is_stable": (_single(node_columns.IS_STABLE),),
    "layout": (node_columns.LAYOUT,),
}
"""Columns that may hold padding, by list; all slices of a list have one length. No other column is padded."""
