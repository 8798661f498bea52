"""The commands tune and fleet: what they print after their notebooks."""

import pytest

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

from fastslow.commands import tune as tune_command  # noqa: E402
from fastslow.tuning import fleet as fleet_module  # noqa: E402
from fastslow.tuning.config import TuneConfig  # noqa: E402
from fastslow.tuning.fleet_config import FleetConfig  # noqa: E402
from fastslow.tuning.fleet_report import write_fleet  # noqa: E402
from fastslow.tuning.result import write_result  # noqa: E402
from fastslow.tuning.tune import tune  # noqa: E402
from helpers.competition_files import layout_arrays, write_npz  # noqa: E402


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A labelled file; what the notebooks do is done without them."""

    def without_notebook(name, config):
        if name == "54_tune":
            return write_result(tune(config))
        return write_fleet(fleet_module.tune_fleet(config))

    monkeypatch.setattr(tune_command, "run_notebook", without_notebook)
    return write_npz(tmp_path / "program.npz", layout_arrays(3, dots=4, configs=40))


def test_a_finished_tuning_is_printed(program, tmp_path, capsys):
    config = TuneConfig(source=str(program), run="none", evaluations=6, data_root=str(tmp_path / "out"))
    folder = tune_command.tune_program(config)
    said = capsys.readouterr().out
    assert said.startswith("run: none\n")
    assert str(folder / "best.json") in said and str(folder / "study.journal") in said


def test_a_finished_fleet_is_printed(program, tmp_path, capsys):
    listed = tmp_path / "fleet.csv"
    listed.write_text("program,weight\nprogram.npz,2\n")
    config = FleetConfig(fleet=str(listed), run="none", evaluations=6, data_root=str(tmp_path / "out"))
    folder = tune_command.tune_fleet(config)
    assert str(folder / "programs.csv") in capsys.readouterr().out
