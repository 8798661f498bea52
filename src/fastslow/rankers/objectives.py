"""What a ranker's trees are fitted to, and how their output becomes a score.

``regression``
    z-scored log runtime of each graph, squared error.
``quantile``
    The share of the graph's runtimes below each (ties at their mean), squared error: outliers count no more.
``lambdarank``, ``rank_xendcg``
    LightGBM's ranking objectives on relevance levels, the fastest highest.
``pairwise``
    A classifier of which one of two configurations is slower, from the difference of their features; its
    log-odds against a set of configurations of the graph, averaged, are the score.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import lightgbm
import numpy as np
import pandas as pd
from scipy.stats import rankdata

from fastslow.rankers.table import Table

QUERY_ROWS = 10_000  # LightGBM's largest query
_SCORED_ROWS = 1 << 16  # rows of differences held at a time


def regression_labels(runtime: np.ndarray) -> np.ndarray:
    """z-scored log runtime of a graph, ``(C,)``: lower is faster."""
    log = np.log(runtime)
    return (log - log.mean()) / max(log.std(), 1e-6)  # below that, rounding


def quantile_labels(runtime: np.ndarray) -> np.ndarray:
    """Rank of each runtime from 0 (fastest) to 1, equal ones at their mean, ``(C,)``."""
    return (rankdata(runtime) - 1) / max(len(runtime) - 1, 1)


def relevance_labels(runtime: np.ndarray, levels: int = 31) -> np.ndarray:
    """Integer relevance below ``levels``, the fastest highest, ``(C,)``.

    Equal runtimes share a level; where there are more distinct ones than levels, neighbours do too.
    """
    _, rank = np.unique(-runtime, return_inverse=True)
    distinct = rank.max() + 1
    return rank if distinct <= levels else rank * levels // distinct


@dataclass(frozen=True)
class Objective:
    """How a table is fitted.

    Args:
        lightgbm: LightGBM's name of it.
        label: Labels of a graph from its runtimes; None: those of pairs.
        sign: Turns predictions into scores, lower = faster.
        ranks: LightGBM takes each graph as a query, and labels as relevance.
    """

    lightgbm: str
    label: Callable[..., np.ndarray] | None
    sign: int = 1
    ranks: bool = False


OBJECTIVES = {
    "regression": Objective("regression", regression_labels),
    "quantile": Objective("regression", quantile_labels),
    "lambdarank": Objective("lambdarank", relevance_labels, sign=-1, ranks=True),
    "rank_xendcg": Objective("rank_xendcg", relevance_labels, sign=-1, ranks=True),
    "pairwise": Objective("binary", None),
}


def deal_queries(size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Positions of a graph's rows, dealt at random into the fewest equal queries that LightGBM takes."""
    parts = -(-size // QUERY_ROWS)
    order = rng.permutation(size) if parts > 1 else np.arange(size)
    return [np.sort(part) for part in np.array_split(order, parts)]


def draw_pairs(
    runtime: np.ndarray, per_config: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of configurations of different runtime, each one against up to ``per_config`` others."""
    first = np.repeat(np.arange(len(runtime)), per_config)
    second = rng.integers(0, len(runtime), len(first))
    differ = runtime[first] != runtime[second]
    return first[differ], second[differ]


def difference(first: np.ndarray, second: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """Features of pairs, ``(n, F)``: differences, except of the ``shared`` columns, equal in both."""
    result = first - second
    result[:, shared] = first[:, shared]
    return result


def make_dataset(
    table: Table,
    objective: str,
    seed: int = 0,
    pairs_per_config: int = 16,
    levels: int = 31,
    reference: lightgbm.Dataset | None = None,
) -> lightgbm.Dataset:
    """A table with an objective's labels; every graph weighs the same.

    What is drawn for a graph depends on the seed and its name alone.

    Args:
        table: Rows with runtimes.
        objective: One of ``OBJECTIVES``.
        seed: Seed of dealing a graph of more than 10,000 rows into queries, and of drawing pairs.
        pairs_per_config: Others that a configuration is compared with (``pairwise``).
        levels: Most relevance levels of a graph (``lambdarank``, ``rank_xendcg``).
        reference: Take the bins of this dataset.
    """
    spec = OBJECTIVES[objective]
    rows, labels, weights = [], [], []
    for name, own, runtime in zip(table.names, table.rows, table.runtimes, strict=True):
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if spec.label is None:
            first, second = draw_pairs(runtime, pairs_per_config, rng)
            parts = [difference(own[first], own[second], table.shared)]
            label = [runtime[first] > runtime[second]]
        else:
            queries = deal_queries(len(own), rng) if spec.ranks else [np.arange(len(own))]
            parts = [own] if len(queries) == 1 else [own[query] for query in queries]
            values = spec.label(runtime, levels) if spec.ranks else spec.label(runtime)
            label = [values[query] for query in queries]
        rows += parts
        labels += label
        weights += [np.full(len(part), 1 / max(1, sum(map(len, parts)))) for part in parts]
    filled = [i for i, part in enumerate(rows) if len(part)]
    return lightgbm.Dataset(
        [rows[i] for i in filled],
        np.concatenate(labels).astype(np.float32),
        weight=np.concatenate(weights),
        group=[len(rows[i]) for i in filled] if spec.ranks else None,
        feature_name=table.columns,
        reference=reference,
        params={"feature_pre_filter": False, "verbosity": -1},
    )


def opponents(rows: np.ndarray, most: int) -> np.ndarray:
    """Up to ``most`` distinct rows, ``(n, F)``, chosen by a hash of their values.

    Which ones depends neither on the order of the rows nor on how often one occurs.
    """
    # adding 0 makes one of the two zeros, which are equal and hash differently
    _, first = np.unique(pd.util.hash_pandas_object(pd.DataFrame(rows + 0), index=False), return_index=True)
    return rows[first[:most]]


def score_table(
    objective: str, table: Table, predict: Callable[[np.ndarray], np.ndarray], most_opponents: int = 16
) -> dict[str, np.ndarray]:
    """Scores by graph, ``(C,)`` float64 each, or ``(C, outputs)``; lower = predicted faster.

    They are linear in what ``predict`` gives, so scores of parts of the trees add up.

    Args:
        objective: One of ``OBJECTIVES``.
        table: Rows to score.
        predict: The trees' raw output for rows, or several outputs each.
        most_opponents: Configurations that each is compared with (``pairwise``).
    """
    spec = OBJECTIVES[objective]
    if spec.label is not None:
        return {name: spec.sign * predict(rows) for name, rows in zip(table.names, table.rows, strict=True)}
    scores = {}
    for name, rows in zip(table.names, table.rows, strict=True):
        others = opponents(rows, most_opponents)
        parts = np.array_split(rows, -(-len(rows) * len(others) // _SCORED_ROWS))
        scores[name] = np.concatenate([_mean_odds(part, others, table.shared, predict) for part in parts])
    return scores


def _mean_odds(rows, others, shared, predict) -> np.ndarray:
    """Mean log-odds that each row is slower than the others."""
    first, second = np.repeat(rows, len(others), 0), np.tile(others, (len(rows), 1))
    odds = predict(difference(first, second, shared))
    return odds.reshape(len(rows), len(others), *odds.shape[1:]).mean(1)
