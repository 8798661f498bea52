"""Message passing on deduplicated states: each module maps the states of a level to the next level's.

Values and gradients equal the results of the dense forms on all (node, configuration) pairs, in
``tests/helpers/dense_convolutions.py``. Where a form sums instead of averaging, or weighs by degree, the mean
operators of ``LevelTensors`` are scaled by the degrees of the nodes: no form needs matrices of its own.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastslow.networks.model.graph_batch import LevelTensors
from fastslow.networks.model.layers import SageConv
from fastslow.networks.states.sparse import take_rows


def neighbour_sums(operands: Tensor, users: Tensor, level: LevelTensors) -> tuple[Tensor, Tensor]:
    """Sum over the neighbours of each state, in each direction of the edges.

    Args:
        operands: ``(S_below, D)`` what a state receives from its operands.
        users: ``(S_below, D)`` what it receives from its users.
        level: The level of the states.

    Returns:
        ``(S, D)`` sums over the operands, and over the users.
    """
    degree = level.degrees[level.node_ids]
    return degree[:, :1] * (level.operands @ operands), degree[:, 1:] * (level.users @ users)


class SageSumConv(SageConv):
    r"""Apply GraphSAGE with the sum over the neighbours, as TpuGraphs' tile baseline does.

    .. math:: y_n = W x_n + b + \sum_{m \in operands(n)} W_o x_m + \sum_{m \in users(n)} W_u x_m
    """

    def forward(self, x: Tensor, level: LevelTensors, below: LevelTensors) -> Tensor:
        """Return the states ``(S, D_out)`` of ``level`` from the states ``(S_below, D_in)`` below it."""
        y = take_rows(self.own(x), level.itself)
        from_operands, from_users = neighbour_sums(self.operands(x), self.users(x), level)
        return y + from_operands + from_users


class GcnConv(nn.Module):
    r"""Apply a graph convolution with symmetric normalisation (Kipf and Welling, arXiv 1609.02907).

    .. math:: y = D^{-1/2} (A + A^T + I) D^{-1/2} x W^T + b

    with D the row sums of the bracket: neighbours in both directions alike. TpuGraphs' layout baseline
    normalises so by default.

    Deduplication costs nothing: degrees belong to nodes, so all states of a node have the same.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, level: LevelTensors, below: LevelTensors) -> Tensor:
        """Return the states ``(S, D_out)`` of ``level`` from the states ``(S_below, D_in)`` below it."""
        scale, own_scale = (
            torch.rsqrt(each.degrees.sum(1, keepdim=True) + 1)[each.node_ids] for each in (below, level)
        )
        z = functional.linear(x, self.linear.weight) * scale
        from_operands, from_users = neighbour_sums(z, z, level)
        return (take_rows(z, level.itself) + from_operands + from_users) * own_scale + self.linear.bias


class MlpGcnConv(nn.Module):
    r"""Apply the convolution of TpuGraphs' ResGCN (tpu_graphs/baselines/tiles; arXiv 2308.13490).

    .. math::
        u &= \operatorname{leaky}_s(x), \quad M = \operatorname{rownorm}(A^T + I) \\
        y &= \operatorname{MLP}(M u + M^T u + u)

    with :math:`A^T` the sum over users, and MLP two linear layers with a leaky ReLU between, of slope s too.
    The block around it adds the residual.

    Deduplication costs nothing: the perceptron runs once per state.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        slope: Slope s of the leaky ReLUs for negative numbers: PyTorch's default; the baseline uses 0.2.
    """

    def __init__(self, in_channels: int, out_channels: int, slope: float = 0.01):
        super().__init__()
        self.slope = slope
        self.mlp = nn.Sequential(
            nn.Linear(in_channels, out_channels), nn.LeakyReLU(slope), nn.Linear(out_channels, out_channels)
        )

    def forward(self, x: Tensor, level: LevelTensors, below: LevelTensors) -> Tensor:
        """Return the states ``(S, D_out)`` of ``level`` from the states ``(S_below, D_in)`` below it."""
        u = functional.leaky_relu(x, self.slope)
        itself = take_rows(u, level.itself)
        share, own_share = (1 / (each.degrees[:, 1:] + 1)[each.node_ids] for each in (below, level))
        from_operands, from_users = neighbour_sums(u * share, u, level)
        return self.mlp((from_users + itself) * own_share + from_operands + itself * own_share + itself)


CONVOLUTIONS: dict[str, Callable[..., nn.Module]] = {
    "sage": SageConv,
    "sage_sum": SageSumConv,
    "gcn": GcnConv,
    "mlp_gcn": MlpGcnConv,
}
"""The registry: convolutions by name, each made from the channels of its input and output."""
