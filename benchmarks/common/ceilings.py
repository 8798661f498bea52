"""The tau that the noise of labels leaves possible on distinct configurations, as they are scored."""

import numpy as np

from fastslow.competition.data_quality import label_noise
from fastslow.competition.metrics import kendall_tau

_DRAWS, _NEAREST = 100, 50


def distinct_ceiling(runtime: np.ndarray, group: np.ndarray) -> float:
    r"""Return the tau of a perfect predictor with the mean runtimes of distinct configurations.

    ``Quality.ceiling`` of ``fastslow.competition.data_quality`` counts all rows, and each has the noise of
    one measurement. A mean of several has less. The estimate is the same: noise of :math:`\zeta` times its
    variance is added to the means, and once more the noise of the means. Their tau is extrapolated as a
    parabola from :math:`\zeta = 0, 1, 2` to -1, which stands at means without noise.

    Args:
        runtime: ``(C,)`` runtimes above 0 of all rows.
        group: ``(C,)`` number of each row's configuration, from 0.

    Returns:
        -1 to 1; NaN where too few configurations are repeated to know the noise.
    """
    if not np.isfinite(label_noise(runtime, group)):
        return float("nan")
    counts, values = np.bincount(group), np.log(np.asarray(runtime, np.float64))
    means = np.bincount(group, values) / counts
    repeated = np.flatnonzero(counts[group] > 1)
    repeated = repeated[np.argsort(means[group[repeated]], kind="stable")]
    of_row = counts[group[repeated]]
    deviations = (values[repeated] - means[group[repeated]]) * np.sqrt(of_row / (of_row - 1))
    place = np.searchsorted(means[group[repeated]], means)
    rng, taus = np.random.default_rng(0), np.zeros((3, _DRAWS))

    def noise() -> np.ndarray:
        near = place + rng.integers(-_NEAREST, _NEAREST + 1, len(means))
        return deviations[np.clip(near, 0, len(deviations) - 1)] / np.sqrt(counts)

    for draw in range(_DRAWS):
        for more in range(3):
            true = means + noise() * np.sqrt(more)
            taus[more, draw] = kendall_tau(true + noise(), true)
    return float(np.clip(taus.mean(1) @ (3, -3, 1), -1, 1))
