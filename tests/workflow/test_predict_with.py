"""A submission from given weights: nothing is trained, and models that cannot predict are refused by name."""

import shutil

import numpy as np
import pytest

from fastslow import cli
from fastslow.competition.catalog import COLLECTIONS, TRAIN, VALID
from fastslow.core.files import read_json
from fastslow.core.settings import resolve
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.runs.features_folder import Features
from fastslow.runs.run_manifest import read_run_manifest
from fastslow.steps.ensemble import build_ensemble
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.submission import make_submission
from fastslow.views.feature_figures import plot_configurations
from fastslow.workflow.begun_run import make_plan
from fastslow.workflow.execution import run_steps
from fastslow.workflow.settings.run_settings import RunSettings
from helpers.cases import cases
from helpers.good_artifacts import change_json, reseal

MAKE = {"features": build_features, "ensemble": build_ensemble, "submission": make_submission}


def predict(*arguments):
    """Make every step of a run with trained models in this process; return its plan."""
    plan = make_plan(RunSettings.from_texts(["predict_with=runs/smoke", "features.workers=1", *arguments]))
    steps = plan.steps()
    assert [step.stage for step in steps] == ["features"] * 5 + ["ensemble"] * 5 + ["submission"]
    for step in steps:
        MAKE[step.stage](step.settings)
    return plan


def test_on_their_own_data_they_make_the_same_csv(home, undrawn):
    assert predict().name == "sample-smoke"
    csv = resolve("submissions/sample-smoke.csv")
    assert csv.read_bytes() == csv.with_name("smoke.csv").read_bytes()
    record, before = read_submission_record(csv), read_submission_record(csv.with_name("smoke.csv"))
    assert record["scores"] == pytest.approx(before["scores"]) and record["distances"] == []
    for collection in COLLECTIONS:
        features = Features(resolve(f"features/sample-smoke/{collection.slug}"))
        assert not features.has_train and not features.names(TRAIN) and features.names(VALID)
        facts = read_run_manifest(resolve(f"runs/sample-smoke/ensemble-{collection.slug}"))
        searched = read_run_manifest(resolve(f"runs/smoke/ensemble-{collection.slug}"))
        for name, member in facts["members"].items():
            known = searched["members"][name]
            assert member["weight"] == known["weight"] and member["valid"] == pytest.approx(known["valid"])
    settings = FeatureSettings(
        collection=COLLECTIONS[1].name, folder="features/sample-smoke/layout-xla-default"
    )
    assert plot_configurations(settings).axes, "of a valid graph"


def test_another_folder_without_train_files_is_predicted(home, undrawn):
    root = shutil.copytree(home / "data" / "sample", home / "elsewhere")
    for collection in COLLECTIONS:
        shutil.rmtree(collection.folder(root, TRAIN))
    plan = predict(f"data={root}", "features.layout.valid_configs=5", "features.tile.valid_configs=7")
    assert plan.name == "elsewhere-smoke"
    csv = resolve("submissions/elsewhere-smoke.csv")
    assert csv.read_bytes() == resolve("submissions/smoke.csv").read_bytes()
    for collection, most in zip(COLLECTIONS, (7, 5, 5, 5, 5), strict=True):
        features = Features(resolve(f"features/elsewhere-smoke/{collection.slug}"))
        whole = Features(resolve(f"features/smoke/{collection.slug}")).labels(VALID)
        for name, runtime in features.labels(VALID).items():
            assert len(runtime) == min(most, len(whole[name])) and np.isin(runtime, whole[name]).all()


def test_the_notebooks_run_with_what_trained_models_leave(home, undrawn):
    """Their ensemble has no rules beside it, which ended its notebook; the other tests run none."""
    chosen = "collections=tile:xla", "fill=True"
    steps = {step.name: step for step in predict(*chosen).steps()}
    shown = [steps[name] for name in ("features tile-xla", "ensemble-tile-xla", "submission")]
    for step in shown:
        shutil.rmtree(resolve(step.settings.folder))
    run_steps(shown, jobs=1)
    assert not read_run_manifest(resolve("runs/sample-smoke/ensemble-tile-xla"))["baselines"]
    assert read_submission_record(resolve("submissions/sample-smoke.csv"))["scores"]


def refused(capsys, *arguments):
    """The message that refuses a command before a step is run, or a record written."""
    before = {path for path in resolve("").rglob("*")}
    assert cli.main(["submission", *arguments]) == 1
    assert {path for path in resolve("").rglob("*")} == before
    return capsys.readouterr().err


@cases(
    "arguments, said",
    [
        (["predict_with=runs/none"], "runs/none: no such folder. Name a folder of runs/"),
        (["predict_with=runs/smoke/gnn-tile-xla-s0"], "is a run of tile:xla, not of layout:nlp:random"),
        (["predict_with=runs/smoke", "seeds=2"], "seeds: 2 has no effect with predict_with"),
        (["predict_with=runs/smoke", "hours=1"], "hours: 1.0 has no effect with predict_with"),
        (["predict_with=runs/smoke", "features.layout.hops=1"], "features.layout.hops: is decided by the"),
        (
            ["predict_with=runs/smoke", "features.workers=2", "features.hops=1"],
            "features.hops: is decided by the",
        ),
        (["predict_with=runs/smoke", "gnn.epochs=1"], "gnn.epochs: is decided by the trained models"),
        (["models=package"], "Trained models predict with predict_with=package"),
    ],
)
def test_what_cannot_predict_is_refused(home, capsys, arguments, said):
    assert said in refused(capsys, *arguments)


def test_a_half_finished_run_is_refused(home, capsys):
    shutil.rmtree(resolve("runs/smoke/ensemble-layout-nlp-random"))
    said = refused(capsys, "predict_with=runs/smoke")
    assert "holds no finished ensemble for layout:nlp:random" in said and "make ensemble" in said
    shutil.rmtree(resolve("runs/smoke/gnn-tile-xla-s0"))
    said = refused(capsys, "predict_with=runs/smoke", "collections=tile:xla", "fill=True")
    assert "its member runs/smoke/gnn-tile-xla-s0 is missing" in said


def test_damaged_weights_and_other_features_are_refused(home, capsys):
    one = "collections=xla:default", "fill=True", "predict_with=runs/smoke"
    weights = resolve("runs/smoke/gnn-layout-xla-default-s0/model.pt")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    assert f"{weights}: changed after it was written" in refused(capsys, *one)
    weights.write_bytes(content)
    manifest = resolve("runs/smoke/ensemble-layout-xla-default/manifest.json")
    columns = read_json(manifest)["features"]["config_columns"]
    columns[0] = "a column that this code does not build"
    change_json(manifest, lambda facts: facts["features"].update(config_columns=columns))
    reseal(manifest.parent)
    said = refused(capsys, *one)
    assert "learned from other features than this code builds" in said and "train it again" in said
