"""Message passing on deduplicated states: each module maps the states of a level to the next level's.

Values and gradients equal the results of the dense forms on all (node, configuration) pairs, in
``tests/helpers/dense_convolutions.py``. Where a form sums instead of averaging, or weighs by degree, the mean
operators of ``LevelTensors`` are scaled by the degrees of the nodes: no form needs matrices of its own.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastslow.networks.model.graph_batch import LevelTensors
from fastslow.networks.model.layers import SageConv, neighbour_sums
from fastslow.networks.settings.architecture import Architecture


class GcnConv(nn.Module):
    r"""Apply a graph convolution with symmetric normalisation (Kipf and Welling, arXiv 1609.02907).

    .. math:: y = D^{-1/2} (A + A^T + I) D^{-1/2} x W^T + b

    with D the row sums of the bracket: neighbours in both directions alike. TpuGraphs' layout baseline
    normalises so by default.

    Deduplication costs nothing: degrees belong to nodes, so all states of a node have the same.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.

    Shapes:
        - **input:** states :math:`(S_{below}, D_{in})` of the level below
        - **output:** states :math:`(S, D_{out})` of the level
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, level: LevelTensors, below: LevelTensors) -> Tensor:
        """Return the states of ``level`` from the states of the level ``below``."""
        scale, own_scale = (
            torch.rsqrt(each.degrees.sum(1, keepdim=True) + 1)[each.node_ids] for each in (below, level)
        )
        z = functional.linear(x, self.linear.weight) * scale
        from_operands, from_users = neighbour_sums(z, z, level)
        return (z[level.own] + from_operands + from_users) * own_scale + self.linear.bias


class MlpGcnConv(nn.Module):
    r"""Apply the convolution of TpuGraphs' ResGCN (tpu_graphs/baselines/tiles; arXiv 2308.13490).

    .. math::
        u &= \operatorname{leaky}_s(x), \quad M = \operatorname{rownorm}(A^T + I) \\
        y &= \operatorname{MLP}(M u + M^T u + u) \quad \text{or, directed,} \quad
             \operatorname{MLP}_1(M u) + \operatorname{MLP}_2(M^T u) + \operatorname{MLP}_3(u)

    with :math:`A^T` the sum over users, and MLP two linear layers with a leaky ReLU between, of slope s too.
    The block around it adds the residual.

    Deduplication costs nothing: the perceptrons run once per state.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        directed: Whether each term has a perceptron of its own.
        slope: Slope s of the leaky ReLUs for negative numbers: PyTorch's default; the baseline uses 0.2.

    Shapes:
        - **input:** states :math:`(S_{below}, D_{in})` of the level below
        - **output:** states :math:`(S, D_{out})` of the level
    """

    def __init__(self, in_channels: int, out_channels: int, directed: bool = False, slope: float = 0.01):
        super().__init__()
        self.slope = slope
        self.mlps = nn.ModuleList(
            nn.Sequential(
                nn.Linear(in_channels, out_channels),
                nn.LeakyReLU(slope),
                nn.Linear(out_channels, out_channels),
            )
            for _ in range(3 if directed else 1)
        )

    def forward(self, x: Tensor, level: LevelTensors, below: LevelTensors) -> Tensor:
        """Return the states of ``level`` from the states of the level ``below``."""
        u = functional.leaky_relu(x, self.slope)
        own = u[level.own]
        share, own_share = (1 / (each.degrees[:, 1:] + 1)[each.node_ids] for each in (below, level))
        from_operands, from_users = neighbour_sums(u * share, u, level)
        terms = (from_users + own) * own_share, from_operands + own * own_share, own
        if len(self.mlps) == 1:
            return self.mlps[0](sum(terms))
        return sum(mlp(term) for mlp, term in zip(self.mlps, terms, strict=True))


class LinearAttention(nn.Module):
    r"""Let every node attend to all nodes of the graph, in linear time (arXiv 2006.16236).

    .. math:: y_n = \frac{\phi(q_n) \sum_m \phi(k_m) v_m^T}{\phi(q_n) \cdot \sum_m \phi(k_m)},
              \quad \phi = \operatorname{elu} + 1, \quad [q, k, v] = W x

    Deduplication is lost: each node sees the whole graph, so from the first such layer on every node has a
    state for every distinct configuration, N x C of them, and the blocks above run on all pairs. The network
    needs the memory and time of a dense one; lower ``configs_together`` and ``configs_per_step`` for large
    graphs. A tile kernel, which no configuration changes, keeps one state per node.

    Args:
        channels: Channels D of x, of keys and of y.

    Shapes:
        - **input:** states :math:`(S_{below}, D)` of the level below
        - **output:** states :math:`(S, D)` of the level, S = N x C
    """

    def __init__(self, channels: int):
        super().__init__()
        self.query = nn.Linear(channels, channels, bias=False)
        self.key = nn.Linear(channels, channels, bias=False)
        self.value = nn.Linear(channels, channels, bias=False)

    def forward(self, x: Tensor, level: LevelTensors, below: LevelTensors) -> Tensor:
        """Return the states of ``level`` from the states of the level ``below``."""
        # states are sorted by node and each node has one per distinct configuration
        pairs = level.own.view(level.num_nodes, -1)
        query, key = (functional.elu(linear(x).float()) + 1 for linear in (self.query, self.key))
        key, value = key[pairs], self.value(x).float()[pairs]
        memory = torch.einsum("nck,ncd->ckd", key, value)
        query = query[pairs]
        total = torch.einsum("nck,ck->nc", query, key.sum(0))
        return (torch.einsum("nck,ckd->ncd", query, memory) / total[:, :, None]).flatten(0, 1)


class GpsConv(nn.Module):
    r"""Apply a convolution and linear attention side by side (GPS, arXiv 2205.12454; 3rd and 10th place).

    .. math:: y = \operatorname{SiLU}(W [\operatorname{conv}(x), \operatorname{attention}(x)] + b)

    The 3rd place's attention has no denominator. Cost: see :class:`LinearAttention`.

    Args:
        conv: The local part.
        channels: Channels D of x and y.

    Shapes:
        - **input:** states :math:`(S_{below}, D)` of the level below
        - **output:** states :math:`(S, D)` of the level
    """

    def __init__(self, conv: nn.Module, channels: int):
        super().__init__()
        self.conv = conv
        self.attention = LinearAttention(channels)
        self.join = nn.Linear(2 * channels, channels)

    def forward(self, x: Tensor, level: LevelTensors, below: LevelTensors) -> Tensor:
        """Return the states of ``level`` from the states of the level ``below``."""
        both = torch.cat([self.conv(x, level, below), self.attention(x, level, below)], 1)
        return functional.silu(self.join(both))


CONVOLUTIONS: dict[str, Callable[..., nn.Module]] = {
    "sage": SageConv,
    "sage_sum": partial(SageConv, aggregation="sum"),
    "sage_max": partial(SageConv, aggregation="max"),
    "gcn": GcnConv,
    "mlp_gcn": MlpGcnConv,
    "mlp_gcn_directed": partial(MlpGcnConv, directed=True),
}
"""The registry: convolutions by name, each made from the channels of its input and output."""


def make_convolution(architecture: Architecture) -> nn.Module:
    """Return the message passing of one block: ``conv(x, level, below)``, (S_below, D) to (S, D)."""
    channels = architecture.hidden_channels
    conv = plain_convolution(architecture, channels)
    return GpsConv(conv, channels) if architecture.node_attention == "linear" else conv


def plain_convolution(architecture: Architecture, in_channels: int, **details) -> nn.Module:
    """Return the convolution without norm and activation, from ``in_channels`` to the channels of a layer.

    ``details`` are arguments of the convolution that the name leaves open.
    """
    return CONVOLUTIONS[architecture.convolution](in_channels, architecture.hidden_channels, **details)
