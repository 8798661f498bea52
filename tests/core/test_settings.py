"""Settings are used or refused."""

import contextlib
import io
import json
import math
import os
import pickle
import re
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest
from annotated_types import Ge, Le
from IPython.core.interactiveshell import InteractiveShell
from IPython.lib.pretty import PrettyPrinter
from traitlets.config import Config as IPythonConfig

from fastslow.core.errors import DataError, SettingsError, check_options
from fastslow.core.settings import (
    PROJECT,
    PositiveFloat,
    Settings,
    UnknownSetting,
    find_data,
    resolve,
    unkeyed,
)
from fastslow.features.build import GraphOptions
from helpers.cases import cases


class Example(Settings):
    """Settings of every type."""

    folder: str = unkeyed("runs/x")
    learning_rate: float = 1e-3
    epochs: int = 10
    """Passes."""
    merge: bool = True
    members: list = []
    weights: dict = {}

    def check(self):
        self.require(self.epochs >= 1, "epochs", "1 or more")


@cases("name, near", [("epoch", "epochs"), ("learning_rat", "learning_rate")])
def test_a_misspelt_name_is_refused_with_the_nearest(name, near):
    with pytest.raises(SettingsError, match=f"{name}: no such setting of Example; did you mean '{near}'"):
        Example(**{name: 1})


@cases(
    "name, value, got",
    [
        ("epochs", True, "a truth value"),
        ("epochs", 3.0, "a number"),
        ("epochs", "3", "a text"),
        ("epochs", None, "NoneType"),
        ("learning_rate", False, "a truth value"),
        ("merge", 1, "a whole number"),
        ("folder", PROJECT, type(PROJECT).__name__),
        ("members", ("a",), "a tuple"),
        ("weights", [], "a list"),
    ],
)
def test_a_wrong_type_is_refused(name, value, got):
    with pytest.raises(SettingsError, match=f"^{name}: .* is {got}, .* wanted"):
        Example(**{name: value})


def test_a_whole_number_is_good_for_a_float():
    settings = Example(learning_rate=1)
    assert settings.learning_rate == 1.0 and type(settings.learning_rate) is float
    assert settings.identity() == Example(learning_rate=1.0).identity()


def test_a_whole_number_of_numpy_is_a_whole_number():
    """Such as a column of a grid that a loop in Python searches."""
    settings = Example(epochs=np.int64(3), learning_rate=np.int32(1))
    assert (settings.epochs, type(settings.epochs), settings.learning_rate) == (3, int, 1.0)
    check_options(GraphOptions(hops=np.int64(2)))
    for wrong in (True, np.float64(2), np.int64(-5)):
        with pytest.raises(SettingsError, match="hops: "):
            GraphOptions(hops=wrong)


def test_settings_do_not_change():
    with pytest.raises(SettingsError, match="epochs: settings are immutable"):
        Example().epochs = 5


class Notebook:
    """A kernel in which cells are run, as a person does in a notebook whose settings are ``Example``'s."""

    CONFIG = "settings = Example.from_variables(globals())"

    def __init__(self):
        quiet = IPythonConfig({"HistoryManager": {"enabled": False}})
        self.shell = InteractiveShell(config=quiet, user_ns={"Example": Example})

    def run(self, *cells):
        """Run cells; what the last one printed."""
        for cell in cells:
            with contextlib.redirect_stdout(io.StringIO()) as said:
                self.shell.run_cell(cell, store_history=True).raise_error()
        return said.getvalue()

    def settings(self):
        """The settings that a cell makes after those that ran, and what it prints."""
        said = self.run(self.CONFIG)
        return self.shell.user_ns["settings"], said


@pytest.fixture
def notebook():
    """A kernel in which the parameters cell has run."""
    kernel = Notebook()
    kernel.run("epochs = 10\nfolder = 'runs/x'\nlearning_rate = 0.001")
    return kernel


@pytest.mark.parametrize(
    "cell",
    [
        "epochs = 3; folder = 'runs/y'",
        '# Parameters\nepochs = 3\nfolder = "runs/y"',
        "import os\nepochs = 3\nfolder = os.path.join('runs', 'y')",
        "%%time\nepochs = 3\nfolder = 'runs/y'",
        "epochs = 1\nepochs += 2\nfolder = f'runs/{chr(121)}'",
        'import json\nglobals().update(json.loads(\'{"epochs": 3, "folder": "runs/y"}\'))',
    ],
)
def test_a_notebook_takes_every_value_however_it_was_assigned(notebook, cell):
    notebook.run(cell)
    assert notebook.settings() == (Example(epochs=3, folder="runs/y"), "")


@pytest.mark.parametrize("value", ["20", "None", "Path('x')"])
@pytest.mark.parametrize("cell", ["import os\n{} = {}", "# Parameters\n{} = {}"])
def test_a_misspelt_parameter_is_refused_until_it_is_gone(notebook, cell, value):
    notebook.run("from pathlib import Path", cell.format("epochz", value))
    with pytest.raises(SettingsError, match="^epochz: no such setting of Example; did you mean 'epochs'"):
        notebook.settings()
    assert "epochz" in notebook.shell.user_ns, "nothing of the user's is deleted"
    notebook.run(cell.format("epochs", "20"))
    with pytest.raises(SettingsError, match="^epochz: .* or type del epochz$"):
        notebook.settings()
    notebook.run("del epochz")
    assert notebook.settings() == (Example(epochs=20), "")


def test_a_variable_of_a_scratch_cell_is_printed_and_no_error(notebook):
    notebook.run("lr = 0.1; epochs = 3")
    named = Example(epochs=3), "no settings of Example, not used: lr\n"
    assert notebook.settings() == named
    notebook.run("manifest = {'valid': 1}; rows = (1, 2); run = object(); network = Notebook = None")
    assert notebook.settings() == named, "the cell can be run again after those below it"
    notebook.run("folder = object()")
    with pytest.raises(SettingsError, match="^folder: <object .* is object, a text wanted"):
        notebook.settings()


def test_an_error_of_a_setting_has_its_name_and_survives_pickle():
    for error in (
        SettingsError("epochs", "0 is not 1 or more"),
        UnknownSetting("epochz", "Example", "did you mean 'epochs'?"),
        SettingsError("jax is not installed"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.name) == (type(error), str(error), error.name)
    assert SettingsError("epochs", "0 is less").name == "epochs" and not SettingsError("no jax: type").name
    assert str(SettingsError("epochs", "0 is less").named("gnn.epochs")) == "gnn.epochs: 0 is less"
    assert (
        str(UnknownSetting("a", "B", "known are c").named("gnn.a")) == "gnn.a: no such setting; known are c"
    )


def test_an_error_of_ours_is_one_line_in_a_notebook():
    for error in (
        SettingsError("epochs: 0 is not 1 or more"),
        DataError("x.npz", "is broken", "Copy it again"),
    ):
        shell, shown = Notebook().shell, []
        shell._showtraceback = lambda kind, value, lines, shown=shown: shown.extend(lines)
        shell.user_ns["error"] = error
        shell.run_cell("def f():\n    raise error\nf()")
        assert shown == [f"{type(error).__name__}: {error}"]


class Derived(Example):
    """More settings."""

    main = ("depth",)
    epochs: int = 20
    depth: Annotated[int, Ge(1), Le(4)] = 2
    """Layers of something,
    counted."""
    mode: Literal["slow", "fast"] = "fast"
    rate: PositiveFloat = 1.0


def test_every_field_is_described_with_its_sentence_default_and_range():
    settings = {s.name: s for s in Derived.describe()}
    assert list(settings)[:4] == ["depth", "folder", "learning_rate", "epochs"], "main fields come first"
    assert settings["epochs"] == ("epochs", "int", 20, "", "Passes.", "more")
    assert settings["depth"][1:] == ("int", 2, "1 or more, at most 4", "Layers of something, counted.", "")
    assert settings["mode"].allowed == "one of slow, fast"
    assert "Settings of every type" not in Derived.__doc__
    assert "depth (int, default 2, 1 or more, at most 4): Layers" in Derived.__doc__


@cases(
    "change, message",
    [
        ({"depth": 5}, "depth: 5 is not 1 or more, at most 4"),
        ({"mode": "medium"}, "mode: 'medium' is not one of slow, fast"),
        ({"learning_rate": math.nan}, "learning_rate: nan is not a finite number"),
        ({"rate": math.inf}, "rate: inf is not a finite number"),
        ({"rate": -1.0}, "rate: -1.0 is not above 0"),
    ],
)
def test_ranges_and_choices(change, message):
    with pytest.raises(SettingsError, match=f"^{re.escape(message)}"):
        Derived(**change)


class Choosing(Example):
    """Settings of which one choice reads another field."""

    mode: Literal["", "slow", "fast"] = "fast"
    breaks: int = 2

    def unread(self):
        return {} if self.mode == "slow" else {"breaks": ("with mode='fast'", "choose slow")}


def test_what_is_not_read_is_refused_and_no_part_of_the_identity():
    assert Choosing(mode="slow", breaks=3).identity()["breaks"] == 3
    assert "breaks" not in Choosing(breaks=2).identity()
    message = "breaks: 3 has no effect with mode='fast'; leave it at 2, or choose slow"
    with pytest.raises(SettingsError, match=f"^{re.escape(message)}$"):
        Choosing(breaks=3)
    with pytest.raises(SettingsError, match="^mode: 'fats' is not one of slow, fast; did you mean 'fast'"):
        Choosing(mode="fats")


def test_identity_leaves_out_where_and_how_fast():
    assert "folder" in Example().asdict() and "folder" not in Example().identity()
    assert Example(folder="unkeyed").identity() == Example().identity()
    assert Example(epochs=11).identity() != Example().identity()
    json.dumps(Example().asdict())


def test_relative_paths_start_at_the_repository(tmp_path, monkeypatch):
    monkeypatch.delenv("FASTSLOW_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(tmp_path)
    assert resolve("data/sample") == PROJECT / "data" / "sample"
    assert resolve("/unkeyed") == Path("/unkeyed")
    assert resolve("~/data") == tmp_path / "me" / "data"
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path / "disk"))
    assert resolve("runs/x") == tmp_path / "disk" / "runs" / "x"


def test_a_home_that_is_no_folder_is_refused_by_name(tmp_path, monkeypatch):
    (tmp_path / "loop").symlink_to("again")
    (tmp_path / "again").symlink_to("loop")
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    for home in ("loop", "file/data", "pipe", "n" * 300, "a\nb"):
        monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path / home))
        with pytest.raises(SettingsError, match=r"FASTSLOW_HOME: '.*' is no folder \(.+\); set it to one"):
            resolve("runs/x")


def test_the_home_of_a_user_stands_for_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FASTSLOW_HOME", "~/mine")
    assert resolve("runs/x") == tmp_path / "mine" / "runs" / "x"
    for home in (" ", "~no-such-user/x"):
        monkeypatch.setenv("FASTSLOW_HOME", home)
        with pytest.raises(SettingsError, match=f"FASTSLOW_HOME: '{home}' is no folder"):
            resolve("runs/x")


def test_data_that_are_read_may_be_the_repositorys(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    assert find_data("data/sample") == PROJECT / "data" / "sample"
    (tmp_path / "data" / "sample").mkdir(parents=True)
    assert find_data("data/sample") == resolve("data/sample") == tmp_path / "data" / "sample"
    assert find_data("data/nowhere") == tmp_path / "data" / "nowhere"


def test_a_notebook_shows_settings_without_a_break_inside_a_value():
    """The folder of features was ``'features/sample/layout-xla-d`` and ``efault'`` on two lines."""
    printer = PrettyPrinter(shown := io.StringIO())
    settings = Example(folder=f"runs/{'long-name-' * 6}x", learning_rate=0.25, epochs=1234)
    settings._repr_pretty_(printer, cycle=False)
    printer.flush()
    lines = shown.getvalue().splitlines()
    assert " ".join(lines) == repr(settings) and all(line.endswith((",", ")")) for line in lines)
    assert len(lines) > 1 and max(map(len, lines)) <= 95
