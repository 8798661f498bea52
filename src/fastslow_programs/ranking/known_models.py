"""Predictions of a program's other configurations from its known runtimes: models, and their average.

Every model learns from the scores of the known configurations (:class:`Scale`), predicts all others, and is
judged by its leave-one-out predictions. The Gaussian process is the posterior. Its covariance is a sum of
terms over the predictions of pre-trained models, the columns of the ranker's table, the tied choices and
their pairs. Their variances maximise the marginal likelihood times a prior (Rasmussen and Williams, "Gaussian
Processes for Machine Learning", 2006, chapters 2, 4.2 and 5.4).
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import cho_solve
from scipy.optimize import minimize, nnls
from scipy.special import ndtri
from scipy.stats import rankdata

_SLOPE = 0.75  # prior mean of the slope over the pre-trained prediction, of unit variance as the scores
_SPREAD = 1.5  # prior standard deviation of the logarithm of a term's variance
_INTERCEPT = 0.12  # variance of the intercept: a few known runtimes need not be of average speed
_NOISE = 0.07  # prior variance of a measurement, in scores; its median
_BOUNDS = (-12.0, 3.0)  # of the logarithm of a variance
_LENGTH = 0.15  # share of other choices at which the term of all interactions has fallen to 1/e
_JITTER = 1e-8
_TREES = 100


@dataclass(frozen=True)
class Configurations:
    """The inputs of configurations of a program, without their measurements.

    Letters in shapes: C configurations, G choices, F columns, P predictions.

    Args:
        choices: ``(C, G)`` whole numbers, the option that each takes for each choice.
        columns: ``(C, F)`` rules, such as the ranker's table.
        predictions: ``(C, P)`` of pre-trained models, lower = predicted faster.
    """

    choices: np.ndarray
    columns: np.ndarray
    predictions: np.ndarray

    def __len__(self) -> int:
        """Return C."""
        return len(self.choices)

    def take(self, rows: np.ndarray) -> "Configurations":
        """Return some of them."""
        return Configurations(self.choices[rows], self.columns[rows], self.predictions[rows])


class Scale:
    """A monotone scale of runtimes: half normal scores of the ranks, half bounded standardised logarithms.

    Ranks alone lose how far runtimes differ, logarithms alone are ruled by the few slowest configurations.

    Args:
        logs: ``(n,)`` logarithms of the known configurations' runtimes.
    """

    def __init__(self, logs: np.ndarray):
        self._knots = np.unique(logs) if len(logs) else np.zeros(1)
        ranks = rankdata(logs) if len(logs) else np.ones(1)
        of_rank = dict(zip(logs.tolist(), ndtri((ranks - 0.5) / len(ranks)).tolist(), strict=False))
        self._ranks = np.array([of_rank.get(knot, 0.0) for knot in self._knots.tolist()])
        low, self._middle, high = np.quantile(logs, [0.25, 0.5, 0.75]) if len(logs) else np.zeros(3)
        reach = 3 * (high - low)
        kept = np.clip(logs, self._middle - reach, self._middle + reach) if reach else logs
        self._middle = kept.mean() if len(logs) else 0.0
        self._unit = (kept.std() if len(logs) else 0.0) or 1.0

    def __call__(self, logs: np.ndarray) -> np.ndarray:
        """Return the scores of logarithms of runtimes: 0 is the middle, 1 about the standard deviation."""
        away = (logs - self._middle) / self._unit
        return 0.5 * (np.interp(logs, self._knots, self._ranks) + away / np.sqrt(1 + (away / 3) ** 2))

    def logs(self, scores: np.ndarray) -> np.ndarray:
        """Return the logarithms of the runtimes of scores; beyond 60 units from the middle it is clipped."""
        around = self._middle + self._unit * np.sinh(np.linspace(-5, 5, 400))
        grid = np.unique(np.concatenate([around, self._knots]))
        return np.interp(scores, self(grid), grid)


@dataclass(frozen=True)
class Known:
    """Scores of the n known configurations.

    Args:
        mean: ``(n,)`` mean score of the measurements of each.
        count: ``(n,)`` its number of measurements.
        squares: Sum of squared deviations of measurements from their configuration's mean.
    """

    mean: np.ndarray
    count: np.ndarray
    squares: float

    @property
    def repeats(self) -> int:
        """Degrees of freedom of ``squares``."""
        return int((self.count - 1).sum())

    def __len__(self) -> int:
        """Return n."""
        return len(self.mean)


class Encoder:
    """Makes inputs of configurations on the scale of a program.

    Args:
        reference: Configurations that represent the program, such as all of them.

    Attributes:
        reference: Their inputs.
        expected: ``(J,)`` correlation of each single rule with the prediction, over the reference.
    """

    def __init__(self, reference: Configurations):
        self._columns = _Scores(reference.columns)
        self._predictions = _Scores(reference.predictions)
        own = reference.predictions if reference.predictions.shape[1] else np.zeros((len(reference), 1))
        self._low, reach = own.min(0), np.ptp(own, 0)
        self._reach = np.where(reach > 0, reach, 1.0)
        self._total = _Scores(self._join(own))
        self._options = [np.unique(column) for column in reference.choices.T]
        hot = self._one_hot(reference.choices)
        self._hot_mean, variance = hot.mean(0), hot.var(0)
        self._hot_unit = np.sqrt(variance.sum()) or 1.0
        self._hot_own = np.where(variance > 0, np.sqrt(variance), 1.0)
        self._choices = max(1, sum(len(options) > 1 for options in self._options))
        self.reference = self(reference)
        self.expected = self.reference.pool.T @ self.reference.prediction / max(1, len(reference))

    def _one_hot(self, choices: np.ndarray) -> np.ndarray:
        parts = [
            column[:, None] == options
            for column, options in zip(choices.T, self._options, strict=True)
            if len(options) > 1
        ]
        return np.concatenate([np.zeros((len(choices), 0), bool), *parts], 1).astype(np.float64)

    def _join(self, predictions: np.ndarray) -> np.ndarray:
        """Return the mean ``(C, 1)`` of predictions, each from 0 to 1 over the program, as ensembles do."""
        return ((predictions - self._low) / self._reach).mean(1, keepdims=True)

    def __call__(self, configurations: Configurations) -> "Inputs":
        """Return the inputs of configurations."""
        columns = self._columns(configurations.columns)
        members = self._predictions(configurations.predictions)
        total = np.zeros(len(columns))
        if members.shape[1]:
            total = self._total(self._join(configurations.predictions)).sum(1)
        hot = self._one_hot(configurations.choices)
        away = hot - self._hot_mean
        own = [columns, away / self._hot_own, members, total[:, None]]
        scaled = columns / max(1, columns.shape[1]) ** 0.5
        return Inputs(
            total, members, scaled, away / self._hot_unit, hot, self._choices, np.concatenate(own, 1)
        )


class _Scores:
    """Normal scores of columns, those that order the reference alike once."""

    def __init__(self, reference: np.ndarray):
        self._tables, seen = [], set()
        for place, column in enumerate(np.asarray(reference, np.float64).T):
            values, counts = np.unique(column, return_counts=True)
            scores = ndtri((np.cumsum(counts) - counts / 2) / len(column))
            mean = scores @ counts / len(column)
            spread = np.sqrt((scores - mean) ** 2 @ counts / len(column))
            if spread > 0:
                scores = (scores - mean) / spread
                ordered = np.interp(column, values, scores).round(6) + 0.0
                keys = {ordered.tobytes(), (-ordered + 0.0).tobytes()}
                if not keys & seen:
                    seen.add(ordered.tobytes())
                    self._tables.append((place, values, scores))

    def __call__(self, columns: np.ndarray) -> np.ndarray:
        found = [np.interp(columns[:, place], values, scores) for place, values, scores in self._tables]
        return np.stack(found, 1) if found else np.zeros((len(columns), 0))


def outer(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the products ``(C, C')`` of all rows."""
    return one @ other.T


def paired(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the products ``(C,)`` of the rows of equal position."""
    return (one * other).sum(1)


Dot = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Inputs:
    """Configurations as the models read them; every block has a mean square of 1 over the program.

    Args:
        prediction: ``(C,)`` normal scores of the mean prediction, 0 without one.
        members: ``(C, P)`` of each prediction.
        columns: ``(C, F)`` of the columns, over the root of F.
        choices: ``(C, O)`` options taken, one-hot, centred.
        hot: ``(C, O)`` the same, 0 or 1.
        groups: Number of choices that vary.
        pool: ``(C, J)`` every single rule: columns, options, predictions, each of unit variance.
    """

    prediction: np.ndarray
    members: np.ndarray
    columns: np.ndarray
    choices: np.ndarray
    hot: np.ndarray
    groups: int
    pool: np.ndarray

    def __len__(self) -> int:
        """Return C."""
        return len(self.prediction)

    def take(self, rows: np.ndarray) -> "Inputs":
        """Return some configurations."""
        own = {name: value if name == "groups" else value[rows] for name, value in vars(self).items()}
        return Inputs(**own)

    def terms(self, other: "Inputs", weights: np.ndarray, dot: Dot = outer) -> Iterator[np.ndarray]:
        """Yield the terms of the covariance with other configurations, each of mean 1 on its diagonal.

        Args:
            other: The others.
            weights: ``(J,)`` how much each single rule counts, of sum 1.
            dot: ``outer`` for all pairs ``(C, C')``, or ``paired`` for equal positions ``(C,)``.
        """

        def squared(one: np.ndarray, two: np.ndarray, product: np.ndarray) -> np.ndarray:
            norms = (one**2).sum(1), (two**2).sum(1)
            return np.maximum((np.add.outer(*norms) if dot is outer else sum(norms)) - 2 * product, 0)

        yield dot(self.prediction[:, None], other.prediction[:, None])
        yield dot(self.members, other.members) / max(1, self.members.shape[1])
        linear = dot(self.columns, other.columns)
        distance = squared(self.columns, other.columns, linear)
        yield linear
        yield np.exp(-distance / 2)
        yield np.exp(-1.5 * np.sqrt(distance))
        additive = dot(self.choices, other.choices)
        yield additive
        yield additive**2
        yield np.exp((dot(self.hot, other.hot) / self.groups - 1) / _LENGTH)
        one, two = (inputs.pool * np.sqrt(weights) for inputs in (self, other))
        chosen = dot(one, two)
        yield chosen
        yield np.exp(-squared(one, two, chosen))


_VARIANCES = np.array([2, 1, 4, 3, 3, 3, 2, 3, 4, 2]) / 80
_UNPREDICTED = np.array([6, 3, 12, 9, 9, 27, 0.3, 90, 0.6, 6]) / 80
"""Prior medians of the variances, in the order of :meth:`Inputs.terms`: with a prediction, and without."""


class GaussianProcess:
    """The posterior of the scores: linear in the prediction, and a covariance that is a sum of terms.

    Args:
        inputs: ``n`` known configurations.
        known: Their scores.
        weights: ``(J,)`` how much each single rule counts.

    Attributes:
        noise: Variance of a measurement.
        left_out: ``(n,)`` leave-one-out predictions, in closed form.
        left_out_variance: ``(n,)`` their variances, the noise included.
    """

    def __init__(self, inputs: Inputs, known: Known, weights: np.ndarray):
        self._inputs, self._weights = inputs, weights
        self._own = list(inputs.terms(inputs, weights)) if len(known) else []
        medians = _VARIANCES if inputs.members.shape[1] else _UNPREDICTED
        self._prior = np.log(np.append(medians, _NOISE))
        self._rest = known.mean - _SLOPE * inputs.prediction
        self._known = known
        self._logs = self._prior
        if len(known):
            bounds = [_BOUNDS] * len(self._prior)
            found = minimize(self._loss, self._prior, jac=True, method="L-BFGS-B", bounds=bounds)
            self._logs = found.x
        self._inverse = self._invert(self._logs, known.count)
        self._dual = self._inverse @ self._rest
        diagonal = np.diag(self._inverse)
        self.noise = float(np.exp(self._logs[-1]))
        self.left_out = known.mean - self._dual / diagonal
        self.left_out_variance = 1 / diagonal

    def _covariance(self, logs: np.ndarray, count: np.ndarray) -> np.ndarray:
        *variances, noise = np.exp(logs)
        shape = (len(count), len(count))
        total = sum((v * own for v, own in zip(variances, self._own, strict=False)), np.zeros(shape))
        return total + _INTERCEPT + np.diag(noise / count + _JITTER)

    def _invert(self, logs: np.ndarray, count: np.ndarray) -> np.ndarray:
        return np.linalg.inv(self._covariance(logs, count)) if len(count) else np.zeros((0, 0))

    def _loss(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the negative log posterior of the variances, and its gradient."""
        known, noise = self._known, np.exp(logs[-1])
        factor = np.linalg.cholesky(self._covariance(logs, known.count))
        inverse = cho_solve((factor, True), np.eye(len(known)))
        dual = inverse @ self._rest
        away = (logs - self._prior) / _SPREAD
        loss = 0.5 * self._rest @ dual + np.log(np.diag(factor)).sum() + 0.5 * away @ away
        loss += 0.5 * (known.repeats * logs[-1] + known.squares / noise)  # of repeated measurements
        slope = 0.5 * (inverse - np.outer(dual, dual))
        own = [np.exp(log) * np.vdot(slope, k) for log, k in zip(logs, self._own, strict=False)]
        of_noise = noise * (np.diag(slope) / known.count).sum()
        of_noise += 0.5 * (known.repeats - known.squares / noise)
        return float(loss), np.append(own, of_noise) + away / _SPREAD

    def covariance(self, one: Inputs, other: Inputs, dot: Dot = outer) -> np.ndarray:
        """Return the prior covariance of configurations, of all pairs or of equal positions."""
        parts = zip(np.exp(self._logs), one.terms(other, self._weights, dot), strict=False)
        return _INTERCEPT + sum(variance * term for variance, term in parts)

    def predict(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean ``(C,)``, and roots ``(C, n)`` whose products the evidence explains.

        The posterior covariance of two configurations is their prior covariance less the product of their
        roots.
        """
        mean = _SLOPE * inputs.prediction
        if not len(self._known):
            return mean, np.zeros((len(inputs), 0))
        cross = self.covariance(inputs, self._inputs)
        values, vectors = np.linalg.eigh(self._inverse)
        return mean + cross @ self._dual, cross @ (vectors * np.sqrt(np.maximum(values, 0)))

    def with_more(self, more: Inputs) -> "GaussianProcess":
        """Return the process as if further configurations were measured once: for variances only."""
        both = Inputs(
            **{
                name: value if name == "groups" else np.concatenate([value, getattr(more, name)])
                for name, value in vars(self._inputs).items()
            }
        )
        later = copy.copy(self)
        later._inputs, later._own = both, list(both.terms(both, self._weights))
        count = np.append(self._known.count, np.ones(len(more)))
        later._known = Known(np.zeros(len(count)), count, 0.0)
        later._inverse, later._dual = later._invert(self._logs, count), np.zeros(len(count))
        return later


_PULL, _DEGREES, _SQUARE = 3.0, 4.0, 0.4  # prior of a slope and of the residual variance, as observations
_TRUST = 4.0  # log odds of a rule by that slope: rules that agree with the prediction are likelier
_AGREEMENT = 0.8  # share of a rule's correlation with the prediction that its slope is expected to have


class SingleRules:
    """The average of the linear regressions on one rule each, weighted by their evidence.

    The prior mean of a rule's slope is its correlation with the pre-trained prediction.

    Args:
        inputs: Known configurations, at least 2.
        known: Their scores.
        expected: ``(J,)`` correlation of each rule with the prediction, over the program.

    Attributes:
        weights: ``(J,)`` the evidence of each rule, of sum 1.
        left_out: ``(n,)`` leave-one-out predictions.
    """

    def __init__(self, inputs: Inputs, known: Known, expected: np.ndarray):
        x, y = inputs.pool, known.mean
        self._expected = _SLOPE * _AGREEMENT * expected
        sums = [x.sum(0), y.sum(), (x**2).sum(0), x.T @ y, (y**2).sum()]
        self._slopes, self.weights, self._centre, self._level = self._fit(sums, len(y))
        less = [x, y[:, None], x**2, x * y[:, None], (y**2)[:, None]]
        slopes, weights, centre, level = self._fit(
            [s - part for s, part in zip(sums, less, strict=True)], len(y) - 1
        )
        self.left_out = np.ravel(level) + ((x - centre) * slopes * weights).sum(1)

    def _fit(self, sums, count: int):
        of_x, of_y, of_xx, of_xy, of_yy = sums
        pull = of_xx - of_x**2 / count + _PULL
        slopes = (of_xy - of_x * of_y / count + _PULL * self._expected) / pull
        squares = of_yy - of_y**2 / count + _PULL * self._expected**2 - pull * slopes**2
        residual = np.maximum(squares, 0) + _DEGREES * _SQUARE
        evidence = (
            _TRUST * np.abs(self._expected)
            - 0.5 * np.log(pull / _PULL)
            - 0.5 * (count - 1 + _DEGREES) * np.log(residual)
        )
        weights = np.exp(evidence - evidence.max(-1, keepdims=True))
        return slopes, weights / weights.sum(-1, keepdims=True), of_x / count, of_y / count

    def predict(self, inputs: Inputs) -> np.ndarray:
        """Return the scores ``(C,)`` of configurations."""
        return self._level + (inputs.pool - self._centre) @ (self._slopes * self.weights)


class Forest:
    """Extremely randomised trees (Geurts et al., Machine Learning 2006) on bootstrap samples.

    Args:
        inputs: Known configurations, at least ``LEAST``.
        known: Their scores.

    Attributes:
        left_out: ``(n,)`` the mean of the trees whose sample lacks a configuration.
    """

    LEAST = 8

    def __init__(self, inputs: Inputs, known: Known):
        from sklearn.ensemble import ExtraTreesRegressor  # takes a second to import

        self._trees = ExtraTreesRegressor(
            _TREES, min_samples_leaf=2, max_features=0.3, bootstrap=True, oob_score=True, random_state=0
        )
        self._trees.fit(inputs.pool.astype(np.float32), known.mean)
        self.left_out = self._trees.oob_prediction_

    def predict(self, inputs: Inputs) -> np.ndarray:
        """Return the scores ``(C,)`` of configurations."""
        return self._trees.predict(inputs.pool.astype(np.float32))


class Pretrained:
    """The prediction of pre-trained models on the scale of scores.

    Args:
        inputs: Known configurations.
    """

    def __init__(self, inputs: Inputs):
        self.left_out = self.predict(inputs)

    def predict(self, inputs: Inputs) -> np.ndarray:
        """Return the scores ``(C,)`` of configurations."""
        return _SLOPE * inputs.prediction


class Model(Protocol):
    """A model of the average."""

    left_out: np.ndarray

    def predict(self, inputs: Inputs):
        """Return the scores of configurations."""


_SHARES = {"pretrained": 0.4, "process": 0.35, "rules": 0.15, "forest": 0.1}
"""Prior weights in the average; without known runtimes they do not matter, as all models agree."""
_STRENGTH = 2.0  # known runtimes that the prior weights count for
_CALIBRATION = 4.0  # known runtimes that the process's own variance counts for


class Average:
    """The average of all models, with weights of least leave-one-out error (stacking, Breiman 1996).

    Args:
        inputs: Known configurations.
        known: Their scores.
        expected: ``(J,)`` correlation of each rule with the prediction, over the program.

    Attributes:
        process: The Gaussian process, whose covariance is the average's.
        weights: Weight of each model by name, of sum 1.
        inflation: Factor of the process's variances that makes its leave-one-out errors of the average fit.
        degrees: Degrees of freedom of that factor.
    """

    def __init__(self, inputs: Inputs, known: Known, expected: np.ndarray):
        models: dict[str, Model] = {"pretrained": Pretrained(inputs)} if inputs.members.shape[1] else {}
        chosen = np.full(inputs.pool.shape[1], 1 / max(1, inputs.pool.shape[1]))
        if len(known) > 1 and len(expected):
            models["rules"] = rules = SingleRules(inputs, known, expected)
            chosen = rules.weights
        self.process = models["process"] = GaussianProcess(inputs, known, chosen)
        if len(known) >= Forest.LEAST and len(expected):
            models["forest"] = Forest(inputs, known)
        self._models = models
        left_out = np.stack([model.left_out for model in models.values()], 1)
        self.weights = dict(zip(models, _stack(known.mean, left_out, [*models]), strict=True))
        errors = known.mean - left_out @ [*self.weights.values()]
        squares = (errors**2 / self.process.left_out_variance).sum()
        self.degrees = len(known) + _CALIBRATION
        self.inflation = float((squares + _CALIBRATION) / self.degrees)

    def predict(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean scores ``(C,)``, and the process's roots, see :meth:`GaussianProcess.predict`."""
        mean, roots = self.process.predict(inputs)
        total = self.weights["process"] * mean
        for name, model in self._models.items():
            if name != "process":
                total = total + self.weights[name] * model.predict(inputs)
        return total, roots


def _stack(target: np.ndarray, left_out: np.ndarray, names: list[str]) -> np.ndarray:
    """Return weights of at least 0 and of sum 1, pulled to the prior ones."""
    prior = np.array([_SHARES[name] for name in names])
    prior /= prior.sum()
    strength, one = np.sqrt(_STRENGTH), 1e3
    rows = np.concatenate([left_out, strength * np.eye(len(prior)), np.full((1, len(prior)), one)])
    weights, _ = nnls(rows, np.concatenate([target, strength * prior, [one]]))
    return weights / weights.sum()
