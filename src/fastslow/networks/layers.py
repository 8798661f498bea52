"""Layers of the networks, computed on states (see ``states.py``) with their multiplicities.

Each layer equals its dense form on the (node, configuration) pairs; ``tests/dense_reference.py`` holds
the dense forms and the tests compare values and gradients.

Norm and cross-config attention look at the whole configuration set, through a statistic of it (see
``set_statistics.py``).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fastslow.networks.set_statistics import Complete, Moments, SoftmaxMean, as_is
from fastslow.networks.sparse import SparseOperator, moved_fields


@dataclass(frozen=True)
class LevelTensors:
    """One level of states as tensors.

    Args:
        num_nodes: N.
        num_configs: C.
        node_ids: ``(S,)`` node of each state.
        share: ``(S, 1)`` share of the graph's (node, configuration) pairs that are in the state; sums to 1.
        per_node: ``(N, S)`` operator that sums a node's states weighted by multiplicity over C.
        own: ``(S,)`` the node's state one level below.
        operands: ``(S, S_below)`` mean over operand states; none at level 0.
        users: ``(S, S_below)`` mean over user states; none at level 0.
    """

    num_nodes: int
    num_configs: int
    node_ids: Tensor
    share: Tensor
    per_node: SparseOperator
    own: Tensor
    operands: SparseOperator | None
    users: SparseOperator | None

    def to(self, device: torch.device) -> "LevelTensors":
        """The level on a device."""
        return replace(self, **moved_fields(self, device))


class WeightedInstanceNorm(nn.Module):
    r"""Normalises each channel over all (node, configuration) pairs of the graph.

    .. math:: y = (x - \mu) / \sqrt{\sigma^2 + \epsilon} \cdot \gamma + \beta

    with mean and variance weighted by how many pairs share a state, so they equal those of the dense form.

    Args:
        width: Channels D.
        eps: Added to the variance.
    """

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def moments(self, x: Tensor, level: LevelTensors) -> Moments:
        """Moments of ``x`` (S, D) over the pairs of a level."""
        mean = (level.share * x).sum(0)
        return Moments(level.num_configs, mean, (level.share * (x - mean).square()).sum(0))

    def forward(self, x: Tensor, level: LevelTensors, complete: Complete = as_is) -> Tensor:
        """``x`` (S, D), the states of a level, to (S, D)."""
        _, mean, variance = complete(self.moments(x, level))
        return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias


class SageConv(nn.Module):
    r"""GraphSAGE (Hamilton et al. 2017) with separate weights for operands and users.

    .. math:: y_n = W x_n + W_o \operatorname{mean}_{m \in operands(n)} x_m
              + W_u \operatorname{mean}_{m \in users(n)} x_m

    A node without neighbours on a side gets 0 from it.

    Args:
        width_in: Channels of x.
        width_out: Channels of y.
    """

    def __init__(self, width_in: int, width_out: int):
        super().__init__()
        self.own = nn.Linear(width_in, width_out)
        self.operands = nn.Linear(width_in, width_out, bias=False)
        self.users = nn.Linear(width_in, width_out, bias=False)

    def forward(self, x: Tensor, level: LevelTensors) -> Tensor:
        """``x`` (S_below, D_in) to (S, D_out)."""
        # project first: the states below are fewer than those above, and so are the rows to multiply
        return self.own(x)[level.own] + level.operands @ self.operands(x) + level.users @ self.users(x)


class ChannelAttention(nn.Module):
    r"""Squeeze-and-excite per row: :math:`x \cdot \sigma(W_2 \operatorname{relu}(W_1 x))` (1st place).

    Args:
        width: Channels D.
        reduction: How many times narrower the inner layer is.
    """

    def __init__(self, width: int, reduction: int = 8):
        super().__init__()
        inner = max(1, width // reduction)
        self.gate = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        """(S, D) to (S, D)."""
        return x * self.gate(x)


class CrossConfigAttention(nn.Module):
    r"""Lets a node compare its configurations (1st place of the competition).

    .. math:: \operatorname{cross}(x)_{n,c} = x_{n,c} \cdot C \cdot
              \frac{\exp(x_{n,c} / T)}{\sum_{c'} \exp(x_{n,c'} / T)}

    element-wise per node n and channel, over the C configurations of the set; T is one learned scalar,
    0.5 at the start. Over states the sum is weighted by multiplicity. The published form has no factor C;
    with it the size of the result does not depend on how many configurations are compared, and a node
    that no configuration changes passes through unchanged.
    """

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor, level: LevelTensors, complete: Complete = as_is) -> Tensor:
        """``x`` (S, D), the states of a level, to (S, D)."""
        logits = x.float() / self.temperature
        with torch.no_grad():
            index = level.node_ids[:, None].expand_as(logits)
            top = logits.new_full((level.num_nodes, x.shape[1]), -torch.inf)
            top.scatter_reduce_(0, index, logits, "amax")
        weight = (logits - top[level.node_ids]).exp()
        whole = complete(SoftmaxMean(level.num_configs, top, level.per_node @ weight))
        scale = (top - whole.top).exp() / whole.mean
        return x * (weight * scale[level.node_ids])


class NodeSum(nn.Module):
    r"""Sums a graph's nodes for every configuration.

    .. math:: y_c = \sum_n \bar x_n + \sum_n (x_{n,c} - \bar x_n)

    with :math:`\bar x_n` the mean of node n over the configurations. What all configurations share is summed
    apart: configurations of a large graph differ by less than float32 resolves in one sum over it.
    """

    def forward(self, x: Tensor, pooling: SparseOperator, level: LevelTensors) -> Tensor:
        """``x`` (S, D) to (C, D) float64: in float32 what all share would round away what differs.

        Args:
            x: The states of a level.
            pooling: (C, S) operator that sums the varying states of each configuration.
            level: The level.
        """
        mean = level.per_node @ x
        varying = pooling @ (x - mean[level.node_ids])
        return mean.sum(0, dtype=torch.float64) + varying
