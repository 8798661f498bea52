"""The learning rate of a step."""

import math

from fastslow.networks.config import TrainConfig
from fastslow.networks.segment_settings import head_epochs


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """Return a step's learning rate: linear warm-up, then cosine to 0 (arXiv 1608.03983) or constant."""
    warm = config.warmup * steps
    if step < warm:
        return config.learning_rate * (step + 1) / (warm + 1)
    if config.schedule == "constant":
        return config.learning_rate
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def scheduled(config: TrainConfig, epoch: int, position: int, steps: int) -> float:
    """Return the learning rate of a step of an epoch of ``steps``.

    Epochs in which the head alone learns have a schedule of their own.
    """
    last = head_epochs(config)
    own = last if epoch in last else range(last.start)
    return learning_rate(config, (epoch - own.start) * steps + position, len(own) * steps)
