"""Settings are used or refused."""

import json
import math
import re
import types
from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Le

from fastslow.core.errors import ConfigError
from fastslow.core.settings import PROJECT, Config, PositiveFloat, resolve, unkeyed


class Example(Config):
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


def test_settings_come_from_a_mapping():
    config = Example(**{"epochs": 3, "merge": False, "members": ["a"], "weights": {"a": 1.0}})
    assert (config.epochs, config.merge, config.members, config.weights) == (3, False, ["a"], {"a": 1.0})
    assert config.learning_rate == 1e-3


@pytest.mark.parametrize(("name", "near"), [("epoch", "epochs"), ("learning_rat", "learning_rate")])
def test_a_misspelt_name_is_refused_with_the_nearest(name, near):
    with pytest.raises(ConfigError, match=f"{name}: no such setting of Example; did you mean '{near}'"):
        Example(**{name: 1})


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="qqq: no such setting of Example; known are folder, learning_rate"):
        Example(**{"qqq": 1})


@pytest.mark.parametrize(
    ("name", "value", "got"),
    [
        ("epochs", True, "bool"),
        ("epochs", 3.0, "float"),
        ("epochs", "3", "str"),
        ("epochs", None, "NoneType"),
        ("learning_rate", "1e-3", "str"),
        ("learning_rate", False, "bool"),
        ("merge", 1, "int"),
        ("merge", "true", "str"),
        ("folder", PROJECT, type(PROJECT).__name__),
        ("members", ("a",), "tuple"),
        ("weights", [], "list"),
    ],
)
def test_a_wrong_type_is_refused(name, value, got):
    with pytest.raises(ConfigError, match=f"^{name}: .* is {got}, .* wanted"):
        Example(**{name: value})


def test_a_whole_number_is_good_for_a_float():
    config = Example(learning_rate=1)
    assert config.learning_rate == 1.0 and type(config.learning_rate) is float
    assert config.identity() == Example(learning_rate=1.0).identity()


@pytest.mark.parametrize("epochs", [0, -5])
def test_a_value_out_of_range_is_refused(epochs):
    with pytest.raises(ConfigError, match=f"^epochs: {epochs} is not 1 or more"):
        Example(epochs=epochs)


def test_settings_do_not_change():
    with pytest.raises(ConfigError, match="epochs: settings are immutable"):
        Example().epochs = 5


NOTEBOOK = {
    "__name__": "__main__",
    "_": 5,
    "_i1": "epochs = 3",
    "In": ["", "epochs = 3\nfolder = 'runs/y'", "config = Example.from_notebook(globals())"],
    "Out": {},
    "get_ipython": lambda: None,
    "math": math,
    "json": json,
    "Example": Example,
    "tools": types.SimpleNamespace(),
    "epochs": 3,
    "folder": "runs/y",
}


def test_a_notebook_gives_its_parameters_and_nothing_else():
    assert Example.from_notebook(NOTEBOOK) == Example(epochs=3, folder="runs/y")


@pytest.mark.parametrize("value", [1, 1.0, "x", True, None, [], (), {}])
@pytest.mark.parametrize("cell", ["# Parameters\nepoch = {!r}", "epochs = 3  # passes\nepoch = {!r}"])
def test_a_parameter_of_a_notebook_that_is_no_setting_is_refused(cell, value):
    variables = {**NOTEBOOK, "In": [*NOTEBOOK["In"], cell.format(value)], "epoch": value}
    with pytest.raises(ConfigError, match="epoch: no such setting"):
        Example.from_notebook(variables)


def test_the_config_cell_can_be_run_again_after_the_cells_below_it():
    later = ["manifest = train(config)", "rows = [1, 2]", "for row in rows: print(row)"]
    variables = {**NOTEBOOK, "In": [*NOTEBOOK["In"], *later], "manifest": {"valid": 1}, "rows": [1, 2]}
    assert Example.from_notebook(variables) == Example(epochs=3, folder="runs/y")


def test_a_later_cell_may_use_the_name_of_a_setting():
    variables = {**NOTEBOOK, "In": [*NOTEBOOK["In"], "folder = open_folder(config)"], "folder": object()}
    assert Example.from_notebook(variables) == Example(epochs=3, folder="runs/y")


def test_a_parameter_may_be_an_expression():
    variables = {**NOTEBOOK, "In": ["epochs = 2 * 10"], "epochs": 20}
    assert Example.from_notebook(variables) == Example(epochs=20)


def test_without_a_history_of_cells_every_plain_variable_is_a_parameter():
    assert Example.from_notebook({"epochs": 3, "json": json}) == Example(epochs=3)
    with pytest.raises(ConfigError, match="epoch: no such setting"):
        Example.from_notebook({"epoch": 3})


class Derived(Example):
    """More settings."""

    renamed = {"passes": "epochs"}
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
    assert settings["epochs"] == ("epochs", "int", 20, "", "Passes.")
    assert settings["depth"][1:] == ("int", 2, "1 or more, at most 4", "Layers of something, counted.")
    assert settings["mode"].allowed == "one of slow, fast"
    for text in (
        "Settings of every type" not in Derived.__doc__,
        "depth (int, default 2, 1 or more, at most 4): Layers",
    ):
        assert text is True or text in Derived.__doc__


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"passes": 3}, "passes: no such setting of Derived; it is called 'epochs' now"),
        ({"depth": 5}, "depth: 5 is not 1 or more, at most 4"),
        ({"mode": "medium"}, "mode: 'medium' is not one of slow, fast"),
        ({"learning_rate": math.nan}, "learning_rate: nan is not a finite number"),
        ({"rate": math.inf}, "rate: inf is not a finite number"),
        ({"rate": -1.0}, "rate: -1.0 is not above 0"),
    ],
)
def test_ranges_choices_and_old_names(change, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
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
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        Choosing(breaks=3)
    with pytest.raises(ConfigError, match="^mode: 'fats' is not one of slow, fast; did you mean 'fast'"):
        Choosing(mode="fats")


def test_identity_leaves_out_where_and_how_fast():
    assert "folder" in Example().asdict() and "folder" not in Example().identity()
    assert Example(folder="unkeyed").identity() == Example().identity()
    assert Example(epochs=11).identity() != Example().identity()
    json.dumps(Example().asdict())


def test_a_step_without_a_folder_says_so():
    with pytest.raises(TypeError, match="Example writes no folder"):
        Example().artifact()


def test_relative_paths_start_at_the_repository(tmp_path, monkeypatch):
    monkeypatch.delenv("FASTSLOW_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(tmp_path)
    assert resolve("data/sample") == PROJECT / "data" / "sample"
    assert resolve("/unkeyed") == Path("/unkeyed")
    assert resolve("~/data") == tmp_path / "me" / "data"
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path / "disk"))
    assert resolve("runs/x") == tmp_path / "disk" / "runs" / "x"
