"""Pooling of the nodes of a graph, for each configuration, on deduplicated states.

Deduplication costs none of these anything: sums run once per class of configurations that agree on what the
nodes of a set see, and so do maxima.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastslow.networks.model.graph_batch import LevelTensors
from fastslow.networks.model.layers import NodeSum
from fastslow.networks.settings.terms import Pooling, parse_readout
from fastslow.networks.states.sparse import SparseOperator


class Readout(nn.Module):
    r"""Pool the nodes of each configuration in one way or several, concatenated.

    .. math::
        \text{sum:}\ & \sum_n x_{n,c} \qquad \text{mean:}\ \frac{1}{N} \sum_n x_{n,c} \qquad
        \text{max:}\ \max_n x_{n,c} \\
        \text{attention:}\ & \sum_n \operatorname{softmax}_n(w \cdot x_{n,c} + b)\, x_{n,c}
        \quad \text{(arXiv 1511.05493)} \\
        \text{unit\_sum:}\ \sum_n x_{n,c} / \lVert \sum_n x_{n,c} \rVert_2

    over all nodes, or over the configurable ones (of a graph that has none, over all). Mean and maximum are
    the 16th place's readout, attention the 6th's on some collections; TpuGraphs' layout baseline joins the
    mean and the sums over all and over configurable nodes, scaled to length 1. Sums are float64, see
    :class:`~fastslow.networks.model.layers.NodeSum`.

    Args:
        text: Such as ``sum`` or ``mean+max+sum@configurable``.
        channels: Channels D.

    Shapes:
        - **input:** states :math:`(S, D)` of a level
        - **output:** :math:`(C, P D)` of P poolings, float64
    """

    def __init__(self, text: str, channels: int):
        super().__init__()
        self.parts = parse_readout(text)
        self.channels = len(self.parts) * channels
        self.sum_nodes = NodeSum()
        self.scores = nn.ModuleDict(
            {str(i): nn.Linear(channels, 1) for i, part in enumerate(self.parts) if part.pool == "attention"}
        )

    def forward(
        self, x: Tensor, pooling: SparseOperator, level: LevelTensors, configurable: Tensor
    ) -> Tensor:
        """Return the pooled nodes of each configuration.

        Args:
            x: ``(S, D)`` states of a level.
            pooling: ``(C, S)`` operator that sums the states of each configuration over nodes.
            level: The level.
            configurable: ``(N,)`` bool, whether a node is configurable.

        Returns:
            ``(C, P D)`` float64, P the number of poolings.
        """
        pooled = []
        for number, part in enumerate(self.parts):
            chosen = _chosen(part, configurable)
            states = chosen[level.node_ids, None]
            if part.pool == "max":
                pooled.append(pooling.max(torch.where(states, x.float(), -torch.inf)).double())
            elif part.pool == "attention":
                score = torch.where(states, self.scores[str(number)](x).float(), -torch.inf)
                pooled.append(_attend(x.float(), score, pooling))
            else:
                total = self.sum_nodes(x * states if part.configurable else x, pooling, level)
                pooled.append(_finished(total, part, chosen))
        return torch.cat(pooled, 1)

    def sums(self, x: Tensor, pooling: SparseOperator, level: LevelTensors, configurable: Tensor) -> Tensor:
        """Return what some nodes of a graph add to the sums of :meth:`of_sums`, ``(C, P D)``.

        Args:
            x: ``(S, D)`` states of a level that has only these nodes.
            pooling: ``(C, S)`` operator that sums the states of each configuration over the nodes.
            level: The level.
            configurable: ``(n,)`` bool.
        """
        states = (_chosen(part, configurable)[level.node_ids, None] for part in self.parts)
        return torch.cat([self.sum_nodes(x * own, pooling, level) for own in states], 1)

    def of_sums(self, sums: Tensor, configurable: Tensor) -> Tensor:
        """Return the readout ``(C, P D)``, without maxima and attention, from the sums over the nodes.

        Args:
            sums: ``(C, P D)`` sum of :meth:`sums` over all nodes.
            configurable: ``(N,)`` bool.
        """
        totals = sums.unflatten(1, (len(self.parts), -1)).unbind(1)
        parts = zip(totals, self.parts, strict=True)
        return torch.cat([_finished(total, part, _chosen(part, configurable)) for total, part in parts], 1)


def _finished(total: Tensor, part: Pooling, chosen: Tensor) -> Tensor:
    """Return a sum, mean or sum of length 1 from the sum over nodes."""
    if part.pool == "mean":
        return total / chosen.sum()
    return functional.normalize(total) if part.pool == "unit_sum" else total


def _chosen(part: Pooling, configurable: Tensor) -> Tensor:
    return configurable if part.configurable else torch.ones_like(configurable)


def _attend(x: Tensor, score: Tensor, pooling: SparseOperator) -> Tensor:
    """Return ``(C, D)`` means of states, weighed by the softmax of their scores over a configuration's nodes.

    First within each class of configurations, then over the classes of a configuration, each relative to its
    own largest score: no weight overflows or vanishes beside the weight of another configuration.

    Args:
        x: ``(S, D)`` float32.
        score: ``(S, 1)`` float32, -inf for a state that has no weight.
        pooling: ``(C, S)`` operator, of the factors (C, T) and (T, S).
    """
    picks, members = pooling.factors()
    classes, states = members.entries()
    own = torch.empty_like(states).scatter_(0, states, classes)  # class of each state
    top = members.max(score).detach()
    weight = (score - top.nan_to_num(neginf=0.0)[own]).exp()
    sums = members @ torch.cat([weight, weight * x], 1)
    configs, classes = picks.entries()
    share = (top[classes] - picks.max(top)[configs]).exp().double()
    total = sums.new_zeros(pooling.shape[0], sums.shape[1], dtype=torch.float64)
    total = total.index_add(0, configs, share * sums[classes])
    return total[:, 1:] / total[:, :1]
