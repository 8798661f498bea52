"""Noisy values: contenders are measured again; only what is faster with confidence replaces the default."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fastslow_programs.tuning.confirmation import CONFIRMS, Confirming, is_hopeless, sizes, verdict
from fastslow_programs.tuning.history import Evaluation, History, Proposal
from fastslow_programs.tuning.result import summarise_study
from fastslow_programs.tuning.search.space import Space
from fastslow_programs.tuning.search.strategies import Random
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import Target
from fastslow_programs.tuning.tune import Study
from helpers.cases import cases
from helpers.search_spaces import choices


def searched(measure, rng, count=20):
    """Return a history of the default and ``count`` others, each measured once."""
    space = Space(choices(2, 2, 2, 2, 2))
    history = History(space)
    for codes in space.listed[::-1][: count + 1].tolist():
        history.add(Proposal(tuple(codes), "search"), Evaluation(measure(tuple(codes), rng)))
    return history


def of_blocks(rows, *before):
    """Return a history of two configurations and their codes; rows are values of default, other, default."""
    history = searched(lambda codes, rng: 1.0, np.random.default_rng(0), 1)
    default, other = (tuple(codes) for codes in history.space.listed[::-1][:2].tolist())
    for value in before:
        history.add(Proposal(other, "search"), Evaluation(value))
    for number, row in enumerate(rows):
        for codes, value in zip((default, other, default), row, strict=True):
            history.add(Proposal(codes, CONFIRMS, {"round": number}), Evaluation(float(value)))
    return history


@cases(
    "budget, expected",
    [(0, []), (9, []), (14, []), (16, [2, 2]), (32, [4, 4, 2, 2]), (100, [8, 8, 4, 4, 2, 2])],
)
def test_halving_costs_at_most_half(budget, expected):
    assert sizes(budget) == expected
    assert sum(expected) + len(expected) <= budget / 2


NOISE = {
    "none": lambda rng, number: 1e-6 * rng.normal(),
    "normal": lambda rng, number: 0.1 * rng.normal(),
    "heavy tails": lambda rng, number: 0.05 * rng.standard_t(2),
    "a machine that slows down": lambda rng, number: 0.05 * rng.normal() + 0.01 * number,
}


def run(effect, seed, budget=40, noise="normal"):
    """Search and confirm; one configuration's log value differs from all others by ``effect``."""
    rng, numbers = np.random.default_rng(seed), itertools.count()
    special = (1, 0, 1, 0, 1)

    def measure(codes, rng):
        return float(np.exp(NOISE[noise](rng, next(numbers)) + effect * (codes == special)))

    history, left = searched(measure, rng), budget
    while batch := Confirming(budget).propose(history, left, rng):
        left -= len(batch)
        assert (1, 1, 1, 1, 1) in [proposal.codes for proposal in batch]
        assert all(proposal.by == CONFIRMS for proposal in batch)
        for proposal in batch:
            history.add(proposal, Evaluation(measure(proposal.codes, rng)))
    return verdict(history, budget), special, left


@cases("noise", [name for name in NOISE if name != "none"])
def test_nothing_is_called_faster_where_all_are_equal(noise):
    """It takes seconds: a rate of 2.5 % is not seen in fewer searches."""
    found = [run(0.0, seed, noise=noise) for seed in range(80)]
    assert np.mean([own.is_faster for own, *_ in found]) <= 0.05  # at most 0.025 is expected
    assert np.mean([left > 0 for *_, left in found]) > 0.5, "most end before the budget does"


def test_what_is_clearly_faster_is_found():
    found = [run(-0.5, seed) for seed in range(40)]
    right = [own.is_faster and own.proposal.codes == special for own, special, _ in found]
    assert np.mean(right) > 0.9
    assert np.mean([own.low < np.exp(-0.5) < own.high for own, *_ in found]) > 0.85
    assert "gained" in found[0][0].in_words


def test_a_stop_hardly_loses_a_gain_that_the_budget_can_show():
    found = [run(-0.2, seed) for seed in range(100)]
    stopped = [not own.is_faster and left > 1 for own, _, left in found]
    assert np.mean([own.is_faster for own, *_ in found]) > 0.6 and np.mean(stopped) < 0.25
    assert not is_hopeless([-0.1, -0.2, -0.1, -0.2], left=10)
    assert is_hopeless([0.1, -0.1, 0.1, -0.1], left=10) and not is_hopeless([0.1, 0.1, 0.1], left=10)


def test_fewer_than_three_blocks_decide_nothing():
    for budget in (8, 9):
        own, *_ = run(-0.9, 0, budget=budget, noise="none")
        assert own.blocks == budget // 3 and own.is_faster == (own.blocks == 3)
        assert ("too few" in own.in_words) == (own.blocks < 3)
    assert run(0.0, 0, budget=1)[0] is None


def test_a_gain_must_exceed_what_the_default_shows_against_itself():
    found = verdict(of_blocks([(1.0, 0.97 + 0.001 * number, 1.1) for number in range(4)]), 9)
    assert found.high < 1 and found.itself == pytest.approx(1.1) and not found.is_faster
    assert "the default 1.1000 of itself" in found.in_words
    assert found.ratio == pytest.approx(0.9715 / np.sqrt(1.1), rel=1e-3), (
        "the geometric mean of both defaults"
    )


def test_each_round_keeps_the_fastest_by_all_their_measurements():
    rng = np.random.default_rng(0)
    history = searched(lambda codes, rng: float(np.exp(rng.normal())), rng, 12)
    default = tuple(history.space.default.tolist())
    logs = {proposal.codes: [np.log(evaluation.value)] for proposal, evaluation in history.done}
    pool = {*logs} - {default}
    for number, size in enumerate([8, 8, 4, 4, 2, 2, 1, 1, 1]):
        batch = [proposal.codes for proposal in Confirming(100).propose(history, 100, rng)]
        contenders = sorted(pool, key=lambda codes: np.mean(logs[codes]))[:size]
        assert sorted(batch) == sorted([*contenders, default, *[default] * (size == 1)]), number
        for codes in batch:
            log = 0.0 if codes == default else rng.normal()
            failed = number == 0 and codes == contenders[0]  # it leaves, though it was the fastest
            evaluation = Evaluation(None, "refused") if failed else Evaluation(float(np.exp(log)))
            history.add(Proposal(codes, CONFIRMS, {"round": number}), evaluation)
            logs[codes] += [] if failed else [log]
        pool = {*contenders[number == 0 :]}
        if number == 0:
            del logs[contenders[0]]
    assert verdict(history, 100).proposal.codes == contenders[0]


def test_the_verdict_is_the_interval_of_a_t_test_over_blocks(rng):
    logs = rng.normal(size=(5, 3)) - [0, 0, 2]  # the second default of a block looks faster
    found, differences = verdict(of_blocks(np.exp(logs)), 9), logs[:, 1] - logs[:, [0, 2]].mean(1)
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    itself = abs((logs[:, 2] - logs[:, 0]).mean())
    wanted = [differences.mean(), low, high, itself]
    assert np.log([found.ratio, found.low, found.high, found.itself]) == pytest.approx(wanted)
    # hopeless: one standard error better, the end of an interval of 5 + 3 such blocks is 0
    half = stats.t.ppf(0.975, 7) * differences.std(ddof=1) / np.sqrt(8)
    edge = differences - differences.mean() + differences.std(ddof=1) / np.sqrt(5) - half
    assert is_hopeless([*(edge + 1e-9)], left=3) and not is_hopeless([*(edge - 1e-9)], left=3)


def test_more_search_starts_the_rounds_again():
    rng = np.random.default_rng(0)
    history = searched(lambda codes, rng: 1.0 + sum(codes), rng, 8)
    first = Confirming(100).propose(history, 100, rng)
    for proposal in first:
        history.add(proposal, Evaluation(1.0))
    assert Confirming(100).propose(history, 100, rng)[0].notes == {"round": 1}
    history.add(Proposal((0, 0, 0, 0, 0), "search"), Evaluation(0.1))
    again = Confirming(100).propose(history, 100, rng)
    assert again[0].notes == {"round": 0}
    assert (0, 0, 0, 0, 0) in [proposal.codes for proposal in again]


def test_failures_leave_the_pool():
    rng = np.random.default_rng(0)
    history = searched(lambda codes, rng: 1.0, rng, 0)
    assert Confirming(10).propose(history, 10, rng) == [], "only the default has a value"
    history.add(Proposal((0, 1, 1, 1, 1), "search"), Evaluation(None, "failed"))
    assert Confirming(10).propose(history, 10, rng) == []
    assert history.evaluation_of((0, 1, 1, 1, 1)) is None
    history.add(Proposal((1, 1, 1, 1, 1), "search"), Evaluation(4.0))
    assert history.evaluation_of((1, 1, 1, 1, 1))[1] == pytest.approx(2.0), (
        "the geometric mean of its measurements"
    )


def test_the_verdict_is_the_headline_and_not_the_fastest_measurement():
    """The winner's value is the ratio that the blocks show; where the default wins, it is 1 of itself."""
    evaluator = SimpleNamespace(noisy=True, name="clock", remark="")
    settings = TuneSettings(evaluations=24, strategy="random")
    for value, said, best in ((0.9, "gained: 0.9000", "0.9000"), (1.01, "nothing gained", "1.0000")):
        rows = [(0.97, 0.97 * value + 1e-6 * number, 0.97) for number in range(4)]
        measured = of_blocks(rows, 0.5)  # a lucky one before
        target = Target("mine", "digest", measured.space, evaluator, None, default_value=1.0)
        study = Study(settings, target, Random(), SimpleNamespace(history=measured))
        facts = summarise_study(study)
        assert facts["result"].startswith(said) and facts["best over default"] == best
        assert next(iter(facts.index)) == "result"
