"""Every row of metrics reaches a logger; a missing one is refused, and one that fails ends no training."""

import json
import sys
import types
from pathlib import Path
from unittest.mock import Mock

import pytest

from fastslow import cli
from fastslow.core.errors import SettingsError
from fastslow.evaluation.training_files import METRICS
from fastslow.steps import network
from fastslow.steps.loggers import opened_logger
from fastslow.steps.network import train_gnn
from fastslow.steps.network_settings import TrainSettings
from helpers.cases import cases
from helpers.runs import NAMES, make_features


@pytest.fixture
def settings(tmp_path, undrawn):
    """A small network on one collection."""
    features = make_features(tmp_path, "layout:xla:random", NAMES | {"train": ("a", "b")})
    small = {"epochs": 3, "hidden_channels": 8, "device": "cpu", "evaluate_every": 1}
    return TrainSettings(features=[str(features.folder)], folder=str(tmp_path / "mine" / "net"), **small)


def library(monkeypatch, **functions):
    """A library of loggers in this process, with what it was called with."""
    calls = []
    module = types.ModuleType("trackio")
    module.__spec__ = types.SimpleNamespace(name="trackio")
    module.init = lambda **options: calls.append(("init", options))
    module.log = lambda row: calls.append(("log", row))
    module.finish = lambda: calls.append(("finish", None))
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, "trackio", module)
    return calls


def rows_of(settings):
    return [json.loads(line) for line in (Path(settings.folder) / METRICS).read_text().splitlines()]


def test_a_library_takes_what_the_file_and_the_hook_take(settings, monkeypatch):
    calls, taken = library(monkeypatch), []
    plain = settings.artifact().fingerprint
    logged = settings.replace(logger="trackio")
    assert logged.artifact().fingerprint == plain, "a logger changes no result"
    train_gnn(logged, taken.append)
    (begun, options), *rows, (ended, _) = calls
    assert (begun, ended) == ("init", "finish")
    assert options["project"] == "fastslow" and options["name"] == "mine-net"
    assert options["config"]["epochs"] == 3
    assert [row for _, row in rows] == taken == rows_of(settings) and len(taken) == 3


def test_a_function_of_the_users_takes_rows_with_the_name_of_their_training(settings, monkeypatch, tmp_path):
    (tmp_path / "my_logger.py").write_text("rows = []\ntake = rows.append\n")
    monkeypatch.syspath_prepend(tmp_path)
    train_gnn(settings.replace(logger="my_logger:take"))
    import my_logger

    assert my_logger.rows == [{"training": "mine-net", **row} for row in rows_of(settings)]


def test_a_logger_that_fails_later_ends_no_training(settings, monkeypatch, capsys):
    def fail(_):
        raise OSError("no network")

    library(monkeypatch, log=fail)
    manifest = train_gnn(settings.replace(logger="trackio"))
    assert len(rows_of(settings)) == 3
    assert capsys.readouterr().out.count("warning: logger trackio failed") == 1
    (warning,) = manifest["warnings"]
    assert warning == "logger trackio failed, and took no further row: no network", "a command tells it"


def test_a_library_ends_with_a_training_that_fails(settings, monkeypatch):
    """A second training of the process would meet an open run."""
    calls = library(monkeypatch)
    with pytest.raises(ZeroDivisionError), opened_logger("trackio", "mine", {}, []):
        raise ZeroDivisionError
    assert [name for name, _ in calls] == ["init", "finish"]


def test_a_function_is_refused_where_several_processes_train(settings):
    with pytest.raises(
        SettingsError, match="processes: with 2 processes `on_metrics` cannot be called. Use logger="
    ):
        train_gnn(settings.replace(processes=2, graphs_per_step=2), print)


def test_a_training_with_other_settings_shows_no_row_of_the_former_one(settings, monkeypatch):
    train_gnn(settings)
    monkeypatch.setattr(network.Training, "run", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train_gnn(settings.replace(learning_rate=2e-3))
    assert not (Path(settings.folder) / METRICS).exists()


def test_a_library_that_cannot_start_is_refused(settings, monkeypatch):
    def fail(**_):
        raise ValueError("no account")

    library(monkeypatch, init=fail)
    with pytest.raises(SettingsError, match=r"trackio cannot start \(no account\). Log in to trackio"):
        train_gnn(settings.replace(logger="trackio"))
    assert not (Path(settings.folder) / METRICS).exists()


@cases(
    "name, said",
    [
        ("wandb", "logger: wandb is not installed: .venv/bin/pip install wandb"),
        ("tensorboard", "'tensorboard' is none of wandb, trackio, nor module:function"),
        ("no_such_module:take", "no_such_module:take: No module named 'no_such_module'. Name a function"),
        ("json:nothing", "json:nothing: module 'json' has no attribute 'nothing'"),
        ("math:pi", "math:pi is float, a function wanted"),
    ],
)
def test_one_that_is_not_there_is_refused_at_the_start(name, said, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert cli.main(["submit", f"logger={name}"]) == 1
    assert said in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
    with pytest.raises(SettingsError, match="^logger: "):
        TrainSettings(logger=name)
