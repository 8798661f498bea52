"""Labels, pairs and opponents of the ranker's objectives."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fastslow.features.scaling import log_labels, unit_ranks
from fastslow.rankers import objectives
from fastslow.rankers.objectives import draw_pairs, predict_table, sample_table
from fastslow.rankers.options import RankerOptions
from fastslow.rankers.table import Table, distinct_by_hash, hash_rows

runtimes = st.lists(st.integers(1, 2**40), min_size=1, max_size=60).map(np.array)


def toy(sizes, seed=0):
    rng = np.random.default_rng(seed)
    rows = [rng.random((size, 3), np.float32) for size in sizes]
    names = [f"g{i}" for i in range(len(sizes))]
    return Table(names, rows, [rng.integers(1, 9, size) for size in sizes], ["a", "graph_b", "c"])


@given(runtimes)
@example(np.array([1331562] * 5))  # whose mean logarithm is rounded
def test_log_labels_are_z_scores_of_log_runtime(runtime):
    label, log = log_labels(runtime), [math.log(r) for r in runtime]
    mean = sum(log) / len(log)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in log) / len(log))
    if deviation > 1e-9:
        np.testing.assert_allclose(label, [(x - mean) / deviation for x in log], rtol=1e-4, atol=1e-4)
    assert (np.diff(label[np.argsort(runtime)]) >= 0).all() and abs(label.mean()) < 1e-3


@given(runtimes)
def test_unit_ranks_are_shares_of_faster_configurations(runtime):
    others = max(len(runtime) - 1, 1)
    wanted = [((runtime < r).sum() + ((runtime == r).sum() - 1) / 2) / others for r in runtime]
    np.testing.assert_allclose(unit_ranks(runtime), wanted, atol=1e-12)


def test_runtimes_that_float32_would_merge_keep_their_order():
    runtime = 2**24 + np.arange(4)
    assert (np.diff(log_labels(runtime)) > 0).all()


def test_every_graph_weighs_the_same():
    weight = sample_table(toy([35, 5, 8]), RankerOptions(objective="regression")).weights
    assert [w.sum() for w in np.split(weight, [35, 40])] == pytest.approx([1, 1, 1])


@given(runtimes, st.integers(1, 5))
def test_pairs_are_of_different_runtime(runtime, per_config):
    first, second = draw_pairs(runtime, per_config, np.random.default_rng(0))
    assert (runtime[first] != runtime[second]).all()
    assert np.bincount(first, minlength=len(runtime)).max() <= per_config


def test_pairs_of_a_graph_depend_on_its_name_and_the_seed_alone():
    table = toy([6, 5, 4])
    alone = Table(table.names[1:2], table.rows[1:2], table.runtimes[1:2], table.columns)
    both = sample_table(table, RankerOptions(seed=3)).labels
    labels = sample_table(alone, RankerOptions(seed=3)).labels
    assert labels.tolist() in [both[i : i + len(labels)].tolist() for i in range(len(both) - len(labels) + 1)]


def test_a_graph_of_one_runtime_forms_no_pairs():
    table = toy([6, 5])
    table.runtimes[0] = np.ones(6)
    sample = sample_table(table, RankerOptions())
    assert not len(sample.rows[0]) and len(sample.labels) <= 5 * 16
    assert sample.weights.sum() == pytest.approx(1)


@given(arrays(np.float32, st.tuples(st.integers(0, 4), st.integers(1, 5))))
def test_the_hash_of_rows_is_that_of_pandas(rows):
    wanted = pd.util.hash_pandas_object(pd.DataFrame(rows + 0), index=False)
    assert hash_rows(rows).tolist() == wanted.tolist()


@given(st.integers(0, 10**6), st.integers(1, 6))
@settings(max_examples=20)
def test_opponents_know_neither_order_nor_frequency(seed, most):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 2, (9, 3)).astype(np.float32)
    drawn = rng.permutation([*range(9), *rng.integers(0, 9, 5)])
    chosen, position = distinct_by_hash(rows)
    again, places = distinct_by_hash(rows[drawn])
    np.testing.assert_array_equal(chosen[:most], again[:most])
    np.testing.assert_array_equal(chosen, distinct_by_hash(-0.0 + rows)[0])
    np.testing.assert_array_equal(chosen[position], rows)
    np.testing.assert_array_equal(again[places], rows[drawn])
    distinct = {tuple(row) for row in rows.tolist()}
    assert len(chosen) == len({tuple(row) for row in chosen.tolist()}) == len(distinct)


def test_a_pairwise_score_is_the_mean_against_the_opponents(monkeypatch):
    table = toy([7, 3])
    table.rows[0] = table.rows[0][[0, 1, 2, 3, 4, 5, 6, 2, 0]]  # a repeated row is predicted once
    weights = np.array([1.0, 10.0, -2.0])
    monkeypatch.setattr(objectives, "_DIFFERENCE_ROWS", 8)
    monkeypatch.setattr(objectives, "OPPONENTS", 4)
    scores = predict_table("pairwise", table, lambda rows: rows @ weights)
    for name, rows in zip(table.names, table.rows, strict=True):
        others = distinct_by_hash(rows)[0][:4]
        wanted = [
            np.mean([(row - o)[[0, 2]] @ weights[[0, 2]] + 10 * row[1] for o in others]) for row in rows
        ]
        np.testing.assert_allclose(scores[name], wanted, rtol=1e-4)


def test_a_score_is_low_where_a_configuration_is_fast():
    table = toy([5])
    scores = predict_table("regression", table, lambda rows: rows[:, 0])
    np.testing.assert_array_equal(scores["g0"], table.rows[0][:, 0])
