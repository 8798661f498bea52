"""A training that starts from trained weights, and what it refuses to start from."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fastslow import cli
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.settings import resolve
from fastslow.runs.features_folder import Features
from fastslow.runs.run_manifest import models_of
from fastslow.runs.scalers import SCALERS, read_scaler
from fastslow.runs.trained_network import WEIGHTS
from fastslow.steps.network import begin_training, train_gnn
from fastslow.steps.network_settings import TrainSettings
from fastslow.workflow.begun_run import make_plan
from fastslow.workflow.settings.run_settings import RunSettings
from helpers.cases import cases
from helpers.good_artifacts import change_json, reseal
from helpers.runs import NAMES, make_features


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Features of one collection; read-only."""
    return make_features(tmp_path_factory.mktemp("data"), "layout:xla:random", NAMES | {"train": ("a", "b")})


@pytest.fixture
def settings(features, tmp_path, undrawn):
    """A small network on one collection."""
    small = {"epochs": 1, "hidden_channels": 8, "device": "cpu", "evaluate_every": 1}
    return TrainSettings(features=[str(features.folder)], folder=str(tmp_path / "cold"), **small)


def test_it_starts_from_their_weights_and_scaling_and_is_stale_with_them(settings, tmp_path):
    train_gnn(settings)
    (start,) = settings.run_folders()
    others = make_features(tmp_path / "others", "layout:xla:random", NAMES | {"train": ("c",)})
    warm = settings.replace(init=start, features=[str(others.folder)], folder=str(tmp_path / "warm"), seed=5)
    training = begin_training(warm)
    weights = torch.load(Path(start) / WEIGHTS)
    for name, values in training.network.state_dict().items():
        assert torch.equal(values, weights[name])
    kept = read_scaler(Path(start) / SCALERS, "config")
    assert np.array_equal(training.dataset.config_scaler.mean, kept.mean)
    assert not np.array_equal(Features(others.folder).scaler("config").mean, kept.mean)
    train_gnn(warm)
    assert warm.artifact().is_current()
    assert not warm.replace(init="").artifact().is_current()
    shutil.rmtree(start)
    train_gnn(settings.replace(epochs=2))
    assert not warm.artifact().is_current(), "the weights that it started from are others"


@cases(
    "changes, said",
    [
        ({"hidden_channels": 16}, "init: .* is another network: hidden_channels=8 there, 16 here. Give"),
        ({"num_layers": 2, "readout": "mean"}, "num_layers=1 there, 2 here; readout='sum' there, 'mean'"),
    ],
)
def test_another_architecture_is_refused(settings, tmp_path, changes, said):
    train_gnn(settings)
    (start,) = settings.run_folders()
    with pytest.raises(SettingsError, match=said):
        train_gnn(settings.replace(init=start, folder=str(tmp_path / "warm"), **changes))
    train_gnn(settings.replace(init=start, folder=str(tmp_path / "warm"), dropout=0.1))


def test_other_features_and_what_is_no_network_are_refused(settings, tmp_path):
    train_gnn(settings)
    (start,) = settings.run_folders()
    bare = make_features(tmp_path / "bare", "tile:xla")
    warm = settings.replace(init=start, folder=str(tmp_path / "warm"))
    with pytest.raises(SettingsError, match="kind='layout' there, 'tile' here"):
        begin_training(warm.replace(kind="tile", features=[str(bare.folder)]))
    with pytest.raises(DataError, match="a run of None, not of a network. Name a network's run folder"):
        begin_training(settings.replace(init=str(bare.folder)))
    weights = Path(start) / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(DataError, match="changed after it was written"):
        begin_training(warm)


def test_a_run_starts_each_seed_from_a_network_of_another_run(home, capsys):
    plan = make_plan(RunSettings(init="runs/smoke", preset="smoke", name="warm", seeds=2))
    starts = [step.settings.init for step in plan.steps() if isinstance(step.settings, TrainSettings)]
    layout, tile = (str(resolve(f"runs/smoke/gnn-{slug}-s0")) for slug in ("layout-xla-default", "tile-xla"))
    assert starts == [layout, layout, tile, tile]
    given = ["train", "init=runs/smoke", "name=warm"]
    for more, said in {
        ("preset=smoke", "gnn.hidden_channels=16"): "hidden_channels=32 there, 16 here",
        ("preset=smoke", "features.layout.hops=1"): "reads features of other settings: hops=2 there, 1 here",
        ("preset=smoke", "init=runs/none"): "is given twice",
    }.items():
        assert cli.main([*given, *more]) == 1
        assert said in capsys.readouterr().err
    assert cli.main(["train", "init=runs/none", "preset=smoke", "name=warm"]) == 1
    assert "runs/none: no such folder" in capsys.readouterr().err
    assert not resolve("runs/warm").exists()


def test_a_run_starts_from_the_networks_of_a_run_of_which_a_rule_filled_a_collection(home):
    filled = resolve("runs/smoke/ensemble-layout-xla-default")
    rule = read_manifest(filled)["baselines"]["ridge on config features"]
    member = {"weight": 1.0, "valid": rule["valid"], "folder": rule["folder"], "model": "ridge"}
    change_json(filled / "manifest.json", lambda made: made.update(members={"ridge": member}))
    reseal(filled)
    shutil.rmtree(resolve("runs/smoke/ranker-tile-xla-s0"))
    plan = make_plan(RunSettings(init="runs/smoke", preset="smoke", name="warm"))
    starts = [step.settings.init for step in plan.steps() if isinstance(step.settings, TrainSettings)]
    slugs = "layout-xla-random", "tile-xla"
    assert starts == [str(resolve(f"runs/smoke/gnn-{slug}-s0")) for slug in slugs]
    single = make_plan(RunSettings(init="runs/smoke/gnn-layout-xla-default-s0", preset="smoke", name="warm"))
    with pytest.raises(SettingsError, match="init: .* has no network among its members; name another run"):
        single.steps()


def test_seeds_that_start_from_different_weights_are_one_model(home):
    manifest = read_manifest(resolve("runs/smoke/gnn-tile-xla-s0"))
    seeds = {}
    for seed in (0, 1):
        settings = manifest["settings"] | {"seed": seed}
        inputs = manifest["inputs"] | {"init": f"weights of seed {seed}"}
        seeds[f"gnn-tile-xla-s{seed}"] = {"settings": settings, "inputs": inputs}
    assert models_of(seeds) == {"gnn": [*seeds]}
