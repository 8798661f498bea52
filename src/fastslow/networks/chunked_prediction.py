"""Scores of a configuration set too large for one batch: as if it were one, in the memory of a chunk.

Configurations are compared with each other in the norms and in cross-config attention, both through a
statistic of the whole set (see ``set_statistics.py``) that merges from those of chunks. So one pass over the
chunks gathers the first statistic, the next pass, which knows it, the second, and the last gives the scores.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fastslow.networks.graph_batch import Batch
from fastslow.networks.model import RankingNetwork
from fastslow.networks.set_statistics import Complete, Statistic


class _Unknown(Exception):
    """Ends a forward pass at the first statistic that is not known of the whole set."""

    def __init__(self, part: Statistic):
        self.part = part


def _completer(known: list[Statistic]) -> Complete:
    """Answers with the known statistics, in the order that the network asks for them."""
    told = iter(known)

    def complete(part: Statistic) -> Statistic:
        for statistic in told:
            return statistic
        raise _Unknown(part)

    return complete


@torch.no_grad()
def predict_chunks(
    network: RankingNetwork, batch_of: Callable[[np.ndarray], Batch], chunks: Sequence[np.ndarray]
) -> Tensor:
    """Scores of a configuration set in chunks, each compared with the whole set.

    Args:
        network: A network in evaluation mode; dropout would make the passes differ.
        batch_of: Makes the batch of a chunk's configurations. Called for each chunk in each pass, so that
            memory does not grow with their number.
        chunks: Positions of the configurations of each chunk; one chunk takes one pass.

    Returns:
        ``(C,)`` scores, chunk after chunk. They equal those of one batch to float32 rounding.
    """
    if len(chunks) == 1:
        return network(batch_of(chunks[0]))
    known: list[Statistic] = []
    while True:
        scores, statistic = [], None
        for chunk in chunks:
            try:
                scores.append(network(batch_of(chunk), _completer(known)))
            except _Unknown as unknown:
                statistic = unknown.part if statistic is None else statistic.merge(unknown.part)
        if statistic is None:
            return torch.cat(scores)
        known.append(statistic)
