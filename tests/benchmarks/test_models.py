"""The comparison of convolutions, losses and readouts: its variants, times, ensembles and trivial rules."""

import numpy as np
import pytest

import models
from common import folds, held_out, rules
from fastslow.competition.catalog import get_collection
from fastslow.competition.metrics import kendall_tau
from fastslow.core.settings import PROJECT
from fastslow.evaluation.baselines import RIDGE, SINGLE
from fastslow.features.build import FeatureSettings, build_features
from fastslow.networks.architecture import CONVOLUTIONS
from fastslow.networks.settings import TrainSettings
from fastslow.networks.terms import LOSSES, POOLS
from fastslow.workflow.presets import network_settings
from fastslow.workflow.steps import parse_overrides

OWN = get_collection("layout:xla:random")


def config_of(variant, *also):
    settings, _ = network_settings("sample", parse_overrides([*also, *models.VARIANTS[variant]]), "layout")
    return TrainSettings(**settings)


def test_every_convolution_loss_and_pooling_is_a_variant():
    configs = [config_of(variant, *models.CUT) for variant in models.VARIANTS]
    assert {settings.convolution for settings in configs} == set(CONVOLUTIONS)
    assert {settings.loss for settings in configs} >= set(LOSSES)
    assert {settings.readout for settings in configs} >= set(POOLS)
    assert len({str(settings) for settings in configs}) == len(configs) - len(models.GROUPS["features"])


def test_times_are_ratios_of_the_same_seed_and_fold():
    def result(variant, seed, fold, seconds):
        return {"variant": variant, "seed": seed, "fold": fold, "seconds": seconds}

    results = [result("base", 0, 0, 2.0), result("base", 0, 1, 4.0), result("slow", 0, 0, 6.0)]
    results += [result("slow", 0, 1, 4.0), result("slow", 1, 0, 99.0)]
    assert models.time_ratios(results) == {"base": 1, "slow": 2}


def members_of(seeds, noise):
    """Results of one fold: the right order with noise of its own for every variant and seed."""
    rng = np.random.default_rng(0)
    truth = {f"g{i}": np.arange(1.0, 31) for i in range(3)}
    labels = {("x", graph): runtime for graph, runtime in truth.items()}
    results = [
        {
            "variant": variant,
            "seed": seed,
            "predictions": {"x": {g: (r + noise * rng.normal(size=30)).tolist() for g, r in truth.items()}},
        }
        for variant in models.VARIANTS
        for seed in range(seeds)
    ]
    return labels, results


def test_members_are_joined_over_folds_and_normalised_and_unfinished_ones_are_left_out():
    labels, results = members_of(2, 5.0)
    second = {**results[0], "predictions": {"y": {"h": [3.0, 1.0]}}}
    members = models.read_members([*results, second], 4)
    assert list(members) == ["base"] and len(members["base"]) == 1
    (member,) = members["base"]
    assert set(member) == {*labels, ("y", "h")} and member["y", "h"].tolist() == [1, 0]
    taus = [kendall_tau(labels[key], member[key]) for key in labels]
    assert models.joint_tau(labels, [member]) == pytest.approx(np.mean(taus))


def test_an_ensemble_of_independent_members_is_above_each_and_needs_enough_seeds():
    labels, results = members_of(3, 20.0)
    rows = models.measure_variety(labels, models.read_members(results, 3))
    assert [row["group"] for row in rows] == [*models.GROUPS, "all"]
    for row in rows:
        assert row["3 different"] > row["one network"] + 0.05
        assert row["3 seeds of one"] > row["one network"] + 0.05
        assert row["one of each"] > row["3 different"]
    few = models.measure_variety(labels, models.read_members(members_of(2, 20.0)[1], 3))
    assert few == []


def test_rules_are_fitted_without_what_is_held_out(tmp_path):
    settings = {"data_root": str(PROJECT / "data" / "sample"), "folder": str(tmp_path), "hops": 0}
    build_features(FeatureSettings(collection=OWN.name, workers=1, **settings))
    families = ("hourglass", "resnet")
    run = held_out.Run("base", 7, 0, families, [tmp_path], {})
    means = rules.rule_means([run])
    assert set(means) == {SINGLE, RIDGE}
    results = rules.rule_results([run])
    held = folds.HeldOut(tmp_path, set(families)).names("valid")
    for result in results:
        assert list(result["per_graph"][OWN.name]) == held and result["seed"] == 7
        tau = np.mean([m["tau"] for m in result["per_graph"][OWN.name].values()])
        assert means[result["variant"]] == {"tau": pytest.approx(tau), OWN.name: pytest.approx(tau)}
