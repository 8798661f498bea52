"""Training objectives of the ranker, and how the output of its trees becomes a prediction.

``regression`` is the squared error on the z-scored log runtime of each graph. ``pairwise`` is the logistic
loss on which of two configurations is slower, as RankNet's (Burges et al., "Learning to Rank using Gradient
Descent", ICML 2005). Its trees read the difference of their features (11th place of the competition). The
prediction of a configuration is its mean log-odds against a fixed set of opponents from its graph.
"""

import zlib
from collections.abc import Callable

import numpy as np

from fastslow.rankers.options import OBJECTIVES, RankerOptions
from fastslow.rankers.samples import Sample
from fastslow.rankers.table import Table

OPPONENTS = 16
"""Configurations that each predicted one is compared with (``pairwise``)."""
_DIFFERENCE_ROWS = 1 << 14  # rows of differences in memory at a time


def draw_pairs(
    runtime: np.ndarray, per_config: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Sample pairs of configurations of different runtime from the runtimes ``(C,)`` of a graph.

    ``per_config`` are drawn for each configuration, with replacement. Pairs of equal runtime are dropped.

    Returns:
        ``(n,)`` positions of the first and of the second configuration of each pair.
    """
    first = np.repeat(np.arange(len(runtime)), per_config)
    second = rng.integers(0, len(runtime), len(first))
    differ = runtime[first] != runtime[second]
    return first[differ], second[differ]


def pair_features(first: np.ndarray, second: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """Return the features ``(..., F)`` of pairs of configurations: of the first minus of the second.

    Columns at the positions ``shared``, which describe the graph, keep their common value.
    """
    result = first - second
    result[..., shared] = first[..., shared]
    return result


def sample_table(table: Table, options: RankerOptions) -> Sample:
    """Combine a table with the labels of the options' objective, with the same total weight for every graph.

    The pairs sampled for a graph depend only on the seed and its name.
    """
    label = OBJECTIVES[options.objective]
    rows, labels, weights = [], [], []
    for name, configs, runtime in zip(table.names, table.rows, table.runtimes, strict=True):
        if label is None:
            rng = np.random.default_rng([options.seed, zlib.crc32(name.encode())])
            first, second = draw_pairs(runtime, options.pairs_per_config, rng)
            rows.append(pair_features(configs[first], configs[second], table.shared))
            labels.append(runtime[first] > runtime[second])
        else:
            rows.append(configs)
            labels.append(label(runtime))
        weights.append(np.full(len(rows[-1]), 1 / max(1, len(rows[-1]))))
    together = np.concatenate(labels).astype(np.float32)
    return Sample(rows, together, np.concatenate(weights), table.columns, label is None)


def predict_table(
    objective: str, table: Table, raw_output: Callable[[np.ndarray], np.ndarray]
) -> dict[str, np.ndarray]:
    """Turn the output of trees into predictions, which add up over disjoint sets of trees.

    Args:
        objective: One of ``OBJECTIVES``.
        table: Rows to predict.
        raw_output: Gives the trees' raw output ``(n,)`` or ``(n, outputs)`` for rows ``(n, F)``.

    Returns:
        ``(C,)`` or ``(C, outputs)`` float64 per graph; lower = predicted faster.
    """
    if OBJECTIVES[objective] is not None:
        return {name: raw_output(rows) for name, rows in zip(table.names, table.rows, strict=True)}
    predictions = {}
    for name, (distinct, position) in zip(table.names, table.distinct, strict=True):
        others = distinct[:OPPONENTS]
        parts = np.array_split(distinct, -(-len(distinct) * len(others) // _DIFFERENCE_ROWS))
        means = [_mean_log_odds(part, others, table.shared, raw_output) for part in parts]
        predictions[name] = np.concatenate(means)[position]
    return predictions


def _mean_log_odds(rows, others, shared, raw_output) -> np.ndarray:
    """Return the mean log-odds that each row is slower than the others."""
    pairs = pair_features(rows[:, None], others, shared)
    odds = raw_output(pairs.reshape(-1, pairs.shape[-1]))
    return odds.reshape(len(rows), len(others), *odds.shape[1:]).mean(1)
