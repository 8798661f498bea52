"""The competition's scores, and their one owner: nothing else computes Kendall's tau or a slowdown.

A score ranks configurations: the **lower** it is, the faster the configuration is predicted to be, like a
runtime. Only its order counts.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import kendalltau

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.errors import ConfigError, DataError

TOP_K = 5


def _paired(runtime: ArrayLike, score: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Both as vectors of one length of at least 1, without NaN or infinity."""
    runtime, score = np.asarray(runtime), np.asarray(score)
    if runtime.ndim != 1 or runtime.shape != score.shape or runtime.size == 0:
        raise ValueError(
            f"runtime {runtime.shape} and score {score.shape} must be vectors of one length of at least 1"
        )
    for name, values in (("runtime", runtime), ("score", score)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} {np.flatnonzero(~np.isfinite(values))[0]} is not finite")
    return runtime, score


def kendall_tau(runtime: ArrayLike, score: ArrayLike) -> float:
    r"""Kendall's tau-b, the layout collections' metric of one graph.

    .. math:: \tau_b = \frac{P - Q}{\sqrt{(n_0 - n_1)(n_0 - n_2)}}

    with P concordant and Q discordant pairs, :math:`n_0 = C(C-1)/2`, and :math:`n_1, n_2` the pairs tied in
    runtime and in score (Kendall, "The treatment of ties in ranking problems", 1945). Equal to
    ``scipy.stats.kendalltau``, except that it is 0 where SciPy gives NaN, for tau is undefined there: all
    runtimes equal, all scores equal, or a single configuration.

    Args:
        runtime: (C,) runtimes, any unit. Integers are compared exactly, also above 2**24 and 2**53.
        score: (C,) scores, lower = predicted faster.

    Returns:
        Between -1 (every pair the wrong way round) and 1 (the right order).

    Raises:
        ValueError: The lengths differ, there is no configuration, or a value is not finite.

    Examples:
        >>> kendall_tau([30, 10, 20], [0.3, 0.1, 0.2])
        1.0
        >>> kendall_tau([30, 10, 20], [5, 5, 5])
        0.0
    """
    runtime, score = _paired(runtime, score)
    # Dense ranks: SciPy may pass through floats, which would merge large int64 runtimes.
    ranks = [np.unique(values, return_inverse=True)[1] for values in (runtime, score)]
    if min(values.max() for values in ranks) == 0:
        return 0.0
    return float(kendalltau(*ranks, variant="b").statistic)


def ordered_pair_accuracy(runtime: ArrayLike, score: ArrayLike) -> float:
    r"""Ordered pair accuracy (OPA): the share of pairs of different runtime that the score orders rightly.

    A pair tied in score counts one half, so a constant score has 0.5. Computed in O(C log C) from tau-b:
    with the symbols of :func:`kendall_tau`,

    .. math:: \mathrm{OPA} = \frac{1}{2} + \frac{P - Q}{2 (n_0 - n_1)}
              = \frac{1}{2} + \frac{\tau_b}{2} \sqrt{\frac{n_0 - n_2}{n_0 - n_1}}

    Args:
        runtime: (C,) runtimes, any unit.
        score: (C,) scores, lower = predicted faster.

    Returns:
        Between 0 and 1; 0.5 where no two runtimes differ.

    Raises:
        ValueError: As for :func:`kendall_tau`.

    Examples:
        >>> ordered_pair_accuracy([10, 20, 30, 30], [1, 2, 4, 3])
        1.0
        >>> ordered_pair_accuracy([10, 20, 30], [1, 1, 1])
        0.5
    """
    runtime, score = _paired(runtime, score)
    different_runtime, different_score = _different_pairs(runtime), _different_pairs(score)
    if different_runtime == 0:
        return 0.5
    return 0.5 + 0.5 * kendall_tau(runtime, score) * math.sqrt(different_score / different_runtime)


def _different_pairs(values: np.ndarray) -> int:
    """Number of unordered pairs of different values."""
    counts = np.unique(values, return_counts=True)[1].astype(np.int64)
    return int(values.size**2 - (counts**2).sum()) // 2


def slowdown(runtime: ArrayLike, score: ArrayLike, k: int = TOP_K) -> float:
    """How much slower the best of the ``k`` configurations ranked first is than the best of all.

    ``min(runtime of the k lowest scores) / min(runtime) - 1``. Equal scores are taken in the order of the
    configurations; of fewer than ``k`` configurations all are taken.

    Args:
        runtime: (C,) runtimes above 0; for tile ``config_runtime / config_runtime_normalizers``.
        score: (C,) scores, lower = predicted faster.
        k: How many configurations may be tried, at least 1.

    Returns:
        0 (the fastest is among them) or more; 0.1 = 10 % slower.

    Raises:
        ValueError: As for :func:`kendall_tau`, or a runtime is not above 0, or ``k`` is below 1.

    Examples:
        >>> slowdown([40, 10, 20, 30], [1, 4, 3, 2], k=2)
        2.0
    """
    runtime, score = _paired(runtime, score)
    if k < 1:
        raise ValueError(f"k: {k} is not at least 1")
    if not (runtime > 0).all():
        raise ValueError(f"runtime {np.flatnonzero(runtime <= 0)[0]} is not above 0")
    top = np.argsort(score, kind="stable")[:k]
    return float(runtime[top].min() / runtime.min() - 1)


def tile_score(runtime: ArrayLike, score: ArrayLike, k: int = TOP_K) -> float:
    """The tile collection's metric of one graph: ``1 - slowdown``, that is ``2 - ratio of runtimes``.

    Args:
        runtime: (C,) runtimes above 0, divided by their normalizers.
        score: (C,) scores, lower = predicted faster.
        k: How many configurations may be tried; the competition's 5 unless told.

    Returns:
        1 where the fastest configuration is among the first ``k``, less otherwise, without a lower bound.

    Raises:
        ValueError: As for :func:`slowdown`.

    Examples:
        >>> tile_score([40, 10, 20, 30], [1, 4, 3, 2], k=3)
        0.0
        >>> tile_score([40, 10, 20, 30], [1, 4, 3, 2])
        1.0
    """
    return 1.0 - slowdown(runtime, score, k)


_METRICS = {"layout": kendall_tau, "tile": tile_score}


def collection_score(kind: str, runtimes: Mapping[str, ArrayLike], scores: Mapping[str, ArrayLike]) -> dict:
    """The metric of a collection: :func:`kendall_tau` or :func:`tile_score` of each graph, and their mean.

    Args:
        kind: ``layout`` or ``tile``, the kind of the collection.
        runtimes: (C,) runtimes above 0 by graph; for tile divided by their normalizers.
        scores: (C,) scores by graph, lower = predicted faster; exactly the graphs of ``runtimes``.

    Returns:
        ``mean`` over graphs, and ``per_graph``: the metric by graph, in the order of ``runtimes``.

    Raises:
        ConfigError: ``kind`` is neither.
        DataError: A graph's scores are missing, foreign, of the wrong length or not finite, a runtime is not
            above 0 (test files carry zeros, which are no labels), or there is no graph; the graph is named.

    Examples:
        >>> collection_score("layout", {"a": [1, 2, 3], "b": [1, 2]}, {"a": [1, 2, 3], "b": [2, 1]})
        {'mean': 0.0, 'per_graph': {'a': 1.0, 'b': -1.0}}
    """
    if kind not in _METRICS:
        raise ConfigError(f"kind: {kind!r} is none of {', '.join(_METRICS)}")
    if not runtimes:
        raise DataError("runtimes", "no graph", "Score a split that has labels")
    for graph in runtimes:
        if graph not in scores:
            raise DataError(graph, "no scores for this graph", "Predict every graph of the split again")
    for graph in scores:
        if graph not in runtimes:
            raise DataError(graph, "scores of a graph without runtimes here", "Take the scores of this split")
    per_graph = {graph: _graph_score(kind, graph, runtimes[graph], scores[graph]) for graph in runtimes}
    return {"mean": float(np.mean(list(per_graph.values()))), "per_graph": per_graph}


def _graph_score(kind: str, graph: str, runtime: ArrayLike, score: ArrayLike) -> float:
    try:
        runtime, score = _paired(runtime, score)
    except ValueError as error:
        raise DataError(graph, str(error), "Predict this graph again from the labelled file") from None
    if not (runtime > 0).all():
        raise DataError(graph, "a runtime is not above 0", "Test files carry no labels: score train or valid")
    return _METRICS[kind](runtime, score)


def competition_score(means: Mapping[str, float]) -> float:
    """The competition's final score: the plain mean of the five collections' scores.

    Args:
        means: Score by collection name, all five.

    Raises:
        ValueError: A collection is missing or unknown.

    Examples:
        >>> competition_score({collection.name: 0.5 for collection in COLLECTIONS})
        0.5
    """
    wanted = {collection.name for collection in COLLECTIONS}
    if set(means) != wanted:
        raise ValueError(f"means: {', '.join(sorted(wanted ^ set(means)))} missing or unknown")
    return float(np.mean([means[name] for name in sorted(wanted)]))
