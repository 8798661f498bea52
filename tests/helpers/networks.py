"""Small networks and programs for the tests of networks."""

import itertools
import json

import numpy as np
import pytest
import torch

from fastslow.networks.model.network import RankingNetwork
from fastslow.networks.settings.options import ArchitectureOptions
from fastslow.networks.training.train import Training
from fastslow.networks.training.validation import Validation
from fastslow.runs.predictions import read_predictions
from fastslow.steps.network import train_gnn
from fastslow.steps.network_settings import TrainSettings
from helpers.random_graphs import NUM_LAYOUTS, make_graph


def make_network(num_layers=2, cross_config=True, dropout=0.3, hidden_channels=8, seed=0, **architecture):
    """A network in evaluation mode with every parameter at random, so that none hides behind a 0 or 1."""
    torch.manual_seed(seed)
    layers = ArchitectureOptions(
        hidden_channels=hidden_channels,
        num_layers=num_layers,
        cross_config=cross_config,
        dropout=dropout,
        **architecture,
    )
    network = RankingNetwork(4, 3, layers).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    # 1e-5 would amplify rounding 300 times per norm where nodes or configurations hardly differ
    if layers.block == "attention":
        for norm in (network.head.norm, *(block.norm for block in network.trunk.blocks)):
            norm.eps = 0.05
    return network


def small_training(features, folder, **changes):
    """Settings of a small training on a features folder that writes into ``folder``."""
    where = {
        "features": [str(features.folder)],
        "runs": [str(folder / "run")],
        "folder": str(folder / "training"),
    }
    return TrainSettings(**where, **{"device": "cpu", "hidden_channels": 8, "evaluate_every": 1, **changes})


def into(settings, folder, **changes):
    """The same settings with other folders to write."""
    return settings.replace(runs=[str(folder / "run")], folder=str(folder / "training"), **changes)


def weights_of(folder):
    """The weights that a training into ``folder`` wrote."""
    return torch.load(folder / "run" / "model.pt", weights_only=True)


def lines_of(folder):
    """What a training into ``folder`` logged; nothing where there is no such log."""
    path = folder / "training" / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def same_run(one, other):
    """Whether trainings into two folders wrote the same weights, predictions and logs, bit for bit."""
    weights, others = weights_of(one), weights_of(other)
    predictions, theirs = (read_predictions(folder / "run") for folder in (one, other))
    return (
        list(weights) == list(others)
        and all(torch.equal(weights[name], others[name]) for name in weights)
        and all(
            np.array_equal(values, theirs[split][name])
            for split in predictions
            for name, values in predictions[split].items()
        )
        and lines_of(one) == lines_of(other)
    )


class Interrupted(Exception):
    """What ends a training that :func:`interrupt` interrupts."""


def interrupt(monkeypatch, name, calls):
    """Make a method of Training or Validation raise at its call number ``calls`` (from 0)."""
    owner = Training if hasattr(Training, name) else Validation
    original, counter = getattr(owner, name), itertools.count()

    def method(self, *args):
        if next(counter) == calls:
            raise Interrupted
        return original(self, *args)

    monkeypatch.setattr(owner, name, method)


def train_until(settings, name, calls):
    """Train until :func:`interrupt` ends it."""
    with pytest.MonkeyPatch.context() as monkeypatch, pytest.raises(Interrupted):
        interrupt(monkeypatch, name, calls)
        train_gnn(settings)


def all_configs(graph):
    return np.arange(graph.num_configs)


def close(value, reference, tolerance):
    scale = max(0.1, float(reference.detach().abs().max()))
    torch.testing.assert_close(value.double(), reference.double(), rtol=0, atol=tolerance * scale)


def program(num_configs=6):
    """A layout program of six nodes, one isolated, with two configurable and a repeated configuration."""
    codes = np.random.default_rng(1).integers(0, NUM_LAYOUTS, (num_configs, 2, 3)).astype(np.uint8)
    codes[-1] = codes[0]
    return make_graph((np.array([[1, 0], [2, 1], [3, 2], [3, 0], [0, 3]]), 6, np.array([4, 1]), codes))


def equals_reference(network, value, reference, tolerance, gradient_tolerance, least_scale):
    """Check predictions and the gradients of all parameters against those of a dense form.

    Args:
        network: The network whose parameters are compared.
        value: ``(C,)`` float32 predictions.
        reference: ``(C,)`` float64 predictions of the dense form with the same parameters.
        tolerance: Largest difference of predictions, as ``close`` takes it.
        gradient_tolerance: Largest difference of gradients, relative to the largest gradient.
        least_scale: What counts as the largest gradient where all are smaller.
    """
    assert value.shape == reference.shape and value.dtype == torch.float32
    close(value, reference, tolerance)
    weight = torch.linspace(-1, 2, len(value), dtype=torch.float64)
    parameters = dict(network.named_parameters())
    gradients = torch.autograd.grad(value.double() @ weight, parameters.values(), allow_unused=True)
    references = torch.autograd.grad(reference @ weight, parameters.values(), allow_unused=True)
    scale = max(least_scale, max(float(g.abs().max()) for g in references if g is not None))
    for name, gradient, expected in zip(parameters, gradients, references, strict=True):
        expected = torch.zeros(parameters[name].shape) if expected is None else expected
        gradient = torch.zeros(parameters[name].shape) if gradient is None else gradient
        torch.testing.assert_close(gradient, expected, rtol=0, atol=gradient_tolerance * scale, msg=name)
