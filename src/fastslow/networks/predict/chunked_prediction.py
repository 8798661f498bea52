"""Predictions of a configuration set that is larger than memory: chunk by chunk, in several passes.

A layer compares each configuration with the whole set through a statistic of it (``set_statistics.py``). A
pass over the chunks gives the next statistic; the last pass knows all and gives the predictions.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fastslow.networks.model.graph_batch import Batch
from fastslow.networks.model.network import RankingNetwork
from fastslow.networks.states.set_statistics import Complete, Statistic


class _Unknown(Exception):
    """Stops a forward pass at the first statistic not yet known of the whole set; holds the chunk's own."""

    def __init__(self, part: Statistic):
        self.part = part


def _completer(known: list[Statistic]) -> Complete:
    """Return a ``complete`` that gives the known statistics in the order in which the network asks."""
    remaining = iter(known)

    def complete(part: Statistic) -> Statistic:
        for statistic in remaining:
            return statistic
        raise _Unknown(part)

    return complete


@torch.no_grad()
def predict_chunks(
    network: RankingNetwork, batch_of: Callable[[np.ndarray], Batch], chunks: Sequence[np.ndarray]
) -> Tensor:
    """Predict a configuration set chunk by chunk, each configuration compared with the whole set.

    Args:
        network: A network in evaluation mode; with dropout the passes would differ.
        batch_of: Makes the batch of a chunk's configurations. Called for each chunk in each pass, so memory
            does not grow with the number of chunks.
        chunks: Positions of the configurations of each chunk.

    Returns:
        ``(C,)`` predictions, chunk after chunk, equal to the predictions of one batch up to float32 rounding.
    """
    known: list[Statistic] = []
    while True:
        predictions, statistic = [], None
        for chunk in chunks:
            try:
                predictions.append(network(batch_of(chunk), _completer(known)))
            except _Unknown as unknown:
                statistic = unknown.part if statistic is None else statistic.merge(unknown.part)
        if statistic is None:
            return torch.cat(predictions)
        known.append(statistic)
