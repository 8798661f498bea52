"""Which settings the structure of a network (``block``) and its inputs allow together."""

from typing import Any

from fastslow.core.settings import Unread


def unread(config: Any) -> Unread:
    """Return the settings of blocks and edges that a :class:`TrainConfig` without blocks does not read."""
    if config.num_layers:
        return {}
    names = ["skip", "node_attention"]
    names += ["cross_config"] * (config.block != "unit")  # which must switch it off for layout
    names += ["edge_dropout", "pair_edges"] * (not config.input_attention)  # it reads the edges, too
    activates = (
        config.block == "residual" and config.convolution == "mlp_gcn"
    )  # the perceptron, without blocks
    names += ["convolution"] * (not activates)
    return dict.fromkeys(names, ("with num_layers=0", "choose 1 layer or more"))


def check(config: Any) -> None:
    """Check what a :class:`TrainConfig` sets beside ``block``, ``kind`` and ``dimension_tokens``.

    Raises:
        ConfigError: The chosen structure or kind does not read a setting; it is named.
    """
    ours, unit = config.block == "attention", config.block == "unit"
    tile, other = config.kind == "tile", f"with block={config.block!r}"
    config.require(ours or config.skip == "previous", "skip", f"'previous' {other}")
    config.require(ours or config.node_attention == "none", "node_attention", f"'none' {other}")
    config.require(not unit or tile or not config.cross_config, "cross_config", f"False {other}")
    attends = config.input_attention and config.block != "residual"
    config.require(not attends, "input_attention", f"False {other}")
    config.require(ours or not config.dimension_tokens, "dimension_tokens", f"False {other}")
    even = not config.dimension_tokens or config.hidden_channels % 2 == 0
    config.require(even, "hidden_channels", "even, as dimension_tokens needs")
    early = config.config_join == "nodes"
    wanted = "'pooled' for layout, and with block='attention'"
    config.require(not early or (tile and not ours), "config_join", wanted)
    columns = "violation" if tile else "published"  # of the other kind
    config.require(config.config_inputs != columns, "config_inputs", f"for {config.kind}")
