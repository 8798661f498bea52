"""Known runtimes of a program's own configurations: the posterior over all of them.

A compiler engineer who measured some configurations of a program has a CSV file with the columns ``config``
and ``runtime``. :func:`posterior` joins it with knowledge from elsewhere: the predictions of pre-trained
models,
every single rule (the columns of the ranker's table), and the choices::

    known = read_known("measured.csv", num_configs)
    found = posterior(Configurations(choices, columns, predictions), known)
    found.mean  # (C,) lower = faster; the order is the ranking

Scores are on a scale of the program's own (:class:`fastslow_programs.ranking.known_models.Scale`): monotone
in the runtime, with a standard deviation of about 1 over the known configurations.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from fastslow.core.errors import DataError
from fastslow.core.input_files import read_text
from fastslow.features.store import Graph
from fastslow.rankers.table_features import tabulate
from fastslow_programs.ranking.known_models import (
    Average,
    Configurations,
    Encoder,
    Inputs,
    Known,
    Scale,
    paired,
)
from fastslow_programs.ranking.named_choices import NamedChoice

COLUMNS = ("config", "runtime")
_FORM = "Write a CSV file with the columns config (position, from 0) or id, and runtime (above 0)"
_PAIRS = 1024  # of configurations that the expected tau is computed with
_WORTH = 0.01  # of Kendall's tau: less is no reason to measure


def read_known(path: str | Path, num_configs: int, ids: np.ndarray | None = None) -> pd.DataFrame:
    """Read measured runtimes.

    Args:
        path: CSV file with the columns ``config``, the position of a configuration, or ``id``, its identity,
            and ``runtime``, in any unit. Rows of the same configuration are repeated measurements; other
            columns are not read.
        num_configs: Number of configurations of the program.
        ids: ``(C,)`` their identities, see :func:`fastslow_programs.program.identity.identify`.

    Returns:
        ``config`` int64 and ``runtime`` float64, in the order of the file, at least one row.

    Raises:
        DataError: The file is missing, no table, empty, lacks a column, or a row is no measurement of a
            configuration; the message names the row.
    """
    path = Path(path)
    try:
        lines = list(csv.reader(io.StringIO(read_text(path, _FORM)), skipinitialspace=True))
    except csv.Error as error:
        raise DataError(path, f"cannot be read ({error})", _FORM) from None
    header, *rows = lines or [[]]
    for number, row in enumerate(rows, 2):
        if row and len(row) != len(header):
            problem = f"line {number} has {len(row)} cells, the header {len(header)}"
            raise DataError(path, problem, "Write one cell for each column")
    return check_known(pd.DataFrame(filter(None, rows), columns=header), num_configs, path, ids)


def check_known(
    known: pd.DataFrame, num_configs: int, source: object = "known", ids: np.ndarray | None = None
) -> pd.DataFrame:
    """Return measured runtimes as :func:`read_known` does.

    Args:
        known: Table with the columns ``config`` or ``id``, and ``runtime``.
        num_configs: Number of configurations of the program.
        source: What a message names.
        ids: As for :func:`read_known`.

    Raises:
        DataError: As for :func:`read_known`.
    """
    if twice := sorted(set(known.columns[known.columns.duplicated()])):
        raise DataError(source, f"has the column {', '.join(twice)} twice", _FORM)
    if ids is not None and "id" in known.columns:
        known = known.assign(config=_positions(known["id"], ids, source))
    if missing := [name for name in COLUMNS if name not in known.columns]:
        raise DataError(source, f"has no column {' or '.join(missing)}", _FORM)
    if not len(known):
        raise DataError(source, "holds no measurement", _FORM)
    config, runtime = (_numbers(known[name]) for name in COLUMNS)
    within = (config >= 0) & (config < num_configs) & (config == np.floor(config))
    for name, right, wanted in (
        ("config", within, f"a whole number from 0 to {num_configs - 1}"),
        ("runtime", (runtime > 0) & (runtime < np.inf), "a finite number above 0"),
    ):
        if not right.all():
            row = int(right.argmin())
            problem = f"row {row + 1} has {name} {str(known[name].iloc[row]) or 'nothing'}, not {wanted}"
            raise DataError(source, problem, _FORM)
    return pd.DataFrame({"config": config.astype(np.int64), "runtime": runtime})


def _numbers(column: pd.Series) -> np.ndarray:
    """Return a column as numbers, NaN for what is none; True and False are none."""
    logical = column.map(lambda value: isinstance(value, bool | np.bool_)).to_numpy(bool)
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    return np.where(logical, np.nan, numbers)


def _positions(own: pd.Series, ids: np.ndarray, source: object) -> list[int]:
    """Return the first position of each identity."""
    places = {identity: place for place, identity in reversed(list(enumerate(ids.tolist())))}
    for row, identity in enumerate(own, 1):
        if identity not in places:
            problem = f"row {row} has id {identity!s}, which is no configuration that is ranked here"
            raise DataError(source, problem, "Rank the same program with the same seed and configs")
    return [places[identity] for identity in own]


@dataclass(frozen=True)
class Posterior:
    """Knowledge of all configurations of a program after some were measured.

    Args:
        mean: ``(C,)`` expected score, lower = faster.
        scale: The scale of the scores.
        known: The n distinct configurations that were measured.
        average: The models and their weights.

    A score measures a configuration's mean runtime; intervals of a measurement have its noise as well. The
    size of errors is itself known from few measurements only, so intervals and probabilities come from
    Student's t (Gelman et al., "Bayesian Data Analysis", 3rd edition, 2013, section 3.2).
    """

    mean: np.ndarray
    scale: Scale
    known: np.ndarray
    average: Average
    _inputs: Inputs
    _roots: np.ndarray

    @property
    def noise(self) -> float:
        """Standard deviation of one measurement, in scores."""
        return float(np.sqrt(self.average.process.noise))

    @cached_property
    def deviation(self) -> np.ndarray:
        """``(C,)`` standard deviation of the score."""
        prior = self.average.process.covariance(self._inputs, self._inputs, paired)
        own = prior - (self._roots**2).sum(1)
        return np.sqrt(np.maximum(own, 0) * self.average.inflation)

    def difference(self, one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the difference of the scores of configurations and others.

        Args:
            one: ``(m,)`` positions of configurations.
            other: ``(m,)`` positions.
        """
        one, other = np.atleast_1d(one), np.atleast_1d(other)
        variance = self._variance(self.average.process, self._inputs.take(one), self._inputs.take(other))
        return self.mean[one] - self.mean[other], variance

    def _variance(self, process, one: Inputs, other: Inputs) -> np.ndarray:
        roots = process.predict(one)[1] - process.predict(other)[1]
        prior = process.covariance(one, one, paired) + process.covariance(other, other, paired)
        own = prior - 2 * process.covariance(one, other, paired) - (roots**2).sum(1)
        return np.maximum(own, 1e-12) * self.average.inflation

    def probability_faster(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the probability ``(m,)`` that configurations are faster than others, by position."""
        mean, variance = self.difference(one, other)
        return stdtr(self.average.degrees, -mean / np.sqrt(variance))

    def interval(
        self, one: np.ndarray, other: np.ndarray, level: float = 0.9, runs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of an interval for how measurements of pairs differ, in scores.

        Args:
            one: ``(m,)`` positions of configurations.
            other: ``(m,)`` positions of those that they are compared with.
            level: Probability that the interval holds the difference.
            runs: Measurements that each of the two is the mean of; 0 for scores without noise.
        """
        mean, variance = self.difference(one, other)
        if runs:
            variance = variance + 2 * self.average.process.noise * self.average.inflation / runs
        half = stdtrit(self.average.degrees, 0.5 + level / 2) * np.sqrt(variance)
        return mean - half, mean + half

    def runtime(self, level: float = 0.9) -> pd.DataFrame:
        """Return ``low``, ``runtime`` and ``high`` of every configuration, in the unit of the known ones.

        Raises:
            ValueError: No runtime is known, so there is no unit.
        """
        if not len(self.known):
            raise ValueError("no runtime is known, so there is no unit")
        away = stdtrit(self.average.degrees, 0.5 + level / 2) * self.deviation
        ends = {"low": self.mean - away, "runtime": self.mean, "high": self.mean + away}
        return pd.DataFrame({name: np.exp(self.scale.logs(scores)) for name, scores in ends.items()})

    @cached_property
    def expected_tau(self) -> tuple[float, float]:
        """Kendall's tau that is expected now, and after as many measurements again.

        Of a pair whose score differs with variance V after the evidence, and with mean m, the share
        m^2 / (m^2 + V) is explained; its tau is 2 / pi arcsin of the root.
        """
        order = np.argsort(self.mean, kind="stable")
        places = np.linspace(0, len(order) - 1, min(len(order), 2 * len(self.known) or 8)).round().astype(int)
        more = np.setdiff1d(order[np.unique(places)], self.known)[: max(4, len(self.known))]
        rng = np.random.default_rng(0)
        one, other = order[rng.integers(len(order), size=(2, _PAIRS))]
        one, other = one[one != other], other[one != other]
        if not len(one) or not len(more):
            return 1.0, 1.0
        mean, now = self.difference(one, other)
        process = self.average.process.with_more(self._inputs.take(more))
        later = self._variance(process, self._inputs.take(one), self._inputs.take(other))
        whole = (mean**2).mean() + now.mean()
        taus = [2 / np.pi * np.arcsin(np.sqrt(max(0.0, 1 - v.mean() / whole))) for v in (now, later)]
        return float(taus[0]), float(taus[1])

    @property
    def more_would_not_change(self) -> bool:
        """Whether as many measurements again are expected to raise Kendall's tau by less than 0.01."""
        now, later = self.expected_tau
        return later - now < _WORTH

    @property
    def advice(self) -> str:
        """Whether to measure more, in a sentence."""
        now, later = self.expected_tau
        count = max(4, len(self.known))
        if self.more_would_not_change:
            return f"{count} more measurements would hardly change the order: expected tau {now:.2f} now"
        return f"{count} more measurements would raise the expected tau from {now:.2f} to {later:.2f}"


def posterior(configurations: Configurations, known: pd.DataFrame | None = None) -> Posterior:
    """Join the evidence of measured runtimes with the predictions and rules of all configurations.

    Args:
        configurations: All C configurations of the program.
        known: ``config`` (position, repeats allowed) and ``runtime``, see :func:`read_known`; none is known
            if empty or None.

    Returns:
        The posterior. The order of rows of ``known`` and the unit of runtimes do not change it.

    Raises:
        DataError: A row of ``known`` is no measurement of a configuration.
    """
    encoder = Encoder(configurations)
    inputs = encoder.reference
    if known is None or not len(known):
        known = pd.DataFrame({"config": np.zeros(0, np.int64), "runtime": np.zeros(0)})
    else:
        known = check_known(known, len(configurations))
    scale, distinct, evidence = score(known["config"].to_numpy(), known["runtime"].to_numpy())
    average = Average(inputs.take(distinct), evidence, encoder.expected)
    mean, roots = average.predict(inputs)
    return Posterior(mean, scale, distinct, average, inputs, roots)


def configurations_of(
    graph: Graph,
    kind: str,
    config_columns: list[str],
    choices: Sequence[NamedChoice],
    predictions: Mapping[str, np.ndarray],
) -> Configurations:
    """Return the C distinct configurations of a graph.

    A configuration of the file is ``graph.config_row[config]`` among them, and ``graph.expand(found.mean)``
    is the posterior's ranking of the file.

    Args:
        graph: The graph.
        kind: ``layout`` or ``tile``.
        config_columns: Names of its ``config_feat`` columns.
        choices: The choices of its file, see :func:`fastslow_programs.ranking.named_choices.name_choices`.
        predictions: ``(C_file,)`` of each model, lower = predicted faster.
    """
    first = graph.config_ids
    table, _ = tabulate(graph, kind, config_columns)
    codes = np.array([choice.values[first] for choice in choices], np.int64).reshape(-1, len(first)).T
    members = np.array([own[first] for own in predictions.values()]).reshape(-1, len(first)).T
    return Configurations(codes, table, members)


def score(config: np.ndarray, runtime: np.ndarray) -> tuple[Scale, np.ndarray, Known]:
    """Return the scale of measurements, the n distinct configurations, the fastest first, and their scores.

    Args:
        config: ``(m,)`` number of the configuration of each measurement.
        runtime: ``(m,)`` its runtime.
    """
    order = np.lexsort((runtime, config))
    logs = np.log(runtime[order])
    distinct, own = np.unique(config[order], return_inverse=True)
    count = np.bincount(own, minlength=len(distinct)).astype(float)
    means = np.bincount(own, logs, len(distinct)) / count
    scale = Scale(means)
    scores = scale(logs).round(
        9
    )  # so that the unit of runtimes does not decide between equal splits of trees
    of_config = (np.bincount(own, scores, len(distinct)) / count).round(9)
    squares = float(((scores - of_config[own]) ** 2).sum())
    fastest = np.argsort(means, kind="stable")
    return scale, distinct[fastest], Known(of_config[fastest], count[fastest], squares)
