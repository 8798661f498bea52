"""The layout and the tile network."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from fastslow import columns
from fastslow.graphs import Graph
from fastslow.head import Head
from fastslow.layers import (
    ChannelAttention,
    CrossConfigAttention,
    LevelTensors,
    SageConv,
    SparseOperator,
    WeightedInstanceNorm,
    moved_fields,
)
from fastslow.npz import LAYOUT_WIDTH, MAX_DIMENSION, ROLES
from fastslow.scaling import Scaler, expand_node_features
from fastslow.set_statistics import Complete, as_is
from fastslow.states import States, build_states, select_states
from fastslow.tiling import TILING_FEATURES, tiling_features

NOT_CONFIGURABLE = -2
LAYOUT_VALUES = MAX_DIMENSION + 3  # -2 not configurable, -1 left to the compiler or padding, 0 to 5
OPCODES = 128
LAYOUT_EMBEDDING = 4
OPCODE_EMBEDDING = 16
# (node, configuration) pairs of a graph whose states are kept for the next batch: 4 bytes a pair and level
KEPT_PAIRS = 2**20


@dataclass(frozen=True)
class Batch:
    """One graph under a set of configurations, ready for a network.

    Args:
        numeric: ``(N, F)`` float32, scaled node features.
        node_layout: ``(N, 6)`` int64, the node's own minor-to-major layout, plus 2.
        opcode: ``(N,)`` int64.
        state_layouts: ``(S_0, 18)`` int64, configured layouts of each state, plus 2.
        state_tiling: ``(S_0, 24)`` float32, how its three tensors lie in the TPU's tiles.
        levels: The states.
        pooling: ``(C, S)`` operator over the varying states of the last level.
        config_feat: ``(C, V)`` float32, scaled.
    """

    numeric: Tensor
    node_layout: Tensor
    opcode: Tensor
    state_layouts: Tensor
    state_tiling: Tensor
    levels: list[LevelTensors]
    pooling: SparseOperator
    config_feat: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device."""
        if device.type == "cpu":
            return self
        levels = [level.to(device) for level in self.levels]
        return replace(self, levels=levels, **moved_fields(self, device))


def message_edges(graph: Graph) -> np.ndarray:
    """The edges that messages pass along: the graph's, and one for each pair of configurable nodes.

    Where a configurable node reads another's output through element-wise nodes and transposes, a copy hangs
    on the layouts of the two. An edge brings them together in one layer, however much lies between.

    Returns:
        ``(E', 2)`` int64, rows ``(u, v)`` as in ``edge_index``, each once.
    """
    producer, consumer, _ = graph.pairs.T
    pairs = np.stack([graph.config_index[consumer], graph.config_index[producer]], 1)
    return np.unique(np.concatenate([graph.edge_index, pairs]).astype(np.int64), axis=0)


class GraphInputs:
    """What of a graph does not change with the configurations, scaled once.

    Args:
        graph: The graph.
        node_scaler: Scaler of the expanded node features.
        config_scaler: Scaler of the configuration features.
        pair_edges: Whether messages pass along :func:`message_edges`; else along the graph's own edges.
    """

    def __init__(self, graph: Graph, node_scaler: Scaler, config_scaler: Scaler, pair_edges: bool = True):
        self.graph = graph
        self.numeric = torch.from_numpy(node_scaler.transform(expand_node_features(graph.node_feat)))
        self.node_layout = torch.from_numpy(graph.node_feat[:, columns.LAYOUT].astype(np.int64) + 2)
        self.opcode = torch.from_numpy(graph.node_opcode.astype(np.int64))
        self.config_scaler = config_scaler
        self.edge_index = message_edges(graph) if pair_edges else graph.edge_index
        self._states: dict[int, States] = {}  # of all configurations, by depth

    def states(self, configs: np.ndarray, depth: int) -> States:
        """The states of the graph under some of its configurations.

        For a part of them, those of all are built once and kept, unless they are too large.
        """
        size = self.graph.num_nodes * self.graph.num_configs
        if len(configs) >= self.graph.num_configs or size > KEPT_PAIRS:
            return self._build_states(configs, depth)
        if depth not in self._states:
            self._states[depth] = self._build_states(np.arange(self.graph.num_configs), depth)
        return select_states(self._states[depth], configs)

    def _build_states(self, configs: np.ndarray, depth: int) -> States:
        graph = self.graph
        codes = np.asarray(graph.codes[configs])
        return build_states(self.edge_index, graph.num_nodes, graph.config_index, codes, depth)

    def batch(self, configs: np.ndarray, depth: int) -> Batch:
        """The graph under some of its configurations.

        Args:
            configs: ``(C,)`` positions of the configurations, any order.
            depth: Message-passing layers of the network.
        """
        graph = self.graph
        # a kernel's graph does not depend on the configuration: one stands for all
        varying = configs if len(graph.config_index) else configs[:1]
        states = self.states(varying, depth)
        config_feat = self.config_scaler.transform(np.asarray(graph.config_feat[configs]))
        return Batch(
            self.numeric,
            self.node_layout,
            self.opcode,
            *_state_inputs(states, graph, varying),
            [_level_tensors(states, level) for level in range(depth + 1)],
            SparseOperator(states.pooling),
            torch.from_numpy(config_feat),
        )


def _state_inputs(states: States, graph: Graph, configs: np.ndarray) -> tuple[Tensor, Tensor]:
    """Layouts plus 2, and tiling, of the configured tensors of each state of level 0."""
    num_states = len(states.config_row)
    values = np.full((num_states, len(ROLES), LAYOUT_WIDTH), NOT_CONFIGURABLE, np.int64)
    tiling = np.zeros((num_states, len(ROLES), TILING_FEATURES), np.float32)
    configurable = states.config_row >= 0
    rows = states.config_row[configurable]
    layouts = graph.layouts[graph.codes[configs[states.state_config[configurable]], rows]]
    values[configurable] = layouts
    tiling[configurable] = tiling_features(graph.tensor_sizes[rows], layouts)
    return tuple(torch.from_numpy(array.reshape(num_states, -1)) for array in (values + 2, tiling))


def _level_tensors(states: States, number: int) -> LevelTensors:
    level = states.levels[number]
    size = len(level.node_ids)
    weight = level.multiplicity / states.num_configs
    per_node = sparse.csr_matrix((weight, (level.node_ids, np.arange(size))), shape=(states.num_nodes, size))
    return LevelTensors(
        states.num_nodes,
        states.num_configs,
        torch.from_numpy(level.node_ids),
        torch.from_numpy((weight / states.num_nodes).astype(np.float32)[:, None]),
        SparseOperator(per_node),
        torch.from_numpy(level.own),
        None if level.operands is None else SparseOperator(level.operands),
        None if level.users is None else SparseOperator(level.users),
    )


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
