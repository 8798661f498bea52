"""The model that a search learns: the posterior of known runtimes, and the improvement that it expects."""

import numpy as np
from scipy.special import ndtr

from fastslow_programs.ranking.known_models import Average, Configurations, Encoder, paired
from fastslow_programs.ranking.known_runtimes import score

_MAX_FITTED = 512  # the work is cubic; of more, the fastest half and a sample of the others are fitted


class Surrogate:
    """The average of :mod:`fastslow_programs.ranking.known_models`, fitted to the values of some
    configurations.

    Args:
        encoder: The program's scale.
        configurations: ``n`` distinct configurations.
        numbers: ``(m,)`` position of each value's configuration among them.
        values: ``(m,)`` positive, m at least 1.
    """

    def __init__(
        self, encoder: Encoder, configurations: Configurations, numbers: np.ndarray, values: np.ndarray
    ):
        distinct = score(numbers, values)[1]
        if len(distinct) > _MAX_FITTED:
            fastest, others = np.split(distinct, [_MAX_FITTED // 2])
            kept = np.append(fastest, np.random.default_rng(0).permutation(others)[: len(fastest)])
            numbers, values = (own[np.isin(numbers, kept)] for own in (numbers, values))
        scale, distinct, known = score(numbers, values)
        self._average = Average(encoder(configurations.take(distinct)), known, encoder.expected)
        self._encoder, self._best = encoder, float(known.mean.min())
        below, best = scale.logs(np.array([self._best - 1, self._best]))
        self.unit = float(best - below)
        """Difference of log values of a score of 1, below the best value."""

    def predict(self, configurations: Configurations) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation ``(n,)`` of the scores, lower = faster."""
        inputs, process = self._encoder(configurations), self._average.process
        mean, roots = self._average.predict(inputs)
        own = process.covariance(inputs, inputs, paired) - (roots**2).sum(1)
        return mean, np.sqrt(np.maximum(own, 1e-9) * self._average.inflation)

    def improvement(self, configurations: Configurations) -> np.ndarray:
        """Return the expected improvement ``(n,)`` over the best value so far, as a difference of log values.

        Mockus et al. 1978; Jones et al. 1998, equation 15.
        """
        mean, deviation = self.predict(configurations)
        gain = self._best - mean
        z = gain / deviation
        return self.unit * (gain * ndtr(z) + deviation * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))
