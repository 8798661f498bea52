"""``fastslow train-network``: it trains the network that a run then finds."""

import pytest
import torch

from fastslow import cli
from fastslow.core.artifacts import read_manifest
from fastslow.core.settings import resolve
from fastslow.steps import network as network_step
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.network import train_gnn
from fastslow.workflow.begun_run import make_plan
from fastslow.workflow.train_network import NetworkRunSettings
from helpers.competition_files import write_data_root

NETWORK = "training-tile-s0"
SETTINGS = ("preset=smoke", "name=own", "gnn.tile.graphs_per_step=2", "gnn.tile.hidden_channels=8")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A home with the tile kernels of a competition, and the features of a run named ``own``."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    root = write_data_root(tmp_path / "made", "tile:xla", train=("a", "b", "c"))
    (features,) = [step.settings for step in plan(root) if is_tile_features(step.settings)]
    build_features(features.replace(workers=1))
    return root


def is_tile_features(settings):
    return isinstance(settings, FeatureSettings) and settings.collection == "tile:xla"


def plan(root):
    overrides = [text for text in SETTINGS if "." in text]
    return make_plan(NetworkRunSettings(data=str(root), preset="smoke", name="own", set=overrides)).steps()


def network(root):
    (settings,) = [step.settings for step in plan(root) if step.name == NETWORK]
    return settings


def test_a_network_is_trained_that_a_run_then_finds(data, capsys, monkeypatch):
    """``tests/networks/test_distributed.py`` has the processes that torchrun starts; the first one prints."""
    command = ["train-network", NETWORK, f"data={data}", *SETTINGS]
    assert cli.main(command) == 0
    settings = network(data)
    manifest = read_manifest(resolve(settings.folder))
    line = f"{NETWORK}: valid {manifest['valid']['mean']:.3f} ({manifest['valid']['weights']})"
    assert capsys.readouterr().out.splitlines().count(line) == 1
    assert settings.artifact().is_current()
    monkeypatch.setattr(torch, "save", None)  # a training would save a checkpoint
    assert train_gnn(settings) == manifest
    monkeypatch.setenv("RANK", "1")
    assert cli.main(command) == 0 and line not in capsys.readouterr().out


def test_a_run_of_other_settings_is_refused(data, capsys, monkeypatch):
    """It is recorded, so that a network of other settings, or a run, is no part of the same run."""
    monkeypatch.setattr(network_step, "train_gnn", lambda _: {"valid": {"mean": 0.5, "weights": "last"}})
    command = ["train-network", NETWORK, f"data={data}", *SETTINGS]
    assert cli.main(command) == 0
    for other in ([*command, "gnn.tile.epochs=9"], ["train", f"data={data}", *SETTINGS, "gnn.tile.epochs=9"]):
        assert cli.main(other) == 1
        assert "name: runs/own was begun without gnn.tile.epochs, now" in capsys.readouterr().err


def test_a_wrong_name_and_missing_features_are_said(data, capsys):
    for name, said in (
        ("training-x-s0", "network: 'training-x-s0' is none of training-layout-s0, training-tile-s0"),
        ("training-layout-s0", "layout-xla-default: no such folder"),
    ):
        assert cli.main(["train-network", name, f"data={data}", *SETTINGS]) == 1
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert said in line
