"""``make convert``: the notebook run from a command line, and what it says."""

import json

import pytest

from fastslow.competition.reader import read_competition_file
from fastslow.core.errors import ConfigError
from fastslow.programs.convert import ConvertConfig
from fastslow.programs.convert_cli import main, make_config
from fastslow.xla.messages import HloProto
from helpers.dot_module import small_module
from helpers.workspace import environment


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of its own, with a program in it, as the working folder."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    proto = HloProto(hlo_module=small_module(2))
    (tmp_path / "small.hlo.pb").write_bytes(proto.SerializeToString())
    return tmp_path


def test_the_notebook_runs_and_shows_tables_and_pictures(home, capsys):
    assert main(["small.hlo.pb", "--set", "configs=10", "name=mine"]) == 0
    folder = home / "data" / "converted" / "programs" / "mine"
    cells = json.loads((folder / "notebook.ipynb").read_text())["cells"]
    shown = [kind for cell in cells for output in cell.get("outputs", []) for kind in output.get("data", {})]
    assert shown.count("image/png") == 2 and shown.count("text/html") == 3
    npz = home / "data/converted/npz_all/npz/layout/xla/random/test/mine.npz"
    assert len(read_competition_file(npz, "layout").runtime) == 10
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line[0] != "c")
    assert said["npz"] == str(npz) and said["picture"] == str(folder / "graph.png")
    assert said["nodes"] == "10"


def test_a_program_that_cannot_be_converted_is_said_with_its_notebook(home, capsys):
    (home / "bad.pb").write_bytes(b"not HLO")
    assert main(["bad.pb"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: bad: DataError: {home}/bad.pb: ") and "failed.ipynb" in error
    assert len(error.splitlines()) <= 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.pb"], "nothing.pb: no such file"),
        (
            ["small.hlo.pb", "--set", "config=3"],
            "config: no such setting of ConvertConfig",
        ),
        (["small.hlo.pb", "--set", "configs=many"], "configs: 'many' is str, int wanted"),
        (["small.hlo.pb", "--set", "configs"], "'configs': a setting is given as NAME=VALUE"),
        (["small.hlo.pb", "--set", "generation=v9"], "generation: 'v9' is not one of v2, v3"),
    ],
)
def test_a_mistake_is_said_before_the_notebook_starts(home, capsys, arguments, said):
    assert main(arguments) == 1
    assert said in capsys.readouterr().err
    assert not (home / "data").exists()


def test_paths_start_at_the_working_folder(home):
    config = make_config("small.hlo.pb", "out", ["seed=3", "collection=layout:nlp:default"])
    assert config == ConvertConfig(
        source=f"{home}/small.hlo.pb", data_root=f"{home}/out", seed=3, collection="layout:nlp:default"
    )
    (home / "net.py").write_text("")
    assert make_config("net.py:make", None, []).source == f"{home}/net.py:make"
    with pytest.raises(ConfigError, match="neither an HLO file nor model.py:FUNCTION"):
        make_config("net.py", None, [])
