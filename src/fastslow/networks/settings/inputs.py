"""Names of the columns of a node, and of the features of a whole configuration, that a network reads."""

from collections.abc import Sequence

from fastslow.competition.node_columns import COLUMN_NAMES
from fastslow.competition.schema import TILE_DIMENSIONS, TILE_ROLES
from fastslow.core.errors import SettingsError
from fastslow.features.scaling import ATTRIBUTES, DEPTHS, NUMERIC, TILES, Scaler

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
CONFIG_INPUTS = ("all", "published", "violation", "none")
VIOLATION = "violation_ratio"
PUBLISHED_COLUMNS = tuple(
    f"{role}_{name}"
    for role in TILE_ROLES
    for name in (*(f"bound_{d}_log" for d in range(TILE_DIMENSIONS)), "bound_sum_log", "bound_product_log")
)
"""The 24 columns of a tile file's ``config_feat``, as logarithms."""
_SLICES = {"numeric": NUMERIC, "tiles": TILES, "depths": DEPTHS, "attributes": ATTRIBUTES}
_GROUPS = {name: [*range(part.start, part.stop)] for name, part in _SLICES.items()}
_GROUPS["picked"] = [COLUMN_NAMES.index(name) for name in PICKED]
_REMEDIES = {"attributes": "features.hlo_folder, a folder of TpuGraphs' protobufs"}


def input_columns(text: str) -> list[int]:
    """Return the columns of :func:`~fastslow.features.scaling.expand_node_features` that a network reads.

    Args:
        text: Groups joined by ``+``: ``numeric``, ``tiles``, ``depths``, ``attributes``, ``picked``.

    Raises:
        SettingsError: A group is unknown or given twice, or ``picked`` is joined with ``numeric``.
    """
    names = text.split("+")
    for name in names:
        if name not in _GROUPS:
            raise SettingsError("node_inputs", f"{name!r} in {text!r} is none of {', '.join(_GROUPS)}")
        if names.count(name) > 1:
            raise SettingsError("node_inputs", f"{name} is given twice in {text!r}")
    if {"numeric", "picked"} <= {*names}:
        raise SettingsError("node_inputs", f"numeric in {text!r} contains picked; give one of them")
    return [column for name in names for column in _GROUPS[name]]


def require_inputs(text: str, scaler: Scaler) -> None:
    """Refuse columns that the features were built without.

    Args:
        text: As for :func:`input_columns`.
        scaler: Scaler of all columns.

    Raises:
        SettingsError: No column of a group varies over the train graphs.
    """
    for name in {*text.split("+")} & _REMEDIES.keys():
        if not scaler.std[_GROUPS[name]].any():
            raise SettingsError(
                "node_inputs", f"the features have no {name}; build them with {_REMEDIES[name]}"
            )


def config_columns(text: str, names: Sequence[str]) -> list[int]:
    """Return the positions of the columns of ``config_feat`` that a network reads.

    Args:
        text: One of :data:`CONFIG_INPUTS`.
        names: Names of the columns.
    """
    wanted = {"all": names, "published": PUBLISHED_COLUMNS, "violation": (VIOLATION,), "none": ()}[text]
    return [names.index(name) for name in wanted]
