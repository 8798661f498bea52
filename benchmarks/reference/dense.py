"""Our network computed densely, every (node, configuration) pair separately, in plain torch.

Parameters and row-wise layers are shared with the network. Layers that see more than one pair (messages,
pooling, norm, cross-config attention) are implemented independently over (N, C, D), without deduplicated
states. A comparison shows the saving of deduplication, and that no prediction and no gradient changes.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from fastslow.networks.model.graph_batch import Batch, PreparedGraph
from fastslow.networks.model.layers import CrossConfigAttention, Readout, WeightedInstanceNorm
from fastslow.networks.predict.dataset import GraphDataset
from fastslow.networks.states.set_statistics import Complete, Moments, as_is
from fastslow.networks.states.sparse import SparseOperator, move


class DenseNorm(WeightedInstanceNorm):
    """Normalise each channel to mean 0 and variance 1 over all pairs.

    Not torch's fused batch norm, whose float32 sums lose precision over half a million rows.
    """

    def moments(self, x: Tensor, level: "DenseLevel") -> Moments:
        """Return the moments of ``(N * C, D)`` over rows, unweighted."""
        mean = x.mean(0)
        return Moments(level.num_configs, mean, (x - mean).square().mean(0))


class DenseCrossConfigAttention(CrossConfigAttention):
    """Compute ``x * C * softmax(x / T)`` over the configurations, which must be in one batch."""

    def forward(self, x: Tensor, level: "DenseLevel", complete: Complete = as_is) -> Tensor:
        """Map ``(N * C, D)`` to ``(N * C, D)``."""
        pairs = x.unflatten(0, (-1, level.num_configs))
        weight = torch.softmax(pairs.float() / self.temperature, 1)
        return (pairs * weight * level.num_configs).flatten(0, 1)


class DenseReadout(Readout):
    """Sum over nodes."""

    def sum_nodes(self, x: Tensor, pooling: SparseOperator, level: "DenseLevel") -> Tensor:
        """Map ``(N * C, D)`` to ``(C, D)``; the operator is not needed."""
        return x.unflatten(0, (-1, level.num_configs)).sum(0, dtype=torch.float64)


_DENSE_LAYERS = {
    WeightedInstanceNorm: DenseNorm,
    CrossConfigAttention: DenseCrossConfigAttention,
    Readout: DenseReadout,
}


def make_dense(network: nn.Module) -> nn.Module:
    """Turn a network into its dense form, in place, with the same parameters."""
    for module in network.modules():
        if type(module) in _DENSE_LAYERS:
            module.__class__ = _DENSE_LAYERS[type(module)]
    return network


@dataclass(frozen=True)
class _NeighbourMean:
    """Mean over a node's neighbours, the same for every configuration."""

    adjacency: SparseOperator

    def to(self, device: torch.device) -> "_NeighbourMean":
        return _NeighbourMean(self.adjacency.to(device))

    def __matmul__(self, x: Tensor) -> Tensor:
        """Map ``(N * C, D)`` to ``(N * C, D)``."""
        num_nodes = self.adjacency.shape[0]
        return (self.adjacency @ x.reshape(num_nodes, -1)).view(len(x), -1)


@dataclass(frozen=True)
class DenseLevel:
    """The states of one level if every (node, configuration) pair is a state; rows are sorted by node.

    Args:
        num_nodes: N, number of nodes.
        num_configs: C, number of configurations.
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
    def itself(self) -> slice:
        """Return the row of each pair one level below: the same."""
        return slice(None)

    def to(self, device: torch.device) -> "DenseLevel":
        """Return the level on a device."""
        operands, users = self.operands.to(device), self.users.to(device)
        return replace(self, node_ids=move(self.node_ids, device), operands=operands, users=users)


class DenseGraphInputs(PreparedGraph):
    """A graph that makes dense batches."""

    @cached_property
    def neighbour_means(self) -> tuple[_NeighbourMean, _NeighbourMean]:
        """Return the means over operands and over users, which do not depend on the configurations."""
        ones = np.ones(len(self.edge_index))
        shape = (self.graph.num_nodes, self.graph.num_nodes)
        operands = sparse.csr_matrix((ones, tuple(self.edge_index.T)), shape)
        means = (_row_normalised(matrix) for matrix in (operands, operands.T.tocsr()))
        return tuple(_NeighbourMean(SparseOperator(mean)) for mean in means)

    def batch(self, configs: np.ndarray, num_layers: int, edges: None = None) -> Batch:
        """Return the graph under some of its configurations, with all edges, a row per pair.

        The inputs of a pair are the inputs of its state of level 0.
        """
        states = super().batch(configs, 0)
        pairs = torch.from_numpy(self._pairs(configs).T.ravel())
        num_configs = len(configs)
        node_ids = torch.arange(self.graph.num_nodes).repeat_interleave(num_configs)
        level = DenseLevel(self.graph.num_nodes, num_configs, node_ids, *self.neighbour_means)
        return replace(
            states,
            **{
                name: value[pairs]
                for name, value in vars(states).items()
                if name.startswith("state_") and value is not None
            },
            levels=[level] * (num_layers + 1),
        )

    def _pairs(self, configs: np.ndarray) -> np.ndarray:
        """Return the state of level 0 of every pair, ``(C, N)``."""
        level = self.states(configs, 0)[0]
        return level.state(np.arange(self.graph.num_nodes), np.arange(len(configs))[:, None])


def _row_normalised(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    degree = np.asarray(matrix.sum(1)).ravel()
    return sparse.csr_matrix(sparse.diags(1 / np.maximum(degree, 1)) @ matrix)


class DenseInputs(GraphDataset):
    """The graphs of a features folder, for dense batches."""

    def graph(self, split: str, name: str) -> DenseGraphInputs:
        """Return the scaled graph."""
        inputs = super().graph(split, name)
        inputs.__class__ = DenseGraphInputs
        return inputs
