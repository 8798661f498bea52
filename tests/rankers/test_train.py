"""The LightGBM ranker: what it learns, and that a run can be repeated."""

import lightgbm
import numpy as np
import pandas as pd
import pytest

from fastslow.competition.metrics import ALL_METRICS, collection_score
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError, SettingsError
from fastslow.rankers.fit import NO_SPLIT, RankerTables, fit, read_training
from fastslow.rankers.options import OBJECTIVES
from fastslow.rankers.table import Table, read_table
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import read_predictions
from fastslow.runs.trained_ranker import read_ranker
from fastslow.steps import ranker as train
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.views.ranker_explanations import shap_values
from helpers.cases import cases
from helpers.competition_files import write_data_root

pytestmark = pytest.mark.usefixtures("undrawn")
QUICK = {
    "num_iterations": 12,
    "min_data_in_leaf": 1,
    "num_leaves": 4,
    "num_threads": 1,
    "train_on": "collection",
}


def toy(sizes, seed=0):
    """A table of random columns, of which the first tells the runtime."""
    rng = np.random.default_rng(seed)
    rows = [rng.random((size, 4), np.float32) for size in sizes]
    runtimes = [np.exp(5 + number + values[:, 0].astype(float)) for number, values in enumerate(rows)]
    names = [f"g{number}" for number in range(len(sizes))]
    return Table(names, rows, runtimes, ["first", "second", "graph_third", "first_above_least"])


def toy_training(sizes, valid, kind="layout"):
    train = toy(sizes)
    return RankerTables(kind, train, train, toy(valid, seed=1))


def run_config(features, folder, **options):
    return RankerSettings(features=str(features.folder), folder=str(folder), **{**QUICK, **options})


@cases("kind", ["layout", "tile"])
@cases("objective", OBJECTIVES)
def test_it_learns_a_column_that_tells_the_runtime(objective, kind):
    training = toy_training([60, 80, 40], [50, 70], kind)
    settings = RankerSettings(
        num_iterations=40,
        min_data_in_leaf=2,
        feature_fraction=1.0,
        learning_rate=0.2,
        num_threads=1,
        evaluate_every=2,
        early_stopping_rounds=40,
    )
    fitted = fit(training, settings.replace(objective=objective))
    rounds, values, _ = zip(*fitted.history, strict=True)
    assert max(values) > 0.8 and fitted.num_trees == rounds[np.argmax(values)]
    predictions = fitted.predict(training.valid)
    assert collection_score(kind, training.valid.labels(), predictions)["mean"] == pytest.approx(max(values))


@cases("objective", OBJECTIVES)
def test_predictions_know_neither_order_nor_frequency_of_configurations(objective):
    training = toy_training([60, 80, 40], [50])
    fitted = fit(
        training, RankerSettings(num_iterations=5, min_data_in_leaf=2, num_threads=1, objective=objective)
    )
    valid = training.valid
    drawn = np.random.default_rng(0).permutation([*range(50), 3, 3, 3, 8])
    again = Table(valid.names, [valid.rows[0][drawn]], [valid.runtimes[0][drawn]], valid.columns)
    np.testing.assert_array_equal(fitted.predict(again)["g0"], fitted.predict(valid)["g0"][drawn])


def test_contributions_add_up_to_the_prediction():
    training = toy_training([60, 80], [50])
    settings = RankerSettings(num_iterations=5, min_data_in_leaf=2, num_threads=1)
    for objective in OBJECTIVES:
        fitted = fit(training, settings.replace(objective=objective))
        parts = shap_values(fitted, training.valid)["g0"]
        rest = parts.sum(1) - fitted.predict(training.valid)["g0"]
        assert parts.shape[1] == len(fitted.trees.columns) == (3 if objective == "pairwise" else 4)
        np.testing.assert_allclose(rest, rest[0], atol=1e-12)


@cases("objective", OBJECTIVES)
def test_tables_too_small_to_split_give_equal_predictions(objective):
    training = toy_training([6], [5])
    settings = RankerSettings(num_iterations=9, min_data_in_leaf=10_000, num_threads=1)
    fitted = fit(training, settings.replace(objective=objective))
    assert fitted.num_trees == 0 and fitted.ended == NO_SPLIT
    assert [(evaluation.trees, evaluation.score) for evaluation in fitted.history] == [(0, 0.0)]
    assert not fitted.predict(training.valid)["g0"].any()


@cases("objective", OBJECTIVES)
def test_a_run_records_its_score_its_history_and_its_trees(features, tmp_path, objective):
    manifest = train.train_ranker(run_config(features, tmp_path, objective=objective))
    booster = lightgbm.Booster(model_file=str(tmp_path / "model.txt"))
    assert manifest["valid"]["weights"] == f"{objective}, {booster.num_trees()} rounds"
    short = run_config(features, tmp_path / "late", objective=objective, hours=1e-9)
    late = train.train_ranker(short)
    assert late["trees"] == 1 and "1 of 12 trees (hours=1e-09)" in late["warnings"]
    assert short.artifact().is_current()
    longer = short.replace(hours=0.0)
    assert longer.artifact().changes() == ["hours: 1e-09 -> no limit; it stopped after 1 of 12 trees"]
    assert train.train_ranker(longer)["trees"] == manifest["trees"]
    coarse = run_config(features, tmp_path / "coarse", objective=objective, min_data_in_leaf=10_000)
    said = "0 of 12 trees (no draw of rows and columns holds a split)"
    assert said in train.train_ranker(coarse)["warnings"]
    predictions = read_predictions(tmp_path)
    recomputed = collection_score("layout", features.labels("valid"), predictions["valid"])
    assert recomputed["per_graph"] == manifest["valid"]["per_graph"]
    fitted = read_ranker(tmp_path)
    np.testing.assert_allclose(
        predictions["test"]["t"], fitted.predict(read_table(features, "test"))["t"], rtol=1e-6, atol=1e-12
    )
    history = pd.read_json(tmp_path / "metrics.jsonl", lines=True)
    assert history["valid"].iloc[-1] == pytest.approx(manifest["valid"]["mean"])
    kept = history[history["tau"].notna()]
    assert kept["tau"].tolist() == pytest.approx([manifest["valid"]["mean"]])
    assert set(ALL_METRICS) <= set(kept.columns)
    importance = pd.read_csv(tmp_path / "importance.csv")
    assert importance["gain"].is_monotonic_decreasing
    assert set(importance["column"]) == set(booster.feature_name())


@cases("valid_configs", [2, 2000])
def test_every_valid_configuration_is_predicted_however_many_the_training_evaluated(features, valid_configs):
    options = RankerSettings(**QUICK, valid_configs=valid_configs, early_stopping_rounds=9)
    sources = {features.collection.slug: features}
    training = read_training(sources, options)
    assert max(map(len, training.valid.rows)) == min(
        valid_configs, max(map(len, features.labels("valid").values()))
    )
    fitted = fit(training, options)
    reused = train.predict_valid(fitted, features, fitted.predict(training.valid))
    tabulated = fitted.predict_split(features, "valid")
    assert list(reused) == list(tabulated)
    for name, predicted in tabulated.items():
        np.testing.assert_array_equal(reused[name], predicted)


def test_a_collection_that_was_not_built_is_named_with_the_remedy(features, tmp_path):
    remedy = "layout-xla-default: no finished features there, which train_on=source .* train_on='collection'"
    with pytest.raises(DataError, match=remedy):
        train.RankerSettings(features=str(features.folder), folder=str(tmp_path)).artifact()


def test_the_same_run_at_one_and_two_threads_and_another_with_another_seed(features, tmp_path):
    runs = (("one", {}), ("two", {"num_threads": 2}), ("seed", {"seed": 1}))
    for name, options in runs:
        train.train_ranker(run_config(features, tmp_path / name, objective="pairwise", **options))
    one, two, other = ((tmp_path / name / "predictions.npz").read_bytes() for name in ("one", "two", "seed"))
    assert one == two != other


def test_a_current_run_is_left_alone(features, tmp_path):
    settings = run_config(features, tmp_path, objective="regression")
    first = train.train_ranker(settings)
    made = (tmp_path / "predictions.npz").stat().st_mtime_ns
    assert train.train_ranker(settings.replace(num_threads=2)) == first
    assert (tmp_path / "predictions.npz").stat().st_mtime_ns == made
    assert not settings.replace(num_iterations=13).artifact().is_current()


@pytest.fixture
def both_searches(features, tmp_path):
    """The features of both searches side by side: ``v`` of the one is valid in the other."""
    root = write_data_root(tmp_path / "data", "layout:xla:default", train=("a", "v", "w"))
    where = {"data_root": str(root), "folder": str(tmp_path / "layout-xla-default")}
    build_features(FeatureSettings(collection="layout:xla:default", workers=1, **where))
    (tmp_path / "layout-xla-random").symlink_to(features.folder)
    return tmp_path


def of_source(place, search="random", **options):
    folders = {"features": str(place / f"layout-xla-{search}"), "folder": str(place / f"alone-{search}")}
    return RankerSettings(**{**QUICK, "train_on": "source", **folders, **options})


def test_both_searches_of_a_source_are_trained_on_without_what_is_valid_in_one(both_searches):
    settings = of_source(both_searches)
    names = [f"layout-xla-{each}" for each in ("default/a", "default/w", "random/a", "random/b", "random/c")]
    assert read_training(settings.sources(), settings).train.names == names
    other = Features(both_searches / "layout-xla-default")
    assert settings.artifact().inputs["layout-xla-default"] == other.fingerprint


@cases("options", [{}, {"early_stopping_rounds": 2, "evaluate_every": 1}])
def test_one_training_writes_what_a_training_of_each_search_writes(both_searches, options):
    """The trees are those of the source, so the twelve rankers of ``make submit`` are trained as six.

    Three trainings take its seconds.
    """
    both = of_source(both_searches, "default", **options)
    folders = {"folder": str(both_searches / "default"), "runs": [str(both_searches / "random")]}
    train.train_ranker(both.replace(**folders))
    assert both.replace(**folders).artifact().is_current()
    for search in ("default", "random"):
        wanted = train.train_ranker(of_source(both_searches, search, **options))
        search_run, alone = both_searches / search, both_searches / f"alone-{search}"
        manifest = read_manifest(search_run)
        for key in ("fingerprint", "settings", "inputs", "valid", "objective", "trees"):
            assert manifest[key] == wanted[key], (search, key)
        for name in (train.MODEL, "predictions.npz", "metrics.jsonl", "importance.csv"):
            assert (search_run / name).read_bytes() == (alone / name).read_bytes(), (search, name)
        history = pd.read_json(search_run / "metrics.jsonl", lines=True)
        kept = history[history["tau"].notna()].iloc[-1]
        assert kept[f"layout-xla-{search}"] == pytest.approx(manifest["valid"]["mean"]), "of its own programs"
    (both_searches / "random" / train.MODEL).write_text("")
    assert not both.replace(**folders).artifact().is_current()


@cases("name, value", [("train_on", "collection")])
def test_a_setting_of_layout_is_refused_for_tile(name, value, tmp_path):
    root = write_data_root(tmp_path, "tile:xla")
    where = {"data_root": str(root), "folder": str(tmp_path / "tile")}
    build_features(FeatureSettings(collection="tile:xla", workers=1, **where))
    settings = RankerSettings(features=str(tmp_path / "tile"), folder=str(tmp_path / "run"))
    assert not settings.artifact().is_current()
    said = "train_on: 'collection' has no effect for tile.*ranker.layout.train_on"
    with pytest.raises(SettingsError, match=said):
        train.train_ranker(settings.replace(train_on="collection"))


@cases(
    "options, said",
    [
        ({"objective": "mse"}, "objective: 'mse' is not one of regression, pairwise"),
        ({"num_iterations": 0}, "num_iterations"),
        ({"early_stopping_rounds": -1}, "early_stopping_rounds"),
        ({"min_data_in_leaf": 0}, "min_data_in_leaf"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"feature_fraction": 1.5}, "feature_fraction"),
        ({"configs_per_graph": 1}, "configs_per_graph"),
    ],
)
def test_wrong_settings_are_refused(options, said):
    with pytest.raises(SettingsError, match=said):
        RankerSettings(**options)


def test_no_collection_at_all_is_called_so():
    with pytest.raises(DataError, match="^sources is empty: no train graph has two configurations"):
        read_training({})
