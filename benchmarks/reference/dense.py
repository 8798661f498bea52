"""Our network computed densely: every (node, configuration) pair on its own, in plain torch.

The parameters and the row-wise layers are the network's own. What looks at more than one pair is written
anew over (N, C, D), without states: messages, pooling, norm and cross-config attention. So it shows what
states save and that they change nothing.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from fastslow.networks.dataset import GraphDataset
from fastslow.networks.graph_batch import Batch, PreparedGraph
from fastslow.networks.layers import CrossConfigAttention, NodeSum, WeightedInstanceNorm
from fastslow.networks.set_statistics import Complete, Moments, as_is
from fastslow.networks.sparse import SparseOperator, move


class DenseNorm(WeightedInstanceNorm):
    """Each channel to mean 0 and variance 1 over all pairs.

    Not torch's fused batch norm: over half a million rows its float32 sums are off by up to 0.1.
    """

    def moments(self, x: Tensor, level: "DenseLevel") -> Moments:
        """Of ``(N * C, D)``; there is nothing to weight."""
        mean = x.mean(0)
        return Moments(level.num_configs, mean, (x - mean).square().mean(0))


class DenseCrossConfigAttention(CrossConfigAttention):
    """``x * C * softmax(x / T)`` over the configurations, which must be in one batch."""

    def forward(self, x: Tensor, level: "DenseLevel", complete: Complete = as_is) -> Tensor:
        """``(N * C, D)`` to the same."""
        pairs = x.unflatten(0, (-1, level.num_configs))
        weight = torch.softmax(pairs.float() / self.temperature, 1)
        return (pairs * weight * level.num_configs).flatten(0, 1)


class DenseNodeSum(NodeSum):
    """The sum over nodes."""

    def forward(self, x: Tensor, pooling: SparseOperator, level: "DenseLevel") -> Tensor:
        """``(N * C, D)`` to ``(C, D)``; the pairs need no operator."""
        return x.unflatten(0, (-1, level.num_configs)).sum(0, dtype=torch.float64)


_DENSE_LAYERS = {
    WeightedInstanceNorm: DenseNorm,
    CrossConfigAttention: DenseCrossConfigAttention,
    NodeSum: DenseNodeSum,
}


def make_dense(network: nn.Module) -> nn.Module:
    """Turn a network into its dense form, for dense batches, with the same parameters."""
    for module in network.modules():
        if type(module) in _DENSE_LAYERS:
            module.__class__ = _DENSE_LAYERS[type(module)]
    return network


@dataclass(frozen=True)
class _NeighbourMean:
    """Mean over a node's neighbours, the same for every configuration: rows of C * D values."""

    adjacency: SparseOperator

    def to(self, device: torch.device) -> "_NeighbourMean":
        return _NeighbourMean(self.adjacency.to(device))

    def __matmul__(self, x: Tensor) -> Tensor:
        """``(N * C, D)`` to the same."""
        num_nodes = self.adjacency.shape[0]
        return (self.adjacency @ x.reshape(num_nodes, -1)).view(len(x), -1)


@dataclass(frozen=True)
class DenseLevel:
    """Stands for the states of one level where every pair is its own; rows are sorted by node.

    Args:
        num_nodes: N.
        num_configs: C.
        node_ids: ``(N * C,)`` node of each row.
        operands: Mean over operands.
        users: Mean over users.
    """

    num_nodes: int
    num_configs: int
    node_ids: Tensor
    operands: _NeighbourMean
    users: _NeighbourMean

    @property
    def own(self) -> slice:
        """A row's place one level below is its own."""
        return slice(None)

    def to(self, device: torch.device) -> "DenseLevel":
        """The level on a device."""
        operands, users = self.operands.to(device), self.users.to(device)
        return replace(self, node_ids=move(self.node_ids, device), operands=operands, users=users)


class DenseGraphInputs(PreparedGraph):
    """A graph that gives dense batches."""

    @cached_property
    def neighbour_means(self) -> tuple[_NeighbourMean, _NeighbourMean]:
        """Over operands and over users; they do not depend on the configurations."""
        ones = np.ones(len(self.edge_index))
        shape = (self.graph.num_nodes, self.graph.num_nodes)
        operands = sparse.csr_matrix((ones, tuple(self.edge_index.T)), shape)
        means = (_row_normalised(matrix) for matrix in (operands, operands.T.tocsr()))
        return tuple(_NeighbourMean(SparseOperator(mean)) for mean in means)

    def batch(self, configs: np.ndarray, num_layers: int) -> Batch:
        """The graph under some of its configurations, a row for each (node, configuration).

        What a pair brings to the network is the batch's own, by its state of level 0.
        """
        own, pairs = super().batch(configs, 0), torch.from_numpy(self._pairs(configs).T.ravel())
        num_configs = len(configs)
        node_ids = torch.arange(self.graph.num_nodes).repeat_interleave(num_configs)
        level = DenseLevel(self.graph.num_nodes, num_configs, node_ids, *self.neighbour_means)
        return replace(
            own,
            **{name: value[pairs] for name, value in vars(own).items() if name.startswith("state_")},
            levels=[level] * (num_layers + 1),
        )

    def _pairs(self, configs: np.ndarray) -> np.ndarray:
        """``(C, N)`` state of level 0 of every pair."""
        states = self.states(configs, 0)
        node_ids, varying = states.levels[0].node_ids, states.pooling.tocoo()
        pairs = np.empty((len(configs), self.graph.num_nodes), np.int64)
        constant = np.arange(len(node_ids) - states.num_constant, len(node_ids))
        pairs[:, node_ids[constant]] = constant
        pairs[varying.row, node_ids[varying.col]] = varying.col
        return pairs


def _row_normalised(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    degree = np.asarray(matrix.sum(1)).ravel()
    return sparse.csr_matrix(sparse.diags(1 / np.maximum(degree, 1)) @ matrix)


class DenseInputs(GraphDataset):
    """The graphs of a features folder for dense batches."""

    def graph(self, split: str, name: str) -> DenseGraphInputs:
        """The scaled graph."""
        inputs = super().graph(split, name)
        inputs.__class__ = DenseGraphInputs
        return inputs
