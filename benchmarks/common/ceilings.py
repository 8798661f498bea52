"""The tau that the noise of labels leaves possible on distinct configurations, as they are scored."""

import numpy as np

from fastslow.competition.data_quality import label_noise, simulated_ceiling

_DRAWS = 100


def distinct_ceiling(runtime: np.ndarray, group: np.ndarray) -> float:
    """Return the tau of a perfect predictor with the mean runtimes of distinct configurations.

    ``Quality.ceiling`` of ``fastslow.competition.data_quality`` counts all rows, and each has the noise of
    one measurement. A mean of several has less. The estimate is the same otherwise, with more draws.

    Args:
        runtime: ``(C,)`` runtimes above 0 of all rows.
        group: ``(C,)`` number of each row's configuration, from 0.

    Returns:
        -1 to 1; NaN where too few configurations are repeated to know the noise.
    """
    if not np.isfinite(label_noise(runtime, group)):
        return float("nan")
    counts = np.bincount(group)
    values = np.log(np.asarray(runtime, np.float64))
    means = np.bincount(group, values) / counts
    rng = np.random.default_rng(0)
    return simulated_ceiling(values, group, counts, means, rng, distinct=True, draws=_DRAWS)
