"""Predictions of a program's configurations from the known runtimes of some: three models, and their average.

The models are the prediction of trained models as it is; a Gaussian process around it; and trees with it as a
column. Each is judged by its predictions of known configurations that it was not fitted to, and the average
has the weights of the smallest such error (stacking, Breiman 1996). The measure of the average on the same
predictions is the score to expect. ``benchmarks/few_shot.py`` compares it with single columns, ridge
regression and boosted trees.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from scipy.special import ndtri, stdtr

from fastslow.competition.metrics import kendall_tau

_SLOPE = 0.75  # expected slope of the scores over the prediction, both of unit variance
_NOISE = 0.1  # guessed variance of a measurement, in scores
_DEGREES = 4.0  # repeats that this guess counts for
_PREDICTIONS = 2.0  # weight of the predictions among the inputs; the columns and the choices have 1
_TREES, _FEWEST = 100, 8  # trees of the forest, and known configurations that it needs
_SHARES = {"prediction": 0.55, "process": 0.3, "trees": 0.15}  # weights without evidence
_STRENGTH = 4.0  # known configurations that these weights count for, and an expected correlation
_CALIBRATION = 4.0  # known configurations that the process's own variance counts for


@dataclass(frozen=True)
class Configurations:
    """Configurations of a program, without their measurements.

    Letters in shapes: C configurations, G choices, F columns, P predictions.

    Args:
        choices: ``(C, G)`` whole numbers, the option that each takes for each choice.
        columns: ``(C, F)`` features, such as the ranker's table.
        members: ``(C, P)`` predictions of the run's models, lower = predicted faster.
        prediction: ``(C,)`` prediction of the run, lower = predicted faster.
    """

    choices: np.ndarray
    columns: np.ndarray
    members: np.ndarray
    prediction: np.ndarray

    def __len__(self) -> int:
        """Return C."""
        return len(self.choices)

    def take(self, rows: np.ndarray) -> "Configurations":
        """Return some of them."""
        parts = self.choices, self.columns, self.members, self.prediction
        return Configurations(*(part[rows] for part in parts))


@dataclass(frozen=True)
class Inputs:
    """Configurations as the models read them.

    Args:
        prior: ``(C,)`` the score to expect by the run's prediction, 0 where that is the same for all.
        features: ``(C, V)`` columns, options and predictions, in units of their spread.
    """

    prior: np.ndarray
    features: np.ndarray

    def take(self, rows: np.ndarray) -> "Inputs":
        """Return some configurations."""
        return Inputs(self.prior[rows], self.features[rows])


class Encoder:
    """Makes inputs of configurations on the scale of a program.

    Args:
        reference: Configurations that represent the program, such as all of them.
    """

    def __init__(self, reference: Configurations):
        self._options = [np.unique(column) for column in reference.choices.T]
        blocks = self._blocks(reference)
        self._means = [block.mean(0) for block in blocks]
        units = [block.std(0) for block in blocks]
        varies = [u > 1e-9 * np.maximum(1, np.abs(b).max(0)) for u, b in zip(units, blocks, strict=True)]
        weights = 1.0, 1.0, _PREDICTIONS, _SLOPE
        self._scales = [
            weight * keep / np.where(keep, unit, 1.0) / max(1, keep.sum()) ** 0.5
            for weight, keep, unit in zip(weights, varies, units, strict=True)
        ]

    def _blocks(self, given: Configurations) -> tuple[np.ndarray, ...]:
        """Return the columns, the options taken, the models' predictions, and the run's."""
        empty = np.zeros((len(given), 0))
        pairs = zip(given.choices.T, self._options, strict=True)
        taken = np.concatenate([empty, *(column[:, None] == options for column, options in pairs)], 1)
        return given.columns, taken, given.members, given.prediction[:, None]

    def __call__(self, configurations: Configurations) -> Inputs:
        """Return the inputs of configurations."""
        parts = zip(self._blocks(configurations), self._means, self._scales, strict=True)
        *features, prior = [(block - mean) * scale for block, mean, scale in parts]
        return Inputs(prior[:, 0], np.concatenate([*features, prior], 1))


class Known:
    """The measurements of a program's configurations, as scores.

    A score is half the normal score of the rank, half the bounded, standardised logarithm: ranks lose how far
    runtimes differ, and a few configurations that are many times slower than all others rule logarithms. Of
    repeated measurements the median counts, as everywhere where runtimes are shown.

    Args:
        config: ``(m,)`` number of the configuration of each measurement.
        runtime: ``(m,)`` its runtime, above 0.

    Attributes:
        config: ``(n,)`` the distinct configurations, the fastest first.
        score: ``(n,)`` the score of each, 0 the middle, lower = faster, standard deviation about 1.
        count: ``(n,)`` number of its measurements.
        noise: Variance of one measurement, in scores: of repeated ones, and a guess.
        unit: Standard deviation of the logarithms, bounded: about the difference that a score of 1 is.
    """

    def __init__(self, config: np.ndarray, runtime: np.ndarray):
        from scipy.stats import rankdata  # half a second, which no settings need

        order = np.lexsort((runtime, config))
        logs = np.log(runtime[order])
        distinct, position, count = np.unique(config[order], return_inverse=True, return_counts=True)
        medians = pd.Series(logs).groupby(position).median().to_numpy()
        fastest = np.argsort(medians, kind="stable")
        low, middle, high = np.quantile(medians, [0.25, 0.5, 0.75])
        reach = 3 * (high - low) or np.inf
        kept = np.clip(medians, middle - reach, middle + reach)
        self.unit = float(kept.std()) if kept.std() > 1e-12 else 1.0
        away = (medians - kept.mean()) / self.unit
        score = (ndtri((rankdata(medians) - 0.5) / len(medians)) + away / np.sqrt(1 + (away / 3) ** 2)) / 2
        score = score.round(9)  # so that the unit does not decide between equal splits of trees
        self.config, self.score, self.count = distinct[fastest], score[fastest], count[fastest]
        apart = np.interp(logs, medians[fastest], self.score) - score[position]
        self._degrees = len(logs) - len(distinct) + _DEGREES
        self.noise = float((apart @ apart + _DEGREES * _NOISE) / self._degrees)

    def __len__(self) -> int:
        """Return n."""
        return len(self.config)

    def faster(self, than: int) -> np.ndarray:
        """Return the probability ``(n,)`` that each is faster than one, by its position, from the noise."""
        deviations = np.sqrt(self.noise * (1 / self.count + 1 / self.count[than]))
        return stdtr(self._degrees, (self.score[than] - self.score) / deviations)


class Stack:
    """The average of the models, fitted to known configurations.

    Known scores have a mean of 0 and unit variance, whichever configurations are known. On the scale of all,
    their mean is the predicted one, and their spread is :func:`_spread`. So the first of a ranking, once they
    are measured, do not count as average ones that differ as all do.

    Args:
        inputs: The ``n`` known configurations, at least 1.
        known: Their scores.

    Attributes:
        known: The scores.
        left_out: ``(n,)`` prediction of each known configuration by models that were fitted without it.
        inflation: Factor of the process's variances that makes these errors fit.
        degrees: Degrees of freedom of that factor.
    """

    def __init__(self, inputs: Inputs, known: Known):
        from sklearn.ensemble import ExtraTreesRegressor  # both take a second to import
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, DotProduct

        # fixed variances, chosen on the sample's valid programs: few known runtimes cannot tell better ones
        kernel = 0.1 * DotProduct(1.0) + 0.3 * RBF(2.0)
        self._middle = inputs.prior.mean()
        self._spread = _spread(inputs.prior, known.score)
        score = self._of_all(known.score)
        noise = self._spread**2 * known.noise / known.count
        self._process = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None)
        self._process.fit(inputs.features, score - inputs.prior)
        inverse = np.linalg.inv(self._process.L_ @ self._process.L_.T)
        variance = 1 / np.diag(inverse)
        left_out = {"prediction": inputs.prior, "process": score - self._process.alpha_ * variance}
        self._trees = None
        if len(known) >= _FEWEST:
            self._trees = ExtraTreesRegressor(
                _TREES, min_samples_leaf=2, max_features=0.3, bootstrap=True, oob_score=True, random_state=0
            )
            self._trees.fit(inputs.features.astype(np.float32), known.score)
            left_out["trees"] = self._of_all(self._trees.oob_prediction_)
        among_known = {name: (values - self._middle) / self._spread for name, values in left_out.items()}
        self._weights = _stack(known.score, among_known)
        self.known = known
        self.left_out = sum(self._weights[name] * values for name, values in left_out.items())
        self.degrees = len(known) + _CALIBRATION
        squares = ((score - self.left_out) ** 2 / variance).sum()
        self.inflation = float((squares + _CALIBRATION) / self.degrees)

    def _of_all(self, score: np.ndarray) -> np.ndarray:
        """Return scores among the known configurations on the scale of all."""
        return self._middle + self._spread * score

    def mean(self, inputs: Inputs) -> np.ndarray:
        """Return the expected score ``(C,)`` of configurations, lower = faster."""
        away = self._process.predict(inputs.features)
        predictions = {"prediction": inputs.prior, "process": inputs.prior + away}
        if self._trees:
            predictions["trees"] = self._of_all(self._trees.predict(inputs.features.astype(np.float32)))
        return sum(self._weights[name] * values for name, values in predictions.items())

    def covariance(self, inputs: Inputs) -> np.ndarray:
        """Return the covariance ``(C, C)`` of the errors of :meth:`mean`, without a measurement's noise."""
        return self.inflation * self._process.predict(inputs.features, return_cov=True)[1]

    @cached_property
    def expected_tau(self) -> float | None:
        """Kendall's tau to expect on other configurations, measured as often; None below 8 known ones."""
        return kendall_tau(self.known.score, self.left_out) if len(self.known) >= _FEWEST else None


def _spread(prior: np.ndarray, score: np.ndarray) -> float:
    """Return the standard deviation of known scores on the scale of all configurations.

    It is the deviation of their predictions, divided by the correlation of scores and predictions. Where
    predictions differ little, little correlation is expected, since they leave a part of the runtime open.
    Known scores may show more, but no more than all configurations have.

    Args:
        prior: ``(n,)`` the scores to expect by the run's prediction, on the scale of all.
        score: ``(n,)`` the known scores, of mean 0 and unit variance.
    """
    predicted = prior.std()
    if predicted < 1e-9:
        return 1.0
    expected = predicted / np.hypot(predicted, np.sqrt(1 - _SLOPE**2))
    observed = score @ (prior - prior.mean()) / len(score) / predicted
    learned = (len(score) * observed + _STRENGTH * expected) / (len(score) + _STRENGTH)
    return float(predicted / max(expected, min(learned, _SLOPE)))


def _stack(target: np.ndarray, left_out: dict[str, np.ndarray]) -> dict[str, float]:
    """Return weights of at least 0 and of sum 1 of the least squared error, pulled to ``_SHARES``."""
    shares = np.array([_SHARES[name] for name in left_out])
    shares /= shares.sum()
    strength = np.sqrt(_STRENGTH)
    one = 1e3
    columns = np.stack([*left_out.values()], 1)
    rows = np.concatenate([columns, strength * np.eye(len(shares)), np.full((1, len(shares)), one)])
    weights, _ = nnls(rows, np.concatenate([target, strength * shares, [one]]))
    return dict(zip(left_out, (weights / weights.sum()).tolist(), strict=True))
