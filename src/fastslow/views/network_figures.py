"""A network as a picture and as a table of its modules."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import nn

from fastslow.choices.layouts import LAYOUT_WIDTH, ROLES
from fastslow.networks.model.convolutions import GatConv, GcnConv, LinearAttention, MlpGcnConv
from fastslow.networks.model.layers import ChannelAttention, CrossConfigAttention, SageConv
from fastslow.networks.model.network import LAYOUT_EMBEDDING, OPCODE_EMBEDDING, RankingNetwork

_WIDTH, _HEIGHT, _GAP = 3.0, 3.4, 1.0  # of a box, and the space between two
_OUTLINE = {"boxstyle": "round,pad=0.1", "edgecolor": "0.4"}
_NODES, _BLOCKS, _CONFIGS = "#dbe9f6", "#fde0c5", "#d9f0d3"


def list_modules(network: RankingNetwork) -> pd.DataFrame:
    """Return the modules that hold parameters, in the order of computation.

    Args:
        network: A network.

    Returns:
        One row per module: ``module`` (its path in the network), ``type``, ``shapes`` of its parameters and
        how many ``parameters``; the last row is the sum.
    """
    rows = [
        {
            "module": path,
            "type": type(module).__name__,
            "shapes": ", ".join(str(tuple(p.shape)) for p in module.parameters(recurse=False)),
            "parameters": sum(p.numel() for p in module.parameters(recurse=False)),
        }
        for path, module in network.named_modules()
        if any(True for _ in module.parameters(recurse=False))
    ]
    total = {"module": "sum", "type": "", "shapes": "", "parameters": _count(network)}
    return pd.DataFrame([*rows, total])


def plot_network(network: RankingNetwork) -> Figure:
    """Draw the network from left to right with widths and numbers of parameters.

    N: nodes, S: states (distinct neighbourhoods of a node under the configurations), C: configurations.

    Args:
        network: A network.
    """
    if network.architecture.block != "attention":
        return _plot_plain(network)
    trunk, head = network.trunk, network.head
    width, last = trunk.node.out_features, _linear(head.mlp)
    numeric = trunk.node.in_features - LAYOUT_WIDTH * LAYOUT_EMBEDDING - OPCODE_EMBEDDING
    config_feat = head.mlp[0].in_features // 2 - head.readout.channels
    columns = 3 + len(trunk.blocks)
    figure = Figure(figsize=(2.1 * columns + 1, 4.4), layout="constrained")
    axes = figure.subplots()
    inputs = ["scaled node features: " + str(numeric), f"opcode, embedded: {OPCODE_EMBEDDING}"]
    inputs += [f"layouts in the program: {LAYOUT_WIDTH} x {LAYOUT_EMBEDDING}"]
    tokens = [] if trunk.tokens is None else [trunk.tokens]
    inputs += ["six dimensions, in a transformer"] * len(tokens)
    embedded = _count(trunk.node, trunk.opcode, trunk.layout, *tokens)
    _box(axes, 0, "a node", [*inputs, "", _describe(trunk.node)], embedded, _NODES)
    lines = ["node + its configuration", "GELU", *map(_describe, _linear(trunk.input))]
    _box(axes, 1, "a state", lines, _count(trunk.input), _NODES)
    for place, block in enumerate(trunk.blocks):
        lines = [
            "norm over the graph",
            *_layers(block),
            "+ own configuration",
            "+ own state (residual)",
        ]
        _box(axes, 2 + place, f"block {place + 1}", lines, _count(block), _BLOCKS)
    joined = [
        f"{network.architecture.readout} over the nodes",
        f"+ {config_feat} configuration features",
        "twice: raw, standardised",
    ]
    _box(axes, 2 + len(trunk.blocks), "head", [*joined, "", *map(_describe, last)], _count(head), _CONFIGS)
    shapes = [f"(N, {width})", *[f"(S, {width})"] * (1 + len(trunk.blocks)), "(C,)"]
    for place, shape in enumerate(shapes):
        _arrow(axes, place, shape)
    layouts = f"layouts of {', '.join(ROLES)} and how they tile the tensor"
    _configuration(
        axes, 1 + len(trunk.blocks), [layouts, _describe(trunk.configured)], _count(trunk.configured)
    )
    axes.set(xlim=(-0.3, columns * (_WIDTH + _GAP) + 0.6), ylim=(-2.2, _HEIGHT + 0.3))
    axes.set_axis_off()
    axes.set_title(f"{_count(network):,} parameters; one prediction per configuration, lower is faster")
    return figure


def _plot_plain(network: RankingNetwork) -> Figure:
    """Draw a network of a published structure (``plain.py``)."""
    trunk, head, layers = network.trunk, network.head, network.architecture
    first = [f"opcode, embedded: {trunk.opcode.embedding_dim}", "numbers and layouts as they are"]
    first += ["+ features of the configuration"] * layers.joins_nodes
    encoder = [] if trunk.encode is None else _linear(trunk.encode)
    boxes = [("a state", [*first, "", *map(_describe, encoder)], (trunk.opcode, *encoder), _NODES)]
    if trunk.attend is not None:
        lines = ["over all nodes,", "non-neighbours weigh 0.1", *map(_describe, _linear(trunk.attend))]
        boxes.append(("attention", lines, (trunk.attend,), _NODES))
    for place, block in enumerate(trunk.blocks):
        lines = [*_layers(block), "length 1" if block.unit else "+ own state (residual)"]
        boxes.append((f"block {place + 1}", lines, (block,), _BLOCKS))
    lines = [f"{layers.readout} over the nodes", *["+ features of the configuration"] * head.joins, ""]
    boxes.append(("head", [*lines, *map(_describe, _linear(head.mlp))], (head,), _CONFIGS))
    figure = Figure(figsize=(2.1 * len(boxes) + 1, 3.4), layout="constrained")
    axes = figure.subplots()
    for place, (title, lines, modules, colour) in enumerate(boxes):
        _box(axes, place, title, lines, _count(*modules), colour)
        _arrow(axes, place, "(C,)" if title == "head" else f"(S, {layers.hidden_channels})")
    axes.set(xlim=(-0.3, len(boxes) * (_WIDTH + _GAP) + 0.6), ylim=(-0.3, _HEIGHT + 0.3))
    axes.set_axis_off()
    axes.set_title(f"{_count(network):,} parameters; one prediction per configuration, lower is faster")
    return figure


def _count(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def _linear(module: nn.Module) -> list[nn.Linear]:
    return [m for m in module.modules() if isinstance(m, nn.Linear)]


def _describe(linear: nn.Linear) -> str:
    return f"linear {linear.in_features} → {linear.out_features}"


def _layers(block: nn.Module) -> list[str]:
    """Return the layers of a block that its picture names, as far as the block has them."""
    names = {
        SageConv: "GraphSAGE: operands, users",
        GcnConv: "GCN: neighbours alike",
        MlpGcnConv: "residual GCN: operands, users",
        GatConv: "graph attention: neighbours alike",
        LinearAttention: "linear attention: all nodes",
        ChannelAttention: "channel attention",
        CrossConfigAttention: "cross-config attention",
    }
    present = [names[type(module)] for module in block.modules() if type(module) in names]
    ours = [f"GELU, dropout, {_describe(_linear(block.project)[0])}"] if hasattr(block, "project") else []
    return [*present, *ours]


def _left(place: int) -> float:
    return place * (_WIDTH + _GAP)


def _box(axes: Axes, place: int, title: str, lines: Sequence[str], parameters: int, colour: str) -> None:
    left = _left(place)
    axes.add_patch(FancyBboxPatch((left, 0), _WIDTH, _HEIGHT, facecolor=colour, **_OUTLINE))
    middle = left + _WIDTH / 2
    axes.text(middle, _HEIGHT - 0.1, title, ha="center", va="top", weight="bold", fontsize=9)
    axes.text(middle, _HEIGHT - 0.6, "\n".join(lines), ha="center", va="top", fontsize=7, linespacing=1.6)
    axes.text(middle, 0.1, f"{parameters:,} parameters", ha="center", fontsize=7, color="0.35")


def _arrow(axes: Axes, place: int, shape: str) -> None:
    start, middle = _left(place) + _WIDTH, _HEIGHT / 2
    axes.annotate("", (start + _GAP - 0.1, middle), (start + 0.1, middle), arrowprops={"arrowstyle": "->"})
    axes.text(start + _GAP / 2, middle + 0.15, shape, ha="center", fontsize=7)


def _configuration(axes: Axes, last: int, lines: Sequence[str], parameters: int) -> None:
    """Draw the configuration's box below the trunk, with an arrow into every box that reads it."""
    left, right = _left(1), _left(last) + _WIDTH
    axes.add_patch(FancyBboxPatch((left, -2), right - left, 1.1, facecolor=_CONFIGS, **_OUTLINE))
    text = "\n".join(["a node's configuration", *lines, f"{parameters:,} parameters"])
    axes.text((left + right) / 2, -1.45, text, ha="center", va="center", fontsize=7)
    for place in range(1, last + 1):
        middle = _left(place) + _WIDTH / 2
        axes.annotate("", (middle, -0.1), (middle, -0.8), arrowprops={"arrowstyle": "->"})
