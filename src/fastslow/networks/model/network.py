"""The network: a batch of configurations of one graph to one prediction each, for layout and tile alike.

Start at :class:`RankingNetwork`: a :class:`Trunk` of :class:`Block` layers, then the :class:`Head`. All of it
runs on deduplicated states, see ``networks/README.md``.
"""

import torch
from torch import Tensor, nn

from fastslow.competition.layouts import LAYOUT_WIDTH, MAX_DIMENSION, ROLES
from fastslow.core.errors import registered
from fastslow.features.configs.tpu_tiling import TILING_FEATURES
from fastslow.networks.model.convolutions import CONVOLUTIONS
from fastslow.networks.model.graph_batch import Batch, LevelTensors
from fastslow.networks.model.layers import (
    ChannelAttention,
    CrossConfigAttention,
    Dropout,
    Head,
    WeightedInstanceNorm,
)
from fastslow.networks.settings.options import OPCODE_ROWS, ArchitectureOptions
from fastslow.networks.states.set_statistics import Complete, as_is
from fastslow.networks.states.sparse import take_rows

LAYOUT_VALUES = MAX_DIMENSION + 3  # -2 not configurable, -1 left to the compiler or padding, 0 to 5
LAYOUT_EMBEDDING = 4
OPCODE_EMBEDDING = 16


class Block(nn.Module):
    r"""Residual message-passing block (pre-norm): convolution, two attentions, projection.

    .. math::
        y &= \operatorname{ChannelAttention}(\operatorname{conv}(\operatorname{InstanceNorm}(x))) \\
        x' &= x + W \operatorname{dropout}(\operatorname{GELU}([y, \operatorname{CrossConfig}(y)])) + V c

    with c the embedding of the node's configured layouts. The convolution is by default GraphSAGE
    (``convolutions.py``). Without cross-config attention the bracket is just y. V c is a skip connection from
    the node's layout embedding, against oversmoothing (initial residual, GCNII, arXiv 2007.02133).
    """

    def __init__(self, architecture: ArchitectureOptions):
        super().__init__()
        channels, cross_config = architecture.hidden_channels, architecture.cross_config
        self.norm = WeightedInstanceNorm(channels)
        convolution = registered(CONVOLUTIONS, "convolution", architecture.convolution)
        self.conv = convolution(channels, channels)
        self.channel = ChannelAttention(channels)
        self.cross = CrossConfigAttention() if cross_config else None
        joined_channels = 2 * channels if cross_config else channels
        self.project = nn.Sequential(
            nn.GELU(), Dropout(architecture.dropout), nn.Linear(joined_channels, channels)
        )
        self.layout = nn.Linear(channels, channels, bias=False)

    def forward(
        self, x: Tensor, layouts: Tensor, below: LevelTensors, level: LevelTensors, complete: Complete
    ) -> Tensor:
        """Return the states ``(S, D)`` of ``level`` from the states ``x`` ``(S_below, D)`` below it.

        ``layouts`` ``(S_below, D)`` embeds the configured layouts of their nodes. ``complete`` returns a
        statistic of the whole configuration set.
        """
        y = self.channel(self.conv(self.norm(x, below, complete), level, below))
        if self.cross is not None:
            y = torch.cat([y, self.cross(y, level, complete)], 1)
        return take_rows(x + self.layout(layouts), level.itself) + self.project(y)


class Trunk(nn.Module):
    """Embed nodes and their configured layouts, then pass messages.

    Args:
        node_channels: Columns F of the scaled node features.
        architecture: Settings of the layers.
    """

    def __init__(self, node_channels: int, architecture: ArchitectureOptions):
        super().__init__()
        hidden_channels = architecture.hidden_channels
        self.layout = nn.Embedding(LAYOUT_VALUES, LAYOUT_EMBEDDING)
        self.opcode = nn.Embedding(OPCODE_ROWS, OPCODE_EMBEDDING)
        in_channels = node_channels + LAYOUT_WIDTH * LAYOUT_EMBEDDING + OPCODE_EMBEDDING
        self.node = nn.Linear(in_channels, hidden_channels)
        layout_channels = len(ROLES) * (LAYOUT_WIDTH * LAYOUT_EMBEDDING + TILING_FEATURES)
        self.configured = nn.Linear(layout_channels, hidden_channels, bias=False)
        self.input = nn.Sequential(nn.GELU(), nn.Linear(hidden_channels, hidden_channels))
        self.blocks = nn.ModuleList(Block(architecture) for _ in range(architecture.num_layers))

    def forward(self, batch: Batch, complete: Complete = as_is) -> Tensor:
        """Return the states ``(S, D)`` of the last level, after a block for each level above 0."""
        x, layouts = self.embed(batch)
        blocks = self.blocks[: len(batch.levels) - 1]
        for block, below, level in zip(blocks, batch.levels[:-1], batch.levels[1:], strict=True):
            x = block(x, layouts, below, level, complete)
            if level is not batch.levels[-1]:
                layouts = take_rows(layouts, level.itself)
        return x

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the states ``(S_0, D)`` of level 0, and the embedding of their layouts ``(S_0, D)``."""
        opcodes = take_rows(self.opcode.weight, batch.opcode)
        node_layouts = take_rows(self.layout.weight, batch.node_layout).flatten(1)
        node = self.node(torch.cat([batch.numeric, node_layouts, opcodes], 1))
        state_layouts = take_rows(self.layout.weight, batch.state_layouts).flatten(1)
        layouts = self.configured(torch.cat([state_layouts, batch.state_tiling], 1))
        return self.input(take_rows(node, batch.levels[0].node_ids) + layouts), layouts


class RankingNetwork(nn.Module):
    """Predict the order of the configurations of one graph; a lower prediction is a faster configuration.

    A layout configuration changes the states of nodes, so each has its own pooled graph. A tile configuration
    does not, so the kernel's graph is embedded once for all. The features of the configuration as a whole
    join in the head, or on every node where the settings say so. With another block than ours, the network is
    a published baseline's (``plain.py``).

    Args:
        node_channels: Columns F of the scaled node features.
        config_channels: Columns V of the scaled configuration features.
        architecture: Settings of the layers.
    """

    def __init__(self, node_channels: int, config_channels: int, architecture: ArchitectureOptions):
        super().__init__()
        self.architecture = architecture
        self.num_layers = architecture.num_layers
        if architecture.block == "attention":
            self.trunk = Trunk(node_channels, architecture)
            self.head = Head(architecture.hidden_channels, config_channels, architecture)
        else:
            from fastslow.networks.published.plain import PlainHead, PlainTrunk

            nodes, pooled = (config_channels, 0) if architecture.joins_nodes else (0, config_channels)
            self.trunk = PlainTrunk(node_channels, nodes, architecture)
            self.head = PlainHead(self.trunk.channels, pooled, architecture)

    def forward(self, batch: Batch, complete: Complete = as_is) -> Tensor:
        """Return a prediction per configuration, ``(C,)`` float32; lower is predicted faster.

        Args:
            batch: C configurations of a graph.
            complete: Returns a statistic of the whole configuration set; by default the batch is the set.
        """
        x = self.trunk(batch, complete)
        return self.head(x, batch, complete)
