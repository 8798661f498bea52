"""The boosting loop: when it evaluates, what it adds up, when it stops."""

import math

import lightgbm
import numpy as np
import pytest

from fastslow.rankers.fit import (
    NO_SPLIT,
    OUT_OF_TIME,
    RankerTables,
    boost,
    fit,
    kept_trees,
    predict_trees,
)
from fastslow.rankers.lightgbm_trees import LightGBMTrees
from fastslow.rankers.options import RankerOptions
from fastslow.rankers.table import Table
from helpers.cases import cases

VALID = Table(["a"], [np.array([[0.0], [1.0], [2.0]])], [np.array([1.0, 2.0, 3.0])], ["x"])


class Trees:
    """Trees of which the ``good`` first ones rank the graph better one by one, and no more than ``grown``."""

    columns = VALID.columns

    def __init__(self, grown=1000, good=1000):
        self.grown, self.good, self.updates, self.asked = grown, good, 0, []

    def grow(self):
        self.updates += 1
        return self.updates > self.grown

    def predict(self, rows, start, count):
        self.asked.append((start, count))
        tree = np.arange(start, start + count)
        return np.where(tree < self.good, 1, -2).sum() * rows[:, 0]


def run_all(trees, report=None, seconds=math.inf, **settings):
    options = RankerOptions(objective="regression", **settings)
    return boost(options, trees, "layout", VALID, seconds, report)


def run(trees, report=None, **settings):
    history, ended = run_all(trees, report, **settings)
    assert ended == (NO_SPLIT if trees.updates > trees.grown else "")
    return history


def scores(history):
    return [(evaluation.trees, evaluation.score) for evaluation in history]


def test_each_tree_is_evaluated_once_and_the_last_one_always():
    trees, told = Trees(), []
    history = run(
        trees, lambda *args: told.append(args), num_iterations=7, evaluate_every=3, early_stopping_rounds=9
    )
    assert scores(history) == [(3, 1.0), (6, 1.0), (7, 1.0)]
    assert trees.asked == [(0, 3), (3, 3), (6, 1)]
    assert [iteration for iteration, _ in told] == list(range(1, 8))
    assert np.isnan(told[1][1]) and told[2][1] == 1.0
    assert kept_trees(RankerOptions(), history) == 7
    assert kept_trees(RankerOptions(early_stopping_rounds=1), history) == 3


def test_it_stops_without_a_better_valid_score():
    trees = Trees(good=4)
    history = run(trees, num_iterations=100, evaluate_every=2, early_stopping_rounds=5)
    assert scores(history) == [(2, 1.0), (4, 1.0), (6, 0.0), (8, -1.0)]
    assert trees.updates == 8


@cases("grown, wanted", [(0, [0]), (2, [2]), (3, [3]), (4, [3, 4])])
def test_it_stops_where_no_tree_can_be_grown(grown, wanted):
    trees = Trees(grown=grown)
    history = run(trees, num_iterations=100, evaluate_every=3, early_stopping_rounds=99)
    assert [evaluation.trees for evaluation in history] == wanted
    assert sum(number for _, number in trees.asked) == grown


def test_it_stops_when_its_hours_are_over():
    trees = Trees()
    history, ended = run_all(trees, num_iterations=100, seconds=1e-12)
    assert scores(history) == [(1, 1.0)] and trees.updates == 1 and ended == OUT_OF_TIME


@cases("grown, most, ended", [(1000, 1, ""), (0, 100, NO_SPLIT)])
def test_hours_end_no_training_that_is_complete(grown, most, ended):
    assert run_all(Trees(grown), num_iterations=most, seconds=1e-12)[1] == ended


@cases("seed", list(range(6)))
def test_a_draw_without_a_split_ends_no_training(seed):
    rows = np.eye(40, 10)  # each column has one row aside, too few for a leaf
    rows[:, 0] = np.arange(40)  # but one, which most draws of three columns lack
    table = Table(["a"], [rows], [1.0 + np.arange(40)], [f"c{number}" for number in range(10)])
    options = RankerOptions(objective="regression", seed=seed, num_iterations=30, min_data_in_leaf=2)
    fitted = fit(RankerTables("layout", table, table, table), options, num_threads=1)
    assert fitted.num_trees == 30 and not fitted.ended and fitted.history[-1].score > 0.9
    np.testing.assert_array_equal(fitted.trees.gain(30) > 0, np.arange(10) == 0)


def test_trees_by_iteration_add_up(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.random((60, 2))
    data = lightgbm.Dataset(rows, rows[:, 0], params={"min_data_in_leaf": 2, "verbosity": -1})
    booster = lightgbm.train({"num_threads": 1, "min_data_in_leaf": 2, "verbosity": -1}, data, 5)
    table = Table(["g", "none"], [rows, rows[:0]], [rows[:, 0], rows[:0, 0]], booster.feature_name())
    trees = LightGBMTrees(booster)
    parts = [predict_trees("regression", trees, table, *part) for part in ((0, 2), (2, 0), (2, 3))]
    np.testing.assert_allclose(sum(part["g"] for part in parts), booster.predict(rows))
    assert not parts[1]["g"].any() and parts[0]["none"].shape == (0,)
    with pytest.raises(OSError, match="No such file"):  # an error of the system, which has a remedy
        trees.save(tmp_path / "none" / "model.txt", 5)
