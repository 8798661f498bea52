"""Sums over the nodes of a graph, segment by segment, without gradients, and the statistics of norms."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from fastslow.networks.model.graph_batch import Batch
from fastslow.networks.model.layers import WeightedInstanceNorm
from fastslow.networks.model.network import RankingNetwork
from fastslow.networks.states.set_statistics import Moments, Statistic

Batches = Callable[[Sequence[int], int | None], Iterator[Batch]]
"""Yields batches of single segments, up to a layer or the last one."""


def norms(network: RankingNetwork) -> list[WeightedInstanceNorm]:
    """Return the norms over a graph's nodes, one for each layer; a published baseline has none."""
    return [block.norm for block in network.trunk.blocks if hasattr(block, "norm")]


@torch.no_grad()
def segment_moments(network: RankingNetwork, batches: Batches, num_segments: int) -> list[Tensor]:
    """Return, for each norm of the network, mean and variance ``(J, 2, D)`` of each of J segments.

    A layer needs the moments of the whole graph in the layer below, so each layer passes over the segments.

    Args:
        network: The network; dropout is left out.
        batches: Yields a batch for each segment.
        num_segments: J. Segments weigh by their number of nodes.
    """
    moments, every, trunk = [], [], network.trunk
    with evaluating(trunk):
        for layer, norm in enumerate(norms(network)):
            parts, size = [], []
            for batch in batches(range(num_segments), layer):
                x = trunk(batch, Norms(every).complete)
                parts.append(torch.stack(norm.moments(x, batch.levels[-1])[1:]))
                size.append(len(batch.configurable))
            moments.append(torch.stack(parts))
            every.append(pool_moments(moments[-1], np.array(size)))
    return moments


@torch.no_grad()
def add_segments(
    network: RankingNetwork, batches: Batches, segments: Sequence[int], moments: list[Moments]
) -> Tensor:
    """Return the sum over the nodes of some segments, ``(C, P D)`` float64.

    Args:
        network: The network; dropout is left out.
        batches: The segments.
        segments: Numbers of those to add up, at least one.
        moments: Of the whole graph, at each norm.
    """
    total: Tensor = 0
    readout = network.head.readout
    with evaluating(network.trunk):
        for batch in batches(segments, None):
            x = network.trunk(batch, Norms(moments).complete)
            total = total + readout.sums(x, batch)
    return total


class Norms:
    """Gives each norm in turn the moments of the whole graph.

    Args:
        others: Moments of each norm over the nodes that are not in the batch; None where none are known.
        num_nodes: Number of nodes that the batch's own moments cover; 0 where ``others`` has all nodes.
    """

    def __init__(self, others: list[Moments | None], num_nodes: int = 0):
        self._others = iter(others)
        self._num_nodes = num_nodes
        self._own: list[Tensor] = []

    def complete(self, part: Statistic) -> Statistic:
        """Return the moments of all nodes; cross-config attention needs only the batch's own statistic."""
        if not isinstance(part, Moments):
            return part
        others = next(self._others)
        batch = part._replace(num_configs=self._num_nodes)
        self._own.append(torch.stack(batch[1:]).detach())
        if others is None:
            return batch
        return batch.merge(others) if self._num_nodes else others

    def own(self) -> Tensor:
        """Return the moments of the batch at each norm, ``(L, 2, D)`` float32."""
        return torch.stack(self._own).float() if self._own else torch.zeros(0, 2, 1)


def pool_moments(parts: Tensor, size: np.ndarray) -> Moments:
    """Return the moments of several sets of nodes together.

    Args:
        parts: ``(J, 2, D)`` mean and variance of each.
        size: ``(J,)`` number of nodes of each.

    Returns:
        Moments whose weight is the number of nodes: the configurations of all are the same.
    """
    share = torch.from_numpy(size / size.sum()).to(parts)[:, None]
    mean, variance = parts.unbind(1)
    total = (share * mean).sum(0)
    return Moments(int(size.sum()), total, (share * (variance + (mean - total).square())).sum(0))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode (no dropout) within a ``with``, and back into its mode after it."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)
