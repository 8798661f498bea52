"""The additive ranker: its states, its derivatives, what it learns, and that a run can be repeated."""

import re
from dataclasses import replace

import lightgbm
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fastslow.competition.group_sets import Classes
from fastslow.competition.metrics import collection_score
from fastslow.competition.tied_choices import factorise
from fastslow.core.errors import ConfigError, DataError
from fastslow.core.settings import PROJECT
from fastslow.evaluation.predictions import read_predictions
from fastslow.features.build import FeatureConfig, build_features
from fastslow.features.store import Features
from fastslow.rankers import additive_train
from fastslow.rankers.additive_fit import (
    Fitted,
    Problem,
    count_leaves,
    fit,
    gradient,
    leaf_values,
    loss,
    targets,
)
from fastslow.rankers.additive_states import AdditiveRows, additive_rows
from fastslow.rankers.additive_train import predict_graph, train_additive_ranker
from fastslow.rankers.config import AdditiveRankerConfig
from helpers.competition_files import write_data_root
from helpers.random_graphs import make_graph, structures

QUICK = {
    "num_iterations": 12,
    "min_data_in_leaf": 1,
    "num_leaves": 4,
    "num_threads": 1,
    "train_on": "collection",
}
graphs = st.builds(make_graph, structures(), st.integers(0, 1000))


def with_configs(graph, chosen):
    """The graph with some of its configurations, in that order."""
    return graph.take(chosen)


def cost(values):
    """Any function of a state's features that distinguishes states."""
    return np.sin(np.nan_to_num(values.astype(np.float64), nan=0.5) @ np.arange(1, values.shape[1] + 1))


def state_matrix(found):
    """``(C, S)``, 1 where a configuration has a state."""
    return found.classes.picks().toarray()[:, found.class_index]


def state_sums(graph):
    found = additive_rows(graph)
    return found.sum(cost(found.rows))


def dense_sums(graph):
    """The same, one (node, configuration) and (pair, configuration) at a time."""
    nodes, links = len(graph.config_index), len(graph.pairs)
    sums = np.zeros(graph.num_configs)
    # one configuration has one state of everything; beside another graph none of them is left out
    for config in range(graph.num_configs):
        for part in range(nodes + links):
            for other in range(graph.num_configs):
                if not np.array_equal(part_codes(graph, part, config), part_codes(graph, part, other)):
                    sums[config] += cost(state_row(graph, part, config, other))[0]
                    break
    return sums


def part_codes(graph, part, config):
    """Layouts of a node or, beyond them, of the two sides of a pair."""
    if part < len(graph.config_index):
        return graph.choices.layout_codes()[config, part]
    producer, consumer, role = graph.pairs[part - len(graph.config_index)]
    return graph.choices.layout_codes()[config, [producer, consumer], [0, role]]


def state_row(graph, part, config, other):
    """Features of a node's or pair's state under one configuration, found from another that differs."""
    two = additive_rows(with_configs(graph, [config, other]))
    differing = [
        number
        for number in range(len(graph.config_index) + len(graph.pairs))
        if not np.array_equal(part_codes(graph, number, config), part_codes(graph, number, other))
    ]
    own = two.rows[state_matrix(two)[0] > 0]  # in the order of nodes, then pairs
    return own[[differing.index(part)]]


def toy(sizes, seed=0, noise=0.0):
    """Graphs of random states with 3 columns, whose cost is their first column times their third."""
    rng = np.random.default_rng(seed)
    parts, runtimes = [], []
    for size in sizes:
        rows = rng.random((60, 3), np.float32)
        index = rng.integers(0, 6, (10, size)) + 6 * np.arange(10)[:, None]
        count = np.bincount(index.ravel(), minlength=60)
        classes = Classes(index, np.arange(11) * 6, np.zeros(60, int), count)
        parts.append(AdditiveRows(rows, rng.permutation(60), classes, ["a", "b", "c"]))
        runtimes.append(np.exp(parts[-1].sum(rows[:, 0] * rows[:, 2]) + noise * rng.normal(size=size)))
    return Problem([f"g{i}" for i in range(len(sizes))], parts, runtimes)


def settings_of(**options):
    return AdditiveRankerConfig(
        **{
            "num_threads": 1,
            "min_data_in_leaf": 5,
            "feature_fraction": 1.0,
            **options,
        }
    )


@given(graphs)
@settings(max_examples=60)
def test_the_sum_over_states_is_that_over_every_node_pair_and_configuration(graph):
    np.testing.assert_allclose(state_sums(graph), dense_sums(graph), atol=1e-6)


@given(graphs)
@settings(max_examples=60)
def test_every_state_is_there_once_and_varies(graph):
    found = additive_rows(graph)
    share = state_matrix(found).sum(0)
    assert (share >= 1).all() and (share < max(graph.num_configs, 1)).all()
    assert found.rows.shape == (len(share), len(found.columns)) and found.rows.dtype == np.float32
    assert not np.isinf(found.rows).any() and len(set(found.columns)) == len(found.columns)
    distinct = {
        (part, *part_codes(graph, part, config))
        for part in range(len(graph.config_index) + len(graph.pairs))
        for config in range(graph.num_configs)
        if any(
            not np.array_equal(part_codes(graph, part, config), part_codes(graph, part, other))
            for other in range(graph.num_configs)
        )
    }
    assert len(share) == len(distinct)


@given(graphs, st.integers(0, 100))
@settings(max_examples=60)
def test_predictions_know_neither_order_nor_frequency_of_configurations(graph, seed):
    rng = np.random.default_rng(seed)
    drawn = rng.permutation([*range(graph.num_configs), *rng.integers(0, graph.num_configs, 4)])
    again = state_sums(with_configs(graph, drawn))
    np.testing.assert_allclose(again, state_sums(graph)[drawn], atol=1e-6)
    np.testing.assert_array_equal(additive_rows(graph, drawn).rows, additive_rows(graph).rows)


@given(graphs, st.integers(0, 100))
@settings(max_examples=30)
def test_states_that_all_share_are_left_out_and_add_the_same_to_every_prediction(graph, seed):
    some = np.random.default_rng(seed).integers(0, graph.num_configs, 1 + seed % 3)
    difference = state_sums(graph)[some] - state_sums(with_configs(graph, some))
    np.testing.assert_allclose(difference, difference[0], atol=1e-6)


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_sums_and_counts_are_those_of_the_matrix_of_states(seed):
    problem, rng = toy([7, 12, 5], seed), np.random.default_rng(seed)
    matrix = sparse.block_diag([state_matrix(part) for part in problem.parts]).toarray()
    costs, values, leaves = rng.normal(size=180), rng.normal(size=24), rng.integers(0, 4, 180)
    np.testing.assert_allclose(problem.sum(costs), matrix @ costs)
    np.testing.assert_allclose(problem.gather(values), matrix.T @ values)
    counts = problem.centred(matrix @ (leaves[:, None] == np.arange(4)))
    np.testing.assert_allclose(count_leaves(problem, leaves, 4), counts, atol=1e-12)
    parts = np.concatenate([part.sum(costs[:60]) for part in problem.parts])
    np.testing.assert_allclose(parts, problem.sum(np.tile(costs[:60], 3)))


def test_graphs_without_pairs_have_the_same_columns():
    structure = (np.zeros((0, 2), int), 2, np.array([0, 1]), np.arange(12).reshape(2, 2, 3) % 3)
    graph = make_graph(structure)
    assert len(graph.pairs)
    alone = replace(graph, pairs=graph.pairs[:0], pair_axes=graph.pair_axes[:0])
    assert additive_rows(alone).columns == additive_rows(graph).columns


def test_every_column_is_in_the_data_dictionary():
    about = (PROJECT / "features" / "README.md").read_text().partition("## What the additive ranker reads")[2]
    documented = set(re.findall(r"`([a-z0-9_<>]+)`", about))
    graph = make_graph((np.zeros((0, 2), int), 2, np.array([0, 1]), np.arange(12).reshape(2, 2, 3) % 3))
    for column in additive_rows(graph).columns:
        pattern = re.sub("^(output|input|kernel)_", "<role>_", re.sub(r"_[0-5]$", "_<d>", column))
        of_kind = re.sub("_(configurable|flops|bytes)_(convolution|dot|reshape)_", "_<what>_<kind>_", column)
        assert documented & {column, pattern, of_kind}, f"{column} is not in features/README.md"


def test_the_gradient_is_the_numerical_one():
    problem = toy([7, 12, 5])
    target, costs = targets(problem), np.random.default_rng(1).normal(size=180)
    residual = target - problem.centred(problem.sum(costs))
    found = gradient(problem, residual)
    step = 1e-5 * np.eye(len(costs))
    numerical = [
        (loss(problem, target, costs + d) - loss(problem, target, costs - d)) / 2e-5 for d in step[:90]
    ]
    np.testing.assert_allclose(found[:90], numerical, atol=1e-8)


def test_leaf_values_minimise_the_loss_of_the_tree():
    problem = toy([30, 40], noise=0.1)
    target, rng = targets(problem), np.random.default_rng(0)
    leaves = rng.integers(0, 4, 120)
    values = leaf_values(problem, count_leaves(problem, leaves, 4), target, 0.0)
    least = loss(problem, target, values[leaves])
    assert least < loss(problem, target, np.zeros(120))
    for _ in range(20):
        assert loss(problem, target, (values + 0.01 * rng.normal(size=4))[leaves]) > least - 1e-9
    smoother = leaf_values(problem, count_leaves(problem, leaves, 4), target, 5.0)
    assert np.linalg.norm(smoother) < np.linalg.norm(values)


def test_it_learns_a_product_from_sums_alone():
    fitted = fit(
        settings_of(num_iterations=80, evaluate_every=4, early_stopping_rounds=80),
        toy([80, 80, 60, 50]),
        toy([50, 60], seed=5),
    )
    rounds, values = zip(*fitted.history, strict=True)
    assert max(values) > 0.6 and fitted.num_trees == rounds[np.argmax(values)]
    valid = toy([50, 60], seed=5)
    predictions = {name: fitted.predict(part) for name, part in zip(valid.names, valid.parts, strict=True)}
    found = collection_score("layout", valid.labels(), predictions)["mean"]
    assert found == pytest.approx(max(values))


def test_the_loss_falls_with_every_round_and_is_that_of_the_saved_trees(tmp_path):
    train, losses = toy([80, 60]), []
    fitted = fit(settings_of(bagging_fraction=1.0, num_iterations=20), train, train)
    target = targets(train)
    for rounds in (1, 5, 10, 20):
        costs = fitted.booster.predict(train.rows, raw_score=True, num_iteration=rounds)
        losses.append(loss(train, target, costs))
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.7 * losses[0]
    fitted.booster.save_model(tmp_path / "model.txt")
    again = lightgbm.Booster(model_file=tmp_path / "model.txt")
    assert loss(train, target, again.predict(train.rows, raw_score=True)) == pytest.approx(losses[-1])


def test_early_stopping_and_states_too_few_to_split_end_training():
    valid = toy([50], seed=3)
    wrong = Problem(valid.names, valid.parts, [1 / valid.runtimes[0]])
    config = settings_of(num_iterations=200, evaluate_every=1, early_stopping_rounds=5)
    fitted = fit(config, toy([60]), wrong)
    assert len(fitted.history) == fitted.num_trees + 5 < 200
    stuck = fit(settings_of(min_data_in_leaf=100, num_iterations=50), toy([20]), valid)
    assert stuck.num_trees == 0 and not stuck.predict(valid.parts[0]).any()


def run_config(features, folder, **options):
    return AdditiveRankerConfig(features=str(features.folder), folder=str(folder), **{**QUICK, **options})


def test_a_run_is_a_member_for_the_ensemble(features, tmp_path):
    config = run_config(features, tmp_path)
    manifest = train_additive_ranker(config)
    predictions = read_predictions(tmp_path)
    recomputed = collection_score("layout", features.labels("valid"), predictions["valid"])
    assert recomputed["per_graph"] == manifest["valid"]["per_graph"]
    booster = lightgbm.Booster(model_file=tmp_path / "model.txt")
    assert manifest["valid"]["weights"] == f"{booster.num_trees()} rounds"
    graph, read_back = features.graph("test", "t"), Fitted(booster, booster.num_trees(), [])
    predicted = graph.expand(predict_graph(read_back, graph))
    np.testing.assert_array_equal(predictions["test"]["t"], predicted)
    gain = pd.read_csv(tmp_path / "importance.csv")
    assert sorted(gain["column"]) == sorted(additive_rows(graph).columns) and gain["gain"][0] > 0
    made = (tmp_path / "predictions.npz").stat().st_mtime_ns
    assert train_additive_ranker(config.replace(num_threads=2)) == manifest
    assert (tmp_path / "predictions.npz").stat().st_mtime_ns == made
    assert not config.replace(num_iterations=13).artifact().is_current()


def test_the_same_run_at_one_and_two_threads_and_another_with_another_seed(features, tmp_path):
    runs = (("one", {}), ("two", {"num_threads": 2}), ("seed", {"seed": 1, "feature_fraction": 0.2}))
    for name, options in runs:
        additive_train.train_additive_ranker(run_config(features, tmp_path / name, **options))
    one, two, other = ((tmp_path / name / "predictions.npz").read_bytes() for name in ("one", "two", "seed"))
    assert one == two != other


def test_features_of_tile_are_refused(tmp_path):
    root = write_data_root(tmp_path, "tile:xla")
    settings = {
        "collection": "tile:xla",
        "data_root": str(root),
        "folder": str(tmp_path / "tile"),
        "workers": 1,
    }
    build_features(FeatureConfig(**settings))
    config = AdditiveRankerConfig(features=str(tmp_path / "tile"), folder=str(tmp_path / "run"))
    with pytest.raises(ConfigError, match="features: .*tile.* is not a features folder of a layout collect"):
        train_additive_ranker(config)


def test_train_graphs_without_different_layouts_are_refused(features, tmp_path, monkeypatch):
    graph = features.graph("train", "a")
    equal = replace(graph, choices=factorise(np.zeros_like(graph.choices.layout_codes())))
    monkeypatch.setattr(Features, "graph", lambda *_: equal)
    with pytest.raises(DataError, match="no train graph with different layouts"):
        additive_train.fit(run_config(features, tmp_path), features, {}, "title")


@pytest.mark.parametrize("num_configs", [1, 3])
def test_a_graph_of_no_configurable_nodes_gets_equal_predictions(num_configs):
    codes = np.zeros((num_configs, 0, 3), np.uint8)
    graph = make_graph((np.zeros((0, 2), int), 2, np.zeros(0, int), codes))
    assert not additive_rows(graph).rows.size
    assert predict_graph(Fitted(None, 9, []), graph).tolist() == [0.0] * num_configs


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"train_on": "all"}, "train_on: 'all' is not one of collection, source, layout"),
        ({"num_iterations": 0}, "num_iterations"),
        ({"num_leaves": 1}, "num_leaves"),
        ({"seed": -1}, "seed"),
        ({"ridge": -0.1}, "ridge"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"bagging_fraction": 1.5}, "bagging_fraction"),
    ],
)
def test_wrong_settings_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        AdditiveRankerConfig(**options)
