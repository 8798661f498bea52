"""Quality of the labels of a graph: repeated configurations, their noise, and the score nobody can exceed.

TpuGraphs measured many configurations more than once. The difference of two measurements of an equal
configuration shows how much of a graph's order is noise, hence the score that a perfect predictor would reach
on it.
"""

from dataclasses import dataclass

import numpy as np

from fastslow.competition.metrics import kendall_tau, ranking_tau
from fastslow.competition.reader import Program
from fastslow.competition.tied_choices import distinct_rows

MIN_RUNS = 10
"""Measurements beyond the first of a configuration that an estimate of noise needs; 10 determine it to a
quarter of itself. Where a search measured only the default again, one configuration has them all."""
MIN_REPEATED = 20
"""Repeated configurations that the tau between two measurements needs."""
LOW_CEILING, JUMPS, DRIFT, ENOUGH_ROWS = 0.6, 0.05, 0.3, 500
"""Bounds of :attr:`Quality.doubts`. The jumps of AlexNet are 0.001; the two U-Nets at hand have jumps of 0.09
and 0.12. The 2nd place left U-Nets out of validation."""
_DRAWS, _NEAREST, _BLOCKS, _BLOCK_ROWS, _ENOUGH = 16, 50, 50, 20, 10_000  # more rows tell no more of noise


@dataclass(frozen=True)
class Quality:
    """The labels of one graph. What needs repeated configurations is NaN where too few are repeated."""

    configs: int  # rows of the file
    distinct: int  # distinct configurations
    repeated: int  # those that occur more than once
    noise: float  # standard deviation of log runtime between runs of an equal configuration: a relative error
    spread: float  # median over repeated configurations of largest over smallest runtime, minus 1
    repeat_tau: float  # Kendall's tau between two runs of the repeated configurations, -1 to 1
    ceiling: float  # score (ranking_tau) that a perfect predictor would reach on all rows
    drift: float  # Kendall's tau of runtime and row number: far from 0 where the machine changed meanwhile
    jumps: float
    """Share of the variance of the ranks of runtimes that lies between blocks of rows, beyond chance, 0 to 1:
    far from 0 where blocks of rows were measured under other conditions."""

    @property
    def doubts(self) -> str:
        """Reasons to doubt these labels, in words; empty if there are none."""
        said = []
        if self.ceiling < LOW_CEILING:
            said.append(f"a perfect predictor would reach {self.ceiling:.2f}")
        if self.jumps > JUMPS and self.configs >= ENOUGH_ROWS:
            said.append(f"blocks of rows differ ({self.jumps:.2f})")
        if abs(self.drift) > DRIFT and self.configs >= ENOUGH_ROWS:
            said.append(f"runtimes drift over the rows ({self.drift:+.2f})")
        return "; ".join(said)


def config_groups(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """Return the runtimes of a labelled program, and which of its rows have equal configurations.

    Returns:
        Runtimes ``(C,)`` float64, of a tile file divided by its normaliser; and the number ``(C,)`` of each
        row's configuration, from 0: rows of equal configurations have equal numbers.
    """
    rows = program.config_feat if program.choices is None else program.choices.values
    runtime = program.runtime if program.normalizers is None else program.runtime / program.normalizers
    assert rows is not None, "a program has configurations of one kind"
    return runtime.astype(np.float64), distinct_rows(rows.T.astype(np.int64), len(runtime))[1]


def measure_quality(program: Program) -> Quality:
    """Measure the labels of a program, see :func:`quality_of`."""
    return quality_of(*config_groups(program))


def quality_of(runtime: np.ndarray, group: np.ndarray) -> Quality:
    """Measure the labels of one graph.

    Args:
        runtime: ``(C,)`` runtimes above 0, in the order of the rows.
        group: ``(C,)`` number of each row's configuration, from 0.
    """
    values = np.log(np.asarray(runtime, np.float64))
    rng = np.random.default_rng(0)
    counts = np.bincount(group)
    (drift, jumps) = _order(values)
    noise = label_noise(runtime, group)
    sizes = len(values), len(counts), int(np.count_nonzero(counts > 1))
    if len(values) > _ENOUGH:
        some = rng.random(len(counts)) < _ENOUGH / len(values)
        if np.count_nonzero(counts[some] > 1) >= MIN_REPEATED:  # of few repeats every one counts
            values = values[some[group]]
            group = np.unique(group[some[group]], return_inverse=True)[1]
            counts = np.bincount(group)
    largest = np.full(len(counts), -np.inf)
    smallest = np.full(len(counts), np.inf)
    np.maximum.at(largest, group, values)
    np.minimum.at(smallest, group, values)
    means = np.clip(np.bincount(group, values) / counts, smallest, largest)  # no rounding where all are equal
    repeated = np.flatnonzero(counts > 1)
    spread = tau = ceiling = np.nan
    if np.isfinite(noise):
        spread = float(np.median(np.expm1(largest - smallest)[repeated]))
        ceiling = simulated_ceiling(values, group, counts, means, rng)
    if len(repeated) >= MIN_REPEATED:
        runs = [two_runs(values, group, repeated, rng) for _ in range(_DRAWS)]
        tau = float(np.mean([kendall_tau(*both) for both in runs]))
    return Quality(*sizes, noise, spread, tau, ceiling, drift, jumps)


def label_noise(runtime: np.ndarray, group: np.ndarray) -> float:
    """Return the noise of a measurement, see :class:`Quality`; NaN below :data:`MIN_RUNS` repeats.

    Args:
        runtime: ``(C,)`` runtimes above 0.
        group: ``(C,)`` number of each row's configuration, from 0.
    """
    counts = np.bincount(group)
    values = np.log(np.asarray(runtime, np.float64))
    runs = len(values) - np.count_nonzero(counts)
    if runs < MIN_RUNS:
        return np.nan
    values = values - values[np.unique(group, return_index=True)[1]][group]  # 0 without rounding where equal
    squares = np.square(values - (np.bincount(group, values) / counts)[group]).sum()
    return float(np.sqrt(squares / runs))


def two_runs(
    values: np.ndarray, group: np.ndarray, repeated: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw two random rows of each repeated configuration.

    Args:
        values: ``(C,)`` value of each row.
        group: ``(C,)`` number of each row's configuration.
        repeated: ``(R,)`` numbers of configurations that have two rows or more.
        rng: Source of the random numbers.

    Returns:
        ``(2, R)`` their values.
    """
    shuffled = rng.permutation(len(values))
    order = shuffled[np.argsort(group[shuffled], kind="stable")]
    start = np.searchsorted(group[order], repeated)
    runs: np.ndarray = values[order[np.stack([start, start + 1])]]
    return runs


def simulated_ceiling(
    values: np.ndarray,
    group: np.ndarray,
    counts: np.ndarray,
    means: np.ndarray,
    rng: np.random.Generator,
    distinct: bool = False,
    draws: int = _DRAWS,
) -> float:
    r"""Return the score of a perfect predictor, by simulation extrapolation (SIMEX).

    It is :func:`fastslow.competition.metrics.ranking_tau`, as models are scored: rows of one configuration
    have one prediction, and count as put in a random order.

    The mean of a configuration's measurements carries the noise of one measurement over their number. More
    noise of :math:`\zeta` times that variance is added to the means, and a measurement is simulated for every
    row. The score is extrapolated as a parabola from :math:`\zeta = 0, 1, 2` to -1, which stands at means
    without noise (Cook and Stefanski, "Simulation-extrapolation estimation in parametric measurement error
    models", JASA 1994). Noise is drawn from the deviations of repeated configurations of a similar mean.
    Where noise is as large as the spread of the runtimes, the estimate is up to 0.06 too high
    (``tests/competition/test_data_quality.py``).

    Args:
        values: ``(C,)`` logarithm of the runtime of each row.
        group: ``(C,)`` number of each row's configuration, from 0.
        counts: ``(G,)`` number of rows of each configuration.
        means: ``(G,)`` their mean values.
        rng: Source of the random numbers.
        distinct: Score the mean of each configuration once, in place of a single measurement for every row.
        draws: Number of simulations.

    Returns:
        -1 to 1.
    """
    repeated = np.flatnonzero(counts[group] > 1)
    repeated = repeated[np.argsort(means[group[repeated]], kind="stable")]
    deviations = (values[repeated] - means[group[repeated]]) * np.sqrt(
        counts[group[repeated]] / (counts[group[repeated]] - 1)
    )
    place = np.searchsorted(means[group[repeated]], means)
    every = np.arange(len(means))
    scored = every if distinct else group
    measurements = counts if distinct else np.ones(len(group))
    taus = np.zeros((3, draws))

    def noise(of: np.ndarray) -> np.ndarray:
        near = place[of] + rng.integers(-_NEAREST, _NEAREST + 1, len(of))
        drawn: np.ndarray = deviations[np.clip(near, 0, len(deviations) - 1)]
        return drawn

    for draw in range(draws):
        for more in range(3):
            true = means + noise(every) * np.sqrt(more / counts)
            measured = true[scored] + noise(scored) / np.sqrt(measurements)
            taus[more, draw] = ranking_tau(measured, true[scored])
    return float(np.clip(taus.mean(1) @ (3, -3, 1), -1, 1))


def _order(values: np.ndarray) -> tuple[float, float]:
    """Return drift and jumps over the rows."""
    count = len(values)
    blocks = min(_BLOCKS, count // _BLOCK_ROWS)
    drift = kendall_tau(np.arange(count), values)
    if blocks < 2 or values.min() == values.max():
        return drift, np.nan
    from scipy.stats import rankdata  # half a second

    ranks = rankdata(values)  # equal runtimes share a rank, wherever their rows are
    parts = np.array_split(ranks - ranks.mean(), blocks)
    between = sum(len(part) * part.mean() ** 2 for part in parts) / np.square(ranks - ranks.mean()).sum()
    chance = (blocks - 1) / (count - 1)
    return drift, float(max(0.0, (between - chance) / (1 - chance)))
