"""Run folders: written by any model, refused where predictions or manifest are not as they must be."""

import json

import numpy as np
import pandas as pd
import pytest

from fastslow.core.artifacts import write_manifest
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.settings import resolve
from fastslow.features.folds import HELD_OUT_CONFIGS
from fastslow.features.graph import draw_configs
from fastslow.runs import features_folder
from fastslow.runs.predictions import (
    check_predictions,
    read_held_out,
    read_predictions,
    write_predictions,
    write_run,
)
from fastslow.runs.run_manifest import HELD_OUT, PREDICTIONS
from fastslow.steps.ensemble import build_ensemble
from helpers.cases import cases
from helpers.good_artifacts import change_arrays, reseal
from helpers.runs import ensemble_settings, make_features, overwrite_predictions


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return make_features(tmp_path_factory.mktemp("features"), "layout:xla:random")


class Features:
    """Stands for a features folder: what the check asks of it."""

    def num_configs(self, split):
        return {"valid": {"a": 3, "unet_3d.4x4.bf16": 2}, "test": {"t": 4}}[split]


def good():
    return {
        "valid": {"a": np.array([3.0, 1.0, 2.0]), "unet_3d.4x4.bf16": np.array([0.0, 1.0])},
        "test": {"t": np.arange(4.0)},
    }


def seal(folder):
    """Finish a run folder of nothing but predictions."""
    write_manifest(folder, {"fingerprint": "f", "settings": {}, "inputs": {}, "outputs": {PREDICTIONS: {}}})
    reseal(folder, PREDICTIONS)


def test_predictions_come_back_as_float64(tmp_path):
    predictions = good()
    predictions["test"]["t"] = predictions["test"]["t"].astype(np.float32)
    write_predictions(tmp_path, {**predictions, "train": {"x": np.ones(2)}})  # train is nobody's business
    seal(tmp_path)
    read = read_predictions(tmp_path)
    assert {split: list(graphs) for split, graphs in read.items()} == {
        "valid": ["a", "unet_3d.4x4.bf16"],
        "test": ["t"],
    }
    for split, graphs in good().items():
        for name, prediction in graphs.items():
            np.testing.assert_array_equal(read[split][name], prediction)
            assert read[split][name].dtype == np.float64
    check_predictions(tmp_path, read, Features())


@cases(
    "split, name, prediction, message",
    [
        ("valid", "a", None, "no predictions for valid graph a"),
        ("test", "t", None, "no predictions for test graph t"),
        ("test", "a", np.ones(3), "predictions for a, which is no test graph here"),
        ("valid", "b", np.ones(3), "predictions for b, which is no valid graph here"),
        ("valid", "a", np.ones(4), r"valid graph a has predictions of shape \(4,\), \(3,\) wanted"),
        ("test", "t", np.ones((4, 1)), r"test graph t has predictions of shape \(4, 1\), one .* wanted"),
        ("valid", "a", np.array([1, np.nan, 2]), "valid graph a has a prediction that is not finite"),
        ("test", "t", np.array([1, 2, 3, -np.inf]), "test graph t has a prediction that is not finite"),
    ],
)
def test_predictions_that_do_not_fit_are_refused_by_name(tmp_path, split, name, prediction, message):
    predictions = good()
    if prediction is None:
        del predictions[split][name]
    else:
        predictions[split][name] = prediction
    seal(tmp_path)
    overwrite_predictions(tmp_path, predictions)
    with pytest.raises(DataError, match=f"{tmp_path}.*: {message}. Train this model again"):
        check_predictions(tmp_path, read_predictions(tmp_path), Features())


@cases("value", [np.nan, np.inf, -np.inf])
@cases("split", ["valid", "test"])
def test_what_is_not_finite_is_never_written(tmp_path, split, value):
    write_predictions(tmp_path, good())
    before = (tmp_path / PREDICTIONS).read_bytes()
    predictions = good()
    name = next(iter(predictions[split]))
    predictions[split][name] = np.array([1, value, 2])
    with pytest.raises(DataError, match=f"{tmp_path}: the model's predictions of {split}/{name} are not"):
        write_predictions(tmp_path, predictions)
    assert (tmp_path / PREDICTIONS).read_bytes() == before


def test_a_constant_model_is_named(tmp_path):
    one = {"valid": {"a": np.array([0.5])}, "test": {"t": np.array([0.25])}}
    assert write_predictions(tmp_path, one) == []  # nothing to rank
    assert write_predictions(tmp_path, good()) == []
    flat = {
        split: {n: np.full(len(v), 3.0) for n, v in graph_scores.items()}
        for split, graph_scores in good().items()
    }
    total = sum(len(v) > 1 for graph_scores in flat.values() for v in graph_scores.values())
    said = f"constant model: one prediction for all configurations of each of {total} graphs"
    assert write_predictions(tmp_path, flat) == [said]
    some = {**good(), "test": flat["test"]}
    (warning,) = write_predictions(tmp_path, some)
    assert warning.startswith(f"constant prediction for {len(some['test'])} of {total} graphs: test/")


def by_runtime(features):
    """Perfect predictions on valid, as a framework may give them: any float type, lists too."""
    return {
        "valid": {
            name: (2 * runtime).astype(np.float32) for name, runtime in features.labels("valid").items()
        },
        "test": {name: list(range(count)) for name, count in features.num_configs("test").items()},
    }


def test_a_custom_model_is_scored(features, tmp_path):
    manifest = write_run(tmp_path / "mine", features, by_runtime(features), model="mine", seed=0)
    assert manifest["valid"]["mean"] == pytest.approx(1)
    assert manifest["settings"] == {"model": "mine", "seed": 0, "collection": "layout:xla:random"}
    assert not manifest["warnings"]
    given = by_runtime(features)
    reversed_valid = {name: -values for name, values in given["valid"].items()}
    reversed_run = write_run(tmp_path / "other", features, given | {"valid": reversed_valid})
    assert reversed_run["warnings"][0].startswith("valid is ordered against its runtimes (Kendall's tau -1.0")


def test_left_out_programs_are_kept_by_distinct_configuration(features, tmp_path):
    name = features.names("train")[0]
    graph = features.graph("train", name)
    distinct = np.arange(len(graph.runtime)) / 7
    values = graph.expand(distinct)
    before = write_run(tmp_path / "mine", features, by_runtime(features))
    manifest = write_run(tmp_path / "mine", features, by_runtime(features), {name: values})
    assert manifest["fingerprint"] != before["fingerprint"] and HELD_OUT in manifest["outputs"]
    drawn = draw_configs(len(graph.runtime), HELD_OUT_CONFIGS, 0, name)
    np.testing.assert_array_equal(
        read_held_out(tmp_path / "mine")[name], (np.arange(len(graph.runtime)) / 7)[drawn]
    )
    with pytest.raises(DataError, match=f"held_out of {name} has a prediction that is not finite"):
        write_run(tmp_path / "mine", features, by_runtime(features), {name: values * np.nan})
    change_arrays(tmp_path / "mine" / HELD_OUT, lambda arrays: arrays.update({name: arrays[name] * np.nan}))
    reseal(tmp_path / "mine", HELD_OUT)
    with pytest.raises(
        DataError, match=f"{HELD_OUT}: train graph {name} has a prediction that is not finite"
    ):
        read_held_out(tmp_path / "mine")


@cases(
    "held_out, problem",
    [
        ({"nobody": [1.0]}, "held_out has nobody, which is no train graph here. Leave it out"),
        (
            {"a": [1.0]},
            r"held_out of a has predictions of shape \(1,\), \(\d+,\) wanted. Give write_run one finite",
        ),
        ({"a": "text"}, r"the predictions of a are no numbers \(str\)"),
        ([1.0], "the predictions are list, a dict wanted"),
    ],
)
def test_left_out_programs_that_do_not_fit_are_refused(held_out, problem, features, tmp_path):
    with pytest.raises(DataError, match=problem):
        write_run(tmp_path / "mine", features, by_runtime(features), held_out)
    assert not (tmp_path / "mine").exists()


def test_a_run_written_by_hand_is_refused_until_write_run_wrote_it(features, tmp_path):
    """Without checksums nothing shows that a file was changed."""
    folder = tmp_path / "by-hand"
    folder.mkdir()
    arrays = {f"{s}/{n}": v for s, graphs in by_runtime(features).items() for n, v in graphs.items()}
    np.savez(folder / "predictions.npz", **arrays)
    manifest = {
        "fingerprint": "any text",
        "settings": {"collection": features.collection.name},
        "inputs": {"data": features.data},
        "valid": {"mean": 1, "per_graph": {"v": 1.0}},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    settings = ensemble_settings(features, tmp_path / "one", [str(folder)])
    with pytest.raises(DataError, match="manifest.json: has no checksum of itself"):
        build_ensemble(settings)
    write_run(folder, features, by_runtime(features), model="mine")
    ensemble = build_ensemble(settings)
    assert ensemble["valid"]["mean"] == pytest.approx(1)


@cases("folder", ["features/smoke/tile-xla", "runs/smoke/gnn-tile-xla-s0", "runs/smoke", "runs"])
def test_what_a_command_made_is_not_overwritten(home, folder):
    features = features_folder.Features(resolve("features/smoke/tile-xla"))
    ranks = {s: {n: np.arange(c) for n, c in features.num_configs(s).items()} for s in ("valid", "test")}
    before = {path: path.read_bytes() for path in resolve(folder).rglob("*") if path.is_file()}
    with pytest.raises(SettingsError, match=f"folder: .*{folder} holds what a command made; name another"):
        write_run(folder, features, ranks)
    assert before == {path: path.read_bytes() for path in resolve(folder).rglob("*") if path.is_file()}


@cases(
    "settings, values, error, said",
    [
        ({"model": object()}, None, SettingsError, "model: '<object object .* is object, which a manifest"),
        ({"seed": "0"}, None, SettingsError, "seed: '0' is str, a whole number wanted"),
        ({"model": ["a"]}, None, SettingsError, r"model: \['a'\] is list, a text wanted"),
        ({"score": np.nan}, None, SettingsError, "score: 'nan' is float, which a manifest"),
        ({"model": "\ud800"}, None, SettingsError, r"model: '\\ud800' holds a character that UTF-8 cannot"),
        ({"tags": [{"\udfff": 1}]}, None, SettingsError, "tags: .* holds a character that UTF-8 cannot"),
        ({"model": "gnn"}, None, SettingsError, "model: 'gnn' is what a command trains, .* such as 'mine'"),
        ({"model": "ranker"}, None, SettingsError, "model: 'ranker' is what a command trains"),
        ({"model": "ensemble"}, None, SettingsError, "model: 'ensemble' is what a command trains"),
        (
            {"collection": "tile:xla"},
            None,
            SettingsError,
            "collection: 'tile:xla' is another one than the features', layout:xla:random; leave",
        ),
        ({}, "text", DataError, r"the predictions of \w+ are no numbers \(str\)"),
        ({}, ["0.1", "0.2"], DataError, "are no numbers"),
        ({}, [[1.0], [1.0, 2.0]], DataError, "are no numbers"),
        ({}, object(), DataError, "are no numbers"),
        ({}, pd.Series([1.0, 2.0], index=[1, 0]), DataError, r"predictions of \w+ are a Series whose index"),
        ({}, np.ma.array([1.0, 2.0], mask=[0, 1]), DataError, r"predictions of \w+ have masked values"),
        ({}, 2**60 + np.arange(2), DataError, r"predictions of \w+ have integers of 9,007,199,254,740,992"),
    ],
)
def test_what_is_no_prediction_or_setting_leaves_no_folder(settings, values, error, said, features, tmp_path):
    predictions = {
        split: {
            g: np.zeros(count) if values is None else values
            for g, count in features.num_configs(split).items()
        }
        for split in ("valid", "test")
    }
    with pytest.raises(error, match=said):
        write_run(tmp_path / "own" / "mine", features, predictions, **settings)
    assert not (tmp_path / "own").exists()


def test_a_setting_may_have_a_name_that_the_package_uses(features, tmp_path):
    named = {"path": "x", "name": 3, "inputs": "all"}
    manifest = write_run(tmp_path / "mine", features, by_runtime(features), **named)
    assert manifest["settings"] == {**named, "collection": "layout:xla:random"}


def test_a_series_in_the_order_of_the_file_is_taken(features, tmp_path):
    series = {
        split: {name: pd.Series(np.ma.array(values)) for name, values in graphs.items()}
        for split, graphs in by_runtime(features).items()
    }
    assert write_run(tmp_path / "mine", features, series)["valid"]["mean"] == pytest.approx(1)


@cases("name, collection", [("mine-layout-nlp-default-s0", ""), ("mine-tile-xla", ""), ("mine", "tile:xla")])
def test_the_run_of_another_collection_is_not_replaced(name, collection, features, tmp_path):
    """Another collection in a notebook, and its folder unchanged, replaced the model of the first one."""
    folder = tmp_path / name
    if collection:
        folder.mkdir()
        settings = {"collection": collection}
        write_manifest(folder, {"fingerprint": "f", "settings": settings, "inputs": {}, "outputs": {}})
    before = [*tmp_path.rglob("*")]
    said = "folder: .* is for (layout:nlp:default|tile:xla), the features are not; give a name that ends in "
    with pytest.raises(SettingsError, match=said):
        write_run(folder, features, by_runtime(features))
    assert [*tmp_path.rglob("*")] == before
    for ending in ("-layout-xla-random-s0", "-layout-xla-random", ""):
        write_run(tmp_path / f"other{ending}", features, by_runtime(features))


@cases("folder", [None, 3])
def test_what_is_no_path_is_no_folder(folder, features, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    with pytest.raises(SettingsError, match="folder: an? (NoneType|int) is no path"):
        write_run(folder, features, by_runtime(features))
    assert not [*tmp_path.iterdir()]


@cases("predictions", ["text", None, object(), [1.0], {"valid": "text"}, {"valid": {}, "test": [1.0]}])
def test_predictions_that_are_no_dict_are_refused(predictions, features, tmp_path):
    with pytest.raises(DataError, match="mine: the predictions are .*, a dict wanted. Give write_run"):
        write_run(tmp_path / "mine", features, predictions)
    assert not (tmp_path / "mine").exists()


def test_an_incomplete_custom_run_is_refused_and_leaves_no_folder(features, tmp_path):
    predictions = by_runtime(features)
    del predictions["test"]
    with pytest.raises(DataError, match="no predictions for test graph t.*Give write_run one finite value"):
        write_run(tmp_path / "mine", features, predictions)
    assert not (tmp_path / "mine").exists()
