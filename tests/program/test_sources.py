"""What a user types is found by one rule: in the working folder, at home, or in FASTSLOW_HOME."""

import sys

import numpy as np
import pytest

import fastslow
from fastslow.core.errors import SettingsError
from fastslow_programs.program import user_program
from fastslow_programs.program.user_program import Source, find_source
from helpers.cases import cases
from helpers.competition_files import layout_arrays, write_npz

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Three folders: where the user is, the user's home, and FASTSLOW_HOME."""
    folders = {name: tmp_path / name for name in ("here", "home", "data")}
    for folder in folders.values():
        folder.mkdir()
    monkeypatch.chdir(folders["here"])
    monkeypatch.setenv("HOME", str(folders["home"]))
    monkeypatch.setenv("FASTSLOW_HOME", str(folders["data"]))
    return folders


@cases(("place", "prefix"), [("here", ""), ("home", "~/"), ("data", "")])
@cases("function", ["", ":make"])
def test_a_source_is_found_with_its_function(places, place, prefix, function):
    name = f"{place}.py" if function else f"{place}.hlo"
    (places[place] / name).touch()
    assert find_source(f"{prefix}{name}{function}") == f"{places[place] / name}{function}"


@cases(("place", "prefix"), [("here", ""), ("home", "~/"), ("data", "")])
def test_the_python_interface_reads_it_there(places, place, prefix):
    pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")
    write_npz(places[place] / f"{place}.npz", layout_arrays(3, dots=4, configs=40))
    tuned = fastslow.tune(f"{prefix}{place}.npz", models="none", evaluations=3)
    assert len(tuned.table) == 3


def test_a_tuned_function_is_loaded_by_the_path_that_the_guide_writes(places):
    pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")
    ones = np.ones((4, 4), np.float32)
    settings = {"evaluator": "device", "models": "none", "evaluations": 1, "confirm": 0.0, "name": "mine"}
    fastslow.tune(lambda x: x @ x, ones, out=places["data"] / "data/converted", **settings)
    assert (fastslow.load_tuned("data/converted/tuned/mine")(ones) == 4).all()


def test_an_empty_source_stays_what_it_is(places):
    with pytest.raises(SettingsError, match="source: give a program: an HLO file, "):
        fastslow.convert("")


def test_jax_is_kept_from_the_tpu_library_before_a_users_file_imports_it(tmp_path, monkeypatch):
    """A space of the user's once printed the TPU library's errors, since its file was imported first."""
    path = tmp_path / "model.py"
    path.write_text("import os\nSEEN = os.environ.get('KEPT')\ndef make():\n    return SEEN.lower, ()\n")
    monkeypatch.delenv("KEPT", raising=False)
    monkeypatch.setattr(user_program, "require_jax", lambda: monkeypatch.setenv("KEPT", "BEFORE"))
    function, _, _ = Source.of(f"{path}:make").call_of_function()
    assert function() == "before"


def test_each_file_imports_the_modules_of_its_own_folder(tmp_path):
    """The second program was made of the ``layers.py`` of the first, and ``sys.path`` had both folders."""
    made, paths = [], sys.path.copy()
    for folder in "abb":
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "layers.py").write_text(f"NAME = {folder!r}\n")
        model = tmp_path / folder / "model.py"
        model.write_text("import layers\ndef make():\n    return layers.NAME.join, ()\n")
        made.append(user_program._run_file(model).make()[0]("--"))
    assert made == ["-a-", "-b-", "-b-"]
    added = [path for path in sys.path if path not in paths]
    assert added == [str(tmp_path / "b")]
