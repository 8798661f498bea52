"""Pooling of the nodes of a graph, for each configuration, on deduplicated states.

Deduplication costs nothing: sums run once per class of configurations that agree on what the nodes of a set
see.
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
        \text{unit\_sum:}\ \sum_n x_{n,c} / \lVert \sum_n x_{n,c} \rVert_2

    over all nodes, or over the configurable ones (of a graph that has none, over all). TpuGraphs' layout
    baseline joins the mean and the sums over all and over configurable nodes, scaled to length 1. Sums are
    float64, see :class:`~fastslow.networks.model.layers.NodeSum`.

    Args:
        text: Such as ``sum`` or ``mean+sum@configurable``.
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
        return self.of_sums(self.sums(x, pooling, level, configurable), configurable)

    def sums(self, x: Tensor, pooling: SparseOperator, level: LevelTensors, configurable: Tensor) -> Tensor:
        """Return what some nodes of a graph add to the sums of :meth:`of_sums`, ``(C, P D)``.

        Args:
            x: ``(S, D)`` states of a level that has only these nodes.
            pooling: ``(C, S)`` operator that sums the states of each configuration over the nodes.
            level: The level.
            configurable: ``(n,)`` bool.
        """
        states = configurable[level.node_ids, None]
        pooled = (x * states if part.configurable else x for part in self.parts)
        return torch.cat([self.sum_nodes(each, pooling, level) for each in pooled], 1)

    def of_sums(self, sums: Tensor, configurable: Tensor) -> Tensor:
        """Return the readout ``(C, P D)`` from the sums over the nodes.

        Args:
            sums: ``(C, P D)`` sum of :meth:`sums` over all nodes.
            configurable: ``(N,)`` bool.
        """
        totals = sums.unflatten(1, (len(self.parts), -1)).unbind(1)
        parts = zip(totals, self.parts, strict=True)
        return torch.cat([_finished(total, part, configurable) for total, part in parts], 1)


def _finished(total: Tensor, part: Pooling, configurable: Tensor) -> Tensor:
    """Return a sum, mean or sum of length 1 from the sum over nodes."""
    if part.pool == "mean":
        return total / (configurable.sum() if part.configurable else len(configurable))
    return functional.normalize(total) if part.pool == "unit_sum" else total
