"""A training that diverges stops with its last good weights and says so; no NaN is written anywhere."""

import re

import numpy as np
import pytest
import torch

from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import FastslowError
from fastslow.networks.training import validation as validation_module
from fastslow.networks.training.train import Training
from fastslow.networks.training.validation import Diverged, check_loss
from fastslow.runs.predictions import check_predictions, read_predictions
from fastslow.steps.network import read_graphs, run_training, train_gnn
from helpers.cases import cases
from helpers.networks import lines_of, small_training, weights_of


@pytest.fixture
def settings(features, tmp_path):
    return small_training(features, tmp_path, num_layers=1, epochs=6, evaluate_every=2, average_last=2)


def poison(monkeypatch, epoch, value=torch.nan):
    """Let the loss become a number that is not finite in one epoch."""
    loss = Training.graph_loss

    def poisoned(self, example):
        return loss(self, example) * (value if self.epoch == epoch - 1 else 1.0)

    monkeypatch.setattr(Training, "graph_loss", poisoned)


FINITE, LARGE = "weights of the network are not finite", "the loss is more than 10 times the first"


@pytest.mark.parametrize(
    ("epoch", "kept", "value", "said"),
    [(3, 2, torch.nan, FINITE), (4, 2, torch.inf, FINITE), (5, 4, 1000.0, LARGE)],
)
def test_it_stops_says_so_and_keeps_the_last_good_weights(
    settings, features, tmp_path, monkeypatch, capsys, epoch, kept, value, said
):
    poison(monkeypatch, epoch, value)
    manifest = train_gnn(settings)
    (warning,) = manifest["warnings"]
    assert re.match(rf"diverged in epoch {epoch} \(loss (nan|inf|[\d.e+]+)\): {said}", warning)
    assert "; lower learning_rate (now 0.001)" in warning
    assert warning.endswith(f"Stopped; the weights up to epoch {kept} are kept")
    assert f"warning: {warning}" in capsys.readouterr().out
    assert manifest["epochs"] == epoch
    assert read_manifest(tmp_path / "run")["warnings"][0] == warning
    check_predictions(tmp_path, read_predictions(tmp_path / "run"), features)
    assert all(torch.isfinite(values).all() for values in weights_of(tmp_path).values())
    history = lines_of(tmp_path)
    assert [row["epoch"] for row in history] == list(range(2, kept + 1, 2))
    assert np.isfinite([row["valid"] for row in history]).all()


def test_the_weights_kept_are_those_of_a_run_that_ended_there(settings, tmp_path, monkeypatch):
    """Same schedule, stopped by hand after the second epoch."""
    training = Training(settings, read_graphs(settings))
    for _ in range(2):
        loss = training.run_epoch()
    training.validation.evaluate(2, loss)
    training.validation.choose_weights("layout-xla-random")
    poison(monkeypatch, 3)
    train_gnn(settings)
    weights = weights_of(tmp_path)
    for name, values in training.network.state_dict().items():
        assert torch.equal(weights[name], values), name


@pytest.mark.parametrize("epoch", [1, 2])
def test_without_an_evaluation_before_there_is_nothing_to_keep(settings, tmp_path, monkeypatch, epoch):
    poison(monkeypatch, epoch)
    with pytest.raises(Diverged, match=f"in epoch {epoch} .*lower learning_rate .*no weights to keep"):
        train_gnn(settings)
    assert issubclass(Diverged, FastslowError)
    for folder in ("run", "training"):
        assert not list((tmp_path / folder).glob("[!.]*"))


def test_predictions_that_overflow_with_finite_weights(settings, monkeypatch):
    """The evaluation of epoch 4 overflows: the weights of epoch 2 count, averaged or not."""
    training = Training(settings, read_graphs(settings))
    validation, right = training.validation, validation_module.predict_shared

    def overflow(*arguments):
        predictions = right(*arguments)
        if training.epoch == 4:
            next(iter(predictions.values()))[0] = np.inf
        return predictions

    with monkeypatch.context() as patch:
        patch.setattr(validation_module, "predict_shared", overflow)
        training.run()
    assert training.epoch == 4 and [row["epoch"] for row in validation.history] == [2]
    assert re.search("predictions of .* are not finite", training.warnings[0])
    assert validation.choose_weights("layout-xla-random")[0]["weights"].endswith(("epoch 2", "1 evaluations"))


def test_a_resumed_run_remembers_the_first_loss(settings, monkeypatch):
    poison(monkeypatch, 5, 1000.0)
    training = Training(settings, read_graphs(settings))
    run_training(training, settings.artifact())
    again = Training(settings, read_graphs(settings))
    run_training(again, settings.artifact())  # from the checkpoint of epoch 4
    assert again.warnings == training.warnings and again.first_loss == training.first_loss


# of layout and of tile in make submit on the sample, as metrics.jsonl has them
HEALTHY = [
    (0.742, 0.619, 0.582, 0.532, 0.496, 0.465, 0.433, 0.412, 0.394, 0.389),
    (0.201, 0.148, 0.127, 0.111, 0.104, 0.099, 0.086, 0.079, 0.074, 0.069, 0.067, 0.061, 0.061, 0.060, 0.059),
]


@cases("curve", HEALTHY)
@cases("unit", [1e-6, 1e6])
def test_no_healthy_curve_is_stopped(curve, unit):
    """Nor the curve upside down, five times the first loss above it, or with steps that overflowed."""
    for losses in (curve, curve[:1] + tuple(6 * curve[0] - loss for loss in curve), (*curve, np.inf, np.nan)):
        for loss in losses:
            check_loss(loss * unit, losses[0] * unit)
    with pytest.raises(Diverged, match="10 times"):
        check_loss(10.5 * curve[0] * unit, curve[0] * unit)
    check_loss(curve[0], np.nan)  # no epoch had a finite one before


def test_a_real_divergence(settings, features, tmp_path):
    """A learning rate without measure: whatever happens, no number that is not finite is written."""
    try:
        manifest = train_gnn(settings.replace(learning_rate=1e30, max_grad_norm=1e30, warmup=0.0))
    except Diverged as error:
        assert "lower learning_rate (now 1e+30)" in str(error)
    else:
        assert np.isfinite(manifest["valid"]["mean"])
        check_predictions(tmp_path, read_predictions(tmp_path / "run"), features)
