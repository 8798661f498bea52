"""From the states of the last level to a score for each configuration; a lower score is faster."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastslow.networks.layers import LevelTensors, NodeSum
from fastslow.networks.set_statistics import Complete, Moments, as_is
from fastslow.networks.sparse import SparseOperator


class ConfigNorm(nn.Module):
    r"""Standardises each channel over the configurations of a graph.

    .. math:: y = (x - \mu) / \sqrt{\sigma^2 + \epsilon}

    Only the order within a graph is asked for: what a configuration adds to its graph compares so across
    programs of any size. A channel in which the configurations do not differ becomes 0.

    Args:
        eps: Added to the variance.
    """

    def __init__(self, eps: float = 1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor, complete: Complete = as_is) -> Tensor:
        """(C, D) to (C, D)."""
        mean = x.mean(0)
        _, mean, variance = complete(Moments(len(x), mean, (x - mean).square().mean(0)))
        return (x - mean) * torch.rsqrt(variance + self.eps)


class Float64Linear(nn.Linear):
    """A linear layer that is computed in float64, also under autocast; its parameters are float32.

    What it is given comes from sums over the nodes of a graph: beside what all configurations share, float32
    rounds away what they differ by.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features) float64."""
        return functional.linear(x.double(), self.weight.double(), self.bias.double())


class Head(nn.Module):
    """Sums the nodes of a configuration, joins its own features, and scores both together.

    The features of the configuration as a whole (violation ratios, copies, tile bounds) join here, as in the
    report that introduced the violation ratio. Everything is given twice, as it is and standardised over the
    configurations.

    Args:
        width: Channels D.
        config_width: V, columns of the scaled configuration features.
        dropout: Share of channels dropped in training.
    """

    def __init__(self, width: int, config_width: int, dropout: float):
        super().__init__()
        self.sum_nodes = NodeSum()
        self.norm = ConfigNorm()
        self.score = nn.Sequential(
            Float64Linear(2 * (width + config_width), 2 * width),
            nn.GELU(),
            nn.Dropout(dropout),
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
        complete: Complete = as_is,
    ) -> Tensor:
        """States (S, D) and ``config_feat`` (C, V) to (C,)."""
        # where no configuration changes a node there is one sum for all
        pooled = self.sum_nodes(x, pooling, level).expand(len(config_feat), -1)
        joined = torch.cat([pooled, config_feat], 1)  # float64 like the sums
        both = torch.cat([joined, self.norm(joined, complete)], 1)
        return self.score(both).squeeze(1).float()
