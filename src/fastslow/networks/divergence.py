"""A training that diverges stops with its last good weights, instead of going on with NaN."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from fastslow.core.errors import FastslowError


class Diverged(FastslowError):
    """A network computes numbers that are not finite: the training diverged, its data are not to blame."""


def check_weights(network: nn.Module) -> None:
    """Raise :class:`Diverged` if a weight is not finite, as after one step on a loss that is not.

    The loss is not asked: with a loss scaler (float16) single steps may overflow and are left out.
    """
    # torch.stack waits for a GPU once, not once a tensor
    finite = torch.stack([torch.isfinite(values).all() for values in network.state_dict().values()])
    if not finite.all():
        raise Diverged("weights of the network are not finite")


def check_outputs(predictions: Mapping[str, np.ndarray]) -> None:
    """Raise :class:`Diverged` if a prediction ``(C,)`` of a graph is not finite."""
    for name, prediction in predictions.items():
        if not np.isfinite(prediction).all():
            raise Diverged(f"the network's predictions of {name} are not finite")


def describe(error: Diverged, epoch: int, loss: float, learning_rate: float, max_grad_norm: float) -> str:
    """Return what happened in an epoch, and the remedy, in a sentence."""
    return (
        f"diverged in epoch {epoch} (loss {loss:.4g}): {error}; lower learning_rate (now {learning_rate:g})"
        f" or max_grad_norm (now {max_grad_norm:g})"
    )
