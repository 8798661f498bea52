"""A fleet: the budget goes where it saves, equal programs share, an even split is even."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow.core.errors import DataError, SettingsError
from fastslow_programs.tuning import fleet as fleet_module
from fastslow_programs.tuning.confirmation import CONFIRMS
from fastslow_programs.tuning.evaluators import Replay
from fastslow_programs.tuning.fleet import tune_fleet, tune_members
from fastslow_programs.tuning.fleet_report import fleet_table, plot_savings, summarise_fleet, write_fleet
from fastslow_programs.tuning.fleet_settings import FleetSettings
from fastslow_programs.tuning.history import Outcome
from fastslow_programs.tuning.tune import propose
from helpers.bad_files import ANY_FILE
from helpers.competition_files import layout_arrays, tile_arrays, write_npz

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")


@pytest.fixture
def fleet(tmp_path):
    """Two programs, one of which cannot be improved, and a copy of the other."""
    arrays = layout_arrays(3, dots=4, configs=60)
    rng = np.random.default_rng(0)
    arrays["config_runtime"] = rng.integers(10**5, 10**6, len(arrays["config_runtime"]))
    write_npz(tmp_path / "slow.npz", arrays)
    write_npz(tmp_path / "copy.npz", arrays)
    flat = layout_arrays(5, dots=4, configs=60)
    flat["config_runtime"][:] = 1000
    write_npz(tmp_path / "flat.npz", flat)
    path = tmp_path / "fleet.csv"
    path.write_text("program,weight\nslow.npz,2\nflat.npz,1\ncopy.npz,3\n")
    return path


def settings_of(path, **more):
    common = {"run": "none", "evaluations": 30, "data_root": str(path.parent / "out")}
    return FleetSettings(fleet=str(path), **{**common, **more})


def test_the_budget_goes_where_it_saves_and_copies_share(fleet):
    tuned = tune_fleet(settings_of(fleet))
    table = fleet_table(tuned.members).set_index("program")
    assert table["copies"].tolist() == [2, 1] and table["weight"].tolist() == [5.0, 1.0]
    slow, flat = table.iloc[0], table.iloc[1]
    assert slow["evaluations"] > flat["evaluations"] and table["evaluations"].sum() == 30
    assert slow["saved"] == 5 * (slow["default"] - slow["best"]) > 0 == flat["saved"]
    assert len(tuned.savings) == 30 and tuned.savings[-1] == table["saved"].sum()
    assert (np.diff(tuned.savings) >= 0).all()
    facts = summarise_fleet(tuned)
    assert (
        facts["programs"] == "2 different ones of 3" and "its saving for" in facts["of an exhaustive search"]
    )
    folder = write_fleet(tuned)
    assert plot_savings(tuned).axes and (folder / "programs.csv").is_file()


def test_noisy_values_save_once_they_are_confirmed(fleet, monkeypatch):
    monkeypatch.setattr(Replay, "noisy", True)
    tuned = tune_fleet(settings_of(fleet, evaluations=60, confirm=0.5))
    again = [sum(p.by == CONFIRMS for p, _ in m.history.done) for m in tuned.members]
    slow, flat = tuned.members
    assert 0 < max(again) <= slow.reserved == flat.reserved == 15
    assert slow.saved == pytest.approx(5 * (slow.default - slow.history.best[1])) and slow.saved > 0
    assert flat.saved == 0 and flat.best is None
    short = tune_fleet(settings_of(fleet, evaluations=60, confirm=0.01, name="short"))
    assert [m.saved for m in short.members] == [0, 0], "too few to confirm anything"
    believed = tune_fleet(settings_of(fleet, evaluations=60, confirm=0.0, name="believed"))
    assert sum(m.saved for m in believed.members) > 0


def test_tiles_save_against_their_normaliser_and_never_less_than_nothing(fleet):
    for name, over_default in (("better", (2.0, 4.0, 0.9)), ("worse", (2.0, 4.0, 3.0))):
        arrays = tile_arrays(1, configs=3)
        arrays["config_feat"][:, 0] = 1, 2, 3
        arrays["config_runtime"] = (1000 * np.array(over_default)).astype(np.int64)
        write_npz(fleet.parent / f"{name}.npz", arrays)
    fleet.write_text("program,weight\nbetter.npz,4\nworse.npz,6\n" + "worse.npz,1\n" * 3)
    tuned = tune_fleet(settings_of(fleet, evaluations=6, allocation="even", strategy="random"))
    assert fleet_table(tuned.members)["saved"].tolist() == pytest.approx([0.4, 0.0])
    assert summarise_fleet(tuned)["saved"] == f"0.4, {0.4 / 13:.2%} of all defaults"


def test_a_budget_without_a_value_is_an_error(fleet):
    with pytest.raises(SettingsError, match="budget_seconds: 1e-09 is not enough"):
        tune_fleet(settings_of(fleet, budget_seconds=1e-9))


def test_an_even_split_is_even(fleet):
    tuned = tune_fleet(settings_of(fleet, allocation="even", strategy="random", batch=3))
    counts = [len(member.history) for member in tuned.members]
    assert max(counts) - min(counts) <= 3 and sum(counts) == 30


def test_a_program_gets_as_many_evaluations_as_it_has_up_to_a_batch(fleet):
    calls, settings = [], settings_of(fleet, evaluations=24)
    member = fleet_module.read_fleet(settings)[0]

    def advance(own, count):
        calls.append(count)
        for proposal in propose(own.history, own.strategy, count, 0):
            own.history.add(proposal, Outcome(1.0 + len(own.history)))

    assert len(tune_members([member], settings, advance)) == 24
    assert calls == [1, 1, 2, 4, 4, 4, 4, 4]


def test_it_resumes(fleet):
    first = tune_fleet(settings_of(fleet, evaluations=10))
    again = tune_fleet(settings_of(fleet, evaluations=20))
    for before, after in zip(first.members, again.members, strict=True):
        assert after.history.done[: len(before.history)] == before.history.done
    assert sum(len(m.history) for m in again.members) == 20
    whole = tune_fleet(settings_of(fleet, evaluations=10_000))
    assert all(m.history.best[1] == m.target.labels.min() for m in whole.members)


def test_the_budget_of_seconds_ends_it_between_batches(fleet, monkeypatch):
    clock = itertools.count(step=10.0)  # ten seconds pass from one look to the next
    monkeypatch.setattr(fleet_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    first = tune_fleet(settings_of(fleet, budget_seconds=35.0))
    assert sum(len(m.history) for m in first.members) == 1 + 1 + 2, "three batches, the first ones small"
    assert sum(len(m.history) for m in tune_fleet(settings_of(fleet)).members) == 30, "without it, it resumes"


def test_nothing_is_tuned_twice_and_a_single_program_gets_all(fleet):
    fleet.write_text("program,weight\nslow.npz,1\ncopy.npz,1\n")
    tuned = tune_fleet(settings_of(fleet, evaluations=12))
    assert len(tuned.members) == 1 and len(tuned.members[0].history) == 12


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no rows"),
        ("program,weight\n", "no rows"),
        ("name,weight\nx,1\n", "no rows with a program and a weight"),
        ("program,weight\nslow.npz,many\n", "line 2: 'slow.npz', 'many'"),
        ("program,weight\nslow.npz,-1\n", "line 2"),
        ("program,weight\nslow.npz\n", "line 2"),
        ("program,weight\nslow.npz,1_0\n", "line 2"),
        ("program,weight\nslow.npz,1e308\nflat.npz,1e308\n", "line 3"),
        ("program,weight\nnone.npz,1\n", "no such file"),
    ],
)
def test_a_bad_list_is_refused(fleet, content, said):
    fleet.write_text(content)
    with pytest.raises(DataError, match=said):
        tune_fleet(settings_of(fleet))


@pytest.mark.parametrize("name", ANY_FILE)
def test_a_list_that_is_no_csv_is_refused_by_name(fleet, name):
    ANY_FILE[name](fleet)
    with pytest.raises(DataError, match=r"fleet\.csv: "):
        settings_of(fleet).read()


def test_a_missing_list_and_an_empty_budget(fleet):
    with pytest.raises(DataError, match="cannot be read"):
        tune_fleet(settings_of(fleet.with_name("none.csv")))
    with pytest.raises(SettingsError, match="evaluations: 0 is not 1 or more"):
        settings_of(fleet, evaluations=0)


def test_what_the_others_saved_counts_for_a_program_without_values(fleet):
    """Its value, too, is taken from theirs: before any is known, 1 would be next to nothing."""
    settings = settings_of(fleet)
    first, second = fleet_module.read_fleet(settings)
    rng = np.random.default_rng(0)
    first.weight = 1.01
    assert fleet_module.next_member([first, second], settings, rng) is first, "the heavier one, of equal ones"
    for proposal, value in zip(
        propose(first.history, first.strategy, 4, 0), (1e6, 8e5, 8e5, 8e5), strict=True
    ):
        first.history.add(proposal, Outcome(value))
    while len(first.history.values) < first.target.space.size - 1:
        (proposal,) = propose(first.history, first.strategy, 1, 0)
        first.history.add(proposal, Outcome(8e5))
    assert fleet_module.next_member([first, second], settings, rng) is second
