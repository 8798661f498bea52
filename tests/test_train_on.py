"""Training on the train graphs of several layout collections."""

import shutil

import numpy as np
import pytest
import torch

from fastslow.artifacts import read_manifest
from fastslow.collections import SPLITS, get_collection
from fastslow.config import PROJECT
from fastslow.errors import ConfigError, DataError
from fastslow.features import LayoutFeatureConfig, build_features
from fastslow.graphs import Features
from fastslow.inputs import Inputs
from fastslow.scaling import Scaler
from fastslow.train import make_inputs, train
from fastslow.train_config import LayoutTrainConfig

OWN, OTHER, FOREIGN = (
    get_collection(f"layout:{name}") for name in ("xla:random", "xla:default", "nlp:random")
)


def build(folder, collection, hops=1, **programs):
    """Features of a few programs of the sample, by split; ``programs`` names others than the first."""
    for split in SPLITS:
        target = collection.folder(folder / "data", split)
        target.mkdir(parents=True, exist_ok=True)
        source = collection.folder(PROJECT / "data" / "sample", split)
        for path in programs.get(split) or sorted(source.glob("*.npz"))[:1]:
            shutil.copy(path, target)
    config = LayoutFeatureConfig(
        collection=collection.name,
        data_root=str(folder / "data"),
        folder=str(folder / "features" / collection.slug),
        workers=1,
        hops=hops,
    )
    build_features(config)
    return folder / "features" / collection.slug


def settings(folder, train_on):
    return LayoutTrainConfig(
        features=str(folder / "features" / OWN.slug),
        folder=str(folder / "run"),
        device="cpu",
        width=8,
        depth=1,
        epochs=1,
        train_on=train_on,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    for collection in (OWN, OTHER, FOREIGN, get_collection("layout:nlp:default")):
        build(folder, collection)
    return folder


@pytest.mark.parametrize(
    ("train_on", "others"),
    [
        ("collection", set()),
        ("source", {"layout-xla-default"}),
        ("layout", {"layout-xla-default", "layout-nlp-default", "layout-nlp-random"}),
    ],
)
def test_train_graphs_of_the_named_collections_are_trained_on(folder, train_on, others):
    inputs = make_inputs(settings(folder, train_on))
    names = inputs.trainable()
    own = [name for name in names if "/" not in name]
    assert own == inputs.features.names("train")
    assert {name.split("/")[0] for name in names if "/" in name} == others
    for name in names:
        graph = inputs.graph("train", name).graph
        source = Features(folder / "features" / (name.split("/")[0] if "/" in name else OWN.slug))
        assert np.array_equal(graph.codes, source.graph("train", graph.name).codes)


def test_a_run_depends_on_every_collection_it_trained_on(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    config = settings(tmp_path, "source")
    train(config)
    inputs = read_manifest(tmp_path / "run")["inputs"]
    assert inputs["layout-xla-default"] == Features(tmp_path / "features" / OTHER.slug).fingerprint
    assert config.artifact().is_current()
    build(tmp_path, FOREIGN, hops=2)
    assert config.artifact().is_current()
    build(tmp_path, OTHER, hops=2)
    assert not config.artifact().is_current()


def test_a_graph_that_is_valid_here_is_not_trained_on_from_elsewhere(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    held_out = Features(tmp_path / "features" / OWN.slug).names("valid")[0]
    source = OTHER.folder(PROJECT / "data" / "sample", "valid") / f"{held_out}.npz"
    build(tmp_path, OTHER, train=[source])
    assert held_out in Features(tmp_path / "features" / OTHER.slug).names("train")
    names = make_inputs(settings(tmp_path, "source")).trainable()
    assert not any(name.endswith(f"/{held_out}") for name in names)
    assert any("/" in name for name in names)


def test_the_scaler_is_that_of_all_collections_together():
    rng = np.random.default_rng(0)
    parts = [rng.normal(mean, deviation, (50, 3)) for mean, deviation in ((0, 1), (5, 2), (-3, 0.5))]
    for part in parts:
        part[:, 1] = 7.0
    parts[1][:, 2], parts[2][:, 2], parts[0][:, 2] = 1.0, 2.0, 3.0
    pooled = Scaler.pool([Scaler.fit([part]) for part in parts])
    np.testing.assert_allclose(pooled.mean, Scaler.fit(parts).mean)
    np.testing.assert_allclose(pooled.std, Scaler.fit(parts).std)
    assert pooled.std[1] == 0 and pooled.std[2] > 0


def test_missing_or_differing_neighbours_are_refused_by_name(folder, tmp_path):
    build(tmp_path, OWN)
    with pytest.raises(DataError, match="layout-xla-default.*not finished"):
        train(settings(tmp_path, "source"))
    with pytest.raises(ConfigError, match="train_on"):
        settings(tmp_path, "everything")
    other = Features(folder / "features" / OTHER.slug)
    other.manifest["config_columns"] = other.manifest["config_columns"][::-1]
    with pytest.raises(DataError, match=f"{OTHER.slug}.*columns"):
        Inputs(Features(tmp_path / "features" / OWN.slug), 1, torch.device("cpu"), [other])
