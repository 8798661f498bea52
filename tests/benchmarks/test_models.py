"""The comparison of variants: held-out programs, gains, trivial rules."""

import json

import numpy as np
import pandas as pd
import pytest

import models
from common import folds
from common.options import network_settings
from fastslow.competition.catalog import get_collection
from fastslow.core.errors import DataError, SettingsError
from fastslow.evaluation.paired import clustered_mean
from fastslow.features.graph import trainable
from fastslow.runs.features_folder import Features
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.network_settings import TrainSettings
from fastslow.workflow.settings.sections import preset_settings
from fastslow.workflow.steps import parse_overrides
from helpers.scalers import fit_scaler
from helpers.workspace import cut_sample

OWN = get_collection("layout:xla:random")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A part of the sample."""
    return cut_sample(tmp_path_factory.mktemp("data"), {"train": 2, "valid": 1, "test": 1})


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


def test_held_out_graphs_are_valid_and_all_others_train(data, tmp_path):
    where = {"data_root": str(data), "folder": str(tmp_path / OWN.slug)}
    build_features(FeatureSettings(collection=OWN.name, workers=1, hops=0, **where))
    whole = Features(tmp_path / OWN.slug)
    everything = {name: split for split in folds.POOLED for name in whole.names(split)}
    for families in folds.split_families(everything, 2):
        held = folds.HeldOut(tmp_path / OWN.slug, families)
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
        np.testing.assert_array_equal(held.scaler("config").mean, fit_scaler(train).mean)
        assert held.scaler("node").mean.shape == whole.scaler("node").mean.shape


def test_every_variant_changes_existing_settings():
    for name, changed in models.VARIANTS.items():
        overrides = parse_overrides(changed)
        features = FeatureSettings(**preset_settings("sample", overrides, "features", "layout"))
        settings, train_on = network_settings("sample", overrides, "layout")
        network = TrainSettings(**settings)
        usual = (features, network, train_on) == (FeatureSettings(), TrainSettings(), "layout")
        assert usual == (name == models.BASE), name
    with pytest.raises(SettingsError, match="'none' is not one of base, "):
        models.parse_arguments(["--variants", "none"])
    with pytest.raises(SettingsError, match="'none' is not one of base, "):
        models.parse_arguments(["--quick", "--variants", "none"])


def test_all_variants_are_scored_on_the_same_held_out_programs(data, tmp_path, monkeypatch, capsys):
    """Two variants are trained on four collections, which takes seconds."""
    options = models.parse_arguments(["--quick", "--threads", "1", "--data-root", str(data)])
    options.variants = [models.BASE, "train_on source"]
    seen = {}
    train = models.Training

    def spy(settings, dataset):
        names = {name.rpartition("/")[2] for name in trainable(dataset.sources)}
        seen.setdefault(len(dataset.sources), set()).update(map(folds.family_of, names))
        return train(settings, dataset)

    monkeypatch.setattr(models, "Training", spy)
    models.compare(options, tmp_path)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    (base,), (by_source,) = (result["variants"][name] for name in options.variants)
    programs = {collection: set(taus) for collection, taus in base["taus"].items()}
    for program_taus in (by_source["taus"], *result["rules"].values()):
        assert {collection: set(taus) for collection, taus in program_taus.items()} == programs
    held_out = {folds.family_of(name) for names in programs.values() for name in names}
    assert len(programs) == 4 and set(seen) == {2, 4}
    assert seen[2] == seen[4] and not seen[4] & held_out, "nothing of a held-out architecture is trained on"


def test_the_standard_error_is_of_the_gain_beside_it_and_counts_architectures(rng):
    names = [f"{family}_{number}" for family in "abcdefgh" for number in range(1 + ord(family) % 3)]
    gains = {c: dict(zip(names, rng.normal(size=len(names)), strict=True)) for c in ("x", "y")}
    parts = {c: pd.Series(values) for c, values in gains.items()}
    of_family = pd.Series(0.0, [*"abcdefgh"])
    for values in parts.values():
        for name, residual in (values - values.mean()).items():
            of_family[name[0]] += residual / len(names) / 2
    expected = np.sqrt((of_family**2).sum() * 8 / 7)
    assert models.standard_error([gains]) == pytest.approx(expected)
    assert models.standard_error([gains, gains]) == pytest.approx(expected), "equal seeds tell nothing new"
    single = {
        c: {f"{n}_0": value for n, value in zip("abcdefgh", v.values(), strict=False)}
        for c, v in gains.items()
    }
    alone = clustered_mean({c: pd.Series(values) for c, values in single.items()})
    assert models.standard_error([single]) == pytest.approx(alone["standard_error"])
    assert models.collection_means(single)["tau"] == pytest.approx(alone["mean"])
    assert np.isnan(models.standard_error([{"x": {"bert_a": 0.2}}]))


def test_gains_are_paired_by_seed():
    def result(tau, seconds):
        return {"taus": {"x": {"a_1": tau, "b_1": tau + 0.2}, "y": {"a_1": 0.0}}, "seconds": seconds}

    base, wide = [result(0.2, 1.0), result(0.4, 2.0)], [result(0.3, 2.0), result(0.6, 2.0)]
    row = models.variant_row("wide", wide, base)
    assert row["tau"] == pytest.approx((0.2 + 0.35) / 2) and row["time"] == "1.50"
    assert row["gain"] == "0.075 (0.050 to 0.100)" and row["x"] == pytest.approx(0.55)
    assert models.variant_row(models.BASE, base, base)["gain"] == ""
