"""The model that a search learns from its evaluations, and the improvement that it expects."""

import numpy as np
from scipy.special import ndtr

from fastslow_programs.ranking.known_models import Configurations, Encoder, Known, Stack

_MAX_FITTED = 512  # the work is cubic; of more, the fastest half and a sample of the others are fitted


class Surrogate:
    """The average of :mod:`fastslow_programs.ranking.known_models`, fitted to some configurations' values.

    Args:
        encoder: The program's scale.
        configurations: ``n`` distinct configurations.
        numbers: ``(m,)`` position of each value's configuration among them.
        values: ``(m,)`` positive, m at least 1.
    """

    def __init__(
        self, encoder: Encoder, configurations: Configurations, numbers: np.ndarray, values: np.ndarray
    ):
        distinct = Known(numbers, values).config
        if len(distinct) > _MAX_FITTED:
            fastest, others = np.split(distinct, [_MAX_FITTED // 2])
            kept = np.append(fastest, np.random.default_rng(0).permutation(others)[: len(fastest)])
            numbers, values = (own[np.isin(numbers, kept)] for own in (numbers, values))
        known = Known(numbers, values)
        self._stack = Stack(encoder(configurations.take(known.config)), known)
        self._encoder, self._best, self._unit = encoder, float(known.score.min()), known.unit

    def predict(self, configurations: Configurations) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation ``(n,)`` of the scores, lower = faster."""
        return self._stack.predict(self._encoder(configurations))

    def improvement(self, configurations: Configurations) -> np.ndarray:
        """Return the expected improvement ``(n,)`` over the best value so far, as a difference of log values.

        Mockus et al. 1978; Jones et al. 1998, equation 15.
        """
        mean, deviation = self.predict(configurations)
        gain, deviation = self._best - mean, np.maximum(deviation, 1e-9)
        z = gain / deviation
        return self._unit * (gain * ndtr(z) + deviation * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))
