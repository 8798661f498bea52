"""A small model of one program's own values: a Gaussian process over tied choices.

The kernel is the sum of one that decays with the share of choices that differ, and a linear one over the
features of a configuration. The mean is the pre-trained prediction, nothing, or a multiple of the prediction
whose weight is drawn from a normal distribution, so that its sign is learnt. Which of these terms, and how
much of each, is chosen by the marginal likelihood (Rasmussen and Williams 2006, chapter 5), in which the
variance has an inverse gamma distribution: so that of one value the prediction decides, not chance.
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

_LENGTHS = (0.1, 0.3, 1.0)  # share of different choices at which the kernel has fallen to 1/e
_LINEAR = (0.0, 1.0)  # variance of the features' part
_PRIOR = ((1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 1.0, -2.0))  # of its weight: mean, variance, log odds
_BELIEF = 1.0  # values that the assumed variances, 1 of the standardised, count for
_SMALLEST = 0.01  # scale of log values below which differences are not stretched
_NOISES = (0.01, 0.1, 0.4)
_MAX_FITTED = 512  # the work is cubic; of more, the fastest half and a sample of the others are fitted
_SLOPE = 0.3  # of values above the median, whose order matters little to a search


@dataclass(frozen=True)
class Inputs:
    """What the model knows of n configurations.

    Args:
        hot: ``(n, O)`` options taken, one-hot.
        features: ``(n, F)`` standardised features, F = 0 where there are none.
        prior: ``(n,)`` standardised pre-trained prediction, None where there is none.
        groups: Number of choices.
    """

    hot: np.ndarray
    features: np.ndarray
    prior: np.ndarray | None
    groups: int

    def __len__(self) -> int:
        """Return n."""
        return len(self.hot)

    def take(self, rows: np.ndarray) -> "Inputs":
        """Return some configurations."""
        prior = None if self.prior is None else self.prior[rows]
        return Inputs(self.hot[rows], self.features[rows], prior, self.groups)


def learnable(values: np.ndarray) -> np.ndarray:
    """Return log values over the best, flatter above the median: the slow ones must not set the scale."""
    logs = np.log(values / values.min())
    middle = np.median(logs)
    return np.minimum(logs, middle + _SLOPE * np.maximum(logs - middle, 0))


def _location_and_scale(prior: np.ndarray | None) -> tuple[float, float]:
    if prior is None:
        return 0.0, 1.0
    squares = ((prior - prior.mean()) ** 2).sum()
    return prior.mean(), np.sqrt((squares + _BELIEF) / (len(prior) - 1 + _BELIEF))


class Surrogate:
    """A model fitted to the values of some configurations.

    Args:
        inputs: The configurations.
        values: ``(n,)`` their values, positive, n at least 1.
    """

    def __init__(self, inputs: Inputs, values: np.ndarray):
        if len(values) > _MAX_FITTED:
            order = np.argsort(values, kind="stable")
            rest = np.random.default_rng(0).permutation(order[_MAX_FITTED // 2 :])
            rows = np.concatenate([order[: _MAX_FITTED // 2], rest[: _MAX_FITTED // 2]])
            inputs, values = inputs.take(rows), values[rows]
        target = learnable(values)
        self._centre, self._scale = target.mean(), max(target.std(), _SMALLEST) if len(target) > 1 else 1.0
        self._shift = _location_and_scale(inputs.prior)
        self._known = self._scaled(inputs)
        self._best = (target.min() - self._centre) / self._scale
        self._fit((target - self._centre) / self._scale)

    def _scaled(self, inputs: Inputs) -> Inputs:
        """Return inputs whose prediction is in units of its spread over the known ones."""
        if inputs.prior is None:
            return inputs
        return replace(inputs, prior=(inputs.prior - self._shift[0]) / self._shift[1])

    def _fit(self, target: np.ndarray) -> None:
        known, n = self._known, len(target)
        features = _LINEAR if known.features.shape[1] else (0.0,)
        priors = _PRIOR if known.prior is not None else ((0.0, 0.0, 0.0),)
        self._chosen, best = None, -np.inf
        for length, linear, (mean, spread, odds) in itertools.product(_LENGTHS, features, priors):
            self._terms = length, linear, mean, spread
            kernel = self._kernel(known, known)
            rest = target - self._mean(known)
            for noise in _NOISES:
                factor = cho_factor(kernel + noise * np.eye(n), lower=True)
                weights = cho_solve(factor, rest)
                variance = (rest @ weights + _BELIEF) / (n + _BELIEF)
                likelihood = odds - 0.5 * (n + _BELIEF) * np.log(variance) - np.log(np.diag(factor[0])).sum()
                if likelihood > best:
                    best, self._chosen = likelihood, (self._terms, factor, weights, variance)
        self._terms, self._factor, self._weights, self._variance = self._chosen

    def _mean(self, inputs: Inputs) -> np.ndarray | float:
        return 0.0 if inputs.prior is None else self._terms[2] * inputs.prior

    def _kernel(self, one: Inputs, other: Inputs) -> np.ndarray:
        length, linear, _, spread = self._terms
        kernel = np.exp((one.hot @ other.hot.T / max(one.groups, 1) - 1.0) / length).astype(np.float64)
        if linear:
            kernel += linear / one.features.shape[1] * (one.features @ other.features.T)
        if spread:
            kernel += spread * np.outer(one.prior, other.prior)
        return kernel

    def predict(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the standard deviation ``(n,)`` of :func:`learnable` values."""
        inputs = self._scaled(inputs)
        _, linear, _, spread = self._terms
        cross = self._kernel(inputs, self._known)
        own = np.ones(len(inputs))
        if linear:
            own += linear * (inputs.features**2).mean(1)
        if spread:
            own += spread * inputs.prior**2
        mean = cross @ self._weights + self._mean(inputs)
        explained = np.einsum("ij,ji->i", cross, cho_solve(self._factor, cross.T))
        deviation = np.sqrt(np.maximum(own - explained, 1e-9) * self._variance)
        return mean * self._scale + self._centre, deviation * self._scale

    def improvement(self, inputs: Inputs) -> np.ndarray:
        """Return the expected improvement ``(n,)`` over the best value so far, as a share of it.

        Mockus et al. 1978; Jones et al. 1998, equation 15.
        """
        mean, deviation = self.predict(inputs)
        gain = self._best * self._scale + self._centre - mean
        z = gain / deviation
        return gain * ndtr(z) + deviation * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
