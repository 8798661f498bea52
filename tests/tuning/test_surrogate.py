"""The small model: learns additive and pairwise values, the sign of a prediction, and expects improvement."""

import numpy as np
import pytest
from scipy.stats import kendalltau, norm

from fastslow_programs.tuning.history import Evaluation, History, Proposal
from fastslow_programs.tuning.search.guided import Guide
from fastslow_programs.tuning.search.space import Space
from helpers.search_spaces import choices


@pytest.fixture
def space():
    return Space(choices(2, 2, 2, 2, 2, 3, 3, 2))


def costs(codes):
    effect = np.array([0.4, 0.3, -0.2, 0.0, 0.1, 0.2, -0.1, 0.0])
    return np.exp(codes @ effect + 0.5 * (codes[:, 0] == codes[:, 5]))


def fit(guide, codes, values=None):
    history = History(guide.space)
    for own, value in zip(codes, costs(codes) if values is None else values, strict=True):
        history.add(Proposal(tuple(map(int, own)), "test"), Evaluation(float(value)))
    return guide.fit(history)


def predict(guide, model, codes):
    return model.predict(guide.configurations(codes))


def guide_by(space, prediction, features=0):
    def pretrained(codes):
        rows = space.rows(codes)
        return prediction[rows], np.zeros((len(rows), features))

    return Guide(space, pretrained)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_sign_of_the_prediction_is_learnt(space, rng, sign):
    order = np.argsort(np.argsort(costs(space.listed)))
    guide = guide_by(space, sign * (order - order.mean()) / order.std(), features=2)
    known = rng.permutation(len(space.listed))[:16]
    model = fit(guide, space.listed[known])
    rest = np.setdiff1d(np.arange(len(space.listed)), known)
    mean, _ = predict(guide, model, space.listed[rest])
    assert kendalltau(mean, costs(space.listed[rest]))[0] > 0.6


def test_after_one_value_the_prediction_decides(space):
    prediction = np.random.default_rng(3).normal(size=len(space.listed))
    guide = guide_by(space, prediction)
    model = fit(guide, space.listed[:1], [7.0])
    improvement = guide.promise(model, space.listed[1:])
    assert kendalltau(improvement, prediction[1:])[0] < -0.9


def test_expected_improvement_is_that_of_samples(space, rng):
    guide, known = Guide(space), rng.permutation(len(space.listed))[:20]
    model = fit(guide, space.listed[known])
    mean, deviation = predict(guide, model, space.listed[:5])
    samples = norm.rvs(mean, deviation, (200_000, 5), random_state=0)
    of_samples = model._unit * np.maximum(model._best - samples, 0).mean(0)
    np.testing.assert_allclose(guide.promise(model, space.listed[:5]), of_samples, rtol=0.1, atol=1e-4)


def test_equal_values_one_value_and_many_values(space, rng):
    guide = Guide(space)
    for codes in (space.listed[:1], space.listed[:7]):
        mean, deviation = predict(guide, fit(guide, codes, np.full(len(codes), 3.0)), codes)
        assert np.isfinite(mean).all() and np.isfinite(deviation).all()
    larger = Space(choices(*[3] * 8))
    many = larger.draw(700, rng)
    model = fit(guide := Guide(larger), many)
    drawn = larger.draw(500, rng)
    assert kendalltau(predict(guide, model, drawn)[0], costs(drawn))[0] > 0.9
