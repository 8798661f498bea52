"""The learning rate of a step."""

import math

from fastslow.networks.settings.options import NetworkOptions
from fastslow.networks.settings.segment_settings import head_epochs


def learning_rate(options: NetworkOptions, step: int, steps: int) -> float:
    """Return a step's learning rate: linear warm-up, then cosine to 0 (arXiv 1608.03983) or constant."""
    warm = options.warmup * steps
    if step < warm:
        return options.learning_rate * (step + 1) / (warm + 1)
    if options.schedule == "constant":
        return options.learning_rate
    return options.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def scheduled(options: NetworkOptions, epoch: int, position: int, steps: int) -> float:
    """Return the learning rate of a step of an epoch of ``steps``.

    Epochs in which the head alone learns have a schedule of their own.
    """
    last = head_epochs(options)
    epochs = last if epoch in last else range(last.start)
    return learning_rate(options, (epoch - epochs.start) * steps + position, len(epochs) * steps)
