"""Every published baseline through the real path: its features, an epoch of training, predictions of test."""

import numpy as np
import pytest
import torch

from fastslow.competition.catalog import TEST, get_collection, list_programs
from fastslow.core.settings import PROJECT
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import read_predictions
from fastslow.runs.trained_network import TrainedNetwork
from fastslow.steps.features import build_features
from fastslow.steps.network import train_gnn
from fastslow.workflow.settings.published_presets import PUBLISHED
from fastslow.workflow.steps import Plan, parse_overrides
from helpers.cases import cases
from helpers.workspace import cut_sample

torch.set_num_threads(1)
pytestmark = pytest.mark.usefixtures("undrawn")
COLLECTIONS = {"layout": get_collection("layout:xla:random"), "tile": get_collection("tile:xla")}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return cut_sample(tmp_path_factory.mktemp("cut"))


@cases("preset", PUBLISHED)
def test_a_baseline_trains_an_epoch_and_predicts(preset, data, monkeypatch):
    """Features of the preset before are taken again where they are the same."""
    monkeypatch.setenv("FASTSLOW_HOME", str(data))
    overrides = {"gnn": {"epochs": 1, "device": "cpu"}, "features": {"workers": 1}}
    if "segment_training" in PUBLISHED[preset].settings.get("gnn.layout", {}):
        overrides["gnn.layout"] = {"segment_nodes": 60}  # the programs are small
    steps = Plan(str(data), "tiny", preset, 1, overrides, 1).steps("train")
    for kind in PUBLISHED[preset].kinds:
        slug = COLLECTIONS[kind].slug
        (features,) = (s.settings for s in steps if s.settings.folder == f"features/tiny/{slug}")
        (training,) = (
            s.settings for s in steps if f"runs/tiny/gnn-{slug}-s0" in getattr(s.settings, "runs", [])
        )
        build_features(features)
        manifest = train_gnn(training)
        assert manifest["epochs"] == 1 and not manifest["warnings"]
        run = data / "runs" / "tiny" / f"gnn-{slug}-s0"
        predicted = read_predictions(run)[TEST]
        assert predicted.keys() == {p.name for p in list_programs(data, COLLECTIONS[kind], TEST)}
        assert all(np.isfinite(scores).all() for scores in predicted.values())
        network = TrainedNetwork(run)  # from the run folder alone
        again = network(Features(data / "features" / "tiny" / slug), TEST)
        for name, scores in predicted.items():
            np.testing.assert_allclose(again[name], scores, rtol=1e-5, atol=1e-6)


@cases(
    "preset, settings",
    [
        ("tpugraphs-resmodel", "segment_training=none segment_border=halo segment_nodes=1000"),
        ("tpugraphs-resmodel", "segment_training=edges segment_border=halo segment_nodes=100"),
        *(
            (preset, f"segment_training={variant} segment_border=cut")
            for preset in ("tpugraphs-resmodel", "tpugraphs-sage")
            for variant in ("gst", "gst+e", "gst+ed", "gst+efd")
        ),
        ("harvard", "input_attention=False config_inputs=none node_inputs=picked segment_nodes=500"),
        ("ie-slides", "graphs_per_step=50 patience=4 cross_config=False edge_dropout=0.3"),
        ("ie-slides", "edge_dropout=0.0 segment_training=edges segment_nodes=100"),
    ],
)
def test_the_modes_and_ablations_that_are_documented_are_accepted(preset, settings):
    text = (PROJECT / "docs" / "baselines.md").read_text()
    assert all(word.partition("=")[0] in text for word in settings.split())
    overrides = parse_overrides([f"gnn.layout.{word}" for word in settings.split()])
    assert Plan("sample", "x", preset, 1, overrides, 1).steps("train")


def test_every_baseline_is_documented():
    rows = (PROJECT / "docs" / "baselines.md").read_text().splitlines()
    for name, baseline in PUBLISHED.items():
        cells = f"`{name}`", " ".join(baseline.kinds), baseline.what, baseline.source, baseline.departs
        assert f"| {' | '.join(cells)} |" in rows, name
