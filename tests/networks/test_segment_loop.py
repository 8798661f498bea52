"""Every variant of Graph Segment Training through the real training: it trains, and resumes exactly."""

import itertools

import numpy as np
import pytest
import torch

from fastslow.networks.settings.segments import VARIANTS
from fastslow.networks.training.train import Training
from fastslow.steps.network import read_graphs, train_gnn
from helpers.networks import into, same_run, small_training, train_until


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
    changes = {"head_epochs": 2} if VARIANTS[name].head else {"epochs": 2}
    return settings.replace(segment_training=name, **changes)


@pytest.mark.parametrize("name", ["gst", "gst+ed", "gst+efd"])
def test_an_interrupted_training_equals_one_that_was_not(settings, tmp_path, capsys, name):
    """Two trainings, a segment a step, take its seconds."""
    settings = variant(settings, name)
    train_gnn(settings)
    epochs = 3 if VARIANTS[name].head else 1  # of two; with +f of four, the last two those of the head
    other = into(settings, tmp_path / "other")
    train_until(other, "run_epoch", epochs)
    train_gnn(other)
    assert f"resumed after epoch {epochs}" in capsys.readouterr().out
    assert same_run(tmp_path, tmp_path / "other")


def test_preparing_ahead_changes_no_bit(settings, monkeypatch, tmp_path):
    settings = settings.replace(segment_training="gst+ed", dropout=0.3, epochs=2)
    train_gnn(settings)
    for module in ("training.train", "segments.training"):
        monkeypatch.setattr(f"fastslow.networks.{module}.prefetch", iter)
    train_gnn(into(settings, tmp_path / "in turn"))
    assert same_run(tmp_path, tmp_path / "in turn")


@pytest.mark.parametrize("name", ["edges", "one"])
def test_every_variant_trains(settings, name):
    training = make_training(settings.replace(segment_training=name, graphs_per_step=2))
    assert training.run_epoch() > 0
    assert training.segments.graph(training.names[0]).num_segments > 1


def make_training(settings):
    return Training(settings, read_graphs(settings))


def test_a_segmented_training_learns_as_the_whole_graph_does(settings):
    """With a graph as one segment and no dropout both are the same up to rounding."""
    settings = settings.replace(dropout=0.0, segment_nodes=1000, configs_per_step=1000)
    one = make_training(settings)
    other = make_training(settings.replace(segment_training="none"))
    examples = [one.example((name, range_of(one, name), 0)) for name in one.names]
    others = [other.example((name, range_of(other, name), None)) for name in other.names]
    for mine, theirs in zip(examples, others, strict=True):
        torch.testing.assert_close(one.graph_loss(mine), other.graph_loss(theirs), rtol=1e-4, atol=1e-5)


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
    training.segments.begin(3)
    name = training.names[0]
    every = range_of(training, name)
    example = training.example((name, every[::2].copy(), 0))
    assert example.batch is None
    network = training.network
    whole = training.dataset.batch("train", name, every)
    x = network.trunk(whole)
    pooled = network.head.readout(x, whole)
    found = training.segments._whole_sums(example)
    torch.testing.assert_close(found, pooled[::2].detach(), rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(training.segments, "_whole", None)
    torch.testing.assert_close(training.segments._whole_sums(example), found)
    few = settings.replace(configs_together=2)
    again = make_training(few)
    again.segments.begin(3)
    example = again.example((name, every, 0))
    torch.testing.assert_close(again.segments._whole_sums(example), pooled.detach(), rtol=1e-4, atol=1e-4)
