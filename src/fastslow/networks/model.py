"""The layout and the tile network."""

import torch
from torch import Tensor, nn

from fastslow.competition.schema import LAYOUT_WIDTH, MAX_DIMENSION, ROLES
from fastslow.features.tpu_tiling import TILING_FEATURES
from fastslow.networks.graph_batch import Batch
from fastslow.networks.head import Head
from fastslow.networks.layers import (
    ChannelAttention,
    CrossConfigAttention,
    LevelTensors,
    SageConv,
    WeightedInstanceNorm,
)
from fastslow.networks.set_statistics import Complete, as_is

LAYOUT_VALUES = MAX_DIMENSION + 3  # -2 not configurable, -1 left to the compiler or padding, 0 to 5
OPCODES = 128
LAYOUT_EMBEDDING = 4
OPCODE_EMBEDDING = 16


class Block(nn.Module):
    """Norm, GraphSAGE, channel attention, cross-config attention, projection; around it a residual.

    The node's own layouts join again: what a few layers of neighbours say must not drown them.

    Args:
        width: Channels D.
        cross_config: Compare the configurations of the set.
        dropout: Share of channels dropped in training.
    """

    def __init__(self, width: int, cross_config: bool, dropout: float):
        super().__init__()
        self.norm = WeightedInstanceNorm(width)
        self.sage = SageConv(width, width)
        self.channel = ChannelAttention(width)
        self.cross = CrossConfigAttention() if cross_config else None
        self.project = nn.Sequential(
            nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * width if cross_config else width, width)
        )
        self.config = nn.Linear(width, width, bias=False)

    def forward(
        self, x: Tensor, config: Tensor, below: LevelTensors, level: LevelTensors, complete: Complete
    ) -> Tensor:
        """States below (S_below, D) and the layouts of each state (S, D), embedded, to states (S, D)."""
        y = self.channel(self.sage(self.norm(x, below, complete), level))
        if self.cross is not None:
            y = torch.cat([y, self.cross(y, level, complete)], 1)
        return x[level.own] + self.project(y) + self.config(config)


class Trunk(nn.Module):
    """Embeds nodes and passes messages: a batch to the states of the last level.

    Args:
        numeric_width: F, columns of the scaled node features.
        width: Channels D.
        depth: Message-passing blocks.
        cross_config: Use cross-config attention in each block.
        dropout: Share of channels dropped in training.
    """

    def __init__(self, numeric_width: int, width: int, depth: int, cross_config: bool, dropout: float):
        super().__init__()
        self.layout = nn.Embedding(LAYOUT_VALUES, LAYOUT_EMBEDDING)
        self.opcode = nn.Embedding(OPCODES, OPCODE_EMBEDDING)
        node_width = numeric_width + LAYOUT_WIDTH * LAYOUT_EMBEDDING + OPCODE_EMBEDDING
        self.node = nn.Linear(node_width, width)
        config_width = len(ROLES) * (LAYOUT_WIDTH * LAYOUT_EMBEDDING + TILING_FEATURES)
        self.config = nn.Linear(config_width, width, bias=False)
        self.input = nn.Sequential(nn.GELU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width, cross_config, dropout) for _ in range(depth))

    def forward(self, batch: Batch, complete: Complete = as_is) -> Tensor:
        """(S, D), the states of the last level."""
        node = torch.cat(
            [batch.numeric, self.layout(batch.node_layout).flatten(1), self.opcode(batch.opcode)], 1
        )
        config = self.config(torch.cat([self.layout(batch.state_layouts).flatten(1), batch.state_tiling], 1))
        x = self.input(self.node(node)[batch.levels[0].node_ids] + config)
        for block, below, level in zip(self.blocks, batch.levels[:-1], batch.levels[1:], strict=True):
            config = config[level.own]
            x = block(x, config, below, level, complete)
        return x


class RankingNetwork(nn.Module):
    """Scores the configurations of one graph; a lower score is a faster configuration.

    A layout's configurations change the states, so each has its own pooled graph; a tile's do not, so the
    graph is embedded once for all. The features of the configuration as a whole (violation ratios, copies,
    tile bounds) join in the head.

    Args:
        numeric_width: F, columns of the scaled node features.
        config_width: V, columns of the scaled configuration features.
        width: Channels D.
        depth: Message-passing blocks.
        cross_config: Use cross-config attention.
        dropout: Share of channels dropped in training.
    """

    def __init__(
        self,
        numeric_width: int,
        config_width: int,
        width: int,
        depth: int,
        cross_config: bool,
        dropout: float,
    ):
        super().__init__()
        self.depth = depth
        self.trunk = Trunk(numeric_width, width, depth, cross_config, dropout)
        self.head = Head(width, config_width, dropout)

    def forward(self, batch: Batch, complete: Complete = as_is) -> Tensor:
        """A batch to ``(C,)`` scores.

        Args:
            batch: Some configurations of a graph.
            complete: Gives the statistics of the whole set that they are compared with; unless told they
                are the set.
        """
        x = self.trunk(batch, complete)
        return self.head(x, batch.pooling, batch.levels[-1], batch.config_feat, complete)
