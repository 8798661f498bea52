"""Runtimes as noisy and as damaged as in the genuine TpuGraphs files."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Level:
    """The repeated measurements of a genuine file.

    Args:
        tau: Kendall's tau between two measurements of its repeated configurations.
        repeated: Share of its configurations that were measured more than once.
        runs: Mean number of measurements of these.
    """

    tau: float
    repeated: float
    runs: float

    def distinct(self, rows: int) -> int:
        """Return how many distinct configurations a file of some rows has."""
        others = rows - min(DEFAULT_RUNS, rows // 10)
        return max(1, round(others / (1 + self.repeated * (self.runs - 1))))


LEVELS = {
    "alexnet_train_batch_32": Level(0.59, 0.22, 2.4),
    "unet3d": Level(0.83, 0.30, 3.3),
    "unet_3d.4x4.bf16": Level(0.28, 0.20, 2.7),
}
"""Measured with ``fastslow data-quality`` on the files of layout:xla:default."""
DEFAULT_RUNS = 39
"""Measurements of the default configuration: 25, 47 and 43 in the three files, 39 in the mean of all; here
at most a tenth of the rows."""
FASTER = 0.75
"""Share of the configurations, the fastest, of which some are repeated: a search returns to good ones."""
DAMAGED = 0.1
"""Share of the graphs whose runtimes jump in blocks of rows, as the 2nd place shows them."""
BLOCKS = 4
_VALUES = 200  # from which the size of the noise is found: its cost grows with their square


def noise_for(values: np.ndarray, tau: float, rng: np.random.Generator) -> float:
    """Return the standard deviation of noise at which two measurements of some values agree with a tau.

    Args:
        values: ``(n,)`` true values; of many, a random part is looked at.
        tau: Kendall's tau, above 0.
        rng: Source of the random numbers.
    """
    values = rng.permutation(values)[:_VALUES]
    runs = rng.normal(size=(2, 32, len(values)))
    low, high = np.log(1e-4), np.log(10 * values.std() + 1e-3)
    for _ in range(20):
        middle = (low + high) / 2
        drawn = values + np.exp(middle) * runs
        signs = np.sign(drawn[..., :, None] - drawn[..., None, :])  # no two are equal
        agreed = signs.prod(0).sum() / max(1, (signs[0] != 0).sum())
        low, high = (middle, high) if agreed > tau else (low, middle)
    return float(np.exp(low))


def noisy_rows(
    runtime: np.ndarray, count: int, level: Level, damaged: bool, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw repeated rows and noisy runtimes.

    Args:
        runtime: ``(D,)`` true runtimes of distinct configurations, the default first; D as
            :meth:`Level.distinct` has it.
        count: Number of rows, at least D.
        level: Size of the noise, and number of repeats.
        damaged: Whether the runtimes jump in blocks of rows.
        rng: Source of randomness.

    Returns:
        ``(count,)`` position of the configuration of each row, in random order; and its runtime.
    """
    values, distinct = np.log(runtime.astype(np.float64)), len(runtime)
    fast = np.argsort(values, kind="stable")[: max(1, round(FASTER * distinct))]
    noise = noise_for(values[fast], level.tau, rng)
    default = np.zeros(min(DEFAULT_RUNS, count // 10), int)
    repeated = rng.choice(fast, max(1, min(len(fast), round(level.repeated * distinct))), replace=False)
    others = np.concatenate([np.arange(distinct), default, repeated])
    more = rng.choice(repeated, max(0, count - len(others)))
    rows = rng.permutation(np.concatenate([others, more])[:count])
    noisy = values[rows] + noise * rng.normal(size=count)
    if damaged:
        shift = rng.normal(size=BLOCKS) * values.std()
        noisy += np.repeat(shift, -(-count // BLOCKS))[:count]
    return rows, np.maximum(1, np.round(np.exp(noisy) * 1e3)).astype(np.int64)
