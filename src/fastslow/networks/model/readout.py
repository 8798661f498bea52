"""Pooling of the nodes of a graph, for each configuration, on deduplicated states.

Deduplication costs nothing: sums and maxima run once per class of configurations that agree on what the nodes
of a set see.
"""

import torch
from torch import Tensor, nn

from fastslow.networks.model.graph_batch import LevelTensors
from fastslow.networks.model.layers import NodeSum
from fastslow.networks.settings.terms import POOLS, Pooling, parse_readout
from fastslow.networks.states.sparse import SparseOperator, largest_rows


class Readout(nn.Module):
    r"""Pool the nodes of each configuration in one way or several, concatenated.

    .. math::
        \text{sum:}\ & \sum_n x_{n,c} \qquad \text{mean:}\ \frac{1}{N} \sum_n x_{n,c} \qquad
        \text{unit\_sum:}\ \sum_n x_{n,c} / \lVert \sum_n x_{n,c} \rVert_2 \qquad
        \text{max:}\ \max_n x_{n,c}

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

    @property
    def adds_up(self) -> bool:
        """Whether every pooling is a sum over the nodes, which parts of a graph add to."""
        return not any(POOLS[part.pool].largest for part in self.parts)

    def sums(self, x: Tensor, pooling: SparseOperator, level: LevelTensors, configurable: Tensor) -> Tensor:
        """Return what some nodes of a graph add to the sums of :meth:`of_sums`, ``(C, P D)``.

        Of a pooling that is a maximum this is the maximum over the nodes.

        Args:
            x: ``(S, D)`` states of a level that has only these nodes.
            pooling: ``(C, S)`` operator that sums the states of each configuration over the nodes.
            level: The level.
            configurable: ``(n,)`` bool.
        """
        chosen = configurable[level.node_ids, None]
        sums = []
        for part in self.parts:
            states = pooled_states(x, part, chosen)
            if POOLS[part.pool].largest:
                sums.append(largest_rows(pooling, states).double())
            else:
                sums.append(self.sum_nodes(states, pooling, level))
        return torch.cat(sums, 1)

    def of_sums(self, sums: Tensor, configurable: Tensor) -> Tensor:
        """Return the readout ``(C, P D)`` from the sums over the nodes.

        Args:
            sums: ``(C, P D)`` sum of :meth:`sums` over all nodes.
            configurable: ``(N,)`` bool.
        """
        totals = sums.unflatten(1, (len(self.parts), -1)).unbind(1)
        parts = zip(totals, self.parts, strict=True)
        finished = []
        for total, part in parts:
            num_nodes = configurable.sum() if part.configurable else len(configurable)
            finished.append(POOLS[part.pool].finish(total, num_nodes))
        return torch.cat(finished, 1)


def pooled_states(x: Tensor, part: Pooling, chosen: Tensor) -> Tensor:
    """Return states ``(S, D)`` as a pooling takes them, without effect where it leaves out their nodes.

    Args:
        x: ``(S, D)`` states.
        part: The pooling.
        chosen: ``(S, 1)`` bool, whether a state's node is configurable.
    """
    if not part.configurable:
        return x
    if POOLS[part.pool].largest:
        return x.masked_fill(~chosen, -torch.inf)
    return x * chosen
