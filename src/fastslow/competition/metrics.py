"""The competition's metrics, in one place: nothing else computes Kendall's tau or a slowdown.

A model returns a *prediction* per configuration, lower = predicted faster, like a runtime; only the order
of the predictions of one graph counts. A *score* is better when higher. What is scored is an order without
ties, as a submission is: :func:`ranking_tau`. How far two measurements agree is :func:`kendall_tau`.

The metrics of one graph take ``(C,)`` runtimes, for tile ``config_runtime / config_runtime_normalizers``, and
``(C,)`` predictions. They raise ValueError where lengths differ, there is none, or one is no finite number.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastslow.core.errors import DataError, registered

_FEW = 128  # configurations of which all pairs are counted
TOP_K = 5  # configurations per kernel that the tile metric looks at


def is_finite(values: ArrayLike) -> bool:
    """Return whether values are 1-D, at least one, and finite numbers."""
    array = np.asarray(values)
    return (
        array.ndim == 1 and array.size > 0 and array.dtype.kind in "iufb" and bool(np.isfinite(array).all())
    )


def fastest_first(prediction: ArrayLike, kind: str) -> np.ndarray:
    """Return the configurations that a submission lists, int64, fastest first.

    Args:
        prediction: (C,) lower = predicted faster. Equal predictions keep the order of the configurations.
        kind: ``tile`` (the first 5, or all if there are fewer) or ``layout`` (all).

    Raises:
        SettingsError: ``kind`` is neither.
        ValueError: The prediction is not 1-D, empty, or not finite: a NaN would silently rank last.
    """
    registered(_METRICS, "kind", kind)
    order = np.argsort(_numbers("prediction", prediction), kind="stable")
    return order[:TOP_K] if kind == "tile" else order


def _numbers(name: str, values: ArrayLike) -> np.ndarray:
    """Return values as an array; ValueError unless they are 1-D, at least one, and finite numbers."""
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iufb":
        raise ValueError(f"{name} of shape {array.shape} is not a 1-D array of at least one number")
    _require(name, array, np.isfinite(array), "finite numbers are")
    return array


def _paired(runtime: ArrayLike, prediction: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return both as arrays; errors as of :func:`_numbers`, or ValueError where the lengths differ."""
    runtime = _numbers("runtime", runtime)
    prediction = _numbers("prediction", prediction)
    if len(runtime) != len(prediction):
        raise ValueError(f"runtime {runtime.shape} and prediction {prediction.shape} differ in length")
    return runtime, prediction


def _require(name: str, values: np.ndarray, right: np.ndarray, wanted: str) -> None:
    """Raise a ValueError that names the first value that is not right, where there is one."""
    if not right.all():
        place = np.argwhere(~right)[0].tolist()
        raise ValueError(f"{name}{place} is {values[tuple(place)]}, {wanted} wanted")


def kendall_tau(runtime: ArrayLike, prediction: ArrayLike) -> float:
    r"""Compute Kendall's tau-b: how far two orders of the configurations agree.

    .. math:: \tau_b = \frac{P - Q}{\sqrt{(n_0 - n_1)(n_0 - n_2)}}

    with P concordant and Q discordant pairs, :math:`n_0 = C(C-1)/2`, and :math:`n_1, n_2` the pairs tied in
    runtime and in prediction (Kendall, "The treatment of ties in ranking problems", Biometrika 1945; the
    metric of TpuGraphs, arXiv 2308.13490). It is computed on dense ranks: float64 would merge int64 runtimes
    beyond 2**53. Pairs of up to 128 configurations are counted one by one, which takes a third of the time of
    a call of SciPy; of more, SciPy counts them, O(C log C). Both give the same number to the bit.

    Returns:
        Between -1 and 1 (every pair is in the right order); 0 where tau is undefined: all runtimes equal, all
        predictions equal, or a single configuration.

    Examples:
        >>> kendall_tau([30, 10, 20], [0.3, 0.1, 0.2])
        1.0
        >>> kendall_tau([30, 10, 20], [5, 5, 5])
        0.0
    """
    runtime, prediction = _paired(runtime, prediction)
    ranks = [np.unique(values, return_inverse=True)[1] for values in (runtime, prediction)]
    if min(values.max() for values in ranks) == 0:
        return 0.0
    if len(runtime) <= _FEW:
        orders = [np.sign(values[:, None] - values) for values in ranks]
        agreement = (orders[0] * orders[1]).sum() // 2  # P - Q
        pairs = [np.sqrt(_different_pairs(values)) for values in ranks]
        return float(np.clip(agreement / pairs[0] / pairs[1], -1.0, 1.0))
    from scipy.stats import kendalltau  # half a second, which no settings need

    return float(kendalltau(*ranks, variant="b").statistic)


def ranking_tau(runtime: ArrayLike, prediction: ArrayLike) -> float:
    r"""Compute the layout collections' metric of one graph: tau-b of runtimes and a submitted order.

    A submission lists every configuration once, so it has no ties. Equal predictions count as put in a random
    order; the expected tau is, with the symbols of :func:`kendall_tau`,

    .. math:: \mathrm{E}[\tau] = \frac{P - Q}{\sqrt{(n_0 - n_1) n_0}} = \tau_b \sqrt{\frac{n_0 - n_2}{n_0}}

    Tau-b itself would credit a rule for the pairs that it does not order: on AlexNet's measured file the best
    column of ``config_feat`` has 18 values, a tau-b of 0.754 and a tau of 0.692 as an order.

    Returns:
        As :func:`kendall_tau`, which it equals where no two predictions are equal.

    Examples:
        >>> ranking_tau([30, 10, 20], [0.3, 0.1, 0.2])
        1.0
        >>> round(ranking_tau([10, 20, 30, 40], [1, 1, 2, 2]), 3)
        0.667
    """
    tau = kendall_tau(runtime, prediction)
    values = np.asarray(prediction)
    return tau * math.sqrt(_different_pairs(values) / math.comb(len(values), 2)) if tau else 0.0


def ranking_taus(runtime: ArrayLike, predictions: ArrayLike) -> np.ndarray:
    """Compute :func:`ranking_tau` of many predictions of one graph at once, O(C^2 V) in time and memory.

    For the few hundred configurations of a graph that is many times faster than one call per column.

    Args:
        runtime: ``(C,)`` runtimes.
        predictions: ``(C, V)``, a prediction in each column.

    Returns:
        ``(V,)`` float64, -1 to 1.

    Examples:
        >>> ranking_taus([30, 10, 20], [[0.3, 5], [0.1, 5], [0.2, 5]])
        array([1., 0.])
    """
    predictions = np.asarray(predictions)
    if predictions.ndim != 2:
        raise ValueError(f"predictions of shape {predictions.shape} are not 2-D")
    for column in predictions.T:
        runtime, _ = _paired(runtime, column)
    first, second = np.triu_indices(len(predictions), 1)

    def order(values: np.ndarray) -> np.ndarray:
        return (values[first] > values[second]).astype(np.float64) - (values[first] < values[second])

    by_runtime = order(np.asarray(runtime))
    pairs = max(np.abs(by_runtime).sum() * len(first), 1)
    taus: np.ndarray = by_runtime @ order(predictions) / np.sqrt(pairs)
    return taus


def ordered_pair_accuracy(runtime: ArrayLike, prediction: ArrayLike, ties: str = "half") -> float:
    r"""Compute the ordered pair accuracy (OPA): the share of pairs of different runtime in the right order.

    Neither SciPy nor scikit-learn has it; with the symbols of :func:`kendall_tau`,

    .. math:: \mathrm{OPA} = \frac{1}{2} + \frac{\tau_b}{2} \sqrt{\frac{n_0 - n_2}{n_0 - n_1}}

    minus half the share of the pairs tied only in prediction where these are wrong.

    A pair tied in prediction counts ``half`` or, as in TensorFlow Ranking's OPAMetric, by which the baselines
    of TpuGraphs (arXiv 2308.13490) are validated, as ``wrong``.

    Args:
        runtime: ``(C,)`` runtimes.
        prediction: ``(C,)``, lower = predicted faster.
        ties: ``half`` or ``wrong``.

    Returns:
        0 to 1; 0.5 where no two runtimes differ.

    Examples:
        >>> ordered_pair_accuracy([10, 20, 30, 30], [1, 2, 4, 3])
        1.0
        >>> ordered_pair_accuracy([10, 20, 30], [1, 1, 1])
        0.5
        >>> ordered_pair_accuracy([10, 20, 30], [1, 1, 1], ties="wrong")
        0.0
    """
    if ties not in ("half", "wrong"):
        raise ValueError(f"ties: {ties!r} is neither 'half' nor 'wrong'")
    runtime, prediction = _paired(runtime, prediction)
    different_runtime = _different_pairs(runtime)
    different_prediction = _different_pairs(prediction)
    if different_runtime == 0:
        return 0.5
    scale = math.sqrt(different_runtime * different_prediction)
    right = different_runtime + round(kendall_tau(runtime, prediction) * scale)  # twice; whole, so exact
    if ties == "wrong":
        ranks = [np.unique(values, return_inverse=True)[1] for values in (runtime, prediction)]
        right -= _different_pairs(ranks[0] * (ranks[1].max() + 1) + ranks[1]) - different_prediction
    return right / (2 * different_runtime)


def _different_pairs(values: np.ndarray) -> int:
    counts = np.unique(values, return_counts=True)[1].astype(np.int64)
    return int(values.size**2 - (counts**2).sum()) // 2


def slowdown(runtime: ArrayLike, prediction: ArrayLike, k: int = TOP_K) -> float:
    """Compute how much slower the best of the ``k`` configurations ranked first is than the best of all.

    ``min(runtime of the k lowest predictions) / min(runtime) - 1`` (TpuGraphs, arXiv 2308.13490): 0 (the
    fastest is among them) or more; 0.1 = 10 % slower. Equal predictions rank in the order of configurations;
    of fewer than ``k`` all are tried.

    Args:
        runtime: ``(C,)`` runtimes, above 0.
        prediction: ``(C,)``, lower = predicted faster.
        k: Number of configurations that are tried, 1 or more.

    Raises:
        ValueError: A runtime is not above 0, or ``k`` is below 1.

    Examples:
        >>> slowdown([40, 10, 20, 30], [1, 4, 3, 2], k=2)
        2.0
    """
    runtime, prediction = _paired(runtime, prediction)
    if k < 1:
        raise ValueError(f"k: {k} is not at least 1")
    _require("runtime", runtime, runtime > 0, "a number above 0 is")
    top = np.argsort(prediction, kind="stable")[:k]
    return float(runtime[top].min() / runtime.min() - 1)


def tile_score(runtime: ArrayLike, prediction: ArrayLike, k: int = TOP_K) -> float:
    """Compute the tile collection's metric of one graph, ``1 - slowdown``: at most 1, without a lower bound.

    Arguments and errors are as for :func:`slowdown`.

    Examples:
        >>> tile_score([40, 10, 20, 30], [1, 4, 3, 2], k=3)
        0.0
        >>> tile_score([40, 10, 20, 30], [1, 4, 3, 2])
        1.0
    """
    return 1.0 - slowdown(runtime, prediction, k)


_METRICS = {"layout": ranking_tau, "tile": tile_score}
ALL_METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    "tau": ranking_tau,
    "opa": ordered_pair_accuracy,
    "opa_ties_wrong": partial(ordered_pair_accuracy, ties="wrong"),
    **{f"top_{k}_error": partial(slowdown, k=k) for k in (1, 5, 10, 100)},
}
"""Every metric of one graph by name. ``top_K_error`` is the slowdown@K of TpuGraphs: lower is better, 0 best;
the others are better when higher."""


def mean_metrics(runtimes: Mapping[str, ArrayLike], predictions: Mapping[str, ArrayLike]) -> dict[str, float]:
    """Compute the mean over graphs of every metric of :data:`ALL_METRICS`, by its name.

    Arguments and errors are as for :func:`collection_score`.

    Examples:
        >>> mean_metrics({"a": [1, 2], "b": [1, 2]}, {"a": [1, 2], "b": [2, 1]})["top_1_error"]
        0.5
    """
    return {
        name: float(np.mean(list(_per_graph(metric, runtimes, predictions).values())))
        for name, metric in ALL_METRICS.items()
    }


def collection_score(
    kind: str, runtimes: Mapping[str, ArrayLike], predictions: Mapping[str, ArrayLike]
) -> dict[str, Any]:
    """Compute a collection's metric: :func:`ranking_tau` or :func:`tile_score` per graph, and their mean.

    Args:
        kind: ``layout`` or ``tile``, the kind of the collection.
        runtimes: ``(C,)`` runtimes above 0 by graph.
        predictions: ``(C,)`` by graph, lower = predicted faster; exactly the graphs of ``runtimes``.

    Returns:
        ``mean`` over graphs, and ``per_graph``: the metric per graph, in the order of ``runtimes``.

    Raises:
        SettingsError: ``kind`` is neither.
        DataError: A graph's predictions are missing, foreign or unusable, a runtime is not above 0, or there
            is no graph; the graph is named.

    Examples:
        >>> collection_score("layout", {"a": [1, 2, 3], "b": [1, 2]}, {"a": [1, 2, 3], "b": [2, 1]})
        {'mean': 0.0, 'per_graph': {'a': 1.0, 'b': -1.0}}
    """
    per_graph = _per_graph(registered(_METRICS, "kind", kind), runtimes, predictions)
    return {"mean": float(np.mean(list(per_graph.values()))), "per_graph": per_graph}


def _per_graph(
    metric: Callable[..., float], runtimes: Mapping[str, ArrayLike], predictions: Mapping[str, ArrayLike]
) -> dict[str, float]:
    """Return a metric of each graph; errors as of :func:`collection_score`."""
    if not runtimes:
        raise DataError("runtimes", "no graph", "Score a split that has labels")
    for graph in {**runtimes, **predictions}:
        if graph not in predictions:
            raise DataError(graph, "no predictions for this graph", "Predict every graph of the split again")
        if graph not in runtimes:
            raise DataError(graph, "predictions for a graph without runtimes", "Take the ones of this split")
    per_graph = {}
    for graph, runtime in runtimes.items():
        remedy = "Test files carry no labels: score train or valid"
        try:
            numbers = _numbers("runtime", runtime)
            _require("runtime", numbers, numbers > 0, "a number above 0 is")
            remedy = "Predict this graph again from the labelled file"
            per_graph[graph] = metric(numbers, predictions[graph])
        except ValueError as error:
            raise DataError(graph, str(error), remedy) from None
    return per_graph
