"""The structure of TpuGraphs' baselines (arXiv 2308.13490; tpu_graphs/baselines), on deduplicated states.

Nothing is normalised, gated or compared across configurations unless a setting asks for it. A comparison with
these therefore measures what our own blocks (``model/network.py``) add. Inputs are raw numbers; the 18 layout
values are scaled to 0 to 100, as in TpuGraphs' layout baseline, and are 0 on a node that is not configurable.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastslow.competition.layouts import LAYOUT_WIDTH, MAX_DIMENSION, ROLES
from fastslow.core.errors import registered
from fastslow.networks.model.convolutions import CONVOLUTIONS
from fastslow.networks.model.graph_batch import Batch, LevelTensors
from fastslow.networks.model.layers import CrossConfigAttention, Float64Linear, Head
from fastslow.networks.published.input_attention import InputAttention
from fastslow.networks.settings.options import OPCODE_ROWS, ArchitectureOptions
from fastslow.networks.states.set_statistics import Complete, as_is

LAYOUT_CHANNELS = len(ROLES) * LAYOUT_WIDTH
LAYOUT_SCALE = 100.0
SLOPE = 0.2
"""Of the leaky ReLU for negative numbers, TensorFlow's default."""


def leaky(x: Tensor) -> Tensor:
    """Return the leaky ReLU that the baselines use, of the shape ``(...)`` of ``x``."""
    return functional.leaky_relu(x, SLOPE)


def preactivates(architecture: ArchitectureOptions) -> bool:
    """Return whether an activation is before each block and after the last: TpuGraphs' tile ResGCN."""
    return architecture.block == "residual" and architecture.convolution == "mlp_gcn"


class PlainBlock(nn.Module):
    r"""Pass messages once, in the form of the baseline whose convolution it has.

    .. math::
        \text{unit:}\quad & x' = \operatorname{leaky}(\operatorname{conv}(x)) / \lVert \cdot \rVert_2
            && \text{tile SAGE} \\
        \text{residual, gcn:}\quad & x' = x + \operatorname{leaky}(W \operatorname{leaky}(
            \operatorname{conv}([100 c, x])) + b) && \text{layout ResModel} \\
        \text{residual, mlp\_gcn:}\quad & x' = x + \operatorname{conv}(x) && \text{tile ResGCN} \\
        \text{residual, others:}\quad & x' = x + \operatorname{leaky}(\operatorname{conv}(x))

    with c the node's 18 layout values. With cross-config attention that comes before the convolution, the
    order of the IE slides (self-attention, convolution, activation, residual).

    Deduplication costs nothing, see the convolutions.

    Args:
        in_channels: Channels of x.
        architecture: Settings of the layers.
    """

    def __init__(self, in_channels: int, architecture: ArchitectureOptions):
        super().__init__()
        channels, name = architecture.hidden_channels, architecture.convolution
        self.unit = architecture.block == "unit"
        self.rejoins = not self.unit and name == "gcn"
        self.activates = not preactivates(architecture)
        self.cross = CrossConfigAttention() if architecture.cross_config else None
        width = in_channels + LAYOUT_CHANNELS * self.rejoins
        details = {"slope": SLOPE} if preactivates(architecture) else {}
        convolution = registered(CONVOLUTIONS, "convolution", name)
        self.conv = convolution(width, channels, **details)
        self.linear = nn.Linear(channels, channels) if self.rejoins else None
        self.dropout = nn.Dropout(architecture.dropout)

    def forward(
        self, x: Tensor, layouts: Tensor, below: LevelTensors, level: LevelTensors, complete: Complete
    ) -> Tensor:
        """Return the states of ``level``.

        Args:
            x: ``(S_below, D_in)`` states of the level below.
            layouts: ``(S_below, 18)`` scaled layout values of each of their nodes.
            below: The level below.
            level: The level.
            complete: Returns a statistic of the whole configuration set.
        """
        z = x if self.cross is None else self.cross(x, below, complete)
        y = self.conv(torch.cat([layouts, z], 1) if self.rejoins else z, level, below)
        if self.linear is not None:
            y = self.linear(leaky(y))
        y = self.dropout(leaky(y) if self.activates else y)
        return functional.normalize(y) if self.unit else x[level.itself] + y


class PlainTrunk(nn.Module):
    """Embed nodes with raw layouts, then pass messages: see :class:`PlainBlock`.

    It returns the states ``(S, channels)``, float32, of the last level of a batch. The residual form starts
    with a perceptron of two layers; the unit form with the numbers themselves, so that without blocks it is
    TpuGraphs' tile MLP, which sums them over the nodes. In the tile ResGCN blocks start with their
    activation: the perceptron ends without one, and one follows the last block.

    Args:
        node_channels: Columns F of the scaled node features.
        config_channels: Columns V of the configuration features, where they join on every node, else 0.
        architecture: Settings of the layers; an unknown convolution is an error (``SettingsError``).

    Attributes:
        channels: D of these states: ``hidden_channels``, or of the unit form without blocks all columns.
    """

    def __init__(self, node_channels: int, config_channels: int, architecture: ArchitectureOptions):
        super().__init__()
        channels = architecture.hidden_channels
        self.opcode = nn.Embedding(OPCODE_ROWS, channels)
        width = LAYOUT_CHANNELS + node_channels + LAYOUT_WIDTH + channels + config_channels
        self.encode = None
        self.activates = preactivates(architecture)
        if architecture.block == "residual":
            self.encode = nn.Sequential(
                nn.Linear(width, channels),
                nn.LeakyReLU(SLOPE),
                nn.Linear(channels, channels),
                nn.Identity() if self.activates else nn.LeakyReLU(SLOPE),
                nn.Dropout(architecture.dropout),
            )
            width = channels
        self.attend = InputAttention(channels) if architecture.input_attention else None
        widths = [width] + [channels] * architecture.num_layers
        self.blocks = nn.ModuleList(PlainBlock(below, architecture) for below in widths[:-1])
        self.channels = widths[-1]

    def forward(self, batch: Batch, complete: Complete = as_is) -> Tensor:
        """Return the states ``(S, D)`` of the last level."""
        below, *levels = batch.levels
        layouts = _scaled(batch.state_layouts) * LAYOUT_SCALE
        node = torch.cat([batch.numeric, _scaled(batch.node_layout), self.opcode(batch.opcode)], 1)
        parts = [layouts, node[below.node_ids]]
        if batch.state_config is not None:
            parts.append(batch.config_feat[batch.state_config])
        x = torch.cat(parts, 1)
        x = x if self.encode is None else self.encode(x)
        if self.attend is not None:
            level, *levels = levels
            x = self.attend(x, below, level)
            layouts, below = layouts[level.itself], level
        for block, level in zip(self.blocks, levels, strict=True):
            x = block(x, layouts, below, level, complete)
            layouts, below = layouts[level.itself], level
        return leaky(x) if self.activates else x


def _scaled(shifted: Tensor) -> Tensor:
    """Return layout values, shifted by 2, from 0 (padding, the compiler's choice, not configurable) to 1."""
    return (shifted - 1).clamp(min=0) / (MAX_DIMENSION + 1)


class PlainHead(Head):
    r"""Pool the nodes of each configuration, join its features, and apply a perceptron.

    .. math:: s_c = \operatorname{MLP}([\operatorname{pool}_n x_{n,c}, f_c])

    Args:
        channels: Channels of the states.
        config_channels: Columns V of the scaled configuration features; 0: none join here.
        architecture: Settings of the layers. The residual form has one hidden layer, the unit form two.
    """

    def perceptron(self, architecture: ArchitectureOptions) -> nn.Sequential:
        """Return the layers that :meth:`read_out` applies."""
        hidden = architecture.hidden_channels
        widths = [self.joined_channels, hidden]
        widths += [hidden] * (architecture.block == "unit")
        layers = [
            layer
            for below, above in zip(widths[:-1], widths[1:], strict=True)
            for layer in (Float64Linear(below, above), nn.LeakyReLU(SLOPE), nn.Dropout(architecture.dropout))
        ]
        return nn.Sequential(*layers, Float64Linear(hidden, 1))

    def read_out(self, joined: Tensor, complete: Complete) -> Tensor:
        """Return predictions ``(C,)`` from ``joined`` ``(C, J)`` float64; ``complete`` as :meth:`forward`."""
        return self.mlp(joined).squeeze(1).float()
