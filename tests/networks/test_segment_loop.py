"""Every variant of Graph Segment Training through the real training: it trains, and resumes exactly."""

import itertools
import json

import numpy as np
import pytest
import torch

from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import SettingsError
from fastslow.evaluation.predictions import read_predictions
from fastslow.networks.predict.dataset import make_dataset
from fastslow.networks.settings.segment_settings import PARTITIONS, SETTINGS, VARIANTS
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.networks.training.train import Training, train
from helpers.cases import cases
from helpers.networks import into, small_training

torch.set_num_threads(1)
SEGMENTED = [name for name in VARIANTS if name != "none"]


@pytest.fixture
def settings(features, tmp_path):
    """A small run, in segments of at most five nodes."""
    return small_training(
        features,
        tmp_path,
        num_layers=2,
        epochs=4,
        configs_per_step=5,
        segment_training="gst",
        segment_nodes=5,
    )


def variant(settings, name):
    changes = {"head_epochs": 2} if VARIANTS[name].head else {}
    return settings.replace(segment_training=name, **changes)


def interrupt(monkeypatch, calls):
    """Make an epoch end before its beginning, at this number of calls (from 0)."""
    run_epoch, counter = Training.run_epoch, itertools.count()

    def method(self):
        if next(counter) == calls:
            raise KeyboardInterrupt
        return run_epoch(self)

    monkeypatch.setattr(Training, "run_epoch", method)


def log_of(folder):
    path = folder / "training" / "segments.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else None


def same_run(one, other):
    weights, others = (torch.load(folder / "run" / "model.pt", weights_only=True) for folder in (one, other))
    predictions, other_predictions = (read_predictions(folder / "run") for folder in (one, other))
    return (
        all(torch.equal(weights[name], others[name]) for name in weights)
        and all(
            (values == other_predictions[split][name]).all()
            for split in predictions
            for name, values in predictions[split].items()
        )
        and log_of(one) == log_of(other)
    )


@pytest.mark.parametrize("name", SEGMENTED)
def test_an_interrupted_training_equals_one_that_was_not(settings, tmp_path, capsys, name):
    settings = variant(settings, name)
    train(settings)
    epochs = 3 if VARIANTS[name].head else 1  # of four; with +f the last two are those of the head
    other = into(settings, tmp_path / "other")
    with pytest.MonkeyPatch.context() as monkeypatch:
        interrupt(monkeypatch, epochs)
        with pytest.raises(KeyboardInterrupt):
            train(other)
    train(other)
    assert f"resumed after epoch {epochs}" in capsys.readouterr().out
    assert same_run(tmp_path, tmp_path / "other")
    log = log_of(tmp_path)
    assert (log is not None) == name.startswith("gst+e")
    if log:
        assert [row["epoch"] for row in log] == list(range(2 if VARIANTS[name].head else 4))
        assert log[0]["rows"] < log[-1]["rows"]


@pytest.mark.parametrize("name", ["gst", "gst+ed"])
def test_preparing_ahead_changes_no_bit(settings, monkeypatch, tmp_path, name):
    settings = settings.replace(segment_training=name, dropout=0.3, epochs=2)
    train(settings)
    for module in ("hardware.step_examples", "segments.training"):
        monkeypatch.setattr(f"fastslow.networks.{module}.prefetch", iter)
    train(into(settings, tmp_path / "in turn"))
    assert same_run(tmp_path, tmp_path / "in turn")


@pytest.mark.parametrize("how", PARTITIONS)
def test_every_partition_trains(settings, how):
    if how == "metis":
        pytest.importorskip("pymetis")
    training = make_training(settings.replace(segment_partition=how, graphs_per_step=2))
    assert training.run_epoch() > 0
    name = training.names[0]
    assert training.segments.graph(name).num_segments > 1


def make_training(settings):
    return Training(settings, make_dataset(settings))


def test_a_segmented_training_learns_as_the_whole_graph_does(settings):
    """With all segments live and no dropout both are the same up to rounding."""
    settings = settings.replace(dropout=0.0, segments_per_step=99, configs_per_step=1000)
    one = make_training(settings)
    whole = {"segment_training": "none", "segment_nodes": 1000, "segments_per_step": 1}
    other = make_training(settings.replace(**whole))
    examples = [one.make_example(name, range_of(one, name), 0) for name in one.names]
    others = [other.make_example(name, range_of(other, name)) for name in other.names]
    for mine, theirs in zip(examples, others, strict=True):
        torch.testing.assert_close(one.graph_loss(*mine), other.graph_loss(*theirs), rtol=1e-4, atol=1e-5)


def range_of(training, name):
    return np.arange(training.dataset.num_configs("train", name))


def test_the_head_alone_learns_in_the_last_epochs(settings):
    training = make_training(variant(settings, "gst+ef"))
    before = [snapshot(training)]
    for _ in range(4):
        training.run_epoch()
        before.append(snapshot(training))
    moved = [
        {name.partition(".")[0] for name in one if not torch.equal(one[name], other[name])}
        for one, other in itertools.pairwise(before)
    ]
    assert moved == [{"trunk", "head"}] * 2 + [{"head"}] * 2


def snapshot(training):
    return {name: value.clone() for name, value in training.network.state_dict().items()}


def test_the_head_learns_from_whole_graphs(settings, monkeypatch):
    """Its sums are those of all configurations, computed once, and equal the whole graph's."""
    settings = variant(settings, "gst+ef").replace(segment_border="cut", dropout=0.0)
    training = make_training(settings)
    training.segments.begin(3, 0)
    name = training.names[0]
    every = range_of(training, name)
    example, _ = training.make_example(name, every[::2].copy(), 0)
    assert example.batch is None
    network = training.network
    whole = training.dataset.batch("train", name, every)
    x = network.trunk(whole)
    pooled = network.head.readout(x, whole.pooling, whole.levels[-1], whole.configurable)
    found = training.segments._whole_sums(example)
    torch.testing.assert_close(found, pooled[::2].detach(), rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(training.segments, "_whole", None)
    torch.testing.assert_close(training.segments._whole_sums(example), found)
    few = settings.replace(configs_together=2)
    again = make_training(few)
    again.segments.begin(3, 0)
    example, _ = again.make_example(name, every, 0)
    torch.testing.assert_close(again.segments._whole_sums(example), pooled.detach(), rtol=1e-4, atol=1e-4)


def test_the_manifest_names_only_settings_that_were_read(settings):
    train(settings)
    stated = read_manifest(settings.folder)["settings"]
    assert {name for name in SETTINGS if name in stated} == {*SETTINGS} - {"head_epochs"}
    whole = TrainSettings(features=settings.features, runs=settings.runs, device="cpu")
    assert not {*SETTINGS[1:]} & whole.identity().keys()


@cases(
    "changes, message",
    [
        ({"segment_nodes": 10}, "segment_nodes: 10 has no effect with segment_training 'none'"),
        ({"segment_training": "gst+e", "head_epochs": 2}, "head_epochs: 2 has no effect"),
        ({"segment_training": "edges", "segment_border": "cut"}, "segment_border: 'cut' has no effect"),
        ({"segment_training": "gst+ef", "head_epochs": 20}, "head_epochs: 20 is not below epochs"),
        ({"segment_training": "one", "readout": "max"}, "readout: 'max' is not of sum, mean and unit_sum"),
        ({"segment_training": "one", "edge_dropout": 0.1}, "edge_dropout: 0.1 is not 0"),
        ({"segment_training": "gst", "node_attention": "linear"}, "node_attention: 'linear' is not 'none'"),
        ({"segment_training": "one", "segment_border": "cut_live"}, "segment_border: 'cut_live' is not"),
        (
            {"segment_training": "gst+e", "processes": 2, "graphs_per_step": 2},
            "processes: 2 is not 1 for segment_training 'gst\\+e'",
        ),
        ({"segment_training": "gst", "kind": "tile"}, "segment_training: 'gst' has no effect for tile"),
        ({"segment_training": "gst+d"}, "segment_training: 'gst\\+d'"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(changes, message):
    with pytest.raises(SettingsError, match=message):
        TrainSettings(**changes)
