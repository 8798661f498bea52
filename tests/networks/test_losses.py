import inspect
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastslow.networks.model.losses import LOSSES, Loss, pairwise_hinge
from fastslow.steps.network_settings import TrainSettings
from helpers.cases import cases


@st.composite
def rankings(draw, low=1):
    """Predictions and runtimes of one length, with ties in both."""
    size = draw(st.integers(low, 8))
    prediction = draw(st.lists(st.integers(-30, 30), min_size=size, max_size=size))
    runtime = draw(st.lists(st.integers(1, 5), min_size=size, max_size=size))
    return torch.tensor(prediction, dtype=torch.float64) / 10, torch.tensor(runtime, dtype=torch.float64)


def test_runtimes_beyond_float32_are_distinguished():
    """Runtimes come as float64; 2**24 and 2**24 + 1 are one number in float32."""
    prediction = torch.zeros(2, requires_grad=True)
    pairwise_hinge(prediction, torch.tensor([2.0**24 + 1, 2.0**24], dtype=torch.float64)).backward()
    assert prediction.grad[1] > 0 > prediction.grad[0]


def pairs(runtime):
    """(slower, faster) positions of every pair of different runtime."""
    size = range(len(runtime))
    return [(i, j) for i in size for j in size if runtime[i] > runtime[j]]


def slow_hinge(prediction, runtime, margin):
    costs = [max(0.0, margin - (prediction[i] - prediction[j])) for i, j in pairs(runtime)]
    return sum(costs) / max(1, len(costs))


def slow_list_mle(prediction, runtime, temperature):
    total = 0.0
    for i in range(len(runtime)):
        faster = [k for k in range(len(runtime)) if runtime[k] < runtime[i]]
        rest = [prediction[k] / temperature for k in [i, *faster]]
        total += math.log(sum(map(math.exp, rest))) - prediction[i] / temperature
    return total


def slow_mse_log(prediction, runtime):
    return sum((s - math.log(y)) ** 2 for s, y in zip(prediction, runtime, strict=True)) / len(runtime)


SLOW = {"pairwise_hinge": slow_hinge, "list_mle": slow_list_mle, "mse_log": slow_mse_log}


def takes_parameter(name):
    """Whether a loss has a parameter beside prediction and runtime."""
    return len(inspect.signature(LOSSES[name]).parameters) > 2


def value_and_gradient(loss, prediction, *more):
    prediction = prediction.clone().requires_grad_()
    value = loss(prediction, *more)
    (gradient,) = torch.autograd.grad(value, prediction)
    return value.detach(), gradient


@pytest.mark.parametrize("name", SLOW)
@given(rankings(), st.sampled_from([0.3, 1.0, 10.0]))
@example((torch.tensor([0.2, 0.1]).double(), torch.tensor([2.0, 1.0]).double()), 1.0)  # one pair
@settings(max_examples=60)
def test_losses_equal_their_sums_written_out(name, ranking, parameter):
    more = (parameter,) * takes_parameter(name)
    slow = SLOW[name](*(values.tolist() for values in ranking), *more)
    assert LOSSES[name](*ranking, *more).item() == pytest.approx(slow, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", SLOW)
@given(rankings())
@settings(max_examples=30)
def test_gradients_equal_differences_of_the_sums_written_out(name, ranking):
    prediction, runtime = ranking
    prediction = prediction + 0.001 * torch.arange(len(prediction)) + 0.0003  # off the corners of the hinge
    step = 1e-6
    _, gradient = value_and_gradient(LOSSES[name], prediction, runtime)
    for i in range(len(prediction)):
        ends = []
        for sign in (1, -1):
            moved = prediction.tolist()
            moved[i] += sign * step
            more = (1.0,) * takes_parameter(name)
            ends.append(SLOW[name](moved, runtime.tolist(), *more))
        assert gradient[i].item() == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-4)


@cases("name", ["pairwise_hinge", "list_mle"])
def test_large_predictions_stay_finite(name):
    prediction, runtime = torch.tensor([1e4, -1e4, 0.0]), torch.tensor([1.0, 2.0, 3.0])
    value, gradient = value_and_gradient(LOSSES[name], prediction, runtime)
    assert value.isfinite() and gradient.isfinite().all()


@given(rankings())
@settings(max_examples=30)
def test_a_sum_weighs_its_terms(graph):
    loss = Loss("pairwise_hinge@0.5:1+mse_log:0.02+list_mle@10:3")
    values = [values.tolist() for values in graph]
    expected = slow_hinge(*values, 0.5)
    expected += 0.02 * slow_mse_log(*values) + 3 * slow_list_mle(*values, 10)
    assert loss(*graph).item() == pytest.approx(expected / 4.02)


def test_a_registered_loss_is_a_setting(monkeypatch):
    """Adding a loss touches its module alone."""

    def mean_gap(prediction, runtime, scale=2.0):
        return scale * (prediction - runtime).abs().mean()

    monkeypatch.setitem(LOSSES, "mean_gap", mean_gap)
    assert TrainSettings(loss="mean_gap@3").loss == "mean_gap@3"
    assert Loss("mean_gap")(torch.ones(2), torch.tensor([1.0, 2.0])) == 1
