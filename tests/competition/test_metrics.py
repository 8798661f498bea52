import doctest
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kendalltau

from fastslow.competition import metrics
from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.metrics import (
    ALL_METRICS,
    collection_score,
    kendall_tau,
    mean_metrics,
    ordered_pair_accuracy,
    ranking_tau,
    ranking_taus,
    slowdown,
    tile_score,
)
from fastslow.core.errors import DataError, SettingsError
from fastslow.evaluation.scores import competition_score
from helpers.cases import cases


@st.composite
def rankings(draw, low=1, high=30):
    """Runtimes above 0 and scores of one length, with many ties."""
    size = draw(st.integers(low, high))
    runtime = draw(arrays(np.int64, size, elements=st.integers(1, 12)))
    score = draw(arrays(np.int64, size, elements=st.integers(-6, 6)))
    return runtime, score


def pair_counts(runtime, score):
    """Concordant, discordant, tied in runtime, tied in score, all: one pair at a time."""
    concordant = discordant = tied_runtime = tied_score = total = 0
    for i, j in itertools.combinations(range(len(runtime)), 2):
        a, b = np.sign(int(runtime[i]) - int(runtime[j])), np.sign(score[i] - score[j])
        total += 1
        tied_runtime += a == 0
        tied_score += b == 0
        concordant += a * b > 0
        discordant += a * b < 0
    return concordant, discordant, tied_runtime, tied_score, total


def test_examples_in_docstrings():
    assert doctest.testmod(metrics).attempted >= 8
    assert doctest.testmod(metrics).failed == 0


@settings(max_examples=60)
@given(rankings())
def test_tau_and_opa_equal_counting_pairs(ranking):
    concordant, discordant, tied_runtime, tied_score, total = pair_counts(*ranking)
    scale = math.sqrt((total - tied_runtime) * (total - tied_score))
    assert kendall_tau(*ranking) == pytest.approx(
        (concordant - discordant) / scale if scale else 0.0, abs=1e-12
    )
    different = total - tied_runtime
    half = different - concordant - discordant
    expected = (concordant + half / 2) / different if different else 0.5
    assert ordered_pair_accuracy(*ranking) == pytest.approx(expected, abs=1e-12)
    expected = concordant / different if different else 0.5
    assert ordered_pair_accuracy(*ranking, ties="wrong") == pytest.approx(expected, abs=1e-12)


@cases("size", [2, 23, 128, 129])
def test_tau_is_scipys_to_the_bit_however_pairs_are_counted(size, rng):
    for kinds in (2, size, 1000 * size):
        runtime, score = rng.integers(0, kinds, (2, size))
        runtime[:2], score[:2] = [0, 1], [0, 1]  # not all equal
        assert kendall_tau(runtime, score) == kendalltau(runtime, score).statistic


@cases("size", [3, 128, 129])
def test_opa_of_the_right_order_is_one_and_of_the_reverse_zero(size, rng):
    """Rounding gave 1.0000000000000002 and -2.2e-16 where runtimes are tied."""
    for _ in range(50):
        runtime = rng.integers(1, size, size)
        runtime[:2] = [1, size]  # not all equal
        place = np.argsort(np.argsort(runtime, kind="stable"))
        for ties in ("half", "wrong"):
            assert ordered_pair_accuracy(runtime, place, ties) == 1.0
            assert ordered_pair_accuracy(runtime, -place, ties) == 0.0


@settings(max_examples=60)
@given(rankings(low=2, high=5))
def test_the_tau_of_a_ranking_is_the_mean_over_all_orders_that_can_be_submitted(ranking):
    runtime, score = ranking
    orders = map(np.array, itertools.permutations(range(len(score))))
    allowed = [order for order in orders if (np.diff(score[order]) >= 0).all()]
    assert len(allowed) > 1 or len(set(score)) == len(score)
    taus = [kendalltau(runtime, np.argsort(order)).statistic for order in allowed]
    assert ranking_tau(*ranking) == pytest.approx(np.mean(np.nan_to_num(taus)), abs=1e-12)
    distinct = np.lexsort((np.arange(len(score)), score)).argsort()
    assert ranking_tau(runtime, distinct) == pytest.approx(kendall_tau(runtime, distinct))


@settings(max_examples=40)
@given(rankings(), st.integers(1, 8))
def test_slowdown_equals_trying_the_first_k(ranking, k):
    runtime, score = ranking
    tried = sorted(range(len(runtime)), key=lambda config: (score[config], config))[:k]
    ratio = min(runtime[config] for config in tried) / min(runtime)
    assert slowdown(runtime, score, k) == pytest.approx(ratio - 1)
    assert tile_score(runtime, score, k) == pytest.approx(2 - ratio)


@cases("base", [2**24, 2**53, 2**62])
def test_large_runtimes_are_not_merged(base):
    runtime = base + np.arange(6, dtype=np.int64)
    score = np.array([0, 2, 1, 3, 5, 4])
    assert (
        kendall_tau(runtime, score)
        == pytest.approx(kendall_tau(np.arange(6), score))
        == pytest.approx(11 / 15)
    )
    assert ordered_pair_accuracy(runtime, score) == pytest.approx(13 / 15)


def test_hundred_thousand_configurations_need_no_matrix():
    rng = np.random.default_rng(0)
    runtime = rng.integers(1, 2**40, 100_000)
    assert ordered_pair_accuracy(runtime, runtime) == 1.0
    assert ordered_pair_accuracy(runtime, -runtime) == 0.0
    assert ordered_pair_accuracy(runtime, rng.random(100_000)) == pytest.approx(0.5, abs=0.01)


@cases("k", [1, 5, 10, 100])
def test_an_error_by_name_looks_at_as_many_configurations_as_its_name_says(k):
    runtime = np.arange(1000, 800, -1)  # predicted from slowest to fastest: the K-th is the best of K
    assert ALL_METRICS[f"top_{k}_error"](runtime, np.arange(200)) == runtime[k - 1] / 801 - 1


@cases("metric", [ranking_tau, ordered_pair_accuracy, slowdown, tile_score])
@cases(
    "runtime, score, message",
    [
        ([1, 2], [1], r"\(2,\) and prediction \(1,\)"),
        ([], [], r"runtime of shape \(0,\) is not a 1-D array of at least one number"),
        ([[1, 2]], [[1, 2]], r"runtime of shape \(1, 2\) is not a 1-D array"),
        ([1, 2], ["1", "2"], r"prediction of shape \(2,\) is not a 1-D array of at least one number"),
        ([1j, 2], [1, 2], r"runtime of shape \(2,\) is not a 1-D array of at least one number"),
        ([1, 2], [None, 2], r"prediction of shape \(2,\) is not a 1-D array of at least one number"),
        ([1, 2], [0.5, np.nan], r"prediction\[1\] is nan, finite numbers are wanted"),
        ([np.inf, 2], [0, 1], r"runtime\[0\] is inf, finite numbers are wanted"),
    ],
)
def test_unusable_pairs_are_refused(metric, runtime, score, message):
    with pytest.raises(ValueError, match=message):
        metric(runtime, score)


def test_slowdown_refuses_test_labels_and_k_of_zero():
    with pytest.raises(ValueError, match=r"^runtime\[1\] is 0, a number above 0 is wanted$"):
        slowdown([1, 0, 3], [1, 2, 3])
    with pytest.raises(ValueError, match="k: 0 is not at least 1"):
        slowdown([1, 2], [1, 2], k=0)


def test_collection_score_takes_the_metric_of_the_kind():
    runtimes = {"a": np.array([30, 10, 20]), "b": np.array([2.0, 1.0])}
    scores = {"b": [1, 0], "a": [1, 3, 2]}
    layout = collection_score("layout", runtimes, scores)
    assert layout == {"mean": 0.0, "per_graph": {"a": -1.0, "b": 1.0}}
    assert list(layout["per_graph"]) == ["a", "b"]
    runtimes["c"], scores["c"] = np.array([20, 20, 20, 20, 20, 10]), np.arange(6)
    tile = collection_score("tile", runtimes, scores)
    assert tile["per_graph"] == {"a": 1.0, "b": 1.0, "c": 0.0}
    assert tile["mean"] == pytest.approx(2 / 3)


@cases(
    "runtimes, scores, message",
    [
        ({"resnet": [1, 2], "bert": [1, 2]}, {"resnet": [1, 2]}, "^bert: no predictions"),
        ({"resnet": [1, 2]}, {"resnet": [1, 2], "bert": [1, 2]}, "^bert: predictions for a graph without"),
        ({"resnet": [1, 2]}, {"resnet": [1, 2, 3]}, r"^resnet: .*\(2,\) and prediction \(3,\)"),
        ({"resnet": [1, 2]}, {"resnet": [1, np.nan]}, r"^resnet: prediction\[1\] is nan, finite numbers"),
        ({"resnet": [3, 0]}, {"resnet": [1, 2]}, r"^resnet: runtime\[1\] is 0, a number .*Test files"),
        ({"resnet": ["1", "2"]}, {"resnet": [1, 2]}, r"^resnet: runtime of shape \(2,\) is not"),
        ({"resnet": [1, 2]}, {"resnet": None}, r"^resnet: prediction of shape \(\) is not"),
        ({}, {}, "no graph"),
    ],
)
def test_means_over_graphs_name_the_graph_that_they_refuse(runtimes, scores, message):
    """``mean_metrics`` had no such check: a KeyError, a ValueError without the graph, or a mean of NaN."""
    for kind in ("layout", "tile"):
        with pytest.raises(DataError, match=message):
            collection_score(kind, runtimes, scores)
    with pytest.raises(DataError, match=message):
        mean_metrics(runtimes, scores)


def test_unknown_kind_is_refused():
    with pytest.raises(SettingsError, match="kind: 'tiles' is none of layout, tile"):
        collection_score("tiles", {"a": [1]}, {"a": [1]})


def test_competition_score_is_the_mean_of_all_five():
    means = {
        collection.name: score for collection, score in zip(COLLECTIONS, (1, 0.5, 0.5, 0, -1), strict=True)
    }
    assert competition_score(means) == pytest.approx(0.2)
    means["other"] = means.pop("tile:xla")
    with pytest.raises(ValueError, match="means: other, tile:xla missing or unknown"):
        competition_score(means)


@cases(
    "runtime, predictions, message",
    [
        ([1, 2], [[1, 2], [1, np.nan]], r"prediction\[1\] is nan"),
        ([np.nan, 2], [[1], [2]], r"runtime\[0\] is nan"),
        ([1, 2, 3], [[1], [2]], r"runtime \(3,\) and prediction \(2,\)"),
        ([], np.zeros((0, 2)), "at least one number"),
        ([1, 2], ["a", "b"], r"predictions of shape \(2,\) are not 2-D"),
        ([1, 2], [], r"predictions of shape \(0,\) are not 2-D"),
        ([1, 2], 5, r"predictions of shape \(\) are not 2-D"),
    ],
)
def test_taus_of_many_predictions_refuse_what_has_no_order(runtime, predictions, message):
    """A NaN compared as equal to everything, so that its column had a tau."""
    with pytest.raises(ValueError, match=message):
        ranking_taus(runtime, predictions)


@given(
    arrays(np.int64, 17, elements=st.integers(1, 9)),
    arrays(np.float32, (17, 4), elements=st.integers(-3, 3)),
    st.integers(1, 17),
)
def test_taus_of_many_predictions_are_those_of_each(runtime, predictions, size):
    taus = ranking_taus(runtime[:size], predictions[:size])
    wanted = [ranking_tau(runtime[:size], column) for column in predictions[:size].T]
    np.testing.assert_allclose(taus, wanted, atol=1e-12)
