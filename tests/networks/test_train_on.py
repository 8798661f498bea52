"""Training on the train graphs of several layout collections."""

import json
import shutil

import pytest
import torch

import fastslow.networks.training.validation
from fastslow.competition.catalog import get_collection
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.settings import PROJECT
from fastslow.features.graph import trainable
from fastslow.networks.training.train import Training
from fastslow.networks.training.validation import Validation
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import check_predictions, read_predictions
from fastslow.steps.network import graphs_of, read_graphs, train_gnn
from fastslow.steps.network_settings import TrainSettings
from helpers.competition_files import build_sample

OWN, OTHER, FOREIGN = (
    get_collection(f"layout:{name}") for name in ("xla:random", "xla:default", "nlp:random")
)


def settings_of(folder, *collections):
    return TrainSettings(
        features=[str(folder / "features" / c.slug) for c in collections],
        runs=[str(folder / "runs" / c.slug) for c in collections],
        folder=str(folder / "training"),
        device="cpu",
        hidden_channels=8,
        num_layers=1,
        epochs=2,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    for collection in (OWN, OTHER, FOREIGN):
        build_sample(folder, collection)
    return folder


def features_of(folder, collection):
    return Features(folder / "features" / collection.slug)


def script_valid(monkeypatch, scores):
    """Let evaluations on valid give these scores by collection, one after the other."""
    remaining = {collection.slug: iter(valid_scores) for collection, valid_scores in scores.items()}
    slug, predict = None, Validation.predict

    def predicted(self, *args):
        nonlocal slug
        slug = args[0]
        return predict(self, *args)

    def score(*_):
        return {"mean": next(remaining[slug]), "per_graph": {"a": 0.5}}

    monkeypatch.setattr(Validation, "predict", predicted)
    monkeypatch.setattr(fastslow.networks.training.validation, "collection_score", score)


def test_every_collection_gets_a_run_that_is_best_on_its_valid(folder, tmp_path, monkeypatch):
    script_valid(monkeypatch, {OWN: [0.1, 0.3, 0.3], FOREIGN: [0.2, 0.1, 0.2]})
    settings = settings_of(folder, OWN, FOREIGN).replace(evaluate_every=1, average_last=0)
    runs = [str(tmp_path / "own"), str(tmp_path / "foreign")]
    training = train_gnn(settings.replace(runs=runs, folder=str(tmp_path / "training")))
    own_manifest, foreign = (read_manifest(run) for run in runs)
    assert (
        own_manifest["settings"]["collection"] == OWN.name
        and foreign["settings"]["collection"] == FOREIGN.name
    )
    assert (own_manifest["valid"]["weights"], foreign["valid"]["weights"]) == ("epoch 2", "epoch 1")
    assert training["valid"] == {
        "mean": pytest.approx(0.25),
        "weights": "epoch 2, epoch 1",
        "by_collection": {OWN.slug: 0.3, FOREIGN.slug: 0.2},
        "per_graph": {f"{OWN.slug}/a": 0.5, f"{FOREIGN.slug}/a": 0.5},
    }
    first, second = (torch.load(f"{run}/model.pt", weights_only=True) for run in runs)
    assert any(not torch.equal(first[name], second[name]) for name in first)
    for run, collection in zip(runs, (OWN, FOREIGN), strict=True):
        check_predictions(run, read_predictions(run), features_of(folder, collection))
    rows = (tmp_path / "training" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)[FOREIGN.slug] for row in rows] == [0.2, 0.1]
    assert [json.loads(row)["valid"] for row in rows] == pytest.approx([0.15, 0.2])


def test_training_stops_when_no_collection_gets_better(folder, tmp_path, monkeypatch):
    script_valid(monkeypatch, {OWN: [0.1, 0.2, 0.1, 0.1, 0.1], FOREIGN: [0.1, 0.1, 0.2, 0.1, 0.1]})
    settings = settings_of(folder, OWN, FOREIGN).replace(epochs=9, patience=2, evaluate_every=1)
    training = Training(settings, read_graphs(settings))
    training.run()
    assert training.epoch == 5
    best = {slug: best["epoch"] for slug, best in training.validation.best.items()}
    assert best == {OWN.slug: 2, FOREIGN.slug: 3}


def test_a_run_depends_on_every_collection_it_trained_on(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    settings = settings_of(tmp_path, OWN, OTHER)
    train_gnn(settings)
    inputs = read_manifest(tmp_path / "runs" / OWN.slug)["inputs"]
    assert inputs["features"] == features_of(tmp_path, OWN).fingerprint
    assert inputs[OTHER.slug] == features_of(tmp_path, OTHER).fingerprint
    assert settings.artifact().is_current()
    build_sample(tmp_path, FOREIGN, hops=2)
    assert settings.artifact().is_current()
    build_sample(tmp_path, OTHER, hops=2)
    assert not settings.artifact().is_current()


def test_a_run_that_another_training_wrote_is_trained_again(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    together, alone = settings_of(tmp_path, OWN, OTHER), settings_of(tmp_path, OWN)
    train_gnn(together)
    train_gnn(alone.replace(folder=str(tmp_path / "alone")))
    assert not together.artifact().is_current()
    assert together.artifact().changes() == [f"{OWN.slug}: {OTHER.slug} changed"]


def test_a_graph_that_is_valid_in_one_collection_is_trained_on_in_none(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    held_out = features_of(tmp_path, OWN).names("valid")[0]
    source = OTHER.folder(PROJECT / "data" / "sample", "valid") / f"{held_out}.npz"
    build_sample(tmp_path, OTHER, train=[source])
    assert held_out in features_of(tmp_path, OTHER).names("train")
    names = trainable(read_graphs(settings_of(tmp_path, OWN, OTHER)).sources)
    assert not any(name.endswith(f"/{held_out}") for name in names)
    assert any(name.startswith(OTHER.slug) for name in names)


def test_run_folders_follow_from_the_features_and_the_folder():
    features = ["features/a/layout-xla-random", "features/a/layout-nlp-random"]
    one, two = (TrainSettings(features=features, folder=folder) for folder in ("runs/play/one", "runs/two/"))
    assert one.run_folders() == ["runs/play/one-layout-xla-random", "runs/play/one-layout-nlp-random"]
    assert two.run_folders() == ["runs/two-layout-xla-random", "runs/two-layout-nlp-random"]
    assert one.replace(features=features[:1], runs=["mine"]).run_folders() == ["mine"]
    assert len(TrainSettings().run_folders()) == 4
    with pytest.raises(SettingsError, match="runs: .* a list of different paths"):
        TrainSettings(features=["a/x", "b/x"])


def test_wrong_features_are_refused_by_name(folder, tmp_path):
    build_sample(tmp_path, OWN)
    with pytest.raises(DataError, match="layout-xla-default: no such folder. Make it with `make features`"):
        train_gnn(settings_of(tmp_path, OWN, OTHER))
    for collections in ((OWN, OWN), ()):
        with pytest.raises(SettingsError, match="features: .* a list of different paths"):
            settings_of(tmp_path, *collections)
    with pytest.raises(SettingsError, match="runs: 1 folder for 2 features"):
        settings_of(tmp_path, OWN, OTHER).replace(runs=["a"])
    shutil.copytree(tmp_path / "features" / OWN.slug, tmp_path / "copy")
    twice = [str(tmp_path / "features" / OWN.slug), str(tmp_path / "copy")]
    with pytest.raises(SettingsError, match="features: two of .* the same collection"):
        train_gnn(settings_of(tmp_path, OWN, OTHER).replace(features=twice))
    other = features_of(folder, OTHER)
    other.manifest["config_columns"] = other.manifest["config_columns"][::-1]
    with pytest.raises(DataError, match=f"{OTHER.slug}.*columns"):
        graphs_of(settings_of(folder, OWN, OTHER), [features_of(tmp_path, OWN), other])
