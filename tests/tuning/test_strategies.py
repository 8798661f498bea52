"""Every strategy: proposals are new and allowed, repeatable from the history, and better than chance."""

import numpy as np
import pytest

from fastslow_programs.tuning.history import History, Outcome
from fastslow_programs.tuning.peers import OptunaStrategy
from fastslow_programs.tuning.search import space as space_module
from fastslow_programs.tuning.search.guided import Guide, Guided
from fastslow_programs.tuning.search.space import Space
from fastslow_programs.tuning.search.strategies import Annealing, Evolutionary, Random
from fastslow_programs.tuning.tune import propose
from helpers.cases import cases
from helpers.search_spaces import choices

BUDGET = 40
WEIGHTS = np.array([3, 0, 2, 1, 0.5, 4, 0.2, 1, 2, 0.1])


def value(codes):
    return float(1 + WEIGHTS[: len(codes)] @ np.asarray(codes))


def make(name, space, seed=0):
    if name.startswith("guided"):
        return Guided(name.removeprefix("guided "), Guide(space), candidates=64)
    plain = {"random": Random, "evolutionary": Evolutionary, "annealing": lambda: Annealing(BUDGET)}
    if name in plain:
        return plain[name]()
    pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")
    return OptunaStrategy(name, seed)


def run(name, space, seed=0, budget=BUDGET, fail=()):
    history, strategy = History(space), make(name, space, seed)
    while len(history) < budget:
        found = propose(history, strategy, min(8, budget - len(history)), seed)
        if not found:
            break
        for proposal in found:
            failed = len(history) in fail
            history.add(proposal, Outcome(None, "refused") if failed else Outcome(value(proposal.codes)))
    return history


NAMES = ["random", "evolutionary", "annealing", "tpe", "nsga2"]
GUIDED = ["guided random", "guided evolutionary", "guided annealing"]


@pytest.fixture(params=["listed", "free"])
def space(request, monkeypatch):
    monkeypatch.setattr(space_module, "ENUMERATED", 4096 if request.param == "listed" else 0)
    return Space(choices(*[2] * 8, 3, 3))


@pytest.mark.parametrize("name", NAMES + GUIDED)
def test_proposals_are_new_allowed_and_begin_with_the_default(space, name):
    history = run(name, space, fail=(3, 5))
    codes = np.array([proposal.codes for proposal, _ in history.done])
    assert len(history) == BUDGET and len(np.unique(codes, axis=0)) == BUDGET
    assert (codes < space.options).all() and (codes[0] == space.default).all()
    assert history.done[0][0].by == "default" and len(history.failures) == 2
    assert history.curve[-1] == min(history.values) and (np.diff(history.curve) <= 0).all()


@pytest.mark.parametrize("name", ["random", "evolutionary", "annealing", *GUIDED])
def test_the_next_proposals_follow_from_the_history_alone(space, name):
    history = run(name, space, budget=24)
    again = History(space)
    for proposal, outcome in history.done:
        again.add(proposal, outcome)
    first, second = (propose(h, make(name, space), 8, 0) for h in (history, again))
    assert first == second and len(first) == 8


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_a_sampler_resumes_from_a_history(space, name):
    history = run(name, space, budget=16)
    assert len(propose(history, make(name, space, seed=1), 8, 0)) == 8


@pytest.mark.parametrize("name", GUIDED)
def test_guidance_finds_better_ones_than_chance(space, name):
    best, chance = (np.mean([run(n, space, s).curve[-1] for s in range(3)]) for n in (name, "random"))
    assert best < chance


@cases("name", NAMES + GUIDED)
def test_a_small_space_is_exhausted_without_repeats(name):
    assert len(run(name, Space(choices(2, 2, 2)), budget=20)) == 8


def test_a_guided_batch_has_a_random_share_and_counts_what_it_scored(space):
    strategy = Guided("random", Guide(space), candidates=64, explore=0.5)
    history = run("random", space, budget=16)
    by = [proposal.by for proposal in strategy.propose(history, 20, np.random.default_rng(0))]
    assert set(by) == {"guided random", "guided random: random share"}
    assert strategy.guide.scored == 64


def test_before_any_value_the_prediction_ranks():
    space = Space(choices(*[2] * 6))
    prior = np.arange(len(space.listed), dtype=float)

    def pretrained(codes):
        return prior[space.rows(codes)], np.zeros((len(codes), 0))

    strategy = Guided("evolutionary", Guide(space, pretrained))
    chosen, gain = strategy.ranked(History(space), 5, np.random.default_rng(0))
    assert space.rows(chosen).tolist() == [0, 1, 2, 3, 4] and not gain.any()


def test_annealing_accepts_what_is_faster_and_cools_down():
    space = Space(choices(2, 2, 2))
    history, annealing = History(space), Annealing(2)
    rows = [proposal for proposal in propose(history, Random(), 4, 0)]
    for proposal, own in zip(rows, (10.0, 5.0, None, 50.0), strict=True):
        history.add(proposal, Outcome(own))
    assert tuple(annealing.current(history)) == rows[1].codes, "cold: what is ten times slower is refused"
