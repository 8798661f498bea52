"""Columns that published solutions give a network."""

from fastslow.competition.schema import TILE_DIMENSIONS, TILE_ROLES

PICKED = {
    "is_root": "the output of its computation",
    **dict.fromkeys(("element_type_f32", "element_type_bf16", "element_type_pred"), "bytes per element"),
    **dict.fromkeys((f"shape_{axis}" for axis in range(6)), "what a layout orders"),
    "shape_product": "elements, hence work and bytes",
    **dict.fromkeys(("dimensions_0", "dimensions_1"), "axes that are reduced, broadcast or transposed"),
    **dict.fromkeys(("window_size_0", "window_size_1", "window_size_product"), "work of a convolution"),
    **dict.fromkeys(("window_stride_0", "window_stride_1"), "output per input of a convolution"),
    **dict.fromkeys(("window_padding_low_0", "window_padding_high_0"), "border of a convolution"),
    **dict.fromkeys(("window_dilation_product", "base_dilation_product"), "convolutions of a backward pass"),
    **dict.fromkeys(("input_batch", "input_feature"), "axes of a convolution's input"),
    **dict.fromkeys(("kernel_input_feature", "kernel_output_feature"), "axes of its kernel"),
    **dict.fromkeys(("output_batch", "output_feature"), "axes of its output"),
    "feature_group_count": "depthwise convolutions",
    "dynamic_slice_size_product": "elements that a slice reads",
}
"""30 of the 140 columns, each with a reason: a choice of this project, as the Harvard report lists none."""
PUBLISHED_COLUMNS = tuple(
    f"{role}_{name}"
    for role in TILE_ROLES
    for name in (*(f"bound_{d}_log" for d in range(TILE_DIMENSIONS)), "bound_sum_log", "bound_product_log")
)
"""The 24 columns of a tile file's ``config_feat``, as logarithms."""
