"""Noisy values: contenders are measured again by successive halving, and the fastest against the default.

Each round measures the default and the remaining contenders once, in random order. After two rounds the
slower half leaves (Jamieson and Talwalkar, AISTATS 2016). The measurements that chose the last one are too
low by choice, so that only later rounds compare it with the default; drift of the machine cancels within a
round. All is read from the history: an interrupted confirmation resumes.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from fastslow.tuning.history import History, Proposal

CONFIRMS = "confirmation"
_LARGEST, _ROUNDS = 8, 2  # contenders at first, rounds of as many contenders


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
            return "the default: too few evaluations are left to compare another with it"
        interval = f"{self.ratio:.4f} of the default, 95 % interval {self.low:.4f} to {self.high:.4f}"
        if self.is_faster:
            return f"faster than the default: {interval}, {self.rounds} rounds"
        return f"the default: nothing is faster with 95 % confidence; the next best takes {interval}"


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
        notes = {"round": len(rounds)}
        return [Proposal(both[place], CONFIRMS, notes) for place in rng.permutation(len(both))]


def verdict(history: History, budget: int) -> Verdict | None:
    """Compare the last contender with the default; None where no round of the two has begun.

    Args:
        history: All evaluations.
        budget: As for :class:`Confirming`.
    """
    default = tuple(map(int, history.space.default))
    differences, last = [], None
    for measured in _rounds(history)[len(sizes(budget)) :]:
        values = {proposal.codes: (proposal, value) for proposal, value in measured}
        other = [proposal for codes, (proposal, _) in values.items() if codes != default]
        if other and default in values:
            last = other[0]
            differences.append(np.log(values[last.codes][1] / values[default][1]))
    if last is None:
        return None
    mean, rounds = float(np.mean(differences)), len(differences)
    half = np.inf
    if rounds > 1:
        half = float(t.ppf(0.975, rounds - 1) * np.std(differences, ddof=1) / np.sqrt(rounds))
    ratio, low, high = np.exp([mean, mean - half, mean + half]).tolist()
    return Verdict(last, float(np.exp(history.means()[last.codes])), ratio, low, high, rounds)
