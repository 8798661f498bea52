"""Every strategy: proposals are new and allowed, repeatable from the history, and better than chance."""

from collections import Counter

import numpy as np
import pytest

from fastslow_programs.tuning.history import Evaluation, History
from fastslow_programs.tuning.search import space as space_module
from fastslow_programs.tuning.search.guided import Guide, Guided
from fastslow_programs.tuning.search.space import Space
from fastslow_programs.tuning.search.strategies import Random
from fastslow_programs.tuning.tune import propose
from helpers.search_spaces import choices

BUDGET = 24
WEIGHTS = np.array([3, 0, 2, 1, 0.5, 4, 0.2, 1, 2, 0.1])


def value(codes):
    return float(1 + WEIGHTS[: len(codes)] @ np.asarray(codes))


def make(name, space):
    if name == "guided":
        return Guided(Guide(space), candidates=64)
    return Random()


def run(name, space, seed=0, budget=BUDGET, fail=()):
    history, strategy = History(space), make(name, space)
    while len(history) < budget:
        found = propose(history, strategy, min(8, budget - len(history)), seed)
        if not found:
            break
        for proposal in found:
            failed = len(history) in fail
            history.add(
                proposal, Evaluation(None, "refused") if failed else Evaluation(value(proposal.codes))
            )
    return history


@pytest.fixture(params=["listed", "free"])
def space(request, monkeypatch):
    monkeypatch.setattr(space_module, "ENUMERATED", 4096 if request.param == "listed" else 0)
    return Space(choices(*[2] * 8, 3, 3))


@pytest.mark.parametrize("name", ["guided", "random"])
def test_proposals_are_new_allowed_and_begin_with_the_default(space, name):
    history = run(name, space, fail=(3, 5))
    codes = np.array([proposal.codes for proposal, _ in history.done])
    assert len(history) == BUDGET and len(np.unique(codes, axis=0)) == BUDGET
    assert (codes < space.options).all() and (codes[0] == space.default).all()
    assert history.done[0][0].by == "default" and len(history.failures) == 2
    assert history.curve[-1] == min(history.values) and (np.diff(history.curve) <= 0).all()


def test_guidance_finds_better_ones_than_chance(space):
    """It takes seconds: two searches, each of which fits both models twice."""
    best, chance = (np.mean([run(n, space, s).curve[-1] for s in range(2)]) for n in ("guided", "random"))
    assert best < chance


def test_a_guided_batch_has_a_random_share_and_half_of_it_is_the_process(space):
    strategy = Guided(Guide(space), candidates=64, explore=0.5)
    history = run("random", space, budget=16)
    by = Counter(proposal.by for proposal in strategy.propose(history, 20, np.random.default_rng(0)))
    assert by.keys() == {"guided", "guided: process", "guided: random share"} and by["guided: process"] == 10


def test_before_any_value_the_prediction_ranks():
    space = Space(choices(*[2] * 6))
    prior = np.arange(len(space.listed), dtype=float)

    def pretrained(codes):
        return prior[space.rows(codes)], np.zeros((len(codes), 0))

    strategy = Guided(Guide(space, pretrained))
    chosen = strategy.ranked(History(space), 5, np.random.default_rng(0))
    assert space.rows(chosen).tolist() == [0, 1, 2, 3, 4]
