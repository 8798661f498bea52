"""A fleet: the budget goes where it saves, equal programs share, an even split is even."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow.core.errors import DataError, SettingsError
from fastslow_programs.tuning import fleet as fleet_module
from fastslow_programs.tuning.evaluators import Replay
from fastslow_programs.tuning.fleet import fleet_table, tune_fleet, write_fleet
from fastslow_programs.tuning.settings import FleetSettings
from helpers.bad_files import ANY_FILE
from helpers.competition_files import layout_arrays, tile_arrays, write_npz

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
    folder = write_fleet(members, settings_of(fleet))
    assert summary(folder)["programs"] == "2 different ones" and (folder / "programs.csv").is_file()


def test_noisy_values_save_once_they_are_confirmed(fleet, monkeypatch):
    monkeypatch.setattr(Replay, "noisy", True)
    fleet.write_text("program,weight\nslow.npz,5\nflat.npz,1\n")
    common = {"evaluations": 48, "strategy": "random"}
    slow, flat = tune_fleet(settings_of(fleet, confirm=0.5, **common))
    assert slow.study.confirmations > 0
    best = slow.study.history.best[1]
    assert slow.saved == pytest.approx(5 * (slow.study.default - best)) and slow.saved > 0
    assert flat.saved == 0 and flat.study.best[0].codes == tuple(flat.study.target.space.default)
    short = tune_fleet(settings_of(fleet, confirm=0.05, name="short", **common | {"evaluations": 20}))
    assert [m.saved for m in short] == [0, 0], "too few to confirm anything"
    believed = tune_fleet(settings_of(fleet, confirm=0.0, name="believed", **common))
    assert sum(m.saved for m in believed) > 0


def test_tiles_save_against_their_normaliser_and_never_less_than_nothing(fleet):
    for name, over_default in (("better", (2.0, 4.0, 0.9)), ("worse", (2.0, 4.0, 3.0))):
        arrays = tile_arrays(1, configs=3)
        arrays["config_feat"][:, :8] = np.outer((1, 2, 3), [1] + 5 * [0] + [1, 1])
        arrays["config_runtime"] = (1000 * np.array(over_default)).astype(np.int64)
        write_npz(fleet.parent / f"{name}.npz", arrays)
    fleet.write_text("program,weight\nbetter.npz,4\nworse.npz,6\n" + "worse.npz,1\n" * 3)
    settings = settings_of(fleet, evaluations=6, strategy="random")
    members = tune_fleet(settings)
    assert fleet_table(members)["saved"].tolist() == pytest.approx([0.4, 0.0])
    assert summary(write_fleet(members, settings))["saved"] == f"0.4, {0.4 / 13:.2%} of all defaults"


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
    whole = tune_fleet(settings_of(fleet, strategy="random", evaluations=10_000))
    assert all(m.study.history.best[1] == m.study.target.labels.min() for m in whole)


def test_it_resumes(fleet):
    first = tune_fleet(settings_of(fleet, evaluations=8))
    again = tune_fleet(settings_of(fleet, evaluations=12))
    for before, after in zip(first, again, strict=True):
        assert after.study.history.done[: len(before.study.history)] == before.study.history.done
    assert sum(len(m.study.history) for m in again) == 12


def test_the_budget_of_seconds_ends_it_between_batches(fleet, monkeypatch):
    clock = itertools.count(step=10.0)  # ten seconds pass from one look to the next
    monkeypatch.setattr(fleet_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    first = tune_fleet(settings_of(fleet, budget_seconds=25.0))
    assert sum(len(m.study.history) for m in first) < 16
    tuned = tune_fleet(settings_of(fleet))
    assert sum(len(m.study.history) for m in tuned) == 16, "without it, it resumes"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no row"),
        ("program,weight\n", "no row"),
        ("weight\n1\n", "has the columns weight. Give a CSV"),
        ("program,weight,weight\nslow.npz,1,2\n", "the column weight twice"),
        ("program,program,weight\nslow.npz,slow.npz,2\n", "the column program twice"),
        ("program,weight,colection\nslow.npz,1,tile:xla\n", "columns program, weight, colection"),
        ("program,weight\nslow.npz,1,2\n", "line 2"),
        ("program,weight\nslow.npz,many\n", "row 1: the weight 'many'"),
        ("program,weight\nslow.npz,-1\n", "row 1: the weight"),
        ("program,weight\nslow.npz\n", "line 2"),
        ("program,weight\nslow.npz,1_0\n", "row 1: the weight"),
        ("program,weight\nslow.npz,nan\n", "row 1: the weight"),
        ("program,weight\nslow.npz,0.0\n", "row 1: the weight"),
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


def test_a_budget_without_an_evaluation_is_refused(fleet):
    with pytest.raises(SettingsError, match="evaluations: 0 is not 1 or more"):
        settings_of(fleet, evaluations=0)
    with pytest.raises(SettingsError, match="evaluations: 1 is not one for each program"):
        tune_fleet(settings_of(fleet, evaluations=1))
    with pytest.raises(SettingsError, match="budget_seconds: 1e-06 is not enough"):
        tune_fleet(settings_of(fleet, budget_seconds=1e-9, name="again"))
