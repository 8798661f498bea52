"""Which settings the structure of a network (``block``) and its inputs allow together."""

from typing import Any

from fastslow.core.settings import Unread


def unread(settings: Any) -> Unread:
    """Return the settings of blocks and edges that a :class:`TrainSettings` without blocks does not read."""
    if settings.num_layers:
        return {}
    names = ["node_attention"]
    names += ["cross_config"] * (settings.block != "unit")  # which must switch it off for layout
    names += ["edge_dropout", "pair_edges"] * (not settings.input_attention)  # it reads the edges, too
    activates = (
        settings.block == "residual" and settings.convolution == "mlp_gcn"
    )  # the perceptron, without blocks
    names += ["convolution"] * (not activates)
    return dict.fromkeys(names, ("with num_layers=0", "choose 1 layer or more"))


def check(settings: Any) -> None:
    """Check what a :class:`TrainSettings` sets beside ``block``, ``kind`` and ``dimension_tokens``.

    Raises:
        SettingsError: The chosen structure or kind does not read a setting; it is named.
    """
    ours, unit = settings.block == "attention", settings.block == "unit"
    tile, other = settings.kind == "tile", f"with block={settings.block!r}"
    settings.require(ours or settings.node_attention == "none", "node_attention", f"'none' {other}")
    settings.require(not unit or tile or not settings.cross_config, "cross_config", f"False {other}")
    attends = settings.input_attention and settings.block != "residual"
    settings.require(not attends, "input_attention", f"False {other}")
    settings.require(ours or not settings.dimension_tokens, "dimension_tokens", f"False {other}")
    even = not settings.dimension_tokens or settings.hidden_channels % 2 == 0
    settings.require(even, "hidden_channels", "even, as dimension_tokens needs")
    wanted = "False for layout, and with block='attention'"
    settings.require(not settings.joins_nodes or (tile and not ours), "joins_nodes", wanted)
    columns = "violation" if tile else "published"  # of the other kind
    settings.require(settings.config_inputs != columns, "config_inputs", f"for {settings.kind}")
