"""A setting is read or refused: for every source and evaluator, a spy sees what a whole tuning reads."""

import json

import pytest

from fastslow_programs.tuning.result import write_result
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.tune import complete_study
from helpers.cases import cases
from helpers.competition_files import layout_arrays, write_npz
from helpers.dot_module import varied_module
from helpers.read_settings import ignored, settings_read

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

pytestmark = pytest.mark.usefixtures("undrawn")
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
        facts = {"choices": {"steps": [1, 2, 3]}}
        if evaluator == "device":
            facts["function"] = "kernel.py:make"
        source.write_text(json.dumps(facts))
    elif evaluator == "device":
        source = folder / "kernel.py:product"
    else:
        source = folder / "dots.pb"
        source.write_bytes(varied_module(3).SerializeToString())
    if evaluator == "command":
        settings["command"] = "sh -c 'echo 1'"
    return settings | {"source": str(source)}


@cases("kind", KINDS)
def test_each_setting_is_read_or_refused(tmp_path, kind):
    if kind.startswith("device"):
        pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")
    folder = tmp_path / kind
    folder.mkdir()
    settings = TuneSettings(**settings_of(kind, folder))
    with settings_read() as read:
        write_result(complete_study(settings))
    assert ignored(settings, read) == []
