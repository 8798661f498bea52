"""Rivals of the stack read known runtimes only; the tables compare what they claim to compare."""

import json

import numpy as np
import pytest

import few_shot
import mixed_searches
import more_programs
from common.few_shot import PREDICTORS, Measured
from fastslow.competition.metrics import ranking_tau
from fastslow.core.errors import DataError
from helpers.competition_files import layout_arrays, write_npz


@pytest.fixture
def measured(rng):
    """A program whose runtime follows a prediction, and two of its many features a little."""
    features, pretrained = rng.normal(size=(300, 20)), rng.normal(size=(300, 3))
    runtime = np.exp(pretrained[:, 1] + 0.3 * features[:, 4] - 0.2 * features[:, 7])
    return Measured(features, np.concatenate([features, rng.normal(size=(300, 9))], 1), pretrained, runtime)


def test_a_good_prediction_joined_helps(measured):
    for n in (16, 64):
        predictions, rest = measured.predict(np.arange(n), 1), slice(n, None)
        taus = {k: ranking_tau(measured.runtime[rest], v[rest]) for k, v in predictions.items()}
        assert list(taus) == list(PREDICTORS)
        assert taus["Gaussian process"] > taus["ridge"], n
        for kind in ("ridge", "trees"):
            assert taus[f"{kind} + pre-trained"] > taus[kind] + 0.2, n
        assert taus["ridge + pre-trained"] > 0.5, n


def test_runtimes_that_are_not_known_are_not_read(measured):
    drawn = np.arange(5, 40)
    predictions = measured.predict(drawn, 1)
    runtime = np.full_like(measured.runtime, np.nan)
    runtime[drawn] = measured.runtime[drawn]
    blind = Measured(measured.config_feat, measured.table, measured.pretrained, runtime)
    for name, values in blind.predict(drawn, 1).items():
        np.testing.assert_array_equal(values, predictions[name])


def test_every_group_is_ranked(home, tmp_path, capsys):
    arrays = layout_arrays(1, dots=4, configs=40)
    write_npz(tmp_path / "real/npz_all/npz/layout/xla/default/train/measured.npz", arrays)
    command = ["--quick", "--runs", "runs/smoke", "--real", str(tmp_path / "real")]
    assert few_shot.main(command) == 0
    programs = json.loads(capsys.readouterr().out.splitlines()[-1])["programs"]
    assert programs[0]["group"] == few_shot.MEASURED
    for program in programs:
        assert list(program["taus"]) == ["4"]
        assert set(program["taus"]["4"]) == {few_shot.STACK, few_shot.ENSEMBLE, *PREDICTORS}
        assert program["promised"]["4"] == [None], "too few to promise anything"
        assert set(program["first"]["4"]) == {few_shot.STACK, few_shot.ENSEMBLE}


def test_points_behind_the_best_rival_are_listed():
    taus = {name: [0.5] for name in (few_shot.STACK, few_shot.ENSEMBLE, *PREDICTORS)}
    behind = taus | {"ridge": [0.7, 0.6]}
    program = {"name": "a", "group": few_shot.MEASURED, "ceiling": 0.9, "promised": {"4": [None], "8": [0.8]}}
    ahead, points = few_shot.margins([program | {"taus": {"4": taus, "8": behind}}])
    assert [(row["known"], row["rival"]) for row in points] == [(8, "ridge")]
    assert points[0]["best"] == pytest.approx(0.65)
    assert {row["rival"]: row["smallest"] for row in ahead}["ridge"] == pytest.approx(-0.15)
    assert {row["rival"]: row["measured"] for row in ahead}["ridge"] == pytest.approx(-0.075)


def test_both_searches_are_scored_together_and_apart(home, capsys):
    assert mixed_searches.main(["--runs", "runs/smoke"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [row["configurations"] for row in rows[:3]] == ["random", "default", "together"]
    assert all(0 <= row["ensemble, OPA"] <= 1 for row in rows)


def test_the_same_models_gain_nothing(home, tmp_path, monkeypatch, capsys):
    arrays = layout_arrays(1, dots=4, configs=40)
    write_npz(tmp_path / "npz_all/npz/layout/xla/random/train/measured.npz", arrays)
    monkeypatch.setattr(more_programs, "REAL", tmp_path)
    monkeypatch.setattr(more_programs, "MORE", more_programs.SAMPLE)
    monkeypatch.setattr(more_programs, "RUNS", dict.fromkeys(more_programs.RUNS, "runs/smoke"))
    assert more_programs.main(["--quick"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {row["gain"][:6] for row in found["Test"] + found["Valid"]} == {"+0.000"}
    assert [row["trained on"] for row in found["Unseen"]][-4:] == ["sample", "half", "sample", "more"]
    shares = {(row["folder"], row["collection"]): row["files"] for row in found["Shares"]}
    assert shares["TpuGraphs", "layout:xla:random"] == 1 <= shares["data/sample", "layout:nlp:random"]


@pytest.mark.parametrize("script", [few_shot, mixed_searches])
def test_models_without_features_are_refused_before_any_program(script, tmp_path, monkeypatch):
    """Those of the package: the script named a features folder in the cache that no command makes."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    monkeypatch.setattr(script, "labelled_sample", lambda *_: pytest.fail("a program was read"))
    with pytest.raises(DataError, match=r"without the features .* a run of `make submit`"):
        script.main(["--quick"])
    with pytest.raises(DataError, match=f"^{tmp_path}/runs/nope: no such folder.*make submit"):
        script.main(["--quick", "--runs", "runs/nope"])
