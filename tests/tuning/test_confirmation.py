"""Noisy values: paired rounds decide; only what is faster with confidence replaces the default."""

import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fastslow.core.errors import SettingsError
from fastslow.core.tables import percent
from fastslow_programs.tuning.confirmation import (
    CONFIRMS,
    FEWEST,
    LEVEL,
    Confirming,
    Plan,
    Verdict,
    against,
    student_interval,
    verdict,
)
from fastslow_programs.tuning.history import Evaluation, History, Proposal
from fastslow_programs.tuning.result import best_facts, study_page, summarise_study
from fastslow_programs.tuning.search.space import Space
from fastslow_programs.tuning.search.strategies import Random
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import Target
from fastslow_programs.tuning.tune import Study
from helpers.cases import cases
from helpers.search_spaces import choices

SPACE = Space(choices(2, 2, 2, 2, 2))
DEFAULT = tuple(SPACE.default.tolist())
SPECIAL = (1, 0, 1, 0, 1)


def searched(measure, count=20, by="search"):
    """Return a history of the default and ``count`` others, each measured once."""
    history = History(SPACE)
    for codes in SPACE.listed[::-1][: count + 1].tolist():
        history.add(Proposal(tuple(codes), by), Evaluation(measure(tuple(codes))))
    return history


def of_rounds(pairs, paired=False):
    """Return a history of the default and another one, with values of both in rounds."""
    history, other = searched(lambda codes: 1.0, 1), SPACE.listed[::-1][1].tolist()
    for number, (default, value) in enumerate(pairs, start=1):
        for codes, measured in ((DEFAULT, default), (tuple(other), value)):
            if codes != DEFAULT or not paired:
                history.add(Proposal(codes, CONFIRMS, {"round": number}), Evaluation(measured))
    return history


@cases(
    "evaluations, share, paired, kept",
    [
        (12, 0.5, False, (10, 0, 5)),  # reserved, contenders, rounds
        (14, 0.5, False, (10, 0, 5)),
        (40, 0.5, False, (20, 4, 8)),
        (400, 0.5, False, (200, 8, 96)),
        (7, 0.5, True, (5, 0, 5)),
        (40, 0.5, True, (20, 4, 16)),
        (64, 0.5, False, (32, 6, 13)),
        (40, 0.01, True, (5, 0, 5)),
    ],
)
def test_a_budget_keeps_what_a_verdict_needs(evaluations, share, paired, kept):
    plan = Plan.of(evaluations, share, SimpleNamespace(noisy=True, paired=paired))
    assert (plan.reserved, plan.contenders, plan.rounds) == kept and plan.rounds >= FEWEST
    assert plan.contenders + plan.rounds * plan.cost <= plan.reserved <= evaluations - 2
    assert plan.smallest == (7 if paired else 12)


def test_exact_or_believed_values_need_no_plan():
    assert Plan.of(40, 0.0, SimpleNamespace(noisy=True, paired=True)) is None
    assert Plan.of(40, 0.5, SimpleNamespace(noisy=False, paired=False)) is None


NOISE = {
    "normal": lambda rng, number: 0.05 * rng.normal(),
    "heavy tails": lambda rng, number: 0.02 * rng.standard_t(2),
    "a machine that slows down": lambda rng, number: 0.02 * rng.normal() + 0.01 * number,
    "outliers": lambda rng, number: 0.02 * rng.normal() + (rng.random() < 0.05) * 0.5,
}


def run(effect, seed, budget=32, noise="normal", paired=False):
    """Search and confirm; one configuration's log value differs from all others by ``effect``."""
    rng, numbers = np.random.default_rng(seed), itertools.count()

    def measure(codes):
        return float(np.exp(NOISE[noise](rng, next(numbers)) + effect * (codes == SPECIAL)))

    history, plan = searched(measure), Plan(budget, paired)
    left = budget
    while batch := Confirming(plan).propose(history, left, rng):
        left -= len(batch)
        for proposal in batch:
            history.add(proposal, Evaluation(measure(proposal.codes)))
    assert 0 <= left < 2
    return verdict(history, plan)


@cases("noise", NOISE)
def test_nothing_is_called_faster_where_all_are_equal(noise):
    found = [run(0.0, seed, noise=noise) for seed in range(100)]
    assert np.mean([outcome.is_faster for outcome in found]) <= 0.02  # 0.005 is expected


@cases("noise", NOISE)
def test_what_is_clearly_faster_is_found_and_in_the_interval(noise):
    found = [run(-0.4, seed, noise=noise) for seed in range(30)]
    right = [outcome.is_faster and outcome.proposal.codes == SPECIAL for outcome in found]
    assert np.mean(right) > 0.9
    assert np.mean([outcome.low < np.exp(-0.4) < outcome.high for outcome in found]) > 0.9
    assert re.match(r"gained: \d+ % below the default, 99 % interval \d+ % below to ", found[0].in_words)


def test_a_paired_value_needs_no_default():
    gained = run(-0.4, 0, paired=True)
    assert gained.is_faster and gained.rounds == 32 - 6 and gained.proposal.codes == SPECIAL


def test_the_fastest_are_measured_again_and_then_one_meets_the_default_in_turn():
    rng = np.random.default_rng(0)
    history, plan = searched(lambda codes: 1.0 + sum(codes), 20), Plan(20, False)
    history.add(Proposal((0, 0, 0, 0, 0), "search"), Evaluation(None, "failed"))
    means = history.means()
    fastest = sorted(set(means) - {DEFAULT}, key=means.__getitem__)[:4]
    first = Confirming(plan).propose(history, 100, rng)
    assert [proposal.codes for proposal in first] == fastest
    for proposal, value in zip(first, (None, 9.0, 1.0, 8.0), strict=True):
        history.add(proposal, Evaluation(value, "" if value else "failed"))
    orders = []
    while batch := Confirming(plan).propose(history, 100, rng):
        orders.append([proposal.codes for proposal in batch])
        for proposal in batch:
            history.add(proposal, Evaluation(1.0))
    pair = [DEFAULT, fastest[2]]
    assert len(orders) == 8 and orders[1::2] == [pair] * 4 and orders[::2] == [pair[::-1]] * 4


def test_a_failed_round_is_left_out_and_the_candidate_stays():
    history, plan = searched(lambda codes: 1.0 + (codes != SPECIAL), 20), Plan(20, False)
    rng, number = np.random.default_rng(0), itertools.count()
    while batch := Confirming(plan).propose(history, 100, rng):
        for proposal in batch:
            assert proposal.codes in (DEFAULT, SPECIAL) or not proposal.notes["round"]
            failed = proposal.codes == SPECIAL and next(number) in (1, 4)
            history.add(proposal, Evaluation(None if failed else 1.0 + (proposal.codes != SPECIAL)))
    found = verdict(history, plan)
    assert found.rounds == 8 - 2 and found.ratio == pytest.approx(0.5) and found.is_faster


def test_more_search_starts_the_rounds_again():
    rng, plan = np.random.default_rng(0), Plan(32, False)
    history = searched(lambda codes: 1.0 + sum(codes), 8)
    for proposal in Confirming(plan).propose(history, 100, rng):
        history.add(proposal, Evaluation(1.0))
    assert Confirming(plan).propose(history, 100, rng)[0].notes == {"round": 1}
    history.add(Proposal((0, 0, 0, 0, 0), "search"), Evaluation(0.1))
    again = Confirming(plan).propose(history, 100, rng)
    assert again[0].notes == {"round": 0} and again[0].codes == (0, 0, 0, 0, 0)


def test_confirmations_of_an_older_version_count_as_search():
    history, plan = searched(lambda codes: 1.0 + sum(codes), 8, by="confirmation"), Plan(32, False)
    assert verdict(history, plan) is None
    assert Confirming(plan).propose(history, 100, np.random.default_rng(0))[0].notes == {"round": 0}


def test_without_a_candidate_or_a_default_nothing_is_proposed():
    rng = np.random.default_rng(0)
    for plan in (Plan(20, False), Plan(10, True)):
        assert Confirming(plan).propose(searched(lambda codes: 1.0, 0), 10, rng) == []
        assert Confirming(plan).propose(History(SPACE), 10, rng) == []
    assert Confirming(Plan(20, False)).propose(searched(lambda codes: 1.0), 1, rng) == [], "a whole round"


def test_the_interval_is_students(rng):
    values = rng.normal(size=10)
    mean, half = student_interval(values)
    assert [mean - half, mean + half] == pytest.approx(
        list(stats.ttest_1samp(values, 0).confidence_interval(LEVEL))
    )
    assert student_interval(values[: FEWEST - 1])[1] == np.inf
    assert student_interval([-0.5] * 5) == (-0.5, 0.0)


@cases("paired", [False, True])
def test_a_verdict_is_the_interval_over_rounds(paired, rng):
    logs = rng.normal(size=(8, 2)) - [0, 1]
    if paired:
        logs[:, 0] = 0
    found = verdict(of_rounds(np.exp(logs).tolist(), paired), Plan(16, paired))
    mean, half = student_interval(logs[:, 1] - logs[:, 0])
    assert np.log([found.ratio, found.low, found.high]) == pytest.approx([mean, mean - half, mean + half])
    assert found.rounds == 8 and found.is_faster == (mean + half < 0)
    ends = [against(ratio).removesuffix(" the default") for ratio in (found.low, found.high)]
    assert f"{' to '.join(ends)} it, from 8 paired rounds" in found.in_words


def test_the_verdict_is_the_headline_and_the_candidate_is_named_beside_it(undrawn):
    """A lucky single value is no result; what is unconfirmed is in ``candidate``, and the default stays."""
    evaluator = SimpleNamespace(noisy=True, paired=False, name="clock", remark="")
    settings = TuneSettings(evaluations=24, strategy="random")
    for pairs, said, ratio, confirmed in (
        ([(1.0, 0.9)] * 6, "gained: 10 % below", "0.9000", True),
        ([(1.0, 0.5), (0.9, 1.0), (1.0, 1.1)] * 2, "nothing gained: .*is not confirmed: ", "1.0000", False),
        (
            [(1.0, 1.1)] * 6,
            "nothing gained: .*the fastest candidate is not faster: 10 % above",
            "1.0000",
            False,
        ),
        ([(1.0, 0.5)] * 3, "nothing gained: .*after 3 paired rounds, and a verdict needs 5", "1.0000", False),
    ):
        measured = of_rounds(pairs)
        target = Target("mine", "digest", measured.space, evaluator, None, default_value=1.0)
        study = Study(settings, target, Random(), SimpleNamespace(history=measured))
        facts, best = summarise_study(study), json.loads(json.dumps(best_facts(study)))
        assert re.match(said, facts["result"]) and facts["best over default"] == ratio
        assert best["confirmed"] is confirmed is study.confirmed
        assert facts["proposed by"] == "search", "who found it, and not the rounds"
        share = len({proposal.codes for proposal, _ in measured.done}) / measured.space.size
        assert f"{percent(share, 1)} of them were evaluated" in study_page(study), "not a round each"
        assert best["candidate"]["options"] != list(DEFAULT)
        assert best["candidate"]["value"] == pytest.approx(study.verdict.ratio)
        assert (best["options"] == list(DEFAULT)) is not confirmed
        assert ("interval" in best["candidate"]) is (len(pairs) >= FEWEST)
        for choice in (best, best["candidate"]):
            assert choice["over_default"] == choice["value"], "each ratio is of the value beside it"


def test_an_interval_of_100_percent_and_more_is_written_out():
    """It ended "3.2e+02 % above it"."""
    words = Verdict(Proposal(SPECIAL, "search"), 0.9, 0.14, 4.2, 5).in_words
    assert words.endswith("99 % interval 86 % below to 320 % above it, from 5 paired rounds")


def test_a_lucky_time_of_the_default_itself_is_no_gain():
    """``confirm=0`` believes single values, but the default against itself is 1."""
    evaluator = SimpleNamespace(noisy=True, paired=True, name="clock", remark="")
    history = History(SPACE)
    history.add(Proposal(DEFAULT, "default"), Evaluation(0.97))
    history.add(Proposal(SPECIAL, "random"), Evaluation(0.98))
    target = Target(
        "mine", "digest", history.space, evaluator, None, default_value=1.0, default_is="as it is"
    )
    settings = TuneSettings(evaluator="device", evaluations=2, confirm=0.0)
    study = Study(settings, target, Random(), SimpleNamespace(history=history))
    facts = summarise_study(study)
    assert facts["result"].startswith("nothing gained") and facts["configuration"] == "as the default"
    assert facts["best over default"] == "1.0000" and facts["default"] == "as it is"
    history.add(Proposal(SPECIAL, "random"), Evaluation(0.9))
    assert summarise_study(study)["result"].startswith("gained: the best is 10 % below the default")


def test_a_budget_that_can_give_no_verdict_is_refused_before_anything_is_measured(tmp_path):
    path = tmp_path / "space.json"
    path.write_text('{"choices": {"tile": [16, 32]}}')
    with pytest.raises(SettingsError, match="evaluations: 11 is not enough .*12 or more, or confirm=0"):
        TuneSettings(source=str(path), evaluator="command", command="true", evaluations=11)
    with pytest.raises(SettingsError, match="evaluations: 6 is not enough .*7 or more"):
        TuneSettings(source=str(path), evaluations=6)
    TuneSettings(source=str(path), evaluator="command", command="true", evaluations=1, confirm=0.0)
