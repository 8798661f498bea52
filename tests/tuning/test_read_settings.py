"""A setting is read or refused: for every source and evaluator, a spy sees what a whole tuning reads."""

import json
import shlex
import sys

import pytest

from fastslow.core.errors import SettingsError
from fastslow.core.settings import Settings
from fastslow_programs.tuning.result import write_result
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.tune import complete_study
from helpers.cases import cases
from helpers.competition_files import layout_arrays, write_npz
from helpers.dot_module import varied_module

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

CHECKS = {"__init__", "check", "unread", "require_defaults", "replace"}
CHANGED = {
    "kernel": "other",
    "name": "other",
    "cache": False,
    "evaluator": "",
    "strategy": "random",
    "run": "elsewhere",
    "evaluations": 24,
    "budget_seconds": 600.0,
    "batch": 3,
    "command": "other",
    "confirm": 0.25,
    "repeats": 2,
    "seconds": 60.0,
    "attempts": 4,
    "processes": 2,
    "generation": "v4",
    "data_root": "other",
    "seed": 5,
    "collection": "layout:nlp:random",
    "options": "auto",
    "space": "options",
}
KINDS = ("replay", "command", "command on a space", "device", "device on a space")
KERNEL = """
import jax.numpy as jnp

def make(steps=1):
    return (lambda x: (x * steps).sum()), (jnp.ones(8),)

def product():
    return (lambda a: (a @ a).reshape(4, 2, 8).sum(1)), (jnp.ones((8, 8)),)
"""


def settings_of(kind, folder):
    """Return the settings of a tuning of a kind, whose files are in a folder."""
    evaluator, _, space = kind.partition(" on a ")
    (folder / "kernel.py").write_text(KERNEL)
    settings = {"evaluator": evaluator, "run": "none", "evaluations": 14, "data_root": str(folder / "out")}
    if evaluator == "replay":
        source = write_npz(folder / "labelled.npz", layout_arrays(3, dots=4, configs=40))
    elif space:
        source = folder / "space.json"
        source.write_text(json.dumps({"choices": {"steps": [1, 2, 3]}, "function": "kernel.py:make"}))
    elif evaluator == "device":
        source = folder / "kernel.py:product"
    else:
        source = folder / "dots.pb"
        source.write_bytes(varied_module(3).SerializeToString())
    if evaluator == "command":
        settings["command"] = shlex.join([sys.executable, "-c", "print(1)"])
    return settings | {"source": str(source)}


def is_check(code):
    """Return whether code checks settings, which is no use of them."""
    return code.co_name in CHECKS and code.co_filename.endswith("settings.py")


def is_refused(settings):
    try:
        TuneSettings(**settings)
    except SettingsError:
        return True
    return False


@cases("kind", KINDS)
def test_each_setting_is_read_or_refused(tmp_path, monkeypatch, kind):
    if kind.startswith("device"):
        pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")
    folder = tmp_path / kind
    folder.mkdir()
    given = settings_of(kind, folder)
    settings = TuneSettings(**given)
    read = set()

    def spy(self, name):
        frame = sys._getframe(1)
        while frame and not is_check(frame.f_code):
            frame = frame.f_back
        if frame is None:
            read.add(name)
        return object.__getattribute__(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(Settings, "__getattribute__", spy, raising=False)
        write_result(complete_study(settings))
    ignored = [
        name
        for name in sorted(TuneSettings.model_fields.keys() - read - {"source"})
        if not is_refused(given | {name: CHANGED[name]})
    ]
    assert ignored == []
