"""Layers of the network, computed on deduplicated states (``config_states.py``) weighted by multiplicity.

Each layer equals its dense form on all (node, configuration) pairs: ``tests/helpers/dense_reference.py``
holds the dense forms, and ``tests/networks/test_model.py`` compares values and gradients. Other message
passing than GraphSAGE is in ``convolutions.py``.

S is the number of states of a level, N of nodes, C of configurations, D of channels. Norm and cross-config
attention compare the configurations of the whole set through a statistic of it (``set_statistics.py``).
"""

import torch
from torch import Tensor, nn

from fastslow.networks.model.graph_batch import LevelTensors
from fastslow.networks.states.set_statistics import Complete, Moments, SoftmaxMean, as_is
from fastslow.networks.states.sparse import SparseOperator


class WeightedInstanceNorm(nn.Module):
    r"""Apply instance normalisation (arXiv 1607.08022) over all (node, configuration) pairs of a graph.

    .. math:: y = (x - \mu) / \sqrt{\sigma^2 + \epsilon} \cdot \gamma + \beta

    Mean and variance weigh each state by the number of pairs that share it, so they equal the dense form's.
    :math:`\gamma` and :math:`\beta` are learned.

    Args:
        channels: Channels D.
        eps: Added to the variance.

    Shapes:
        - **input:** states :math:`(S, D)` of a level
        - **output:** :math:`(S, D)`
    """

    def __init__(self, channels: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def moments(self, x: Tensor, level: LevelTensors) -> Moments:
        """Return mean and variance of ``x`` (S, D) over the pairs of a level."""
        mean = (level.share * x).sum(0)
        return Moments(level.num_configs, mean, (level.share * (x - mean).square()).sum(0))

    def forward(self, x: Tensor, level: LevelTensors, complete: Complete = as_is) -> Tensor:
        """Return the normalised ``x``."""
        _, mean, variance = complete(self.moments(x, level))
        return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias


class SageConv(nn.Module):
    r"""Apply GraphSAGE (arXiv 1706.02216), with weights of its own per edge direction.

    .. math:: y_n = W x_n + b + \operatorname{agg}_{m \in operands(n)} W_o x_m
              + \operatorname{agg}_{m \in users(n)} W_u x_m

    with agg the mean or the sum. A node without neighbours in a direction receives 0 from it. TpuGraphs' tile
    baseline takes the sum.

    Deduplication is free. Rows are projected before they are aggregated: there are fewer states below.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        aggregation: ``mean`` or ``sum``.

    Shapes:
        - **input:** states :math:`(S_{below}, D_{in})` of the level below
        - **output:** states :math:`(S, D_{out})` of the level
    """

    def __init__(self, in_channels: int, out_channels: int, aggregation: str = "mean"):
        super().__init__()
        self.aggregation = aggregation
        self.own = nn.Linear(in_channels, out_channels)
        self.operands = nn.Linear(in_channels, out_channels, bias=False)
        self.users = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor, level: LevelTensors, below: LevelTensors) -> Tensor:
        """Return the states of ``level`` from the states of the level ``below``."""
        y = self.own(x)[level.itself]
        if self.aggregation == "mean":
            return y + level.operands @ self.operands(x) + level.users @ self.users(x)
        from_operands, from_users = neighbour_sums(self.operands(x), self.users(x), level)
        return y + from_operands + from_users


def neighbour_sums(operands: Tensor, users: Tensor, level: LevelTensors) -> tuple[Tensor, Tensor]:
    """Return the sums of two inputs ``(S_below, D)`` over the operands and over the users of each state."""
    degree = level.degrees[level.node_ids]
    return degree[:, :1] * (level.operands @ operands), degree[:, 1:] * (level.users @ users)


class ChannelAttention(nn.Module):
    r"""Gate each channel (the excitation of squeeze-and-excitation, arXiv 1709.01507, computed per row).

    .. math:: y = x \cdot \sigma(W_2 \operatorname{relu}(W_1 x))

    As in the network of the competition's 1st place (TGraph, arXiv 2405.16623).

    Args:
        channels: Channels D.
        reduction: The inner layer has D / reduction channels.

    Shapes:
        - **input:** :math:`(S, D)`
        - **output:** :math:`(S, D)`
    """

    def __init__(self, channels: int, reduction: int = 8):
        super().__init__()
        inner = max(1, channels // reduction)
        self.gate = nn.Sequential(
            nn.Linear(channels, inner), nn.ReLU(), nn.Linear(inner, channels), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the gated ``x``."""
        return x * self.gate(x)


class CrossConfigAttention(nn.Module):
    r"""Compare the configurations of each node (the competition's 1st place; TGraph, arXiv 2405.16623).

    .. math:: y_{n,c} = x_{n,c} \cdot C \cdot \frac{\exp(x_{n,c} / T)}{\sum_{c'} \exp(x_{n,c'} / T)}

    element-wise per node n and channel, over the C configurations of the set; the temperature T is one
    learned scalar, 0.5 at the start. Over states the sum is weighted by multiplicity. The published form has
    no factor C; with it the magnitude does not depend on the number of configurations, and a node that no
    configuration changes passes through unchanged.

    Shapes:
        - **input:** states :math:`(S, D)` of a level
        - **output:** :math:`(S, D)`
    """

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor, level: LevelTensors, complete: Complete = as_is) -> Tensor:
        """Return ``x`` weighted by its softmax over configurations."""
        logits = x.float() / self.temperature
        with torch.no_grad():  # the largest logit cancels out; it only prevents overflow
            index = level.node_ids[:, None].expand_as(logits)
            top = logits.new_full((level.num_nodes, x.shape[1]), -torch.inf)
            top.scatter_reduce_(0, index, logits, "amax")
        weight = (logits - top[level.node_ids]).exp()
        whole = complete(SoftmaxMean(level.num_configs, top, level.per_node @ weight))
        scale = (top - whole.top).exp() / whole.mean
        return x * (weight * scale[level.node_ids])


class NodeSum(nn.Module):
    r"""Sum the nodes of a graph for each configuration (sum pooling).

    .. math:: y_c = \sum_n \bar x_n + \sum_n (x_{n,c} - \bar x_n)

    with :math:`\bar x_n` the mean of node n over the configurations. This shared part is summed in float64:
    configurations of a large graph differ by less than float32 resolves.

    Shapes:
        - **input:** states :math:`(S, D)` of a level
        - **output:** :math:`(C, D)`, float64
    """

    def forward(self, x: Tensor, pooling: SparseOperator, level: LevelTensors) -> Tensor:
        """Return the sum of each configuration.

        Args:
            x: ``(S, D)`` states of a level.
            pooling: ``(C, S)`` operator that sums the states of each configuration over nodes.
            level: The level.
        """
        mean = level.per_node @ x
        varying = pooling @ (x - mean[level.node_ids])
        return mean.sum(0, dtype=torch.float64) + varying
