"""What a search learns of a program: the Gaussian process of known runtimes, and expected improvement."""

import numpy as np
from scipy.special import ndtr

from fastslow.ranking.known_models import (
    Configurations,
    Encoder,
    GaussianProcess,
    Inputs,
    SingleRules,
    paired,
)
from fastslow.ranking.known_runtimes import score

_SLOW = 0.3  # slope of log values above the median, whose order matters little to a search
_MAX_FITTED = 512  # the work is cubic; of more, the fastest half and a sample of the others are fitted


def _flattened(values: np.ndarray) -> np.ndarray:
    """Return values whose logarithms rise less above the median: the slow ones must not set the scale."""
    logs = np.log(values)
    middle = np.median(logs)
    return np.exp(np.minimum(logs, middle + _SLOW * np.maximum(logs - middle, 0)))


class Program:
    """The scale of a program's configurations.

    Args:
        reference: Configurations that stand for the program.
    """

    def __init__(self, reference: Configurations):
        self.encode = Encoder(reference)
        inputs = self.encode(reference)
        self.expected = inputs.pool.T @ inputs.prediction / max(1, len(inputs))


class Surrogate:
    """A model fitted to the values of some configurations.

    Args:
        program: The program.
        configurations: The configurations, repeats allowed.
        numbers: ``(n,)`` which one each is: equal for repeated measurements.
        values: ``(n,)`` their values, positive, n at least 1.

    Attributes:
        unit: Difference of log values of a score of 1, below the best value.
    """

    def __init__(
        self, program: Program, configurations: Configurations, numbers: np.ndarray, values: np.ndarray
    ):
        first = np.unique(numbers, return_index=True)[1]
        if len(first) > _MAX_FITTED:
            fastest = np.argsort(values[first], kind="stable")
            rest = np.random.default_rng(0).permutation(fastest[_MAX_FITTED // 2 :])
            first = first[np.concatenate([fastest[: _MAX_FITTED // 2], rest[: _MAX_FITTED // 2]])]
        kept = np.isin(numbers, numbers[first])
        place = {number: row for row, number in zip(first, numbers[first], strict=True)}
        scale, distinct, known = score(numbers[kept], _flattened(values[kept]))
        inputs = program.encode(configurations.take([place[number] for number in distinct]))
        weights = np.full(inputs.pool.shape[1], 1 / max(1, inputs.pool.shape[1]))
        if len(known) > 1 and len(weights):
            weights = SingleRules(inputs, known, program.expected).weights
        self.process = GaussianProcess(inputs, known, weights)
        self._encode, self._best = program.encode, float(known.mean.min())
        below, best = scale.logs(np.array([self._best - 1, self._best]))
        self.unit = float(best - below)

    def predict(self, configurations: Configurations) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation ``(n,)`` of the scores, lower = faster."""
        inputs: Inputs = self._encode(configurations)
        mean, roots = self.process.predict(inputs)
        variance = self.process.covariance(inputs, inputs, paired) - (roots**2).sum(1)
        return mean, np.sqrt(np.maximum(variance, 1e-9))

    def improvement(self, configurations: Configurations) -> np.ndarray:
        """Return the expected improvement ``(n,)`` over the best value so far, as a difference of log values.

        Mockus et al. 1978; Jones et al. 1998, equation 15.
        """
        mean, deviation = self.predict(configurations)
        gain = self._best - mean
        z = gain / deviation
        return self.unit * (gain * ndtr(z) + deviation * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))
