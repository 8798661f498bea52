import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.losses import LOSSES, difference_matrix, list_mle, pairwise_hinge, pairwise_logistic

torch.set_num_threads(1)


@st.composite
def rankings(draw, low=1):
    """Scores and runtimes of one length, with ties in both."""
    size = draw(st.integers(low, 8))
    score = draw(st.lists(st.integers(-30, 30), min_size=size, max_size=size))
    runtime = draw(st.lists(st.integers(1, 5), min_size=size, max_size=size))
    return torch.tensor(score, dtype=torch.float64) / 10, torch.tensor(runtime, dtype=torch.float64)


def hinge_one_pair_at_a_time(score, runtime, margin):
    total, pairs = 0.0, 0
    for i in range(len(score)):
        for j in range(len(score)):
            if runtime[i] > runtime[j]:
                total += max(0.0, margin - (score[i].item() - score[j].item()))
                pairs += 1
    return total / max(pairs, 1)


def plackett_luce(score, runtime):
    """-log P(true order) / C: the fastest is drawn first, each with probability proportional to e^-s."""
    order = sorted(range(len(score)), key=lambda i: runtime[i].item())
    likelihood = 1.0
    for position, i in enumerate(order):
        remaining = sum(math.exp(-score[j].item()) for j in order[position:])
        likelihood *= math.exp(-score[i].item()) / remaining
    return -math.log(likelihood) / len(score)


@given(rankings(), st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=80, deadline=None)
def test_pairwise_hinge_is_the_mean_over_ordered_pairs(ranking, margin):
    assert pairwise_hinge(*ranking, margin).item() == pytest.approx(
        hinge_one_pair_at_a_time(*ranking, margin)
    )


@given(rankings())
@settings(max_examples=80, deadline=None)
def test_list_mle_is_the_likelihood_of_the_true_order(ranking):
    assert list_mle(*ranking).item() == pytest.approx(plackett_luce(*ranking), abs=1e-9)


@given(rankings())
@settings(max_examples=80, deadline=None)
def test_pairwise_logistic_is_the_mean_over_ordered_pairs(ranking):
    pairs = [
        math.log1p(math.exp(low - high))
        for high, slow in zip(*(values.tolist() for values in ranking), strict=True)
        for low, fast in zip(*(values.tolist() for values in ranking), strict=True)
        if slow > fast
    ]
    assert pairwise_logistic(*ranking).item() == pytest.approx(sum(pairs) / max(1, len(pairs)))


@given(rankings(low=2))
@settings(max_examples=80, deadline=None)
def test_difference_matrix_is_the_mean_over_all_pairs(ranking):
    score, log = ranking[0], ranking[1].log()
    wanted = (log - log.mean()) / max(log.std(correction=0), 1e-12)
    errors = (score[:, None] - score[None, :]) - (wanted[:, None] - wanted[None, :])
    assert difference_matrix(*ranking).item() == pytest.approx(errors.square().mean().item(), abs=1e-9)


def test_list_mle_takes_ties_in_the_order_given():
    score, runtime = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([7.0, 7.0, 3.0])
    assert list_mle(score, runtime) == list_mle(score, torch.tensor([8.0, 9.0, 3.0]))
    assert list_mle(score, runtime) != list_mle(score, torch.tensor([9.0, 8.0, 3.0]))


def test_pairwise_hinge_of_known_scores():
    # pairs (slower, faster): (1, 0) gap 2, (2, 0) gap 0.5, (2, 1) gap -1.5: hinges 0, 0.5, 2.5
    loss = pairwise_hinge(torch.tensor([0.0, 2.0, 0.5]), torch.tensor([1.0, 2.0, 3.0]))
    assert loss.item() == pytest.approx(1.0)


@pytest.mark.parametrize("name", LOSSES)
def test_a_single_configuration_costs_nothing_and_moves_nothing(name):
    score = torch.tensor([0.7], requires_grad=True)
    loss = LOSSES[name](score, torch.tensor([5.0]))
    loss.backward()
    assert loss.item() == 0 and score.grad.item() == 0


def test_pairwise_hinge_of_equal_runtimes_is_0_and_moves_nothing():
    score = torch.tensor([0.7, -1.0, 3.0], requires_grad=True)
    loss = pairwise_hinge(score, torch.tensor([5.0, 5.0, 5.0]))
    loss.backward()
    assert loss.item() == 0 and not score.grad.any()


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_lowers_the_faster_and_raises_the_slower(name):
    score = torch.zeros(2, requires_grad=True)
    LOSSES[name](score, torch.tensor([20.0, 10.0])).backward()
    assert score.grad[1] > 0 > score.grad[0]  # a step goes against it


@given(rankings(low=2))
@settings(max_examples=60, deadline=None)
def test_lowering_the_fastest_never_costs_and_pays_where_it_is_not_settled(ranking):
    score, runtime = ranking
    fastest = int(torch.argmin(runtime))
    lower = score.clone()
    lower[fastest] -= 0.05
    for loss in (pairwise_hinge, pairwise_logistic, list_mle):
        assert loss(lower, runtime) <= loss(score, runtime) + 1e-12
    assert list_mle(lower, runtime) < list_mle(score, runtime)


@pytest.mark.parametrize("name", LOSSES)
@given(ranking=rankings(low=2), data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_order_of_configurations_does_not_matter(name, ranking, data):
    score, runtime = ranking
    if name == "list_mle":
        runtime = torch.arange(len(score), dtype=torch.float64)  # ties keep their order there
    order = data.draw(st.permutations(range(len(score))))
    assert LOSSES[name](score[order], runtime[order]).item() == pytest.approx(
        LOSSES[name](score, runtime).item()
    )


@pytest.mark.parametrize("name", LOSSES)
def test_large_scores_stay_finite(name):
    score = torch.tensor([1e4, -1e4, 0.0], requires_grad=True)
    loss = LOSSES[name](score, torch.tensor([1.0, 2.0, 3.0]))
    loss.backward()
    assert loss.isfinite() and score.grad.isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
def test_runtimes_beyond_float32_are_told_apart(name):
    """Runtimes come as float64; 2**24 and 2**24 + 1 are one number in float32."""
    score = torch.zeros(2, requires_grad=True)
    LOSSES[name](score, torch.tensor([2.0**24 + 1, 2.0**24], dtype=torch.float64)).backward()
    assert score.grad[1] > 0 > score.grad[0]
