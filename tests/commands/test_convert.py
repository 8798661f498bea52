"""The command ``convert``: the notebook is run and what was found is printed."""

import json

import pytest

from fastslow.commands import convert as convert_command
from fastslow.commands import notebook as notebook_command
from fastslow.commands.convert import convert_program
from fastslow.competition.reader import read_competition_file
from fastslow.core.errors import DataError, SettingsError
from fastslow.programs.convert import ConvertSettings
from fastslow.workflow.run import StepError
from fastslow.xla.messages import HloProto
from helpers.dot_module import small_module
from helpers.workspace import environment


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A separate home with a program in it, as the working folder."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    proto = HloProto(hlo_module=small_module(2))
    (tmp_path / "small.hlo.pb").write_bytes(proto.SerializeToString())
    return tmp_path


def test_the_notebook_runs_and_shows_tables_and_pictures(home, capsys):
    npz = convert_program(ConvertSettings(source="small.hlo.pb", configs=10, name="mine"))
    folder = home / "data" / "converted" / "programs" / "mine"
    cells = json.loads((folder / "notebook.ipynb").read_text())["cells"]
    shown = [kind for cell in cells for output in cell.get("outputs", []) for kind in output.get("data", {})]
    assert shown.count("image/png") == 2 and shown.count("text/html") == 4
    assert npz == home / "data/converted/npz_all/npz/layout/xla/random/test/mine.npz"
    assert len(read_competition_file(npz, "layout").runtime) == 10
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line[0] != "c")
    assert said["npz"] == str(npz) and said["picture"] == str(folder / "graph.png")
    assert said["nodes"] == "10"


def test_the_error_of_a_failed_conversion_names_its_notebook(home):
    (home / "bad.pb").write_bytes(b"not HLO")
    with pytest.raises(StepError) as caught:
        convert_program(ConvertSettings(source="bad.pb"))
    error = str(caught.value)
    assert error.startswith(f"bad: DataError: {home}/bad.pb: ") and "failed.ipynb" in error
    assert len(error.splitlines()) <= 3


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        ("nothing.pb", DataError, "nothing.pb: no such file"),
        ("net.py", SettingsError, "neither an HLO file nor model.py:FUNCTION"),
        ("", SettingsError, "'' is neither an HLO file nor model.py:FUNCTION"),
    ],
)
def test_a_missing_source_is_refused_before_the_notebook_starts(home, source, error, said):
    with pytest.raises(error, match=said):
        convert_program(ConvertSettings(source=source))
    assert not (home / "data").exists()


@pytest.mark.parametrize(
    ("given", "source", "data_root"),
    [
        ({"source": "small.hlo.pb"}, "small.hlo.pb", None),
        ({"source": "small.hlo.pb", "data_root": "out"}, "small.hlo.pb", "out"),
        ({"source": "net.py:make"}, "net.py:make", None),
    ],
)
def test_relative_paths_start_at_the_working_folder(home, monkeypatch, given, source, data_root):
    (home / "net.py").write_text("")
    ran = []
    monkeypatch.setattr(notebook_command, "run_step", lambda step: ran.append(step.settings))
    monkeypatch.setattr(convert_command, "read_manifest", lambda folder: {"summary": {}})
    convert_program(ConvertSettings(seed=3, **given))
    where = {"data_root": f"{home}/{data_root}"} if data_root else {}
    assert ran == [ConvertSettings(source=f"{home}/{source}", seed=3, **where)]
