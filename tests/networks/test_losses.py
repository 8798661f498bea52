import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.networks.losses import pairwise_hinge

torch.set_num_threads(1)


@st.composite
def rankings(draw, low=1):
    """Predictions and runtimes of one length, with ties in both."""
    size = draw(st.integers(low, 8))
    prediction = draw(st.lists(st.integers(-30, 30), min_size=size, max_size=size))
    runtime = draw(st.lists(st.integers(1, 5), min_size=size, max_size=size))
    return torch.tensor(prediction, dtype=torch.float64) / 10, torch.tensor(runtime, dtype=torch.float64)


def hinge_one_pair_at_a_time(prediction, runtime, margin):
    total, pairs = 0.0, 0
    for i in range(len(prediction)):
        for j in range(len(prediction)):
            if runtime[i] > runtime[j]:
                total += max(0.0, margin - (prediction[i].item() - prediction[j].item()))
                pairs += 1
    return total / max(pairs, 1)


@given(rankings(), st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=80, deadline=None)
def test_pairwise_hinge_is_the_mean_over_ordered_pairs(ranking, margin):
    assert pairwise_hinge(*ranking, margin).item() == pytest.approx(
        hinge_one_pair_at_a_time(*ranking, margin)
    )


def test_pairwise_hinge_of_known_predictions():
    # pairs (slower, faster): (1, 0) gap 2, (2, 0) gap 0.5, (2, 1) gap -1.5: hinges 0, 0.5, 2.5
    loss = pairwise_hinge(torch.tensor([0.0, 2.0, 0.5]), torch.tensor([1.0, 2.0, 3.0]))
    assert loss.item() == pytest.approx(1.0)


def test_a_single_configuration_costs_nothing_and_moves_nothing():
    prediction = torch.tensor([0.7], requires_grad=True)
    loss = pairwise_hinge(prediction, torch.tensor([5.0]))
    loss.backward()
    assert loss.item() == 0 and prediction.grad.item() == 0


def test_pairwise_hinge_of_equal_runtimes_is_0_and_moves_nothing():
    prediction = torch.tensor([0.7, -1.0, 3.0], requires_grad=True)
    loss = pairwise_hinge(prediction, torch.tensor([5.0, 5.0, 5.0]))
    loss.backward()
    assert loss.item() == 0 and not prediction.grad.any()


def test_the_gradient_lowers_the_faster_and_raises_the_slower():
    prediction = torch.zeros(2, requires_grad=True)
    pairwise_hinge(prediction, torch.tensor([20.0, 10.0])).backward()
    assert prediction.grad[1] > 0 > prediction.grad[0]  # a step goes against it


@given(rankings(low=2))
@settings(max_examples=60, deadline=None)
def test_lowering_the_fastest_never_costs(ranking):
    prediction, runtime = ranking
    fastest = int(torch.argmin(runtime))
    lower = prediction.clone()
    lower[fastest] -= 0.05
    assert pairwise_hinge(lower, runtime) <= pairwise_hinge(prediction, runtime) + 1e-12


@given(ranking=rankings(low=2), data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_order_of_configurations_does_not_matter(ranking, data):
    prediction, runtime = ranking
    order = data.draw(st.permutations(range(len(prediction))))
    assert pairwise_hinge(prediction[order], runtime[order]).item() == pytest.approx(
        pairwise_hinge(prediction, runtime).item()
    )


def test_large_predictions_stay_finite():
    prediction = torch.tensor([1e4, -1e4, 0.0], requires_grad=True)
    loss = pairwise_hinge(prediction, torch.tensor([1.0, 2.0, 3.0]))
    loss.backward()
    assert loss.isfinite() and prediction.grad.isfinite().all()


def test_runtimes_beyond_float32_are_distinguished():
    """Runtimes come as float64; 2**24 and 2**24 + 1 are one number in float32."""
    prediction = torch.zeros(2, requires_grad=True)
    pairwise_hinge(prediction, torch.tensor([2.0**24 + 1, 2.0**24], dtype=torch.float64)).backward()
    assert prediction.grad[1] > 0 > prediction.grad[0]
