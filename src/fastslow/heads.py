"""From the states of the last level to a score for each configuration; a lower score is faster."""

import torch
from torch import Tensor, nn

from fastslow.layers import LevelTensors, NodeSum, SparseOperator
from fastslow.set_statistics import Complete, Moments, as_is

POOLINGS = ("mean", "sum", "attention")
HEADS = ("pooled", "additive")
STANDARDISE = ("none", "replace", "join")


class NodePooling(nn.Module):
    r"""One vector for each configuration from the vectors of its nodes.

    ``sum``, ``mean``, or ``attention``: a mean with weights :math:`\operatorname{softmax}_n(w^\top x_{n,c})`
    that sum to 1 over the nodes of a configuration.

    Args:
        width: Channels D of what is pooled.
        kind: One of :data:`POOLINGS`.
    """

    def __init__(self, width: int, kind: str):
        super().__init__()
        self.kind = kind
        self.sum_nodes = NodeSum()
        self.attention = nn.Linear(width, 1, bias=False) if kind == "attention" else None

    def forward(self, x: Tensor, pooling: SparseOperator, level: LevelTensors) -> Tensor:
        """(S, D) to (C, D), or (1, D) where no configuration changes a node."""
        if self.attention is None:
            total = self.sum_nodes(x, pooling, level)
            return total / level.num_nodes if self.kind == "mean" else total
        logit = self.attention(x).float()
        weight = (logit - logit.detach().max()).exp()
        return self.sum_nodes(weight * x, pooling, level) / self.sum_nodes(weight, pooling, level)


class ConfigNorm(nn.Module):
    """Standardises each channel over the configurations of the graph, so that programs of any size compare.

    Args:
        eps: Added to the variance.
    """

    def __init__(self, eps: float = 1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor, complete: Complete = as_is) -> Tensor:
        """(C, D) to (C, D)."""
        wide = x.float()
        mean = wide.mean(0)
        _, mean, variance = complete(Moments(len(x), mean, (wide - mean).square().mean(0)))
        return (wide - mean) * torch.rsqrt(variance + self.eps)


def _perceptron(width_in: int, width: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width_in, 2 * width),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(2 * width, width),
        nn.GELU(),
        nn.Linear(width, 1),
    )


class PooledHead(nn.Module):
    """Pools the nodes of a configuration, joins its own features, and scores both together.

    The features of the configuration as a whole (violation ratios, copies, tile bounds) join here, as in the
    report that introduced the violation ratio.

    Args:
        width: Channels D.
        config_width: V, columns of the scaled configuration features.
        pooling: One of :data:`POOLINGS`.
        dropout: Share of channels dropped in training.
    """

    def __init__(self, width: int, config_width: int, pooling: str, dropout: float, standardise: str):
        super().__init__()
        self.pooling = NodePooling(width, pooling)
        self.standardise = standardise
        self.norm = ConfigNorm()
        joined = width + config_width
        self.score = _perceptron(2 * joined if standardise == "join" else joined, width, dropout)

    def forward(
        self, x: Tensor, pooling: SparseOperator, level: LevelTensors, config_feat: Tensor, complete: Complete
    ) -> Tensor:
        """States (S, D) and ``config_feat`` (C, V) to (C,)."""
        pooled = self.pooling(x, pooling, level).expand(len(config_feat), -1)
        joined = torch.cat([pooled, config_feat], 1)
        if self.standardise != "none":
            normed = self.norm(joined, complete)
            joined = torch.cat([joined, normed], 1) if self.standardise == "join" else normed
        return self.score(joined).squeeze(1).float()


class AdditiveHead(nn.Module):
    """Scores every state by itself, pools the scores, and adds one for the configuration's own features.

    A program's time is close to a sum of the costs of its nodes and of the copies between them.

    Args:
        width: Channels D.
        config_width: V, columns of the scaled configuration features.
        pooling: One of :data:`POOLINGS`.
        dropout: Share of channels dropped in training.
    """

    def __init__(self, width: int, config_width: int, pooling: str, dropout: float, standardise: str):
        super().__init__()
        self.pooling = NodePooling(1, pooling)
        self.node_cost = _perceptron(width, width, dropout)
        self.config_cost = _perceptron(config_width, width, dropout)

    def forward(
        self, x: Tensor, pooling: SparseOperator, level: LevelTensors, config_feat: Tensor, complete: Complete
    ) -> Tensor:
        """States (S, D) and ``config_feat`` (C, V) to (C,)."""
        cost = self.pooling(self.node_cost(x), pooling, level)
        return (cost + self.config_cost(config_feat)).squeeze(1).float()


def make_head(
    kind: str, width: int, config_width: int, pooling: str, dropout: float, standardise: str
) -> nn.Module:
    """A head by name, one of :data:`HEADS`."""
    head = {"pooled": PooledHead, "additive": AdditiveHead}[kind]
    return head(width, config_width, pooling, dropout, standardise)
