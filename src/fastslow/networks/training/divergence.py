"""A training that diverges stops with its last good weights, instead of going on with NaN or a huge loss."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from fastslow.core.errors import FastslowError
from fastslow.networks.settings.options import NetworkOptions

EXPLODED = 10.0
"""Multiple of the first epoch's mean loss that counts as exploded; none of 25 recorded trainings exceeds
it."""


class Diverged(FastslowError):
    """A network computes numbers that are not finite or far off: it diverged, its data are not to blame."""


def check_loss(loss: float, first: float) -> None:
    """Look at the mean loss of an epoch; one that is not finite is left to :func:`check_weights`.

    The first epoch is mostly warm-up of a network that knows nothing, so no healthy epoch is much worse.

    Args:
        loss: The loss.
        first: The loss of the first epoch that had a finite one.

    Raises:
        Diverged: It is more than :data:`EXPLODED` times the first one.
    """
    if math.isfinite(loss) and 0 < EXPLODED * first < loss:
        raise Diverged(f"the loss is more than {EXPLODED:g} times that of the first epoch, {first:.4g}")


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


def stop(
    error: Diverged, epoch: int, loss: float, options: NetworkOptions, history: Sequence[Mapping]
) -> str:
    """Return what happened in an epoch, from 1, the remedy, and which weights of ``history`` are kept.

    Raises:
        Diverged: No weights were evaluated before.
    """
    said = (
        f"diverged in epoch {epoch} (loss {loss:.4g}): {error}; lower learning_rate (now"
        f" {options.learning_rate:g}) or max_grad_norm (now {options.max_grad_norm:g})"
    )
    if not history:
        raise Diverged(f"{said}. There are no weights to keep: it was not evaluated before") from None
    return f"{said}. Stopped; the weights up to epoch {history[-1]['epoch']} are kept"
