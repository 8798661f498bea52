"""A fleet: the budget goes where it saves, equal programs share, an even split is even."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow.core.errors import DataError, SettingsError
from fastslow.hlo.reader import read_hlo
from fastslow_programs.program.user_program import Source
from fastslow_programs.tuning import fleet as fleet_module
from fastslow_programs.tuning.confirmation import CONFIRMS
from fastslow_programs.tuning.fleet import fleet_table, tune_fleet, write_fleet
from fastslow_programs.tuning.history import Evaluation
from fastslow_programs.tuning.result import write_result
from fastslow_programs.tuning.settings import FleetSettings
from helpers.browser import check_page, open_page
from helpers.cases import cases
from helpers.competition_files import layout_arrays, tile_arrays, write_npz
from helpers.dot_module import varied_module
from helpers.stub_labeller import ConstraintsCost

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")


@pytest.fixture
def fleet(tmp_path):
    """Two programs, one of which cannot be improved, and a copy of the other."""
    arrays = layout_arrays(3, dots=4, configs=24)
    rng = np.random.default_rng(0)
    arrays["config_runtime"] = rng.integers(10**5, 10**6, len(arrays["config_runtime"]))
    write_npz(tmp_path / "slow.npz", arrays)
    write_npz(tmp_path / "copy.npz", arrays)
    flat = layout_arrays(5, dots=4, configs=24)
    flat["config_runtime"][:] = 1000
    write_npz(tmp_path / "flat.npz", flat)
    path = tmp_path / "fleet.csv"
    path.write_text("program,weight\nslow.npz,2\nflat.npz,1\ncopy.npz,3\n")
    return path


def settings_of(path, **more):
    common = {"run": "none", "evaluations": 16, "data_root": str(path.parent / "out")}
    return FleetSettings(fleet=str(path), **{**common, **more})


def summary(folder):
    return json.loads((folder / "manifest.json").read_text())["summary"]


def test_the_budget_goes_where_it_saves_and_copies_share(fleet):
    members = tune_fleet(settings_of(fleet))
    table = fleet_table(members).set_index("program")
    assert table["weight"].tolist() == [5.0, 1.0]
    slow, flat = table.iloc[0], table.iloc[1]
    assert slow["evaluations"] > flat["evaluations"] and table["evaluations"].sum() == 16
    assert slow["saved"] == 5 * (slow["default"] - slow["best"]) > 0 == flat["saved"]
    assert table["as_compiled"].isna().all() and table["baseline"].equals(table["default"])
    folder = write_fleet(members, settings_of(fleet))
    assert summary(folder)["programs"] == "2 different programs" and (folder / "programs.csv").is_file()


def test_a_fleet_has_a_page_with_what_each_program_saves(fleet):
    image = "<img src=x onerror=alert(1)>.npz"
    (fleet.parent / "slow.npz").rename(fleet.parent / image)
    fleet.write_text(f"program,weight\n{image},2\nflat.npz,1\n")
    page = write_fleet(tune_fleet(settings_of(fleet)), settings_of(fleet)) / "fleet.html"
    text = check_page(page).text
    assert text[2] == "fleet" and " of it by " in text[3] and "1 of 2" in text
    assert re.match(r"\d+\.?\d* % of the time of all programs is saved, ", text[3]), text[3]
    assert "Where is the time, and what is saved?" in text
    assert any(cell.startswith("gained: the best is") for cell in text)
    open_page(page)
    (fleet.parent / image).unlink()
    fleet.write_text("program,weight\nflat.npz,1\n")
    page = write_fleet(tune_fleet(settings_of(fleet, name="even")), settings_of(fleet, name="even"))
    assert check_page(page / "fleet.html").text[3] == "Nothing is saved: keep 1 program untuned."


def test_the_budget_is_shared_by_weight_times_default(fleet):
    """Programs that cost equally get equally many; what a small space leaves is for the others."""
    for weights, wanted in (("1", [8, 8]), ("3", [11, 5])):
        fleet.write_text(f"program,weight\nslow.npz,{weights}\nslower.npz,1\n")
        for name, seed in (("slow", 3), ("slower", 5)):
            arrays = layout_arrays(seed, dots=4, configs=24)
            arrays["config_runtime"][:] = 900 + np.arange(24) % 2
            write_npz(fleet.parent / f"{name}.npz", arrays)
        tuned = tune_fleet(settings_of(fleet, strategy="random", name=f"w{weights}"))
        assert [len(member.study.history) for member in tuned] == wanted
        assert [m.study.history.done[0][0].by for m in tuned] == ["default", "default"]
    arrays = layout_arrays(5, dots=4, configs=3)
    arrays["config_runtime"][:] = 900 + np.arange(3) % 2
    write_npz(fleet.parent / "slower.npz", arrays)
    fleet.write_text("program,weight\nslow.npz,1.1\nslower.npz,1\n")
    uneven = tune_fleet(settings_of(fleet, strategy="random", name="small"))
    assert [len(member.study.history) for member in uneven] == [14, 2], "also where it costs less"
    whole = tune_fleet(settings_of(fleet, strategy="random", evaluations=10_000))
    assert all(m.study.history.best[1] == m.study.target.labels.min() for m in whole)


def test_ratios_to_the_default_are_weighed_by_its_time(fleet):
    """A tile's labels are shares of the default's runtime, so that each default is 1."""
    fleet.write_text("program,weight\nshort.npz,1\nlong.npz,1\n")
    for name, default in (("short", 100), ("long", 700)):
        arrays = tile_arrays(1, configs=24)
        arrays["config_runtime"] = default + np.arange(24) * default // 100
        arrays["config_runtime_normalizers"] = np.full(24, default)
        write_npz(fleet.parent / f"{name}.npz", arrays)
    members = tune_fleet(settings_of(fleet, strategy="random"))
    assert [member.default for member in members] == [700, 100]
    assert [len(member.study.history) for member in members] == [13, 3]
    assert fleet_table(members)["default"].sum() == 800


@cases("cycles, saved", [(50, 0), (98, 3), (200, 5)])
def test_a_saving_is_one_of_the_program_as_the_user_compiles_it(fleet, monkeypatch, cycles, saved):
    program = fleet.parent / "dots.pb"
    program.write_bytes(varied_module(3).SerializeToString())
    fleet.write_text("program,weight\ndots.pb,1\n")
    monkeypatch.setattr("fastslow_programs.program.program_settings.Labeller", ConstraintsCost)
    monkeypatch.setattr(ConstraintsCost, "as_compiled", {"cycles": cycles})
    monkeypatch.setattr("fastslow_programs.tuning.target.require_compiler", lambda: None)
    monkeypatch.setattr(Source, "read", lambda self, labeller, ask_compiler: read_hlo(program))
    (member,) = tune_fleet(settings_of(fleet, evaluations=7))
    # the first evaluation is a batch of its own, so the sixth of the next has 95 cycles
    assert member.saved == saved and member.claim == 100
    row = fleet_table([member]).iloc[0]
    assert (row["default"], row["as_compiled"], row["baseline"]) == (100, cycles, min(cycles, 100))
    assert row["saved"] == saved
    folder = write_fleet([member], settings_of(fleet, evaluations=7))
    (written,) = json.loads((folder / "best.json").read_text())
    assert written == json.loads((write_result(member.study) / "best.json").read_text())
    assert written["constrained"] is bool(saved) and written["as_compiled"] == cycles


def test_it_resumes(fleet):
    first = tune_fleet(settings_of(fleet, evaluations=8))
    again = tune_fleet(settings_of(fleet, evaluations=12))
    for before, after in zip(first, again, strict=True):
        assert after.study.history.done[: len(before.study.history)] == before.study.history.done
    assert sum(len(m.study.history) for m in again) == 12


def test_a_resumed_fleet_has_its_shares(fleet):
    """Values of the default in paired rounds changed them, and more was spent at each call."""
    for member in tune_fleet(settings_of(fleet, evaluations=8)):
        before, (default, evaluation) = member.claim, member.study.history.done[0]
        member.study.history.add(replace(default, by=CONFIRMS), Evaluation(2 * evaluation.value))
        assert member.claim == before


def test_the_budget_of_seconds_ends_it_between_batches(fleet, monkeypatch):
    clock = itertools.count(step=10.0)  # ten seconds pass from one look to the next
    monkeypatch.setattr(fleet_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    first = tune_fleet(settings_of(fleet, budget_seconds=25.0))
    assert sum(len(m.study.history) for m in first) < 16
    tuned = tune_fleet(settings_of(fleet))
    assert sum(len(m.study.history) for m in tuned) == 16, "without it, it resumes"


MEASURE = """
values=$(cat $1)
case "$values" in *broken*) exit 3;; *'"tile": 2'*) echo 0.5;; *) echo 1;; esac
"""


def test_a_program_that_cannot_be_tuned_is_left_out_and_named(tmp_path, capsys):
    """Of four, one is read in vain and one evaluated in vain; the others have the budget."""
    (tmp_path / "measure.sh").write_text(MEASURE)
    spaces = {"good": {"tile": [1, 2, 3]}, "single": {"tile": [1]}, "bad": {"broken": [1, 2]}}
    for name, choices in spaces.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"choices": choices}))
    path = tmp_path / "fleet.csv"
    path.write_text("program,weight\nbad.json,5\nsingle.json,2\ngood.json,1\ngood.json,1\n")
    command = {"evaluator": "command", "command": f"sh {tmp_path / 'measure.sh'}", "confirm": 0.0}
    settings = settings_of(path, **command)
    members = tune_fleet(settings)
    assert "left out: 001-bad: " in capsys.readouterr().err
    table = fleet_table(members)
    assert table["program"].tolist() == ["003-good", "002-single", "001-bad"]
    assert table["weight"].tolist() == [2.0, 2.0, 5.0]
    assert table["left_out"][0] == "" and table["evaluations"][0] == 3 and table["saved"][0] == 1.0
    assert "a single configuration" in table["left_out"][1]
    assert "not one of 1 evaluation has a value" in table["left_out"][2]
    folder = write_fleet(members, settings)
    assert (folder / "programs.csv").read_text().splitlines()[3].startswith("001-bad,5.0,,,,,,,")
    assert summary(folder)["programs"] == "1 different program" and "left out 001-bad" in summary(folder)
    assert "Programs that are left out" in check_page(folder / "fleet.html").text
    path.write_text("program,weight\nbad.json,5\nsingle.json,2\n")
    with pytest.raises(DataError, match="a single configuration"):
        tune_fleet(settings)


def test_a_space_may_be_larger_than_any_float():
    """A layout program has a thousand choices; equal needs go by the claim."""
    members = [
        SimpleNamespace(target=SimpleNamespace(space=SimpleNamespace(size=size)), claim=claim)
        for size, claim in ((2**2000, 1.0), (2**1500, 3.0), (8, 1.0))
    ]
    assert fleet_module._least_need_first(members, 100) == [members[2], members[1], members[0]]


def test_each_program_has_its_row_and_the_name_that_tune_gives_its_source(fleet):
    """Two functions of one file were both named after the file."""
    sources = ["progs.py:conv", "progs.py:rnn", f"{'long' * 60}.npz", "dots.pb.xz"]
    for source in sources:
        (fleet.parent / source.partition(":")[0]).write_text("")
    fleet.write_text("program,weight\n" + "".join(f"{source},1\n" for source in sources))
    programs = [program for program, _ in settings_of(fleet).read()]
    wanted = ["001-progs-conv", "002-progs-rnn", f"003-{'long' * 49}", "004-dots"]
    assert [program.program for program in programs] == wanted
    assert programs[0].replace(name="").program == "progs-conv"


@cases("weight", ["1000000", "1e6", "1.00E+06", "1000000.", "+1e6", " 1e6 "])
def test_a_weight_is_a_number_as_spreadsheets_and_pandas_write_it(fleet, weight):
    fleet.write_text(f"program,weight\nflat.npz,{weight}\n")
    ((_, given),) = settings_of(fleet).read()
    assert given == 1e6


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no row"),
        (",program,weight\n0,slow.npz,1\n", "column 1 has no name, as an index of pandas; leave it out"),
        ("program,weight\nslow.npz,1e400\n", "row 1: the weight '1e400' is no positive number"),
        ("program,weight\nslow.npz,-1\n", "row 1: the weight '-1' is no positive number"),
        ("weight\n1\n", "has the columns weight. Give a CSV"),
        ("program,weight,weight\nslow.npz,1,2\n", "the column weight twice"),
        ("program,weight,colection\nslow.npz,1,tile:xla\n", "columns program, weight, colection"),
        ("program,weight\nslow.npz,1,2\n", "line 2"),
        ("program,weight\nslow.npz,1_0\n", "row 1: the weight"),
        ("program,weight\nslow.npz,0.0\n", "row 1: the weight"),
        ("program,weight\nslow.npz,٣\n", "row 1: the weight '٣' is no positive number"),
        (f"program,weight\nslow.npz,{'9' * 5000}\n", "row 1: the weight '9{80}' is no positive number"),
        ("program,weight\nslow.npz,1\n ,1\n", "fleet.csv: row 2: the program is empty. Give a CSV"),
        ("program,weight\n~/none.npz,1\n", f"{Path.home()}/none.npz: no such file"),
        ("program,weight\nnone.npz,1\n", "no such file"),
    ],
)
def test_a_bad_list_is_refused(fleet, content, said):
    fleet.write_text(content)
    with pytest.raises(DataError, match=said):
        tune_fleet(settings_of(fleet))


def test_a_budget_without_an_evaluation_is_refused(fleet):
    with pytest.raises(SettingsError, match="evaluations: 0 is not 1 or more"):
        settings_of(fleet, evaluations=0)
    with pytest.raises(SettingsError, match="evaluations: 1 is not one for each program"):
        tune_fleet(settings_of(fleet, evaluations=1))
    with pytest.raises(SettingsError, match="budget_seconds: 1e-06 is not enough"):
        tune_fleet(settings_of(fleet, budget_seconds=1e-9, name="again"))
