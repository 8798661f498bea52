"""The small model: learns additive and pairwise values, the sign of a prediction, and expects improvement."""

import numpy as np
import pytest
from scipy.stats import kendalltau, norm

from fastslow.tuning.search.guided import Guide
from fastslow.tuning.search.space import Space
from fastslow.tuning.search.surrogate import Surrogate, learnable
from helpers.search_spaces import choices


@pytest.fixture
def space():
    return Space(choices(2, 2, 2, 2, 2, 3, 3, 2))


def costs(codes):
    effect = np.array([0.4, 0.3, -0.2, 0.0, 0.1, 0.2, -0.1, 0.0])
    return np.exp(codes @ effect + 0.5 * (codes[:, 0] == codes[:, 5]))


def test_it_ranks_what_it_has_not_seen(space, rng):
    known = rng.permutation(len(space.listed))[:60]
    guide = Guide(space)
    model = Surrogate(guide.inputs(space.listed[known]), costs(space.listed[known]))
    rest = np.setdiff1d(np.arange(len(space.listed)), known)
    mean, deviation = model.predict(guide.inputs(space.listed[rest]))
    assert kendalltau(mean, costs(space.listed[rest]))[0] > 0.7
    assert (deviation > 0).all()
    mean, deviation_known = model.predict(guide.inputs(space.listed[known]))
    assert deviation_known.mean() < deviation.mean(), "it is surer of what it has seen"


@pytest.mark.parametrize("sign", [1, -1])
def test_the_sign_of_the_prediction_is_learnt(space, rng, sign):
    order = np.argsort(np.argsort(costs(space.listed)))
    prior = (order - order.mean()) / order.std()

    def pretrained(codes):
        rows = space.rows(codes)
        return sign * prior[rows], np.zeros((len(rows), 2))

    known = rng.permutation(len(space.listed))[:12]
    guide = Guide(space, pretrained)
    model = Surrogate(guide.inputs(space.listed[known]), costs(space.listed[known]))
    rest = np.setdiff1d(np.arange(len(space.listed)), known)
    mean, _ = model.predict(guide.inputs(space.listed[rest]))
    assert kendalltau(mean, costs(space.listed[rest]))[0] > 0.6


def test_after_one_value_the_prediction_decides(space):
    prior = np.random.default_rng(3).normal(size=len(space.listed))

    def pretrained(codes):
        rows = space.rows(codes)
        return prior[rows], np.zeros((len(rows), 0))

    guide = Guide(space, pretrained)
    model = Surrogate(guide.inputs(space.listed[:1]), np.array([7.0]))
    improvement = model.improvement(guide.inputs(space.listed[1:]))
    assert kendalltau(improvement, prior[1:])[0] < -0.9


def test_expected_improvement_is_that_of_samples(space, rng):
    known = rng.permutation(len(space.listed))[:20]
    guide = Guide(space)
    values = costs(space.listed[known])
    model = Surrogate(guide.inputs(space.listed[known]), values)
    inputs = guide.inputs(space.listed[:5])
    mean, deviation = model.predict(inputs)
    samples = norm.rvs(mean, deviation, (200_000, 5), random_state=0)
    expected = np.maximum(learnable(values).min() - samples, 0).mean(0)
    np.testing.assert_allclose(model.improvement(inputs), expected, rtol=0.05, atol=1e-4)


def test_equal_values_one_value_and_many_values(space, rng):
    guide = Guide(space)
    for codes in (space.listed[:1], space.listed[:7]):
        mean, deviation = Surrogate(guide.inputs(codes), np.full(len(codes), 3.0)).predict(
            guide.inputs(codes)
        )
        assert np.isfinite(mean).all() and np.isfinite(deviation).all()
    many = space.draw(700, rng)
    model = Surrogate(guide.inputs(many), costs(many))
    assert kendalltau(model.predict(guide.inputs(space.listed))[0], costs(space.listed))[0] > 0.9


def test_slow_configurations_do_not_set_the_scale():
    values = np.array([1.0, 1.1, 1.2, 1000.0])
    assert (np.diff(learnable(values)) > 0).all()
    assert learnable(values)[-1] < 3
