"""Statistics of the whole configuration set that layers normalise by, mergeable over batches.

A batch yields such a statistic of its own configurations only. A layer passes it to a function ``complete``,
which returns the statistic of the whole set: :func:`as_is` where the batch is the set;
``predict/chunked_prediction.py`` merges it over several batches.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Mean and variance of each channel over all (node, configuration) pairs of some configurations."""

    num_configs: int
    mean: Tensor  # (D,)
    variance: Tensor  # (D,), of the population (not Bessel-corrected)

    def merge(self, other: "Moments") -> "Moments":
        """Return the moments of both sets together (Chan, Golub and LeVeque 1979)."""
        total = self.num_configs + other.num_configs
        share = other.num_configs / total
        step = other.mean - self.mean
        variance = torch.lerp(self.variance, other.variance, share) + share * (1 - share) * step.square()
        return Moments(total, self.mean + share * step, variance)


class SoftmaxMean(NamedTuple):
    """Denominator of each node's softmax over configurations, as a mean: ``exp(top) * mean``."""

    num_configs: int
    top: Tensor  # (N, D) largest logit of each node and channel
    mean: Tensor  # (N, D) mean over the configurations of exp(logit - top)

    def merge(self, other: "SoftmaxMean") -> "SoftmaxMean":
        """Return the denominator of both sets together (online softmax, arXiv 1805.02867)."""
        total = self.num_configs + other.num_configs
        top = torch.maximum(self.top, other.top)
        parts = (part.mean * (part.top - top).exp() * (part.num_configs / total) for part in (self, other))
        return SoftmaxMean(total, top, sum(parts))


Statistic = Moments | SoftmaxMean
Complete = Callable[[Statistic], Statistic]


def as_is(statistic: Statistic) -> Statistic:
    """Return the statistic unchanged: the batch holds the whole configuration set."""
    return statistic
