"""Readout: from the states of the last level to one prediction per configuration; lower is faster."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastslow.networks.model.graph_batch import LevelTensors
from fastslow.networks.model.readout import Readout
from fastslow.networks.settings.architecture import Architecture
from fastslow.networks.states.set_statistics import Complete, Moments, as_is
from fastslow.networks.states.sparse import SparseOperator


class ConfigNorm(nn.Module):
    r"""Standardise each channel over the configurations of a graph (batch norm's formula, arXiv 1502.03167).

    .. math:: y = (x - \mu) / \sqrt{\sigma^2 + \epsilon}

    with mean and variance over the graph's own configurations, in training and at inference alike. Only the
    order within a graph is evaluated, so differences between configurations become comparable across programs
    of any size. A channel in which the configurations do not differ becomes 0.

    Shapes:
        - **input:** :math:`(C, D)`
        - **output:** :math:`(C, D)`
    """

    def __init__(self, eps: float = 1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor, complete: Complete = as_is) -> Tensor:
        """Return the standardised ``x``."""
        mean = x.mean(0)
        _, mean, variance = complete(Moments(len(x), mean, (x - mean).square().mean(0)))
        return (x - mean) * torch.rsqrt(variance + self.eps)


class Float64Linear(nn.Linear):
    """Apply a linear layer in float64, also under autocast; its parameters are float32.

    Its input comes from sums over all nodes of a graph, in which configurations differ by less than float32
    resolves.

    Shapes:
        - **input:** :math:`(*, D_{in})`
        - **output:** :math:`(*, D_{out})`, float64
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the product in float64."""
        return functional.linear(x.double(), self.weight.double(), self.bias.double())


class Head(nn.Module):
    r"""Pool the nodes of each configuration, join its own features, and apply a perceptron.

    .. math::
        z_c &= [\operatorname{pool}_n x_{n,c}, f_c] \\
        s_c &= \operatorname{MLP}([z_c, \operatorname{ConfigNorm}(z)_c])

    The pooling is by default the sum (``readout.py``). The features f of a configuration as a whole
    (violation ratios, copies, tile bounds) join after it, as in the report that introduced the violation
    ratio.

    Args:
        channels: Channels D of the states.
        config_channels: Columns V of the scaled configuration features; 0: none join here.
        architecture: Settings of the layers.

    Attributes:
        joined_channels: Channels J of the pooled nodes and the features together.

    Shapes:
        - **input:** states :math:`(S, D)` of the last level, configuration features :math:`(C, V)`
        - **output:** predictions :math:`(C,)`, float32
    """

    def __init__(self, channels: int, config_channels: int, architecture: Architecture):
        super().__init__()
        self.readout = Readout(architecture.readout, channels)
        self.joins = config_channels > 0
        self.joined_channels = self.readout.channels + config_channels
        self.norm = ConfigNorm()
        self.mlp = self.perceptron(architecture)

    def perceptron(self, architecture: Architecture) -> nn.Sequential:
        """Return the layers that :meth:`read_out` applies."""
        width = architecture.hidden_channels
        return nn.Sequential(
            Float64Linear(2 * self.joined_channels, 2 * width),
            nn.GELU(),
            nn.Dropout(architecture.dropout),
            Float64Linear(2 * width, width),
            nn.GELU(),
            Float64Linear(width, 1),
        )

    def forward(
        self,
        x: Tensor,
        pooling: SparseOperator,
        level: LevelTensors,
        config_feat: Tensor,
        configurable: Tensor,
        complete: Complete = as_is,
    ) -> Tensor:
        """Return a prediction per configuration.

        Args:
            x: ``(S, D)`` states of the last level.
            pooling: ``(C, S)`` sum over the states of each configuration.
            level: The last level.
            config_feat: ``(C, V)`` scaled configuration features.
            configurable: ``(N,)`` bool.
            complete: Returns a statistic of the whole configuration set.
        """
        # where no configuration changes a node (tile) there is one for all
        pooled = self.readout(x, pooling, level, configurable).expand(len(config_feat), -1)
        return self.read_out(self.join(pooled, config_feat), complete)

    def join(self, pooled: Tensor, config_feat: Tensor) -> Tensor:
        """Return the pooled nodes ``(C, P D)`` and the features ``(C, V)`` of each configuration, joined."""
        return torch.cat([pooled, config_feat], 1) if self.joins else pooled  # float64 like the sums

    def read_out(self, joined: Tensor, complete: Complete) -> Tensor:
        """Return a prediction per configuration ``(C,)`` from what is joined, ``(C, J)`` float64."""
        both = torch.cat([joined, self.norm(joined, complete)], 1)
        return self.mlp(both).squeeze(1).float()
