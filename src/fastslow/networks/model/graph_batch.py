"""One graph under a set of configurations as tensors: what the network takes."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from fastslow.competition import node_columns
from fastslow.competition.layouts import LAYOUT_WIDTH, MAX_DIMENSION, ROLES
from fastslow.features.configs.tpu_tiling import TILING_FEATURES, tiling_features
from fastslow.features.graph import Graph, derived, expand_nodes
from fastslow.features.scaling import Scaler
from fastslow.networks.states.config_states import Level, Reach
from fastslow.networks.states.sparse import SparseOperator, moved_fields

NOT_CONFIGURABLE = -2


@dataclass(frozen=True)
class LevelTensors:
    """One level of states as tensors: S states of N nodes under C configurations, S_below one level below."""

    num_nodes: int  # N
    num_configs: int  # C
    node_ids: Tensor  # (S,) node of each state
    share: Tensor  # (S, 1) share of the graph's (node, configuration) pairs that have the state; sums to 1
    per_node: SparseOperator  # (N, S) mean over the configurations of each node: weights multiplicity / C
    itself: Tensor | None  # (S,) the node's state one level below; None at level 0
    operands: SparseOperator | None  # (S, S_below) mean over operand states; None at level 0
    users: SparseOperator | None  # (S, S_below) mean over user states; None at level 0
    degrees: Tensor  # (N, 2) float32, number of operands and of users of each node

    def to(self, device: torch.device) -> "LevelTensors":
        """Return the level on a device."""
        return replace(self, **moved_fields(self, device))


@dataclass(frozen=True)
class Batch:
    """One graph of N nodes under C configurations as tensors: S_0 states at level 0, S at the last level."""

    numeric: Tensor  # (N, F) float32, scaled node features, and features of dimensions where they are read
    node_layout: Tensor  # (N, 6) int64, minor-to-major layout of the node's output, shifted by 2
    opcode: Tensor  # (N,) int64 HLO opcode
    # (S_0, 18) int64, configured output, input and kernel layout of each state, shifted by 2 (-2, not
    # configurable, becomes 0)
    state_layouts: Tensor
    state_tiling: Tensor  # (S_0, 27) float32, how these three tensors fill the TPU's 8 x 128 tiles
    levels: list[LevelTensors]  # the states of levels 0 to num_levels
    pooling: SparseOperator  # (C, S) sum over the nodes of the states of the last level
    config_feat: Tensor  # (C, V) float32, scaled features of the configuration as a whole
    runtime: Tensor  # (C,) float64 label, as in Graph
    configurable: Tensor  # (N,) bool, configurable nodes; all where there is none (tile)
    # (S_0,) int64, configuration of each state, where features of a configuration join on every node
    state_config: Tensor | None = None

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        if device.type == "cpu":
            return self
        levels = [level.to(device) for level in self.levels]
        return replace(self, levels=levels, **moved_fields(self, device))


def message_edges(graph: Graph) -> np.ndarray:
    """Return the edges ``(E', 2)`` that messages pass along: the graph's, and pairs of configurable nodes.

    Row ``(u, v)``: u consumes v's output. Rows are sorted, and each is there once.
    Where a configurable node reads another's output through element-wise nodes and transposes, the compiler
    inserts a copy if their layouts disagree. An edge lets them see each other in one layer, at any distance.
    """
    producer, consumer, _ = graph.pairs.T
    pairs = np.stack([graph.config_index[consumer], graph.config_index[producer]], 1)
    return np.unique(np.concatenate([graph.edge_index, pairs]).astype(np.int64), axis=0)


class PreparedGraph:
    """The part of a graph that does not depend on the configurations, scaled once.

    Args:
        graph: A graph of the features store.
        node_scaler: Scaler of the expanded node features.
        config_scaler: Scaler of the configuration features.
        pair_edges: Whether messages pass along :func:`message_edges`, or else the graph's own edges only.
        whole_graph: Whether a layer lets each node see the whole graph, not only its neighbours.
        joins_nodes: Whether the features of a tile configuration join on every node: each node then has a
            state for every configuration.

    Attributes:
        configurable: ``(N,)`` bool, configurable nodes; all where there is none (tile).
    """

    def __init__(
        self,
        graph: Graph,
        node_scaler: Scaler,
        config_scaler: Scaler,
        pair_edges: bool = True,
        whole_graph: bool = False,
        joins_nodes: bool = False,
    ):
        self.graph = graph
        self.numeric = torch.from_numpy(node_scaler.transform(expand_nodes(graph)))
        # of a tensor of seven dimensions or more, the axes beyond the sixth count as the sixth
        axes = np.minimum(graph.node_feat[:, node_columns.LAYOUT], MAX_DIMENSION)
        self.node_layout = torch.from_numpy(axes.astype(np.int64) + 2)
        self.opcode = torch.from_numpy(graph.node_opcode.astype(np.int64))
        self.config_scaler = config_scaler
        self.edge_index = message_edges(graph) if pair_edges else graph.edge_index
        self.pair_edges, self.whole_graph, self.joins_nodes = pair_edges, whole_graph, joins_nodes
        self._row = np.full(graph.num_nodes, -1)  # position in config_index of each node
        self._row[graph.config_index] = np.arange(len(graph.config_index))
        chosen = self._row >= 0
        self.configurable = torch.from_numpy(chosen if chosen.any() else ~chosen)
        # of every tensor under every option of its group
        layouts = graph.layouts[graph.choices.codes]
        self._layouts = layouts.astype(np.int64)
        default = graph.default_layouts[:, :, None]
        self._tiling = tiling_features(graph.tensor_sizes[:, :, None], layouts, default)

    def states(self, configs: np.ndarray, num_levels: int, edges: np.ndarray | None = None) -> list[Level]:
        """Return the states of each level, 0 to ``num_levels``; arguments as for :meth:`batch`."""
        return self.reach(num_levels, edges).states(self.choices(configs))

    def choices(self, configs: np.ndarray) -> np.ndarray:
        """Return the option ``(C, G)`` that each of some configurations chooses for each group."""
        if self.joins_nodes:  # the configuration is one choice, which every node sees
            return np.arange(len(configs))[:, None]
        return np.asarray(self.graph.choices.values[configs])

    def reach(self, num_levels: int, edges: np.ndarray | None = None) -> Reach:
        """Return the sets of groups that each node sees, along all edges (found once) or some, (E',) bool."""
        if edges is not None:
            return self._make_reach(self.edge_index[edges], num_levels)
        key = "reach", self.pair_edges, self.whole_graph, self.joins_nodes, num_levels
        return derived(self.graph, key, lambda: self._make_reach(self.edge_index, num_levels))

    def _make_reach(self, edge_index: np.ndarray, num_levels: int) -> Reach:
        graph = self.graph
        nodes = graph.config_index
        choices = graph.choices
        if self.joins_nodes:
            nodes = np.arange(graph.num_nodes)
            group = np.zeros((len(nodes), 1), np.int32)
            choices = replace(choices, group=group, options=np.array([graph.num_configs]))
        return Reach(edge_index, graph.num_nodes, nodes, choices, num_levels, self.whole_graph)

    def batch(self, configs: np.ndarray, num_levels: int, edges: np.ndarray | None = None) -> Batch:
        """Return the graph under some of its configurations.

        Args:
            configs: ``(C,)`` positions of the configurations, in any order.
            num_levels: Message-passing layers of the network.
            edges: ``(E',)`` bool, edges of ``edge_index`` that messages pass along; by default all.
        """
        # a tile kernel's graph does not depend on the configuration: one stands for all
        varying = configs if self.varies else configs[:1]
        levels = self.states(varying, num_levels, edges)
        degrees = self.degrees(edges)
        return Batch(
            self.numeric,
            self.node_layout,
            self.opcode,
            *self.state_features(levels[0], varying),
            [level_tensors(level, len(varying), degrees) for level in levels],
            SparseOperator(*levels[-1].pooling()),
            self.config_features(configs),
            torch.from_numpy(self.graph.runtime[configs]),
            self.configurable,
            torch.from_numpy(levels[0].config) if self.joins_nodes else None,
        )

    @property
    def varies(self) -> bool:
        """Whether states of the nodes depend on the configuration: not for a tile kernel, by default."""
        return self.joins_nodes or len(self.graph.config_index) > 0

    def config_features(self, configs: np.ndarray) -> Tensor:
        """Return the scaled features ``(C, V)`` of the configurations at some positions ``(C,)``."""
        return torch.from_numpy(self.config_scaler.transform(np.asarray(self.graph.config_feat[configs])))

    def degrees(self, edges: np.ndarray | None = None) -> Tensor:
        """Return the number of operands and of users of each node, ``(N, 2)`` float32."""
        edge_index = self.edge_index if edges is None else self.edge_index[edges]
        columns = [np.bincount(column, minlength=self.graph.num_nodes) for column in edge_index.T]
        return torch.from_numpy(np.stack(columns, 1).astype(np.float32))

    def state_features(
        self, level: Level, configs: np.ndarray, nodes: np.ndarray | slice = slice(None)
    ) -> tuple[Tensor, Tensor]:
        """Return ``state_layouts`` and ``state_tiling`` of a :class:`Batch`, for some nodes or all.

        ``level`` is level 0, ``configs`` ``(C,)`` are positions of configurations.
        """
        values = np.full((len(level), len(ROLES), LAYOUT_WIDTH), NOT_CONFIGURABLE, np.int64)
        tiling = np.zeros((len(level), len(ROLES), TILING_FEATURES), np.float32)
        rows = self._row[nodes][level.node_ids]
        configurable = rows >= 0
        row, choices = rows[configurable, None], self.graph.choices
        config = configs[level.config[configurable], None]
        option = row, np.arange(len(ROLES)), choices.values[config, choices.group[row[:, 0]]]
        values[configurable], tiling[configurable] = self._layouts[option], self._tiling[option]
        flat = [torch.from_numpy(array.reshape(len(level), -1)) for array in (values + 2, tiling)]
        return flat[0], flat[1]


def level_tensors(
    level: Level, num_configs: int, degrees: Tensor, differentiable: bool = True
) -> LevelTensors:
    """Return a level of ``num_configs`` configurations, or some of its nodes, as tensors.

    ``degrees`` ``(N, 2)`` has the operands and users of its N nodes. Gradients go through its links where it
    is ``differentiable``.
    """
    num_nodes = len(level.set_index)
    weight = level.multiplicity / num_configs
    shape = (num_nodes, len(level))
    per_node = sparse.csr_matrix((weight, np.arange(len(level)), level.start), shape=shape)
    return LevelTensors(
        num_nodes,
        num_configs,
        torch.from_numpy(level.node_ids),
        torch.from_numpy((weight / num_nodes).astype(np.float32)[:, None]),
        SparseOperator(per_node, differentiable=differentiable),
        None if level.itself is None else torch.from_numpy(level.itself),
        None if level.operands is None else SparseOperator(level.operands, differentiable=differentiable),
        None if level.users is None else SparseOperator(level.users, differentiable=differentiable),
        degrees,
    )
