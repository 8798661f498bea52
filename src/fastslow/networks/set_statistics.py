"""What layers must know of the whole set of configurations that are compared with each other.

A batch gives such a statistic for its own configurations alone. A layer asks a function ``complete`` for that
of the whole set: :func:`as_is` where the batch is the set; ``chunks.py`` gathers it over several batches.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Mean and variance of each channel over all (node, configuration) pairs of some configurations.

    Args:
        num_configs: How many configurations.
        mean: ``(D,)``.
        variance: ``(D,)``, that of the population.
    """

    num_configs: int
    mean: Tensor
    variance: Tensor

    def merge(self, other: "Moments") -> "Moments":
        """The moments over both sets of configurations together (Chan et al. 1979)."""
        total = self.num_configs + other.num_configs
        share, step = other.num_configs / total, other.mean - self.mean
        variance = torch.lerp(self.variance, other.variance, share) + share * (1 - share) * step.square()
        return Moments(total, self.mean + share * step, variance)


class SoftmaxMean(NamedTuple):
    """The denominator of each node's softmax over some configurations, as a mean: ``exp(top) * mean``.

    Args:
        num_configs: How many configurations.
        top: ``(N, D)`` largest logit of each node and channel.
        mean: ``(N, D)`` mean over the configurations of ``exp(logit - top)``.
    """

    num_configs: int
    top: Tensor
    mean: Tensor

    def merge(self, other: "SoftmaxMean") -> "SoftmaxMean":
        """The denominator over both sets of configurations together."""
        total, top = self.num_configs + other.num_configs, torch.maximum(self.top, other.top)
        parts = (part.mean * (part.top - top).exp() * (part.num_configs / total) for part in (self, other))
        return SoftmaxMean(total, top, sum(parts))


Statistic = Moments | SoftmaxMean
Complete = Callable[[Statistic], Statistic]


def as_is(statistic: Statistic) -> Statistic:
    """Completes the statistic of a batch that holds the whole configuration set: there is nothing to add."""
    return statistic
