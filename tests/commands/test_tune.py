"""The commands tune and fleet: what they print."""

import pytest

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

from fastslow_programs.commands import tune as tune_command  # noqa: E402
from fastslow_programs.tuning.settings import (
    FleetSettings,  # noqa: E402
    TuneSettings,  # noqa: E402
)
from helpers.competition_files import layout_arrays, write_npz  # noqa: E402

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def program(tmp_path):
    """A labelled file."""
    return write_npz(tmp_path / "program.npz", layout_arrays(3, dots=4, configs=40))


def test_a_finished_tuning_is_printed(program, tmp_path, capsys):
    settings = TuneSettings(source=str(program), run="none", evaluations=6, data_root=str(tmp_path / "out"))
    facts = tune_command.tune_program(settings)
    folder = facts["best configuration"].parent
    said = capsys.readouterr().out
    assert said.startswith("models: none\n")
    assert str(folder / "best.json") in said and str(folder / "study.journal") in said


def test_a_finished_fleet_is_printed(program, tmp_path, capsys):
    listed = tmp_path / "fleet.csv"
    listed.write_text("program,weight\nprogram.npz,2\n")
    settings = FleetSettings(fleet=str(listed), run="none", evaluations=6, data_root=str(tmp_path / "out"))
    folder = tune_command.tune_programs(settings)["table"].parent
    said = capsys.readouterr().out
    assert all(str(folder / name) in said for name in ("fleet.html", "programs.csv"))
    assert "1 different program\n" in said


def test_a_relative_path_starts_at_the_working_folder_wherever_the_output_goes(
    program, tmp_path, monkeypatch
):
    monkeypatch.chdir(program.parent)
    settings = TuneSettings(source=program.name, run="none", evaluations=2, data_root=str(tmp_path / "out"))
    assert settings.origin.path == program and settings.is_npz
    assert tune_command.tune_program(settings)["best"]["program"] == "program"
