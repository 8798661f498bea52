"""The Python interface: its page, that it writes nothing unasked, and that its import is cheap."""

import doctest
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import fastslow
from fastslow import cli
from fastslow.core.errors import DataError, SettingsError
from fastslow.hlo.reader import read_hlo
from fastslow_programs.compiler.tracing import Call
from fastslow_programs.program.user_program import FunctionSource
from helpers.competition_files import ROOT
from helpers.dot_module import varied_module


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the repository's data and a program, where no run was trained."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data").symlink_to(ROOT / "data")
    (tmp_path / "work" / "program.pb").write_bytes(varied_module(3).SerializeToString())
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path / "home"))
    return tmp_path / "work"


def test_the_examples_of_its_page_hold_and_write_nothing(folder):
    failed, tried = doctest.testfile(
        str(ROOT / "docs" / "api.md"),
        module_relative=False,
        optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL,
    )
    assert tried > 15 and not failed
    assert {path.name for path in folder.iterdir()} == {"data", "program.pb"}
    assert not (folder.parent / "home").exists()


def test_a_folder_that_is_named_gets_what_the_command_writes(folder):
    ranking = fastslow.rank("program.pb", out="mine", configs=20)
    written = pd.read_csv(folder / "mine" / "rankings" / "program" / "ranking.csv")
    pd.testing.assert_frame_equal(written, ranking.table)
    fastslow.convert("program.pb", out="mine", configs=20)
    assert (folder / "mine" / "programs" / "program" / "graph.png").is_file()
    html = ranking._repr_html_()
    assert html.count("data:image/png;base64,") == 3 and "<li>to change: " in html


def test_a_function_in_memory_is_ranked_under_its_name(folder, monkeypatch):
    asked = []

    def read(self, labeller, ask_compiler=False):
        asked.append(self.call)
        return read_hlo(folder / "program.pb")

    monkeypatch.setattr(FunctionSource, "read", read)

    def step(x, y):
        return x + y

    ranking = fastslow.rank(step, 1.0, 2.0, configs=20)
    assert ranking.program == "step" and asked == [Call(step, (1.0, 2.0), {})]
    assert "How: fastslow.measure(function, *arguments, configs=8, out=FOLDER)" in str(ranking)
    same = fastslow.rank("program.pb", configs=20)
    pd.testing.assert_frame_equal(ranking.table, same.table)


def test_files_that_settings_name_are_those_of_the_working_folder(folder):
    """Text or path; a device's file of the same name in the folder of runs is not read."""
    constants = {"name": "here", "flops_per_second": 1e12, "bytes_per_second": 1e11, "memory": 1e9}
    constants |= {"launch_seconds": 1e-6, "link_bytes_per_second": 1e9, "link_seconds": 1e-6}
    (folder / "mine.json").write_text(json.dumps(constants))
    (folder.parent / "home").mkdir()
    (folder.parent / "home" / "mine.json").write_text(json.dumps(constants | {"name": "elsewhere"}))
    for device in ("mine.json", Path("mine.json")):
        placed = fastslow.place("program.pb", devices=2, search=0, device=device)
        assert "roofline and links of here" in str(placed)
    (folder / "protobufs").mkdir()
    program = "data/sample/npz_all/npz/layout/xla/random/test/9eee4395e223545e837fe4bf647414f3.npz"
    with pytest.raises(SettingsError, match=f"hlo_folder: '{folder}/protobufs' is not a folder with 9eee"):
        fastslow.rank(program, models="package", hlo_folder=Path("protobufs"))


def test_a_path_that_is_nowhere_is_named_in_the_working_folder(folder):
    program = "data/sample/npz_all/npz/layout/xla/random/test/9eee4395e223545e837fe4bf647414f3.npz"
    for read, name in (
        (fastslow.rank, "nope.npz"),
        (fastslow.tune, "nope.json"),
        (fastslow.convert, "nope.hlo"),
        (fastslow.load_models, "nope"),
        (fastslow.load_tuned, "nope"),
        (lambda known: fastslow.rank(program, models="package", known=known), "nope.csv"),
    ):
        with pytest.raises(DataError, match=f"^{folder}/{name}[/:]"):
            read(name)


def test_wrong_arguments_are_refused(folder):
    for call, error, said in (
        (lambda: fastslow.rank("program.pb", 3), SettingsError, "arguments: 1 given, but program.pb is no"),
        (lambda: fastslow.rank("nothing.pb"), DataError, r"nothing\.pb: no such file"),
        (lambda: fastslow.tune(None), SettingsError, "source: a NoneType is no program; give the path"),
        (lambda: fastslow.place(3), SettingsError, "source: an int is no program; give the path"),
        (lambda: fastslow.load_models("nothing"), DataError, "nothing: no such folder"),
        (lambda: fastslow.load_models(pd.DataFrame()), SettingsError, "path: a DataFrame is no path"),
        (lambda: fastslow.load_models("~no-such-user/x"), SettingsError, "no such user's home"),
        (lambda: fastslow.load_models("x" * 300), DataError, "the name is too long"),
        (lambda: fastslow.load_placed("x" * 300), DataError, "the name is too long"),
        (lambda: fastslow.load_placed(3), SettingsError, "folder: an int is no path"),
        (lambda: fastslow.load_tuned(3), SettingsError, "folder: an int is no path"),
        (lambda: fastslow.compare(3, "sample"), SettingsError, "one: an int is no path"),
        (lambda: fastslow.blend("a.csv", 3), SettingsError, "csvs: an int is no path"),
        (lambda: fastslow.rank("x" * 300), DataError, "the name is too long"),
        (lambda: fastslow.rank("program.pb", models={}), SettingsError, "models: a dict is no path"),
        (lambda: fastslow.tune("program.pb", models=3), SettingsError, "models: an int is no path"),
        (lambda: fastslow.convert("program.pb", out=[1]), SettingsError, "out: a list is no path"),
        (lambda: fastslow.rank("program.pb", keywords=3), SettingsError, "keywords: an int is no mapping"),
        (lambda: fastslow.place("program.pb", keywords=3), SettingsError, "keywords: an int is no mapping"),
        (lambda: fastslow.blend("a", "b", weights=3), SettingsError, "weights: 3 is no list of numbers"),
        (lambda: fastslow.blend("a", "b", weights={2, 1}), SettingsError, "weights: {1, 2} is no list"),
        (lambda: fastslow.blend("a", "b", weights=[True, 2]), SettingsError, "weights: True in the list"),
        (
            lambda: fastslow.rank("program.pb", data_root="x"),
            SettingsError,
            "name the folder of results as out='x",
        ),
        (lambda: fastslow.blend("a", "b", weights="2,1"), SettingsError, r"'2,1' is no list .* \[2, 1\]"),
        (lambda: fastslow.submit(set="gnn.epochs=5"), SettingsError, r"for example \['gnn.epochs=5'\]"),
        (lambda: fastslow.rank("program.pb", known=3), DataError, "known: is an int, a table of pandas"),
        (lambda: fastslow.load_models("."), DataError, "holds no finished ensemble"),
        (
            lambda: fastslow.rank("program.pb", known=pd.DataFrame({"config": [1], "runtime": [1.0]})),
            DataError,
            "known: names configurations by config without id.*Give the column id",
        ),
        (lambda: fastslow.rank("program.pb", known="none.csv"), DataError, r"none\.csv: no such file"),
    ):
        with pytest.raises(error, match=said):
            call()
    with pytest.raises(AttributeError, match="no attribute 'ranks'") as raised:
        _ = fastslow.ranks
    assert raised.value.name == "ranks" and raised.value.obj is fastslow, "from which Python finds 'rank'"


def test_the_import_waits_for_no_large_library():
    code = """
import sys
import fastslow
assert {"rank", "tune", "convert", "load_models"} <= set(dir(fastslow))
large = {"torch", "lightgbm", "scipy", "pandas", "numpy", "matplotlib", "pydantic", "jax"}
assert not large & sys.modules.keys(), large & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_runs_and_submissions_are_compared_as_by_the_command(home, capsys):
    """Nothing is drawn or printed. Of a CSV against itself every difference is 0."""
    runs = fastslow.compare("smoke", "smoke")
    few = "too few programs of a collection for a verdict (1, 6 are needed)"
    assert runs.words()[0] == f"mean score on valid: {few}"
    assert len(runs.table) == 6 and len(runs.programs) == 5
    csv = home / "submissions" / "smoke.csv"
    both = fastslow.compare(csv, csv, data_root=home / "data" / "sample")
    assert both.words() == [f"mean score on test: {few}"]
    assert both.results.loc["mean of 5", ["difference", "programs"]].tolist() == [0, 4]
    assert both.table["collection"].tolist()[-1] == "mean of 5"
    header, *rows = csv.read_text().splitlines(keepends=True)
    part = home / "part.csv"
    part.write_text(header + "".join(rows[1:]))
    lacking = fastslow.compare(str(csv), str(part), data_root="data/sample").words()
    assert lacking[0].startswith("no verdict: ") and rows[0].split(",")[0] in " ".join(lacking)
    without = fastslow.compare(str(csv), str(csv), data_root=str(home / "runs"))
    assert "no solution.csv" in without.words()[0]
    assert not (home / "runs" / "comparisons").exists()
    capsys.readouterr()
    for given, shown in (([], False), (["--all"], True)):
        assert cli.main(["compare", str(csv), str(csv), *given]) == 0
        assert (rows[0].split(",")[0][:30] in capsys.readouterr().out) == shown, "programs only if asked"


def test_a_run_that_is_up_to_date_is_submitted_again_in_no_time(home, monkeypatch):
    monkeypatch.setattr("papermill.execute_notebook", None)
    board = fastslow.submit(name="smoke", target="submission")
    assert "smoke" in board.table["run"].tolist()
    fastslow.leaderboard(csv=home / "board.csv")
    assert "smoke" in (home / "board.csv").read_text()


def test_labels_are_measured(home):
    report = fastslow.data_quality(data=home / "data" / "sample", collections=["tile:xla"], splits=["valid"])
    assert len(report.table) == 2 and report.words()[0].startswith("2 graphs, ")
