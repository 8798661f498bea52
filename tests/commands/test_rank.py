"""The command ``rank``: what it prints and writes, and where a run is looked for."""

import pandas as pd
import pytest

from fastslow.core.errors import StorageError
from fastslow_programs.commands.rank import rank_program
from fastslow_programs.ranking.settings import RankSettings
from helpers.dot_module import varied_module

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def dots(home, monkeypatch):
    """A home with a trained run as the working folder, a program in it."""
    (home / "dots.pb").write_bytes(varied_module(2).SerializeToString())
    monkeypatch.chdir(home)
    return "dots.pb"


def test_words_are_printed_before_numbers_and_the_models_first(home, dots, capsys):
    csv = rank_program(RankSettings(source=dots, configs=30, run="runs/smoke", data_root="mine"))["ranking"]
    folder = home / "mine" / "rankings" / "dots"
    assert csv == folder / "ranking.csv" and len(pd.read_csv(csv)) == 30
    said = capsys.readouterr().out
    used = home / "runs" / "smoke" / "ensemble-layout-xla-random"
    models = f"models: {used}: 1 gnn, 1 ranker, for layout:xla:random"
    assert " ".join(said.split()).startswith(f"{models} dots: 30 configurations")
    places = [
        said.index(text)
        for text in ("\nto change: ", "\neffect: ", "\ntrust: ", "| place | config |", str(csv))
    ]
    assert places == sorted(places)
    assert str(folder / "ranking.html") in said


def test_the_ranking_of_another_program_of_the_name_is_replaced_with_a_note(home, dots, capsys):
    (home / "other").mkdir()
    (home / "other" / "dots.pb").write_bytes(varied_module(3).SerializeToString())
    for source, notes in ((dots, 0), (dots, 0), ("other/dots.pb", 1), ("other/dots.pb", 0)):
        rank_program(RankSettings(source=source, configs=4, run="runs/smoke"))
        said = " ".join(capsys.readouterr().out.split())
        note = f"note: this replaces the ranking of {home / dots}, of the same name; name=NAME keeps both"
        assert said.count(note) == notes and said.count("note: this replaces") == notes


def test_a_folder_that_cannot_be_written_is_refused_before_the_ranking(dots, capsys):
    with pytest.raises(StorageError, match="dots.pb is no folder. Name another folder"):
        rank_program(RankSettings(source=dots, configs=4, run="runs/smoke", data_root=dots))
    assert not capsys.readouterr().out


def test_a_run_starts_at_the_working_folder_or_at_the_repository(home, dots, monkeypatch, capsys):
    rank_program(RankSettings(source=dots, configs=4, run="runs/smoke"))
    monkeypatch.chdir(home / "data")
    rank_program(RankSettings(source="../dots.pb", configs=4, run="runs/smoke"))
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(f"models: {home}/runs/smoke/ensemble-") == 2
