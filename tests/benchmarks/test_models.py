"""The comparison of variants: held-out programs, finished runs, gains, trivial rules."""

import json

import numpy as np
import pytest

import models
from common import comparison, folds, held_out
from common.held_out import BASE
from fastslow.competition.catalog import COLLECTIONS, get_collection
from fastslow.competition.metrics import ranking_tau
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.settings import PROJECT
from fastslow.evaluation.baselines import RIDGE, SINGLE, Example, choose_column, predict_configs
from fastslow.features.build import FeatureSettings, build_features
from fastslow.features.scaling import Scaler, standardise
from fastslow.features.store import Features
from fastslow.networks.model.convolutions import CONVOLUTIONS
from fastslow.networks.predict.dataset import make_dataset
from fastslow.networks.settings.terms import POOLS
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.workflow.presets import network_settings, preset_settings
from fastslow.workflow.steps import parse_overrides
from helpers.workspace import cut_sample

OWN, OTHER = get_collection("layout:xla:random"), get_collection("layout:xla:default")
QUICK = ["--quick", "--threads", "1"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A part of the sample."""
    return cut_sample(tmp_path_factory.mktemp("data"), {"train": 8, "valid": 4, "test": 1})


@pytest.fixture(scope="module")
def features(data, tmp_path_factory):
    """Features of both xla searches of the sample, side by side; read-only."""
    folder, root = tmp_path_factory.mktemp("features"), str(data)
    for collection in (OWN, OTHER):
        where = {"data_root": root, "folder": str(folder / collection.slug)}
        build_features(FeatureSettings(collection=collection.name, workers=1, hops=0, **where))
    return folder


def test_families_are_split_whole_and_evenly():
    names = ["resnet_a", "resnet_b", "resnet_c", "bert_a", "bert_b", "unet", "vit_a", "unet"]
    for num_folds in (2, 3):
        parts = folds.split_families(names, num_folds)
        assert sorted(family for fold in parts for family in fold) == ["bert", "resnet", "unet", "vit"]
        sizes = [sum(folds.family_of(name) in fold for name in set(names)) for fold in parts]
        assert sum(sizes) == 7 and max(sizes) - min(sizes) <= 1, num_folds
        assert folds.split_families(names[::-1], num_folds) == parts
    for num_folds in (1, 3):
        with pytest.raises(DataError, match=f"2 architectures .* {num_folds} folds"):
            folds.split_families(["a_1", "a_2", "b"], num_folds)


def test_held_out_graphs_are_valid_and_all_others_train(features):
    whole = Features(features / OWN.slug)
    everything = {name: split for split in folds.POOLED for name in whole.names(split)}
    for families in folds.split_families(everything, 2):
        held = folds.HeldOut(features / OWN.slug, families)
        assert {folds.family_of(name) for name in held.names("valid")} == families
        assert sorted(held.names("train") + held.names("valid")) == sorted(everything)
        assert held.names("test") == []
        assert set(held.labels("valid")) == set(held.names("valid"))
        for split in folds.POOLED:
            for name in held.names(split):
                graph = whole.graph(everything[name], name)
                codes = held.graph(split, name).choices.layout_codes()
                assert np.array_equal(codes, graph.choices.layout_codes())
                assert held.num_configs(split)[name] == graph.num_configs
        train = [held.graph("train", name).config_feat for name in held.names("train")]
        np.testing.assert_array_equal(held.scaler("config").mean, Scaler.fit(train).mean)
        assert held.scaler("node").mean.shape == whole.scaler("node").mean.shape


def test_nothing_of_a_held_out_family_is_trained_on(data, tmp_path):
    arguments = ["--data-root", str(data), "--set", "features.hops=0", "--seeds", "1", "--variants", BASE]
    options = models.parse_arguments([*arguments, "train_on source"])
    runs = held_out.plan(options, tmp_path, models.VARIANTS)
    by_source = [run for run in runs if run.variant != BASE]
    joint = [run for run in runs if run.variant == BASE]
    assert len(joint) == 2 and len(by_source) == 4
    for run in joint:
        parts = [other.held_out for other in by_source if other.fold == run.fold]
        assert set(run.held_out) == set().union(*parts), "collections trained on together share a run"
        sources = [folds.HeldOut(folder, set(run.held_out)) for folder in run.features]
        names = make_dataset(TrainSettings(device="cpu"), sources).trainable()
        assert {name.partition("/")[0] for name in names} == {folder.name for folder in run.features}
        assert not {folds.family_of(name.rpartition("/")[2]) for name in names} & set(run.held_out)


def test_every_variant_changes_existing_settings():
    found = set()
    for name, changed in models.VARIANTS.items():
        overrides = parse_overrides(changed)
        features = FeatureSettings(**preset_settings("sample", overrides, "features", "layout"))
        settings, train_on = network_settings("sample", overrides, "layout")
        network = TrainSettings(**settings)
        usual = (features, network, train_on) == (FeatureSettings(), TrainSettings(), "layout")
        assert usual == (name == BASE), name
        found |= {network.convolution, network.loss, network.readout}
    assert found >= {*CONVOLUTIONS, *POOLS}


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_finished_runs_are_found_and_the_rest_is_made(data, tmp_path, monkeypatch, capsys):
    arguments = [*QUICK, "--data-root", str(data)]
    options = models.parse_arguments(arguments)
    models.run(options, tmp_path)
    first = last_line(capsys)
    assert first["runs"] == {"finished": 6, "of": 6}
    base, other, _ = (first["variants"][name] for name in options.variants)
    gain = [other["tau"]["0"] - base["tau"]["0"]]
    assert other["gain over base"] == pytest.approx(gain, abs=1e-4)
    graphs = base["by graph"]["layout:xla:random"]
    assert base["tau"]["0"] == pytest.approx(np.mean(list(graphs.values())), rel=1e-3)
    whole = Features(next((tmp_path / "features" / "held_out").iterdir()) / OWN.slug)
    assert sorted(graphs) == sorted(name for split in folds.POOLED for name in whole.names(split))

    results = sorted((tmp_path / "held_out").glob("*.json"))
    assert sorted((tmp_path / "held_out").iterdir()) == results and len(results) == 6
    results[0].unlink()
    train = held_out.Training
    monkeypatch.setattr(held_out, "Training", lambda *_: pytest.fail("trained"))
    models.run(models.parse_arguments([*arguments, "--minutes", "0"]), tmp_path)
    assert last_line(capsys)["runs"] == {"finished": 5, "of": 6}, "no run starts after the time is up"
    trained = []
    monkeypatch.setattr(held_out, "Training", lambda *args: trained.append(1) or train(*args))
    models.run(options, tmp_path)
    again = last_line(capsys)
    assert len(trained) == 1
    for name in options.variants:
        assert again["variants"][name]["by graph"] == first["variants"][name]["by graph"]


def test_only_seeds_of_which_every_run_is_there_count():
    runs = [
        held_out.Run(variant, seed, fold, (), PROJECT, {})
        for seed in (0, 1)
        for variant in (BASE, "slow")
        for fold in (0, 1)
    ]
    results = [
        {
            "variant": run.variant,
            "seed": run.seed,
            "fold": run.fold,
            "per_graph": {
                OWN.name: {f"graph{run.fold}": run.seed + 0.1 * run.fold + 0.2 * (run.variant == "slow")}
            },
            "seconds": 1.0 + run.fold * (run.variant == "slow"),
        }
        for run in runs
    ]
    summary = comparison.summarise(runs, results[:-1])
    assert summary[BASE]["tau"] == pytest.approx({0: 0.05, 1: 1.05})
    assert summary["slow"]["tau"] == pytest.approx({0: 0.25})
    assert summary["slow"]["gain over base"] == pytest.approx([0.2])
    assert (summary[BASE]["time"], summary["slow"]["time"]) == (1, 1.5), "ratios of the same seed and fold"
    rows = comparison.variant_rows(summary)
    assert [(row["variant"], row["seeds"]) for row in rows] == [("slow", 1), (BASE, 2)]


def test_the_standard_error_pairs_graphs_and_seeds_and_counts_architectures():
    base = {"x": {"bert_a": {0: 0.1, 1: 0.2}, "bert_b": {0: 0.3}, "vit_a": {0: 0.5, 1: 0.5}}}
    graphs = {"x": {"bert_a": {0: 0.2, 1: 0.4}, "bert_b": {0: 0.3}, "vit_a": {0: 0.9}}}
    gains = [np.mean([0.1, 0.2, 0.0]), 0.4]  # of bert and of vit
    assert comparison.standard_error(graphs, base) == pytest.approx(np.std(gains, ddof=1) / np.sqrt(2))
    assert comparison.standard_error(base, base) == 0
    assert comparison.standard_error({"x": {"bert_a": {0: 0.2}}}, base) is None


def test_rules_are_fitted_without_the_held_out_programs(features):
    every = folds.split_source(features, OWN.slug, 2)
    run = held_out.Run(BASE, 7, 0, tuple(every[0]), [features / OWN.slug], {})
    means = comparison.rule_means([run])
    held = folds.HeldOut(features / OWN.slug, every[0])
    examples = [
        Example(standardise(np.asarray(graph.config_feat)), graph.runtime)
        for graph in (held.graph("train", name) for name in held.names("train"))
    ]
    column = choose_column(examples)
    labels = held.labels("valid")
    taus = [ranking_tau(labels[n], predict_configs(column, held.graph("valid", n))) for n in labels]
    assert set(means) == {SINGLE, RIDGE} and set(means[SINGLE]) == {"tau", OWN.name}
    assert means[SINGLE][OWN.name] == means[SINGLE]["tau"] == pytest.approx(np.mean(taus))


def test_an_unknown_variant_is_refused_and_all_collections_are_the_default():
    with pytest.raises(SettingsError, match="deeper.*is not one of base"):
        models.parse_arguments(["--variants", "deeper"])
    assert models.parse_arguments([]).collections == [c.slug for c in COLLECTIONS if c.kind == "layout"]
