"""A run with folds: each member leaves out a part of the train programs; these choose the weights."""

from dataclasses import replace

import numpy as np
import pytest

from fastslow.competition.catalog import TEST, TRAIN, VALID
from fastslow.competition.metrics import collection_score, tile_score
from fastslow.core.errors import SettingsError
from fastslow.core.settings import resolve
from fastslow.ensemble.weights import search_weights
from fastslow.features.folds import HELD_OUT_CONFIGS, leave_fold_out
from fastslow.features.graph import draw_configs, trainable
from fastslow.rankers.cross_validation import CrossValidation
from fastslow.rankers.fit import fit, read_training
from fastslow.rankers.options import RankerOptions
from fastslow.rankers.table import read_table
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import read_held_out, read_predictions
from fastslow.runs.run_manifest import read_run_manifest
from fastslow.steps.ensemble import build_ensemble
from fastslow.steps.network import train_gnn
from fastslow.steps.ranker import train_ranker
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.workflow.begun_run import make_plan
from fastslow.workflow.settings.run_settings import RunSettings

FOLDS = 2
SLUG = "tile-xla"


@pytest.fixture
def folded(home, undrawn):
    """The ensemble of a run with folds of the tile collection, trained and joined in this process."""
    (home / "features" / "folded").symlink_to(home / "features" / "smoke")
    plan = make_plan(RunSettings(preset="smoke", name="folded", folds=FOLDS, collections=["tile:xla"]))
    for step in plan.steps():
        if step.stage == "train":
            train = train_ranker if isinstance(step.settings, RankerSettings) else train_gnn
            train(step.settings)
        elif step.stage == "ensemble":
            build_ensemble(step.settings)
    return read_run_manifest(resolve(f"runs/folded/ensemble-{SLUG}"))


def test_members_predict_what_they_leave_out_and_these_programs_choose_the_weights(folded):
    features = Features(resolve(f"features/folded/{SLUG}"))
    names = trainable({SLUG: features})
    parts = {}
    for model in ("gnn", "ranker"):
        left_out = {}
        for seed in range(FOLDS):
            run = resolve(f"runs/folded/{model}-{SLUG}-s{seed}")
            held_out = read_held_out(run)
            _, expected = leave_fold_out({SLUG: features}, names, FOLDS, seed)
            assert [f"{SLUG}/{name}" for name in held_out] == expected
            assert not left_out.keys() & held_out.keys()
            assert all(np.isfinite(values).all() for values in held_out.values())
            assert folded["members"][run.name]["model"] == model
            left_out |= held_out
        assert sorted(f"{SLUG}/{name}" for name in left_out) == sorted(names)
        parts[model] = {VALID: left_out}
    labels = {}
    for name in (name.partition("/")[2] for name in names):
        runtime = features.graph(TRAIN, name).runtime
        labels[name] = runtime[draw_configs(len(runtime), HELD_OUT_CONFIGS, 0, name)]
        assert all(len(part[VALID][name]) == len(labels[name]) for part in parts.values())

    def score(predictions):
        return collection_score("tile", labels, predictions)["mean"]

    weights = search_weights(parts, "min_max", 5, score, [["gnn"], ["ranker"]])
    for run, member in folded["members"].items():
        assert member["weight"] == pytest.approx(weights[member["model"]] / FOLDS), run
    assert folded["valid"]["weights"].endswith("members, chosen on left-out train programs")
    assert read_predictions(resolve(f"runs/folded/ensemble-{SLUG}"))[TEST]


def test_folds_take_the_place_of_seeds(home):
    plan = make_plan(RunSettings(folds=5, name="folded"))
    trained = [step.settings for step in plan.steps() if step.stage == "train"]
    assert {settings.folds for settings in trained} == {5}
    assert {settings.seed for settings in trained} == {*range(5)}
    for wrong in ({"folds": 1}, {"folds": 5, "seeds": 3}, {"folds": 5, "hours": 1.0}):
        with pytest.raises(SettingsError, match="folds"):
            RunSettings(**wrong)


def test_cross_validation_samples_as_many_configurations_as_a_training(home):
    sources = {SLUG: Features(resolve(f"features/smoke/{SLUG}"))}
    sampled = RankerOptions(configs_per_graph=2)
    validation = CrossValidation(sources, FOLDS, sampled)
    for fold, training in enumerate(validation.trainings):
        expected = read_training(sources, replace(sampled, folds=FOLDS, seed=fold)).train.labels()
        assert {len(runtime) for runtime in training.train.labels().values()} == {2}
        for name, runtime in training.train.labels().items():
            np.testing.assert_array_equal(runtime, expected[name])


def test_cross_validation_scores_each_program_by_trees_that_did_not_learn_from_it(home):
    sources = {SLUG: Features(resolve(f"features/smoke/{SLUG}"))}
    names = trainable(sources)
    options = RankerOptions(num_iterations=5, min_data_in_leaf=2)
    validation = CrossValidation(sources, FOLDS)
    scores = validation.score(options)
    assert sorted(scores) == sorted(names)
    for fold in range(FOLDS):
        kept, held_out = leave_fold_out(sources, names, FOLDS, fold)
        training = read_training(sources, RankerOptions(folds=FOLDS, seed=fold))
        assert {*training.train.names} == {*kept}
        ranker = fit(training, options)
        for name in held_out:
            stem = name.partition("/")[2]
            graph = sources[SLUG].graph(TRAIN, stem)
            table = read_table(sources[SLUG], TRAIN, [stem], HELD_OUT_CONFIGS)
            (prediction,) = ranker.predict(table).values()
            assert scores[name] == pytest.approx(tile_score(graph.runtime, prediction))
    valid = read_training(sources).valid
    predictions = fit(read_training(sources), options).predict(valid)
    expected = collection_score("tile", valid.labels(), predictions)["per_graph"]
    assert validation.score_valid(options) == expected
