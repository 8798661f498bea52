"""The command ``rank``: the notebook is run and the fastest configurations are printed."""

import json

import pytest

from fastslow.commands import notebook as notebook_command
from fastslow.commands import rank as rank_command
from fastslow.commands.rank import rank_program
from fastslow.core.errors import DataError, SettingsError
from fastslow.ranking.settings import RankSettings
from fastslow.workflow.run import StepError
from helpers.dot_module import small_module


@pytest.fixture
def dots(home, monkeypatch):
    """A home with a trained run as the working folder, a program in it."""
    (home / "dots.pb").write_bytes(small_module(2).SerializeToString())
    monkeypatch.chdir(home)
    return "dots.pb"


def test_the_notebook_runs_and_shows_tables_and_pictures(home, dots, capsys):
    csv = rank_program(RankSettings(source=dots, configs=30, run="runs/smoke", data_root="mine"))
    folder = home / "mine" / "rankings" / "dots"
    assert csv == folder / "ranking.csv" and (folder / "manifest.json").is_file()
    cells = json.loads((folder / "notebook.ipynb").read_text())["cells"]
    shown = [kind for cell in cells for output in cell.get("outputs", []) for kind in output.get("data", {})]
    assert shown.count("image/png") == 2 and shown.count("text/html") == 5
    said = capsys.readouterr().out
    used = str(home / "runs" / "smoke" / "ensemble-layout-xla-random")
    assert said.split()[:5] == ["run:", used, "rank", "config", "prediction"]
    assert f"{'configurations':26} 30" in said and str(csv) in said


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"source": "nothing.npz"}, DataError, "nothing.npz: no such file"),
        ({"source": ""}, SettingsError, "'' is neither"),
        ({"source": "dots.pb", "run": "nothing"}, DataError, "nothing: no such folder"),
    ],
)
def test_what_is_missing_is_refused_before_the_notebook_starts(home, dots, settings, error, said):
    with pytest.raises(error, match=said):
        rank_program(RankSettings(**settings))
    assert not (home / "data" / "converted").exists()


def test_the_error_of_a_failed_ranking_names_its_notebook(home, dots):
    (home / "bad.pb").write_bytes(b"not HLO")
    with pytest.raises(StepError, match=r"bad: DataError: .*bad\.pb: is not HLO(.|\n)*failed\.ipynb"):
        rank_program(RankSettings(source="bad.pb", run="runs/smoke"))


def test_a_run_starts_at_the_working_folder_or_at_the_repository(home, dots, monkeypatch):
    ran = []
    monkeypatch.setattr(notebook_command, "run_step", lambda step: ran.append(step.settings.run))
    monkeypatch.setattr(rank_command.pd, "read_csv", lambda path: rank_command.pd.DataFrame())
    monkeypatch.setattr(rank_command, "read_manifest", lambda folder: {"summary": {}})
    rank_program(RankSettings(source=dots, run="runs/smoke"))
    monkeypatch.chdir(home / "data")
    rank_program(RankSettings(source="../dots.pb", run="runs/smoke"))
    assert ran == [str(home / "runs" / "smoke"), "runs/smoke"]
