"""Every strategy: proposals are new and allowed, repeatable from the history, and better than chance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow_programs.tuning.history import Evaluation, History, Proposal
from fastslow_programs.tuning.search import space as space_module
from fastslow_programs.tuning.search.guided import START, Guided
from fastslow_programs.tuning.search.space import Space
from fastslow_programs.tuning.search.strategies import Random, Tpe
from fastslow_programs.tuning.tune import propose
from helpers.cases import cases
from helpers.search_spaces import choices

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

BUDGET = 24
WEIGHTS = np.array([3, 0, 2, 1, 0.5, 4, 0.2, 1, 2, 0.1])
STRATEGIES = ["guided", "right", "wrong", "tpe", "random"]


def additive(codes):
    """Return a value of each configuration, to which each choice adds; all first options are best."""
    return 1 + np.asarray(codes) @ WEIGHTS[: np.shape(codes)[1]]


def make(name, space):
    if name == "tpe":
        return Tpe()
    if name == "random":
        return Random()
    if name == "guided":
        return Guided(space)
    return Guided(space, additive if name == "right" else lambda codes: -additive(codes))


def run(name, space, seed=0, budget=BUDGET, batch=8, fail=(), history=None):
    history, strategy = history or History(space), make(name, space)
    while len(history) < budget:
        found = propose(history, strategy, min(batch, budget - len(history)), seed)
        if not found:
            break
        for proposal in found:
            value = None if len(history) in fail else float(additive([proposal.codes])[0])
            history.add(proposal, Evaluation(value, "" if value else "refused"))
    return history


@pytest.fixture(params=["listed", "free"])
def space(request, monkeypatch):
    monkeypatch.setattr(space_module, "ENUMERATED", 4096 if request.param == "listed" else 0)
    return Space(choices(*[2] * 8, 3, 3))


@cases("name", STRATEGIES)
def test_proposals_are_new_allowed_and_begin_with_the_default(space, name):
    history = run(name, space, fail=(3, 5))
    codes = np.array([proposal.codes for proposal, _ in history.done])
    assert len(history) == BUDGET and len(np.unique(codes, axis=0)) == BUDGET
    assert (codes < space.options).all() and (codes[0] == space.default).all()
    assert history.done[0][0].by == "default" and len(history.failures) == 2
    assert history.curve[-1] == min(history.values) and (np.diff(history.curve) <= 0).all()


@cases("name", STRATEGIES)
def test_the_same_history_gives_the_same_proposals(space, name):
    whole = run(name, space)
    begun = History(space, whole.done[:16])
    assert run(name, space, history=begun).done == whole.done


@cases("name", STRATEGIES)
def test_a_space_is_searched_until_nothing_is_left(name):
    history = run(name, Space(choices(2, 3, 2)), budget=100)
    assert len(history) == 12 and len(history.taken) == 12


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), name=st.sampled_from(STRATEGIES), listed=st.booleans())
def test_what_is_taken_is_never_proposed(seed, name, listed):
    rng = np.random.default_rng(seed)
    every = Space(choices(2, 3, 4, 2)).listed
    space = Space(choices(2, 3, 4, 2), np.unique(every[rng.integers(len(every), size=30)], axis=0))
    if not listed:
        space = Space(choices(*[3] * 9))
        assert space.listed is None
    history = History(space)
    for codes in np.unique(space.draw(6, rng), axis=0):
        value = None if rng.random() < 0.3 else float(additive([codes])[0])
        history.add(Proposal(tuple(map(int, codes)), "test"), Evaluation(value))
    strategy = make(name, space)
    found = [proposal.codes for proposal in strategy.propose(history, 7, rng)]
    keys = space.keys(np.array(found).reshape(-1, len(space.choices)))
    assert len(found) == len({*found}) <= 7 and not history.taken & set(keys)
    assert not listed or set(keys) <= set(space.keys(space.listed))


def test_guidance_finds_better_ones_than_chance(space):
    best, chance = (np.mean([run(n, space, s).curve[-1] for s in range(3)]) for n in ("guided", "random"))
    assert best < chance


def test_a_right_prediction_is_followed_at_once(space):
    """Of a free space the best is among those drawn, or next to the best of these."""
    assert run("right", space, budget=2 if space.listed is not None else 24, batch=1).curve[-1] == 1


def test_a_wrong_prediction_does_not_hide_the_best(space):
    """From the nearest to the fastest each choice is found by itself, where choices only add."""
    assert run("wrong", space, budget=100, batch=1).curve[-1] == 1
    never = Guided(space, lambda codes: -additive(codes), start=10**9)
    history = History(space)
    while len(history) < 100:
        for proposal in never.propose(history, 1, np.random.default_rng(0)):
            history.add(proposal, Evaluation(float(additive([proposal.codes])[0])))
    assert history.curve[-1] > 1, "what the values do not change follows the prediction away from the best"


def test_the_order_is_the_prediction_and_then_the_nearest_to_the_fastest():
    """Against a brute-force reference: sort what is left by distance, and then by the prediction."""
    space, rng = Space(choices(2, 3, 2, 4)), np.random.default_rng(3)
    prior, values = rng.permutation(space.size), rng.permutation(space.size) + 1.0
    strategy, history = Guided(space, lambda codes: prior[space.rows(codes)].astype(float)), History(space)
    for number in range(space.size):
        left = [row for row in range(space.size) if space.keys(space.listed[[row]])[0] not in history.taken]
        expected = min(left, key=lambda row: prior[row])
        if number >= START:
            best = min(history.done, key=lambda done: done[1].value)[0].codes
            away = {row: sum(a != b for a, b in zip(space.listed[row], best, strict=True)) for row in left}
            expected = min(left, key=lambda row: (away[row], prior[row]))
        (proposal,) = strategy.propose(history, 1, rng)
        assert proposal.codes == tuple(space.listed[expected])
        history.add(proposal, Evaluation(float(values[expected])))
