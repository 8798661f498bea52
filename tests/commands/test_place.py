"""The command ``place``: a program of the user's is placed, and the result is printed as JSON alone."""

import json
from pathlib import Path

from fastslow import cli
from fastslow.hlo.messages import HloProto
from helpers.dot_module import small_module
from helpers.workspace import environment


def test_a_program_is_placed_where_the_command_runs(tmp_path, monkeypatch, capfd):
    for name, value in environment(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    proto = HloProto(hlo_module=small_module(2))
    (tmp_path / "small.hlo.pb").write_bytes(proto.SerializeToString())
    words = ["place", "small.hlo.pb", "devices=2", "search=60", "out=placed", "--json"]
    assert cli.main(words) == 0
    printed = capfd.readouterr()
    assert printed.err.startswith("Whole operators go to devices, and none is split")
    result = json.loads(printed.out)
    files = {path.name: path for path in map(Path, result["files"])}
    assert {path.parent.parent for path in files.values()} == {tmp_path / "placed"}
    assert {"placement.csv", "decision.json", "notebook.ipynb"} <= files.keys()
    assert all(path.is_file() for path in files.values())
    assert {"one device", "human"} <= {row["method"] for row in result["table"]} and result["found"]
    (tmp_path / "other").mkdir()
    before = files["decision.json"].read_bytes()
    other = tmp_path / "other" / "small.hlo.pb"
    other.write_bytes(HloProto(hlo_module=small_module(3)).SerializeToString())
    words[1] = "other/small.hlo.pb"
    assert cli.main(words) == 1
    said = f"small.hlo-placement-2: has the placement of {tmp_path / 'small.hlo.pb'}. Give another folder"
    assert said in capfd.readouterr().err and files["decision.json"].read_bytes() == before


def test_a_file_that_is_no_program_is_refused_before_a_notebook_is_started(tmp_path, monkeypatch, capfd):
    for name, value in environment(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.hlo").write_text("a program to place\n")
    assert cli.main(["place", "notes.hlo", "out=placed"]) == 1
    assert "notes.hlo: is not HLO" in capfd.readouterr().err
    assert not (tmp_path / "placed").exists()
