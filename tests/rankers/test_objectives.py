"""Labels, queries, pairs and opponents of the ranker's objectives."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fastslow.features.scaling import log_labels, unit_ranks
from fastslow.rankers import objectives
from fastslow.rankers.objectives import (
    OBJECTIVES,
    distinct_rows,
    draw_pairs,
    hash_rows,
    make_dataset,
    predict_table,
    relevance_labels,
    split_queries,
)
from fastslow.rankers.table import Table
from helpers.cases import cases

runtimes = st.lists(st.integers(1, 2**40), min_size=1, max_size=60).map(np.array)


def toy(sizes, seed=0):
    rng = np.random.default_rng(seed)
    rows = [rng.random((size, 3), np.float32) for size in sizes]
    names = [f"g{i}" for i in range(len(sizes))]
    return Table(names, rows, [rng.integers(1, 9, size) for size in sizes], ["a", "graph_b", "c"])


@given(runtimes)
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


@given(runtimes, st.integers(2, 31))
def test_relevance_labels_fall_with_runtime(runtime, most):
    label = relevance_labels(runtime, most)
    levels = len(set(runtime.tolist()))
    assert label.dtype.kind == "i" and label.min() == 0
    assert label.max() == min(levels, most) - 1
    assert (np.diff(label[np.argsort(runtime)]) <= 0).all()
    if levels <= most:
        pairs = {(r, v) for r, v in zip(runtime.tolist(), label.tolist(), strict=True)}
        assert len({v for _, v in pairs}) == levels == len(pairs)


def test_runtimes_that_float32_would_merge_keep_their_order():
    runtime = 2**24 + np.arange(4)
    assert relevance_labels(runtime).tolist() == [3, 2, 1, 0]
    assert (np.diff(log_labels(runtime)) > 0).all()


@cases("size, queries", [(1, 1), (10_000, 1), (10_001, 2), (25_000, 3)])
def test_queries_deal_out_every_row_once_within_lightgbms_limit(size, queries):
    queries_of = split_queries(size, np.random.default_rng(0))
    assert len(queries_of) == queries and max(map(len, queries_of)) <= 10_000
    assert max(map(len, queries_of)) - min(map(len, queries_of)) <= 1
    assert sorted(np.concatenate(queries_of).tolist()) == list(range(size))


def test_every_graph_weighs_the_same_also_where_it_is_dealt_out(monkeypatch):
    monkeypatch.setattr(objectives, "QUERY_ROWS", 10)
    for objective, spec in OBJECTIVES.items():
        data = make_dataset(toy([35, 5, 8]), objective).construct()
        if spec.ranks:
            assert data.get_group().tolist() == [9, 9, 9, 8, 5, 8]
        if spec.label is not None:
            weight = np.split(data.get_weight(), [35, 40])
            assert [w.sum() for w in weight] == pytest.approx([1, 1, 1])


@given(runtimes, st.integers(1, 5))
def test_pairs_are_of_different_runtime(runtime, per_config):
    first, second = draw_pairs(runtime, per_config, np.random.default_rng(0))
    assert (runtime[first] != runtime[second]).all()
    assert np.bincount(first, minlength=len(runtime)).max() <= per_config


def test_pairs_of_a_graph_depend_on_its_name_and_the_seed_alone():
    table = toy([6, 5, 4])
    alone = Table(table.names[1:2], table.rows[1:2], table.runtimes[1:2], table.columns)
    both = make_dataset(table, "pairwise", seed=3).construct().get_label()
    own = make_dataset(alone, "pairwise", seed=3).construct().get_label()
    assert own.tolist() in [both[i : i + len(own)].tolist() for i in range(len(both) - len(own) + 1)]


def test_a_graph_of_one_runtime_forms_no_pairs():
    table = toy([6, 5])
    table.runtimes[0] = np.ones(6)
    data = make_dataset(table, "pairwise").construct()
    assert data.num_data() <= 5 * 16 and data.get_weight().sum() == pytest.approx(1)


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
    chosen, position = distinct_rows(rows)
    again, places = distinct_rows(rows[drawn])
    np.testing.assert_array_equal(chosen[:most], again[:most])
    np.testing.assert_array_equal(chosen, distinct_rows(-0.0 + rows)[0])
    np.testing.assert_array_equal(chosen[position], rows)
    np.testing.assert_array_equal(again[places], rows[drawn])
    distinct = {tuple(row) for row in rows.tolist()}
    assert len(chosen) == len({tuple(row) for row in chosen.tolist()}) == len(distinct)


def test_a_pairwise_score_is_the_mean_against_the_opponents(monkeypatch):
    table = toy([7, 3])
    table.rows[0] = table.rows[0][[0, 1, 2, 3, 4, 5, 6, 2, 0]]  # a repeated row is predicted once
    weights = np.array([1.0, 10.0, -2.0])
    monkeypatch.setattr(objectives, "_DIFFERENCE_ROWS", 8)
    scores = predict_table("pairwise", table, lambda rows: rows @ weights, 4)
    for name, rows in zip(table.names, table.rows, strict=True):
        others = distinct_rows(rows)[0][:4]
        wanted = [
            np.mean([(row - o)[[0, 2]] @ weights[[0, 2]] + 10 * row[1] for o in others]) for row in rows
        ]
        np.testing.assert_allclose(scores[name], wanted, rtol=1e-4)


@cases("objective", ["regression", "lambdarank"])
def test_a_score_is_low_where_a_configuration_is_fast(objective):
    table = toy([5])
    sign = -1 if objective == "lambdarank" else 1
    scores = predict_table(objective, table, lambda rows: rows[:, 0])
    np.testing.assert_array_equal(scores["g0"], sign * table.rows[0][:, 0])
