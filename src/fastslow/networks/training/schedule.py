"""The learning rate of a step."""

import math

from fastslow.networks.settings.segment_settings import head_epochs
from fastslow.networks.settings.train_settings import TrainSettings


def learning_rate(settings: TrainSettings, step: int, steps: int) -> float:
    """Return a step's learning rate: linear warm-up, then cosine to 0 (arXiv 1608.03983) or constant."""
    warm = settings.warmup * steps
    if step < warm:
        return settings.learning_rate * (step + 1) / (warm + 1)
    if settings.schedule == "constant":
        return settings.learning_rate
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def scheduled(settings: TrainSettings, epoch: int, position: int, steps: int) -> float:
    """Return the learning rate of a step of an epoch of ``steps``.

    Epochs in which the head alone learns have a schedule of their own.
    """
    last = head_epochs(settings)
    epochs = last if epoch in last else range(last.start)
    return learning_rate(settings, (epoch - epochs.start) * steps + position, len(epochs) * steps)
