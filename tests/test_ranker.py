"""The LightGBM ranker: its table and labels, what it learns, and that a run can be repeated."""

import dataclasses
import math

import lightgbm
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import write_data_root
from fastslow import columns, ranker
from fastslow.errors import ConfigError
from fastslow.features import LayoutFeatureConfig, build_features
from fastslow.graphs import Features
from fastslow.metrics import collection_score
from fastslow.opcodes import OPCODES
from fastslow.ranker import RankerConfig, Table, fit, regression_labels, relevance_labels, tabulate
from fastslow.scores import read_scores

QUICK = {"rounds": 12, "min_rows": 1, "leaves": 4, "threads": 1}
runtimes = st.lists(st.integers(1, 2**40), min_size=1, max_size=60).map(np.array)


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Features of a layout collection, built from made-up files."""
    root = write_data_root(tmp_path_factory.mktemp("data"), "layout:xla:random", train=("a", "b", "c"))
    config = LayoutFeatureConfig(data_root=str(root), folder=str(root / "features"), workers=1)
    build_features(config)
    return Features(root / "features")


@pytest.fixture
def graph(features):
    return features.graph("valid", "v")


class Toy:
    """Stands for a features folder: random columns, of which the first tells the runtime."""

    def __init__(self, graph, sizes, seed=0):
        rng = np.random.default_rng(seed)
        self.config_columns = [f"column {i}" for i in range(4)]
        self.graphs = {}
        for number, size in enumerate(sizes):
            values = rng.random((size, 4), np.float32)
            runtime = np.exp(5 + number + values[:, 0].astype(float))
            self.graphs[f"g{number}"] = dataclasses.replace(graph, config_feat=values, runtime=runtime)

    def names(self, _):
        return list(self.graphs)

    def graph(self, _, name):
        return self.graphs[name]


def run_config(features, folder, **options):
    return RankerConfig(features=str(features.folder), folder=str(folder), **{**QUICK, **options})


def test_the_table_against_its_definition(features, graph):
    table, names = tabulate(graph, features.config_columns)
    values = np.asarray(graph.config_feat)
    assert table.shape == (graph.num_configs, len(names)) and table.dtype == np.float32
    assert len(set(names)) == len(names)
    row = dict(zip(names, table[2], strict=True))
    for position, column in enumerate(features.config_columns):
        assert row[column] == values[2, position]
        assert row[f"{column}_above_least"] == values[2, position] - min(values[:, position])
    assert row["nodes_log"] == pytest.approx(math.log1p(graph.num_nodes))
    assert row["edges_log"] == pytest.approx(math.log1p(len(graph.edge_index)))
    for name, opcode in OPCODES.items():
        count = sum(graph.node_opcode == opcode)
        assert row[f"count_{name}_log"] == pytest.approx(math.log1p(count))
    dots = [n for n in range(graph.num_nodes) if graph.node_opcode[n] == OPCODES["dot"]]
    elements = sum(float(graph.node_feat[n, columns.SHAPE_PRODUCT]) for n in dots)
    assert row["elements_dot_log"] == pytest.approx(math.log1p(elements))
    assert row["elements_convolution_log"] == 0


def test_the_root_gives_the_sizes_of_the_output(features, graph):
    node_feat = graph.node_feat.copy()
    node_feat[:, columns.IS_ROOT] = 0
    node_feat[[1, 3], columns.IS_ROOT] = 1  # a called computation's root, then the program's
    node_feat[3, columns.SHAPE] = [7, 3, -1, -1, -1, -1]  # padded
    values, names = ranker.context_features(dataclasses.replace(graph, node_feat=node_feat))
    row = dict(zip(names, values, strict=True))
    sizes = [row[f"output_size_{d}_log"] for d in range(6)]
    np.testing.assert_allclose(sizes, [math.log(8), math.log(4), 0, 0, 0, 0], rtol=1e-6)
    node_feat[:, columns.IS_ROOT] = 0
    values, _ = ranker.context_features(dataclasses.replace(graph, node_feat=node_feat))
    assert not values[-6:].any()


@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_row_knows_neither_order_nor_frequency_of_the_others(features, data):
    graph = features.graph("valid", "v")
    table, _ = tabulate(graph, features.config_columns)
    rows = st.lists(st.integers(0, graph.num_configs - 1), max_size=12)
    drawn = data.draw(st.permutations([*range(graph.num_configs), *data.draw(rows)]))
    drawn = np.array(drawn)
    again = dataclasses.replace(
        graph, config_feat=np.asarray(graph.config_feat)[drawn], runtime=graph.runtime[drawn]
    )
    np.testing.assert_array_equal(tabulate(again, features.config_columns)[0], table[drawn])


@given(runtimes)
def test_regression_labels_are_z_scores_of_log_runtime(runtime):
    label, log = regression_labels(runtime), [math.log(r) for r in runtime]
    mean = sum(log) / len(log)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in log) / len(log))
    if deviation > 1e-9:
        np.testing.assert_allclose(label, [(x - mean) / deviation for x in log], rtol=1e-4, atol=1e-4)
    assert (np.diff(label[np.argsort(runtime)]) >= 0).all() and abs(label.mean()) < 1e-3


@given(runtimes)
def test_relevance_labels_fall_with_runtime(runtime):
    label = relevance_labels(runtime)
    levels = len(set(runtime.tolist()))
    assert label.dtype.kind == "i" and label.min() == 0
    assert label.max() == min(levels, 31) - 1
    order = np.argsort(runtime)
    assert (np.diff(label[order]) <= 0).all()
    if levels <= 31:
        pairs = {(r, v) for r, v in zip(runtime.tolist(), label.tolist(), strict=True)}
        assert len({v for _, v in pairs}) == levels == len(pairs)


def test_runtimes_that_float32_would_merge_keep_their_order():
    runtime = 2**24 + np.arange(4)
    assert relevance_labels(runtime).tolist() == [3, 2, 1, 0]
    assert (np.diff(regression_labels(runtime)) > 0).all()


def test_a_large_graph_is_sampled_the_others_are_whole(graph):
    toy = Toy(graph, [30, 5, 8])
    whole, sampled = Table(toy, "train"), Table(toy, "train", most=8, seed=1)
    assert (whole.sizes, sampled.sizes) == ([30, 5, 8], [8, 5, 8])
    assert whole.columns == sampled.columns
    np.testing.assert_array_equal(sampled.rows[8:], whole.rows[30:])
    parts = sampled.by_graph(sampled.rows[:, 0])["g0"], toy.graphs["g0"].config_feat[:, 0]
    kept = [int(np.flatnonzero(parts[1] == value)[0]) for value in parts[0]]
    assert kept == sorted(set(kept)) and len(kept) == 8
    np.testing.assert_array_equal(sampled.runtimes[0], toy.graphs["g0"].runtime[kept])
    again, other = (Table(toy, "train", most=8, seed=seed) for seed in (1, 2))
    np.testing.assert_array_equal(again.rows, sampled.rows)
    assert not np.array_equal(other.rows, sampled.rows)


def test_every_graph_weighs_the_same(graph):
    table = Table(Toy(graph, [30, 5, 8]), "train")
    weight = table.by_graph(table.dataset("regression").construct().get_weight())
    assert [w.sum() for w in weight.values()] == pytest.approx([43 / 3] * 3)
    assert table.dataset("lambdarank").construct().get_group().tolist() == [30, 5, 8]


@pytest.mark.parametrize("kind", ["layout", "tile"])
@pytest.mark.parametrize("objective", ["regression", "lambdarank"])
def test_it_learns_a_column_that_tells_the_runtime(graph, objective, kind):
    train, valid = Table(Toy(graph, [60, 80, 40]), "train"), Table(Toy(graph, [50, 70], seed=1), "valid")
    config = RankerConfig(rounds=100, min_rows=2, column_share=1.0, threads=1)
    booster, history = fit(config, objective, kind, train, valid)
    assert max(history) > 0.8 and booster.best_iteration == np.argmax(history) + 1
    sign = 1 if objective == "regression" else -1
    scores = valid.by_graph(sign * booster.predict(valid.rows))
    labels = dict(zip(valid.names, valid.runtimes, strict=True))
    assert collection_score(kind, labels, scores)["mean"] == pytest.approx(max(history))


def test_patience_stops(graph):
    train, valid = Table(Toy(graph, [60]), "train"), Table(Toy(graph, [50], seed=1), "valid")
    valid.runtimes = [runtime[::-1].copy() for runtime in valid.runtimes]  # nothing to learn
    _, history = fit(RankerConfig(rounds=200, patience=5, threads=1), "regression", "layout", train, valid)
    assert len(history) == np.argmax(history) + 1 + 5 < 200


def test_a_valid_graph_may_pass_lightgbms_longest_query(graph):
    train, valid = Table(Toy(graph, [40]), "train"), Table(Toy(graph, [10_001], seed=1), "valid")
    _, history = fit(RankerConfig(rounds=2, threads=1, min_rows=1), "lambdarank", "layout", train, valid)
    assert len(history) == 2


def test_a_run_records_both_objectives_and_keeps_the_better(features, tmp_path):
    manifest = ranker.train_ranker(run_config(features, tmp_path))
    assert set(manifest["objectives"]) == {"regression", "lambdarank"}
    best = max(manifest["objectives"], key=manifest["objectives"].get)
    assert manifest["valid"]["mean"] == manifest["objectives"][best]
    booster = lightgbm.Booster(model_file=str(tmp_path / "model.txt"))
    assert manifest["valid"]["weights"] == f"{best}, {booster.num_trees()} rounds"
    scores = read_scores(tmp_path)
    recomputed = collection_score("layout", features.labels("valid"), scores["valid"])
    assert recomputed["per_graph"] == manifest["valid"]["per_graph"]
    table, _ = tabulate(features.graph("test", "t"), features.config_columns)
    sign = 1 if best == "regression" else -1
    np.testing.assert_allclose(scores["test"]["t"], sign * booster.predict(table))
    history = pd.read_json(tmp_path / "metrics.jsonl", lines=True)
    assert history.groupby("objective")["valid"].max().to_dict() == pytest.approx(manifest["objectives"])
    importance = pd.read_csv(tmp_path / "importance.csv")
    assert importance["gain"].is_monotonic_decreasing and len(importance) == table.shape[1]


@pytest.mark.parametrize("objective", ["regression", "lambdarank"])
def test_one_objective_alone(features, tmp_path, objective):
    manifest = ranker.train_ranker(run_config(features, tmp_path, objective=objective))
    assert list(manifest["objectives"]) == [objective]
    assert manifest["valid"]["weights"].startswith(objective)


def test_the_same_run_at_one_and_two_threads_and_another_with_another_seed(features, tmp_path):
    for name, options in (("one", {}), ("two", {"threads": 2}), ("seed", {"seed": 1})):
        ranker.train_ranker(run_config(features, tmp_path / name, **options))
    one, two, other = ((tmp_path / name / "scores.npz").read_bytes() for name in ("one", "two", "seed"))
    assert one == two != other


def test_a_current_run_is_left_alone(features, tmp_path):
    config = run_config(features, tmp_path, objective="regression")
    first = ranker.train_ranker(config)
    made = (tmp_path / "scores.npz").stat().st_mtime_ns
    assert ranker.train_ranker(dataclasses.replace(config, threads=2)) == first
    assert (tmp_path / "scores.npz").stat().st_mtime_ns == made
    assert not dataclasses.replace(config, rounds=13).artifact().is_current()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"objective": "mse"}, "objective: 'mse' is not one of regression, lambdarank, best"),
        ({"rounds": 0}, "rounds"),
        ({"patience": 0}, "patience"),
        ({"min_rows": 0}, "min_rows"),
        ({"seed": -1}, "seed"),
        ({"threads": -1}, "threads"),
        ({"leaves": 1}, "leaves"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"column_share": 1.5}, "column_share"),
        ({"row_share": 0.0}, "row_share"),
        ({"configs_per_graph": 10_001}, "configs_per_graph: 10001 is not from 2 to 10000"),
        ({"configs_per_graph": 1}, "configs_per_graph"),
    ],
)
def test_wrong_settings_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        RankerConfig(**options)
