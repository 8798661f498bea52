"""A finished run applied to files: to its own test files it says what is stored, bit by bit for trees."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from fastslow.competition.catalog import COLLECTIONS, TEST, get_collection, list_programs
from fastslow.competition.node_columns import SHAPE_PRODUCT
from fastslow.core.artifacts import MANIFEST
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import read_json, write_json
from fastslow.core.settings import resolve
from fastslow.evaluation.run_record import record_run
from fastslow.features.configs.default_layouts import default_file
from fastslow.runs import trained_network
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import read_predictions, write_run
from fastslow.runs.run_manifest import find_run
from fastslow.runs.scalers import SCALERS, read_scaler
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.finished_run import FinishedRun
from fastslow.steps.unseen import UnseenGraphs, read_unseen
from fastslow.workflow.steps import MODELS
from fastslow_programs.ranking.models import describe_run, newest_run
from helpers.good_artifacts import change_json, reseal


def unseen(slug):
    """The sample's test files of a collection, as files that the features never saw."""
    programs = list_programs(resolve("data/sample"), get_collection(slug), TEST)
    return read_unseen(resolve(f"features/smoke/{slug}"), [program.path for program in programs])


@pytest.mark.parametrize(
    "collection", [c for c in COLLECTIONS if c.slug in ("tile-xla", "layout-nlp-random")]
)
def test_on_its_own_test_files_a_run_says_what_is_stored(home, collection):
    slug = collection.slug
    members = FinishedRun(resolve(f"runs/smoke/ensemble-{slug}")).predict_members(unseen(slug))
    models = [f"{model}-{slug}-s0" for model in MODELS[collection.kind]]
    assert list(members) == [*models, f"ensemble-{slug}"]
    for name, predictions in members.items():
        stored = read_predictions(resolve(f"runs/smoke/{name}"))[TEST]
        assert predictions.keys() == stored.keys()
        for graph, values in predictions.items():
            if name.startswith(("gnn", "ensemble")):  # float32 sums may depend on the number of threads
                np.testing.assert_allclose(values, stored[graph], rtol=1e-5, atol=1e-6)
            else:
                np.testing.assert_array_equal(values, stored[graph])


def test_networks_have_no_weight_where_tensors_are_far_larger(home):
    """All sizes of a program are scaled up: beyond one standard deviation the rankers decide, equally."""
    slug = "layout-nlp-random"
    run, graphs = FinishedRun(resolve(f"runs/smoke/ensemble-{slug}")), unseen(slug)
    (name, *_) = graphs.names(TEST)
    graph = graphs.graph(TEST, name)
    searched = {member: facts["weight"] for member, facts in run.manifest["members"].items()}
    assert run.weights(graph) == searched and not run.is_far(graph)
    sizes = graph.node_feat.copy()
    sizes[:, SHAPE_PRODUCT] = np.exp(20.0)
    large = replace(graph, node_feat=sizes)
    scaler = read_scaler(run.members[f"gnn-{slug}-s0"].folder / SCALERS, "node")
    expected = (20.0 - scaler.mean[SHAPE_PRODUCT]) / scaler.std[SHAPE_PRODUCT]
    assert run.size_shift(large) == pytest.approx(expected, rel=1e-5) and run.is_far(large)
    assert run.weights(large) == {f"gnn-{slug}-s0": 0.0, f"ranker-{slug}-s0": 1.0}
    predictions = run.predict_members(UnseenGraphs(graphs.folder, [large]))
    np.testing.assert_array_equal(predictions[run.name][name], predictions[f"ranker-{slug}-s0"][name])
    tile = FinishedRun(resolve("runs/smoke/ensemble-tile-xla"))
    assert not tile.is_far(large)


def test_networks_alone_keep_their_weight_where_tensors_are_far_larger(home):
    """There is no ranker to decide in their place."""
    slug = "layout-nlp-random"
    folder = shutil.copytree(resolve(f"runs/smoke/ensemble-{slug}"), resolve(f"runs/smoke/networks-{slug}"))
    manifest = read_json(folder / MANIFEST)
    network = manifest["members"][f"gnn-{slug}-s0"] | {"weight": 1.0}
    write_json(folder / MANIFEST, manifest | {"members": {f"gnn-{slug}-s0": network}})
    reseal(folder)
    run, graphs = FinishedRun(folder), unseen(slug)
    (name, *_) = graphs.names(TEST)
    sizes = graphs.graph(TEST, name).node_feat.copy()
    sizes[:, SHAPE_PRODUCT] = np.exp(20.0)
    large = replace(graphs.graph(TEST, name), node_feat=sizes)
    predictions, joined = run.predict_program(UnseenGraphs(graphs.folder, [large]), name)
    assert run.weights(large) == {f"gnn-{slug}-s0": 1.0} and list(predictions) == [f"gnn-{slug}-s0"]
    np.testing.assert_array_equal(predictions[f"gnn-{slug}-s0"], joined)


def test_what_a_file_says_of_runtimes_changes_nothing(home, tmp_path):
    slug = "layout-xla-default"
    folder, run = resolve(f"features/smoke/{slug}"), resolve(f"runs/smoke/ensemble-{slug}")
    (program,) = list_programs(resolve("data/sample"), get_collection(slug), TEST)
    with np.load(program.path) as npz:
        arrays = dict(npz)
    arrays["config_runtime"] = np.arange(1, len(arrays["config_runtime"]) + 1)
    np.savez(tmp_path / "other.npz", **arrays)
    both = read_unseen(folder, [program.path, tmp_path / "other.npz"])
    predictions = FinishedRun(run).predict(both)
    np.testing.assert_array_equal(predictions[program.name], predictions["other"])
    assert both.graph(TEST, "other").file_runtime.max() == len(arrays["config_runtime"])


def test_other_features_are_refused(home):
    (home / "elsewhere").mkdir()
    slug = "layout-xla-random"
    settings = Features(resolve(f"features/smoke/{slug}")).manifest["settings"]
    other = FeatureSettings(**{**settings, "hops": 1}, folder="elsewhere/layout-xla-random", workers=1)
    build_features(other)
    with pytest.raises(DataError, match="trained on features other than .*elsewhere"):
        FinishedRun(resolve(f"runs/smoke/ranker-{slug}-s0")).predict(Features(resolve(other.folder)))


def test_a_run_folder_is_enough(home, tmp_path):
    """Copied elsewhere, without data and features, an ensemble predicts as before."""
    slugs = ("tile-xla", "layout-nlp-random")
    for slug in slugs:
        (program,) = list_programs(resolve("data/sample"), get_collection(slug), TEST)[:1]
        # a random file with its default file, which tells the compiler's own layouts
        for path in filter(None, (program.path, default_file(program))):
            place = tmp_path / slug / path.parents[1].name / "test" / f"{slug}.npz"
            place.parent.mkdir(parents=True)
            shutil.copy(path, place)
    stored = {s: read_predictions(resolve(f"runs/smoke/ensemble-{s}"))[TEST] for s in slugs}
    shutil.move(home / "runs" / "smoke", tmp_path / "elsewhere")
    shutil.rmtree(home)
    for slug, predictions in stored.items():
        run = FinishedRun(tmp_path / "elsewhere" / f"ensemble-{slug}")
        (path,) = (tmp_path / slug).glob("[!d]*/test/*.npz")
        found = run.predict(read_unseen(run.folder, [path]))[slug]
        np.testing.assert_allclose(found, next(iter(predictions.values())), rtol=1e-5, atol=1e-6)


def test_a_member_that_was_trained_again_is_refused(home):
    ensemble = resolve("runs/smoke/ensemble-tile-xla")
    path = resolve("runs/smoke/ranker-tile-xla-s0") / "manifest.json"
    change_json(path, lambda manifest: manifest.update(fingerprint="another"))
    with pytest.raises(DataError, match="manifest.json: changed after it was written"):
        FinishedRun(ensemble)
    reseal(path.parent)
    with pytest.raises(DataError, match="its member .*ranker-tile-xla-s0 is missing, or was"):
        FinishedRun(ensemble)


def test_a_run_of_other_columns_or_of_an_older_version_is_refused(home):
    path = resolve("runs/smoke/ranker-tile-xla-s0") / "manifest.json"
    (program,) = list_programs(resolve("data/sample"), get_collection("tile:xla"), TEST)[:1]
    manifest = read_json(path)
    columns = manifest["features"]["config_columns"]
    recipe = {**manifest["features"], "config_columns": columns[1:]}
    change_json(path, lambda manifest: manifest.update(features=recipe))
    with pytest.raises(DataError, match="manifest.json: changed after it was written"):
        read_unseen(path.parent, [program.path])
    reseal(path.parent)
    with pytest.raises(DataError, match="learned from other features than this code builds"):
        read_unseen(path.parent, [program.path])
    change_json(path, lambda manifest: manifest.pop("features") and manifest)
    reseal(path.parent)
    with pytest.raises(DataError, match="does not keep how its features were built. Train this model again"):
        read_unseen(path.parent, [program.path])


def test_networks_of_other_node_columns_are_refused_with_a_remedy_that_helps(home, monkeypatch):
    """It said to delete a features folder, which a model of the package does not have."""
    monkeypatch.setattr(trained_network, "EXPANDED_NODE_FEATURES", 1)
    folder = resolve("runs/smoke/gnn-tile-xla-s0")
    with pytest.raises(DataError, match=r"learned from \d+ node columns, .* Use the code of its commit"):
        trained_network.TrainedNetwork(folder)


def test_which_run_is_found(home):
    tile, layout = get_collection("tile:xla"), get_collection("layout:xla:default")
    whole = resolve("runs/smoke")
    assert find_run(whole, tile) == whole / "ensemble-tile-xla"
    ranker_run = whole / "ranker-tile-xla-s0"
    assert find_run(ranker_run, tile) == ranker_run
    shutil.copy(ranker_run / "manifest.json", whole)  # a notebook wrote a model into the folder of a run
    assert find_run(whole, layout) == whole / "ensemble-layout-xla-default"
    with pytest.raises(SettingsError, match="runs/smoke holds a single model; give this run another NAME"):
        record_run(whole, "data/sample", "sample", {}, {})
    (whole / "manifest.json").unlink()
    with pytest.raises(DataError, match="is a run of tile:xla, not of layout:xla:default. Name a run of"):
        find_run(ranker_run, layout)
    with pytest.raises(DataError, match="nowhere: no such folder"):
        find_run(whole / "nowhere", tile)
    shutil.rmtree(whole / "ensemble-tile-xla")
    with pytest.raises(DataError, match="no finished ensemble for tile:xla .*ensemble-layout-nlp-default"):
        find_run(whole, tile)


def copy_run(name, preset, finished):
    """A copy of the finished run as one of another preset, finished in another year."""
    shutil.copytree(resolve("runs/smoke"), resolve(f"runs/{name}"))
    write_json(resolve(f"runs/{name}/run.json"), {"data": "data/sample", "preset": preset})
    for path in resolve(f"runs/{name}").glob("ensemble-*/manifest.json"):
        change_json(path, lambda facts: {**facts, "created": f"{finished}-01-01T00:00:00+00:00"})
        reseal(path.parent)


def test_the_newest_run_is_complete_and_meant_for_use(home):
    with pytest.raises(DataError, match=r"no complete run \(smoke: used only where it is named\). Train one"):
        newest_run()
    copy_run("older", "sample", 2031)
    copy_run("sample", "sample", 2032)
    for number, (name, preset) in enumerate([("play", "sample"), ("mine", "smoke"), ("half", "kaggle")]):
        copy_run(name, preset, 2033 + number)
    shutil.rmtree(resolve("runs/half/ensemble-tile-xla"))
    assert newest_run() == resolve("runs/sample")
    path = resolve("runs/sample/ranker-tile-xla-s0") / "manifest.json"
    write_json(path, {**read_json(path), "fingerprint": "another"})
    reseal(path.parent)
    shutil.rmtree(resolve("runs/smoke"))  # where the copies' manifests name the members
    assert newest_run() == resolve("runs/older"), "a member of the newest was trained again"
    shutil.rmtree(resolve("runs/older"))
    said = r"half/ensemble-tile-xla: no such folder; .*sample/ensemble-tile-xla: its"
    with pytest.raises(DataError, match=said):
        newest_run()


def test_a_run_far_behind_another_on_the_same_programs_ranks_only_where_it_is_named(home):
    copy_run("sample", "sample", 2031)
    copy_run("toy", "sample", 2032)
    assert newest_run() == resolve("runs/toy"), "a newer one of the same score"
    for path in resolve("runs/toy").glob("ensemble-*/manifest.json"):
        change_json(path, lambda facts: {**facts, "valid": {**facts["valid"], "mean": -0.9}})
        change_json(path, lambda facts: facts["inputs"].update(data="with further train files"))
        reseal(path.parent)
    assert newest_run() == resolve("runs/sample")
    shutil.rmtree(resolve("runs/toy"))
    assert newest_run() == resolve("runs/sample")
    member = resolve("runs/sample/ranker-tile-xla-s0")
    change_json(member / "manifest.json", lambda facts: facts.update(code={}))
    reseal(member)
    with pytest.raises(DataError, match="its member ranker-tile-xla-s0 was written by hand: it cannot rank"):
        newest_run()


def test_a_run_without_a_model_is_refused(home, tmp_path):
    features = Features(resolve("features/smoke/tile-xla"))
    predictions = {
        s: {n: np.arange(c) for n, c in features.num_configs(s).items()} for s in ("valid", "test")
    }
    write_run(tmp_path / "mine", features, predictions, model="mine")
    with pytest.raises(DataError, match="a run of 'mine', whose model is not kept"):
        FinishedRun(tmp_path / "mine").predict(features)
    write_run(tmp_path / "unnamed", features, predictions)
    assert describe_run(tmp_path / "unnamed").endswith("1 model of yours, for tile:xla")
    named = tmp_path / "models-v2" / "gnn"
    write_run(named, features, predictions)
    assert describe_run(named).startswith(f"{named}: "), "a run that NAME=models-v2 named is the user's own"
    with pytest.raises(DataError, match="a run of your own, whose model is not kept"):
        FinishedRun(tmp_path / "unnamed").predict(features)
