"""Settings are used or refused."""

import dataclasses
import json
import math
import types
from pathlib import Path

import pytest

from fastslow.core.errors import ConfigError
from fastslow.core.settings import PROJECT, Config, elsewhere, resolve


@dataclasses.dataclass(frozen=True)
class Example(Config):
    """Settings of every type."""

    folder: str = elsewhere("runs/x")
    learning_rate: float = 1e-3
    epochs: int = 10
    merge: bool = True
    members: list = dataclasses.field(default_factory=list)
    weights: dict = dataclasses.field(default_factory=dict)

    def check(self):
        self.require(self.epochs >= 1, "epochs", "1 or more")


def test_settings_come_from_a_mapping():
    config = Example.of({"epochs": 3, "merge": False, "members": ["a"], "weights": {"a": 1.0}})
    assert (config.epochs, config.merge, config.members, config.weights) == (3, False, ["a"], {"a": 1.0})
    assert config.learning_rate == 1e-3


@pytest.mark.parametrize(("name", "near"), [("epoch", "epochs"), ("learning_rat", "learning_rate")])
def test_a_misspelt_name_is_refused_with_the_nearest(name, near):
    with pytest.raises(ConfigError, match=f"{name}: no such setting of Example; did you mean '{near}'"):
        Example.of({name: 1})


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="qqq: no such setting of Example; known are folder, learning_rate"):
        Example.of({"qqq": 1})


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
        Example.of({name: value})


def test_a_whole_number_is_good_for_a_float():
    config = Example(learning_rate=1)
    assert config.learning_rate == 1.0 and type(config.learning_rate) is float
    assert config.identity() == Example(learning_rate=1.0).identity()


@pytest.mark.parametrize("epochs", [0, -5])
def test_a_value_out_of_range_is_refused(epochs):
    with pytest.raises(ConfigError, match=f"^epochs: {epochs} is not 1 or more"):
        Example(epochs=epochs)


def test_settings_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Example().epochs = 5


NOTEBOOK = {
    "__name__": "__main__",
    "_": 5,
    "_i1": "epochs = 3",
    "In": ["", "epochs = 3"],
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
    assert Example.of_notebook(NOTEBOOK) == Example(epochs=3, folder="runs/y")


@pytest.mark.parametrize("value", [1, 1.0, "x", True, None, [], (), {}])
def test_a_plain_variable_of_a_notebook_that_is_no_setting_is_refused(value):
    with pytest.raises(ConfigError, match="epoch: no such setting"):
        Example.of_notebook({**NOTEBOOK, "epoch": value})


def test_identity_leaves_out_where_and_how_fast():
    assert "folder" in Example().asdict() and "folder" not in Example().identity()
    assert Example(folder="elsewhere").identity() == Example().identity()
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
    assert resolve("/elsewhere") == Path("/elsewhere")
    assert resolve("~/data") == tmp_path / "me" / "data"
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path / "disk"))
    assert resolve("runs/x") == tmp_path / "disk" / "runs" / "x"
