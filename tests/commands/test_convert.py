"""The command ``convert``: what it writes and prints, and where relative paths start."""

import pandas as pd
import pytest

from fastslow.hlo.messages import HloProto
from fastslow_programs.commands import convert as convert_command
from fastslow_programs.commands.convert import convert_program
from fastslow_programs.program.convert import ConvertSettings
from helpers.competition_files import npz_program
from helpers.dot_module import varied_module
from helpers.workspace import environment


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A separate home with a program in it, as the working folder."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    proto = HloProto(hlo_module=varied_module(2))
    (tmp_path / "small.hlo.pb").write_bytes(proto.SerializeToString())
    return tmp_path


def test_what_was_found_is_written_and_printed(home, capsys):
    npz = convert_program(ConvertSettings(source="small.hlo.pb", configs=10, name="mine"))["npz"]
    folder = home / "data" / "converted" / "programs" / "mine"
    assert npz == home / "data/converted/npz_all/npz/layout/xla/random/test/mine.npz"
    assert len(npz_program(npz, "layout").runtime) == 10
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line[0] != "c")
    assert said["npz"] == str(npz) and said["picture"] == str(folder / "graph.png")
    assert said["nodes"] == "12" and (folder / "graph.png").is_file() and (folder / "nodes.csv").is_file()


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
    monkeypatch.setattr(convert_command, "write_conversion", ran.append)
    monkeypatch.setattr(convert_command, "summarise", lambda _: pd.Series())
    convert_program(ConvertSettings(seed=3, **given))
    where = {"data_root": f"{home}/{data_root}"} if data_root else {}
    assert ran == [ConvertSettings(source=f"{home}/{source}", seed=3, **where)]
