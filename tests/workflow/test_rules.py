"""A submission of ridge regression: where no model predicts, and where a budget has no time for one."""

import numpy as np
import pytest

import fastslow
from fastslow import cli
from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.errors import DataError
from fastslow.core.files import read_json
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.kaggle import provenance
from fastslow.runs.predictions import read_predictions
from fastslow.runs.run_manifest import find_members, read_run_manifest
from fastslow.workflow import run
from fastslow.workflow.begun_run import make_plan, resume
from fastslow.workflow.settings.run_settings import RunSettings
from fastslow.workflow.steps import MODELS
from helpers.workspace import TINY

pytestmark = pytest.mark.usefixtures("undrawn")


def is_of_the_rule(home, collection):
    """Whether an ensemble predicts for test programs what the rule does."""
    folder = home / "runs" / "smoke" / f"ensemble-{collection.slug}"
    rule = read_predictions(folder / "baselines" / "ridge-on-config-features")["test"]
    ensemble = read_predictions(folder)["test"]
    assert rule.keys() == ensemble.keys()
    return all(np.array_equal(ensemble[name], scores) for name, scores in rule.items())


def test_the_record_has_a_doubt_of_the_data_and_the_filled_rows(monkeypatch):
    monkeypatch.setattr(provenance, "release_of", lambda *_: "launch")
    plan = make_plan(RunSettings(data="kaggle", models="ranker", collections=["tile:xla"], fill=True))
    doubt, filled = run._warnings(plan, run._doubt_of_release(plan))
    assert provenance.LAUNCH_RELEASE in doubt and "ridge regression fills" in filled
    sample = make_plan(RunSettings(data="sample"))
    assert run._warnings(sample, run._doubt_of_release(sample)) == []


def test_a_rule_fills_what_no_model_predicts_and_what_a_budget_has_no_time_for(home, capsys):
    """First it fills the layout collections; then there are no hours for tile either.

    Five ensembles of the rule and two submissions are made, by a kernel each.
    """
    record = home / "submissions" / "smoke.csv"
    assert cli.main(["submission", *TINY, "collections=tile:xla", "fill=True"]) == 0
    said = capsys.readouterr()
    names = ", ".join(c.name for c in COLLECTIONS if c.kind == "layout")
    warning = f"{names}: no model predicts it; ridge regression fills its rows"
    assert f"warning: {warning}" in said.err
    assert read_submission_record(record)["warnings"] == [warning]
    assert f"<li>{warning}</li>" in record.with_suffix(".html").read_text()
    assert f"smoke: warning: {warning}" in fastslow.leaderboard().words()
    assert "6 rows, read back and checked" in said.out
    assert all(
        is_of_the_rule(home, collection) == (collection.kind == "layout") for collection in COLLECTIONS
    )
    ensemble = home / "runs" / "smoke" / "ensemble-layout-xla-random"
    said = "a rule filled this collection, and it ranks no new program. Name a run that trained a model of it"
    with pytest.raises(DataError, match=said):
        find_members(ensemble, read_run_manifest(ensemble))
    weights = read_submission_record(record)["weights"]
    assert {*weights["layout:xla:random"]} == {"ridge"}
    assert weights["tile:xla"].keys() == {f"{m}-tile-xla-s0" for m in MODELS["tile"]}

    every = ",".join(c.name for c in COLLECTIONS)
    whole = [
        f"collections={every}",
        "fill=False",
        "overwrite=True",
    ]  # with it the run keeps what is not given
    assert cli.main(["submit", *TINY, "name=smoke", "hours=1e-6", *whole]) == 0
    said = capsys.readouterr()
    assert "too little for any model" in said.out and "6 rows, read back and checked" in said.out
    assert "ensemble: 4 of 5 up to date" in said.err
    assert "warnings" not in read_submission_record(record), "it is of the rule, as chosen"
    assert read_json(home / "runs" / "smoke" / "run.json")["chosen"] == {"models": "rules"}
    assert all(is_of_the_rule(home, collection) for collection in COLLECTIONS)
    for again in (["name=smoke"], ["name=smoke", "hours=1e-6"]):
        resumed = resume(RunSettings.from_texts(again))
        assert resumed.chosen == {"models": "rules"} and resumed.plan.models == "rules"
        assert cli.main(["submit", *again, "--plan"]) == 0
        assert "hours=1e-06: models=rules was chosen" in capsys.readouterr().out
    assert cli.main(["submit", "name=new", "hours=2", "--plan"]) == 0
    said = capsys.readouterr().out
    assert "hours=2: features and a submission of ridge regression come first, then" in said
    assert (
        "with hours=1e-06, now hours=2" in resume(RunSettings.from_texts(["name=smoke", "hours=2"])).refused
    )
