"""The reference to beat: the layout network of the competition's 1st place, on torch_geometric.

Written from the published description; no code is taken over. Initial weights and chunk sizes come from
the authors' repository (github.com/thanhhau097/google_fast_or_slow). Every (configuration, node) pair is
computed separately, in C disjoint copies of the graph: as a block-diagonal CSR matrix on a CPU, and as an
edge list on a GPU, where PyG's CSR product does not support bfloat16.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.nn import functional

from fastslow.competition import node_columns
from fastslow.features.graph import Graph

HOPS = 1  # hops of a features folder that winner_graph() can reduce
WIDTH = 128


def winner_graph(graph: Graph) -> Graph:
    """Reduce a graph to the edges with at least one configurable endpoint and the nodes on them.

    Configurable nodes without an edge are kept, so that a configuration keeps all of its layouts.
    """
    configurable = np.zeros(graph.num_nodes, bool)
    configurable[graph.config_index] = True
    edges = graph.edge_index[configurable[graph.edge_index].any(1)]
    kept = configurable.copy()
    kept[edges.ravel()] = True
    number = np.cumsum(kept) - 1
    return replace(
        graph,
        node_feat=graph.node_feat[kept],
        node_opcode=graph.node_opcode[kept],
        edge_index=number[edges],
        config_index=number[graph.config_index],
    )


def standardisation(graphs: list[Graph]) -> StandardScaler:
    """Fit a scaler of the 134 numeric columns on all nodes of the graphs, in float64."""
    values = np.concatenate([graph.node_feat[:, : node_columns.LAYOUT.start] for graph in graphs])
    return StandardScaler().fit(values.astype(np.float64))


@dataclass(frozen=True)
class WinnerBatch:
    """A graph under C configurations, as C copies.

    Args:
        numeric: ``(N, 134)`` float32, standardised.
        node_layout: ``(N, 6)`` int64, the node's own layout, plus 2.
        opcode: ``(N,)`` int64 from 0.
        layout: ``(C, N, 18)`` int64, configured layouts plus 2; 0 where the node is not configurable.
        adjacency: Messages between the C * N nodes: CSR, a row for each receiver, or an edge list.
    """

    numeric: Tensor
    node_layout: Tensor
    opcode: Tensor
    layout: Tensor
    adjacency: Tensor


class WinnerInputs:
    """The inputs of a reduced graph that do not depend on the configurations.

    Args:
        graph: From :func:`winner_graph`.
        scaler: From :func:`standardisation`.
        device: Device of the batches.
    """

    def __init__(self, graph: Graph, scaler: StandardScaler, device: torch.device):
        self.graph, self.device = graph, device
        numeric = scaler.transform(graph.node_feat[:, : node_columns.LAYOUT.start].astype(np.float64))
        self.numeric = torch.from_numpy(numeric.astype(np.float32)).to(device)
        self.node_layout = torch.from_numpy(graph.node_feat[:, node_columns.LAYOUT].astype(np.int64) + 2).to(
            device
        )
        self.opcode = torch.from_numpy(graph.node_opcode.astype(np.int64) - 1).to(device)
        self.edge_index = torch.from_numpy(np.ascontiguousarray(graph.edge_index.T).astype(np.int64))
        self.config_index = torch.from_numpy(graph.config_index.astype(np.int64)).to(device)
        self.layouts = torch.from_numpy(graph.layouts.astype(np.int64) + 2).to(device)
        self._adjacency: dict[int, Tensor] = {}

    def adjacency(self, num_configs: int) -> Tensor:
        """Return the messages from consumer to operand in C copies of the graph, cached by C."""
        if num_configs not in self._adjacency:
            num_nodes = self.graph.num_nodes
            copies = self.edge_index[:, None] + num_nodes * torch.arange(num_configs)[:, None]
            edges = copies.reshape(2, -1)
            self._adjacency[num_configs] = (
                _csr(edges, num_nodes * num_configs) if self.device.type == "cpu" else edges.to(self.device)
            )
        return self._adjacency[num_configs]

    def batch(self, configs: np.ndarray) -> WinnerBatch:
        """Return the graph under some of its configurations, given by position."""
        codes = torch.from_numpy(self.graph.choices.layout_codes(configs).astype(np.int64)).to(self.device)
        layout = codes.new_zeros(len(configs), self.graph.num_nodes, 18)
        layout[:, self.config_index] = self.layouts[codes].flatten(2)
        return WinnerBatch(self.numeric, self.node_layout, self.opcode, layout, self.adjacency(len(configs)))


def _csr(edge_index: Tensor, size: int) -> Tensor:
    source, target = edge_index[:, torch.argsort(edge_index[1], stable=True)]
    offsets = functional.pad(torch.bincount(target, minlength=size).cumsum(0), (1, 0))
    with warnings.catch_warnings():  # torch calls its CSR tensors beta
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(offsets, source, torch.ones(len(source)), (size, size))


def instance_norm(x: Tensor) -> Tensor:
    """Normalise ``(C, N, D)`` to mean 0 and variance 1 over the nodes, per configuration and channel."""
    return functional.instance_norm(x.transpose(1, 2)).transpose(1, 2)


class Attention(nn.Module):
    """Channel attention (squeeze and excitation, arXiv 1709.01507, per node), then cross-config attention.

    Args:
        width: D, channels of x.
        cross_config: Concatenate ``x * softmax(x / T)`` over the configurations; T is learned, initially 0.5.
    """

    def __init__(self, width: int, cross_config: bool):
        super().__init__()
        self.gate = nn.Sequential(
            nn.Linear(width, width // 8), nn.ReLU(), nn.Linear(width // 8, width), nn.Sigmoid()
        )
        self.temperature = nn.Parameter(torch.tensor(0.5)) if cross_config else None

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(C, N, D)`` to ``(C, N, 2 D)``, or to ``(C, N, D)`` without cross-config attention."""
        x = x * self.gate(x)
        if self.temperature is None:
            return x
        return torch.cat([x, x * torch.softmax(x / self.temperature, 0)], -1)


class LinearBlock(nn.Module):
    """Linear, instance norm, attention, GELU; 256 output channels.

    Args:
        width_in: Input channels.
        cross_config: As for :class:`Attention`.
    """

    def __init__(self, width_in: int, cross_config: bool):
        super().__init__()
        width = WIDTH if cross_config else 2 * WIDTH
        self.linear, self.attention = nn.Linear(width_in, width), Attention(width, cross_config)
        nn.init.xavier_normal_(self.linear.weight)
        nn.init.constant_(self.linear.bias, 0.01)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(C, N, D_in)`` to ``(C, N, 256)``."""
        return functional.gelu(self.attention(instance_norm(self.linear(x))))


class SageBlock(nn.Module):
    """Instance norm, GraphSAGE (mean, root weight; arXiv 1706.02216), attention, shortcut, GELU, dropout."""

    def __init__(self, cross_config: bool):
        super().__init__()
        width = WIDTH if cross_config else 2 * WIDTH
        from torch_geometric.nn import SAGEConv  # takes seconds

        self.conv, self.attention = SAGEConv(2 * WIDTH, width), Attention(width, cross_config)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Map ``(C, N, 256)`` to ``(C, N, 256)``."""
        y = self.conv(instance_norm(x).flatten(0, 1), adjacency).unflatten(0, x.shape[:2])
        return functional.dropout(functional.gelu(x + self.attention(y)), 0.2, self.training)


class WinnerNetwork(nn.Module):
    """Predict configurations; a lower prediction is a faster configuration.

    Args:
        cross_config: With cross-config attention, as on the default collections.
    """

    def __init__(self, cross_config: bool):
        super().__init__()
        self.layout, self.opcode = nn.Embedding(8, 4), nn.Embedding(120, 16)
        input_width = node_columns.LAYOUT.start + (6 + 18) * 4 + 16
        self.first, self.second = (LinearBlock(w, cross_config) for w in (input_width, 2 * WIDTH))
        self.blocks = nn.ModuleList(SageBlock(cross_config) for _ in range(2))
        self.head = nn.Linear(256, 1)

    def forward(self, batch: WinnerBatch) -> Tensor:
        """Map a batch to predictions, ``(C,)``."""
        node = [batch.numeric, self.layout(batch.node_layout).flatten(1), self.opcode(batch.opcode)]
        node = torch.cat(node, 1).expand(len(batch.layout), -1, -1)
        x = self.second(self.first(torch.cat([node, self.layout(batch.layout).flatten(2)], 2)))
        for block in self.blocks:
            x = block(x, batch.adjacency)
        return self.head(x.mean(1)).squeeze(1).float()
