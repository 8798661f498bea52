"""The command ``rank``: what it prints and writes, and what it refuses."""

import pandas as pd
import pytest

from fastslow.core.errors import DataError, SettingsError
from fastslow_programs.commands.rank import rank_program
from fastslow_programs.ranking.settings import RankSettings
from helpers.dot_module import small_module


@pytest.fixture
def dots(home, monkeypatch):
    """A home with a trained run as the working folder, a program in it."""
    (home / "dots.pb").write_bytes(small_module(2).SerializeToString())
    monkeypatch.chdir(home)
    return "dots.pb"


def test_words_are_printed_before_numbers_and_the_models_first(home, dots, capsys):
    csv = rank_program(RankSettings(source=dots, configs=30, run="runs/smoke", data_root="mine"))
    folder = home / "mine" / "rankings" / "dots"
    assert csv == folder / "ranking.csv" and len(pd.read_csv(csv)) == 30
    said = capsys.readouterr().out
    used = home / "runs" / "smoke" / "ensemble-layout-xla-random"
    assert said.startswith(f"models: {used}: 1 gnn, 1 ranker, for layout:xla:random\n")
    places = [
        said.index(text) for text in ("\nto change: ", "\neffect: ", "\ntrust: ", " rank  config ", str(csv))
    ]
    assert places == sorted(places)
    assert str(folder / "ranking.html") in said


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"source": "nothing.npz"}, DataError, "nothing.npz: no such file"),
        ({"source": ""}, SettingsError, "'' is neither"),
        ({"source": "dots.pb", "run": "nothing"}, DataError, "nothing: no such folder"),
        ({"source": "bad.pb", "run": "runs/smoke"}, DataError, r"bad\.pb: is not HLO"),
    ],
)
def test_what_cannot_be_ranked_is_refused(home, dots, settings, error, said):
    (home / "bad.pb").write_bytes(b"not HLO")
    with pytest.raises(error, match=said):
        rank_program(RankSettings(**settings))
    assert not (home / "data" / "converted" / "rankings").exists()


def test_a_run_starts_at_the_working_folder_or_at_the_repository(home, dots, monkeypatch, capsys):
    rank_program(RankSettings(source=dots, configs=4, run="runs/smoke"))
    monkeypatch.chdir(home / "data")
    rank_program(RankSettings(source="../dots.pb", configs=4, run="runs/smoke"))
    assert capsys.readouterr().out.count(f"models: {home}/runs/smoke/ensemble-") == 2
