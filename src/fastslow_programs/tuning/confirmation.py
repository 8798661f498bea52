"""Noisy values: contenders are measured again by successive halving, and the fastest against the default.

Each round measures the default and the remaining contenders once, in random order. After two rounds the
slower half leaves (Jamieson and Talwalkar, AISTATS 2016). The measurements that chose the last one are too
low by choice, so that only later rounds compare it with the default; drift of the machine cancels within a
round. The comparison stops early where nothing above the noise is left: where the rounds to come would not
decide even if they were one standard error better than those so far. A stop can only keep the default, so
that no false gain is added. All is read from the history: an interrupted confirmation resumes.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from fastslow_programs.tuning.history import History, Proposal

CONFIRMS = "confirmation"
_LARGEST, _ROUNDS = 8, 2  # contenders at first, rounds of as many contenders
_BEFORE_STOP = 4  # rounds of the comparison before it may stop


@dataclass(frozen=True)
class Verdict:
    """How the fastest configuration compares with the default.

    Args:
        proposal: The configuration.
        value: Geometric mean of its measurements.
        ratio: Its value over the default's, geometric mean over rounds.
        low: Lower end of the 95 % interval of the ratio, 0 where there are fewer than two rounds.
        high: Upper end, infinite where there are fewer than two rounds.
        rounds: Rounds that compare the two.
    """

    proposal: Proposal
    value: float
    ratio: float
    low: float
    high: float
    rounds: int

    @property
    def is_faster(self) -> bool:
        """Whether it is faster than the default with at least 95 % confidence."""
        return self.high < 1

    @property
    def in_words(self) -> str:
        """The comparison in a sentence."""
        if self.rounds < 2:
            return "nothing gained: too few evaluations are left to compare another with the default"
        interval = f"{self.ratio:.4f} of the default, 95 % interval {self.low:.4f} to {self.high:.4f}"
        if self.is_faster:
            return f"gained: {interval}, {self.rounds} rounds"
        return (
            f"nothing gained: the default stays, for nothing is faster with 95 % confidence; next {interval}"
        )


def sizes(budget: int) -> list[int]:
    """Return the number of contenders of each round of halving, which costs at most half of a budget.

    Args:
        budget: Evaluations for all rounds.
    """
    first = _LARGEST
    while first > 1:
        rungs = [first >> rung for rung in range(first.bit_length() - 1) for _ in range(_ROUNDS)]
        if sum(rungs) + len(rungs) <= budget // 2:
            return rungs
        first //= 2
    return []


def _rounds(history: History) -> list[list[tuple[Proposal, float]]]:
    """Return the rounds since the last search, each with the proposals that have a value."""
    found: dict[int, list[tuple[Proposal, float]]] = {}
    for proposal, outcome in history.done:
        if proposal.by != CONFIRMS:
            found.clear()
            continue
        own = found.setdefault(int(proposal.notes["round"]), [])
        if outcome.value is not None:
            own.append((proposal, outcome.value))
    return [found[number] for number in sorted(found)]


class Confirming:
    """A strategy that measures the default and the contenders of the next round again.

    Args:
        budget: Evaluations for all rounds.
    """

    name = CONFIRMS

    def __init__(self, budget: int):
        self.budget = budget

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Propose a whole round in random order; nothing without a contender, or for fewer evaluations."""
        default, means = tuple(map(int, history.space.default)), history.means()
        rounds, plan = _rounds(history), sizes(self.budget)
        pool = {proposal.codes for proposal, _ in rounds[-1]} if rounds else set(means)
        size = plan[len(rounds)] if len(rounds) < len(plan) else 1
        both = [default, *sorted(pool - {default}, key=means.__getitem__)[:size]]
        if len(both) < 2 or default not in means or len(both) > count:
            return []
        if is_hopeless(_compared(history, self.budget)[1], count // 2):
            return []
        notes = {"round": len(rounds)}
        return [Proposal(both[place], CONFIRMS, notes) for place in rng.permutation(len(both))]


def verdict(history: History, budget: int) -> Verdict | None:
    """Compare the last contender with the default; None where no round of the two has begun.

    Args:
        history: All evaluations.
        budget: As for :class:`Confirming`.
    """
    last, differences = _compared(history, budget)
    if last is None:
        return None
    mean, rounds = float(np.mean(differences)), len(differences)
    half = _half_width(differences, rounds) if rounds > 1 else np.inf
    ratio, low, high = np.exp([mean, mean - half, mean + half]).tolist()
    return Verdict(last, float(np.exp(history.means()[last.codes])), ratio, low, high, rounds)


def confirmed(history: History, budget: int) -> tuple[Proposal, float] | None:
    """Return the configuration that is faster than the default with 95 % confidence and its value, if any."""
    found = verdict(history, budget)
    return (found.proposal, found.value) if found and found.is_faster else None


def is_hopeless(differences: list[float], left: int) -> bool:
    """Return whether more rounds would not show a gain, were they a standard error better than those so far.

    Args:
        differences: Log value of the contender less the default's, by round.
        left: Rounds that are left.
    """
    rounds = len(differences)
    if rounds < _BEFORE_STOP:
        return False
    hoped = np.mean(differences) - np.std(differences, ddof=1) / np.sqrt(rounds)
    return bool(hoped + _half_width(differences, rounds + left) >= 0)


def _half_width(differences: list[float], rounds: int) -> float:
    """Return half the 95 % interval of a mean over rounds that vary as these do."""
    return float(t.ppf(0.975, rounds - 1) * np.std(differences, ddof=1) / np.sqrt(rounds))


def _compared(history: History, budget: int) -> tuple[Proposal | None, list[float]]:
    """Return the last contender, and by round its log value less the default's."""
    default = tuple(map(int, history.space.default))
    differences, last = [], None
    for measured in _rounds(history)[len(sizes(budget)) :]:
        values = {proposal.codes: (proposal, value) for proposal, value in measured}
        other = [proposal for codes, (proposal, _) in values.items() if codes != default]
        if other and default in values:
            last = other[0]
            differences.append(float(np.log(values[last.codes][1] / values[default][1])))
    return last, differences
