"""A network as a picture and as a table of its modules."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import nn

from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES
from fastslow.networks.model.convolutions import GcnConv, MlpGcnConv
from fastslow.networks.model.layers import ChannelAttention, CrossConfigAttention, SageConv
from fastslow.networks.model.network import LAYOUT_EMBEDDING, OPCODE_EMBEDDING, RankingNetwork

_WIDTH, _HEIGHT, _GAP = 3.0, 3.4, 1.0  # of a box, and the space between two
_OUTLINE = {"boxstyle": "round,pad=0.1", "edgecolor": "0.4"}
_ARROW = {"arrowstyle": "->"}
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
        network: A network, also of a published structure.
    """
    ours = network.architecture.block == "attention"
    boxes = _our_boxes(network) if ours else _plain_boxes(network)
    figure = Figure(figsize=(2.1 * len(boxes) + 1, 4.4 if ours else 3.4), layout="constrained")
    axes = figure.subplots()
    for place, box in enumerate(boxes):
        _box(axes, place, *box)
    if ours:
        _configuration(axes, len(boxes) - 2, network.trunk.configured)
    axes.set(xlim=(-0.3, len(boxes) * (_WIDTH + _GAP) + 0.6), ylim=(-2.2 if ours else -0.3, _HEIGHT + 0.3))
    axes.set_axis_off()
    axes.set_title(f"{_count(network):,} parameters; one prediction per configuration, lower is faster")
    return figure


def _our_boxes(network: RankingNetwork) -> list[tuple]:
    """Return the boxes of the picture: title, lines, parameters, colour, and the shape of their output."""
    trunk, head = network.trunk, network.head
    width = trunk.node.out_features
    numeric = trunk.node.in_features - LAYOUT_WIDTH * LAYOUT_EMBEDDING - OPCODE_EMBEDDING
    config_feat = head.mlp[0].in_features // 2 - head.readout.channels
    node = [
        f"scaled node features: {numeric}",
        f"opcode, embedded: {OPCODE_EMBEDDING}",
        f"layouts in the program: {LAYOUT_WIDTH} x {LAYOUT_EMBEDDING}",
        *("", _describe(trunk.node)),
    ]
    state = ["node + its configuration", "GELU", *map(_describe, _linear(trunk.input))]
    joined = [
        f"{network.architecture.readout} over the nodes",
        f"+ {config_feat} configuration features",
        *("twice: raw, standardised", "", *map(_describe, _linear(head.mlp))),
    ]
    embedded = _count(trunk.node, trunk.opcode, trunk.layout)
    boxes = [("a node", node, embedded, _NODES, f"(N, {width})")]
    boxes.append(("a state", state, _count(trunk.input), _NODES, f"(S, {width})"))
    for place, block in enumerate(trunk.blocks, 1):
        lines = ["norm over the graph", *_layers(block), "+ own configuration", "+ own state (residual)"]
        boxes.append((f"block {place}", lines, _count(block), _BLOCKS, f"(S, {width})"))
    return [*boxes, ("head", joined, _count(head), _CONFIGS, "(C,)")]


def _plain_boxes(network: RankingNetwork) -> list[tuple]:
    """Return the boxes of a published structure (``plain.py``), as :func:`_our_boxes`."""
    trunk, head, layers = network.trunk, network.head, network.architecture
    states = f"(S, {layers.hidden_channels})"
    first = [f"opcode, embedded: {trunk.opcode.embedding_dim}", "numbers and layouts as they are"]
    first += ["+ features of the configuration"] * layers.joins_nodes
    encoder = [] if trunk.encode is None else _linear(trunk.encode)
    lines = [*first, "", *map(_describe, encoder)]
    boxes = [("a state", lines, _count(trunk.opcode, *encoder), _NODES, states)]
    if trunk.attend is not None:
        lines = ["over all nodes,", "non-neighbours weigh 0.1", *map(_describe, _linear(trunk.attend))]
        boxes.append(("attention", lines, _count(trunk.attend), _NODES, states))
    for place, block in enumerate(trunk.blocks, 1):
        lines = [*_layers(block), "length 1" if block.unit else "+ own state (residual)"]
        boxes.append((f"block {place}", lines, _count(block), _BLOCKS, states))
    lines = [f"{layers.readout} over the nodes", *["+ features of the configuration"] * head.joins, ""]
    return [*boxes, ("head", [*lines, *map(_describe, _linear(head.mlp))], _count(head), _CONFIGS, "(C,)")]


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
        ChannelAttention: "channel attention",
        CrossConfigAttention: "cross-config attention",
    }
    present = [names[type(module)] for module in block.modules() if type(module) in names]
    ours = [f"GELU, dropout, {_describe(_linear(block.project)[0])}"] if hasattr(block, "project") else []
    return [*present, *ours]


def _left(place: int) -> float:
    return place * (_WIDTH + _GAP)


def _box(
    axes: Axes, place: int, title: str, lines: Sequence[str], parameters: int, colour: str, shape: str
) -> None:
    left = _left(place)
    axes.add_patch(FancyBboxPatch((left, 0), _WIDTH, _HEIGHT, facecolor=colour, **_OUTLINE))
    middle, end, half = left + _WIDTH / 2, left + _WIDTH, _HEIGHT / 2
    axes.text(middle, _HEIGHT - 0.1, title, ha="center", va="top", weight="bold", fontsize=9)
    axes.text(middle, _HEIGHT - 0.6, "\n".join(lines), ha="center", va="top", fontsize=7, linespacing=1.6)
    axes.text(middle, 0.1, f"{parameters:,} parameters", ha="center", fontsize=7, color="0.35")
    axes.annotate("", (end + _GAP - 0.1, half), (end + 0.1, half), arrowprops=_ARROW)
    axes.text(end + _GAP / 2, half + 0.15, shape, ha="center", fontsize=7)


def _configuration(axes: Axes, last: int, configured: nn.Linear) -> None:
    """Draw the configuration's box below the trunk, with an arrow into every box that reads it."""
    left, right = _left(1), _left(last) + _WIDTH
    axes.add_patch(FancyBboxPatch((left, -2), right - left, 1.1, facecolor=_CONFIGS, **_OUTLINE))
    lines = ["a node's configuration", f"layouts of {', '.join(ROLES)} and how they tile the tensor"]
    text = "\n".join([*lines, _describe(configured), f"{_count(configured):,} parameters"])
    axes.text((left + right) / 2, -1.45, text, ha="center", va="center", fontsize=7)
    for place in range(1, last + 1):
        middle = _left(place) + _WIDTH / 2
        axes.annotate("", (middle, -0.1), (middle, -0.8), arrowprops=_ARROW)
