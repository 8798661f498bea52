"""Noisy values: the fastest configuration is compared with the default in paired rounds.

A search ends with a configuration whose value is too low by choice, so only what is measured afterwards
decides. The fastest few are measured once again, and the best of them meets the default in paired rounds. A
round of a device is one evaluation, in which both ran in turn many times; a round of a command is two
evaluations, one of each, in alternating order. Drift that is slow beside a round cancels in it, and what
changes from one round to the next, such as another loading of the programs, is in the spread of the rounds.
The interval is Student's over the rounds. A value is a median of runs, so one disturbed run makes no round an
outlier. All is read from the history: an interrupted confirmation resumes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastslow.core.tables import percent, two_digits
from fastslow_programs.tuning.history import Evaluation, History, Proposal

CONFIRMS = "paired round"
"""Who proposes what confirms; journals of older versions have "confirmation", which counts as search."""
LEVEL = 0.99
"""Level of the interval. ``benchmarks/verdict.py`` counts how often a search without a gain ends with one."""
FEWEST = 5
"""Paired rounds that a verdict needs."""
_EXACT = 1e-9  # of a ratio, within which both ends of an interval are one number
_MOST, _SCREENED = 8, 5  # contenders at most, and evaluations of the reserve for each of them


@dataclass(frozen=True)
class Verdict:
    """The comparison of a configuration with the default.

    Args:
        proposal: The configuration.
        ratio: Its value over the default's, from the mean of the logarithms over rounds.
        low: Lower end of the interval of the ratio at :data:`LEVEL`; 0 with too few rounds for a verdict.
        high: Upper end; infinite with too few rounds.
        rounds: Number of paired rounds.
    """

    proposal: Proposal
    ratio: float
    low: float
    high: float
    rounds: int

    @property
    def is_faster(self) -> bool:
        """Whether the whole interval is below the default."""
        return self.high < 1

    @property
    def in_words(self) -> str:
        """The comparison in a sentence."""
        if self.rounds < FEWEST:
            return too_few(self.rounds)
        low, high = (against(ratio).removesuffix(" the default") for ratio in (self.low, self.high))
        interval = f"{percent(LEVEL)} interval {low} to {high} it, from {self.rounds} paired rounds"
        if math.isclose(self.low, self.high, rel_tol=_EXACT):
            interval = f"the same in each of {self.rounds} paired rounds; confirm=0 saves them"
        compared = f"{against(self.ratio)}, {interval}"
        if self.is_faster:
            return f"gained: {compared}"
        beyond = "is not confirmed" if self.ratio < 1 else "is not faster"
        return f"nothing gained: the default stays, and the fastest candidate {beyond}: {compared}"


def against(ratio: float, baseline: str = "the default") -> str:
    """Return in words a ratio to the value of a baseline: of 0.9, ``10 % below the default``."""
    if ratio == 1:
        return f"equal to {baseline}"
    return f"{two_digits(100 * abs(1 - ratio))} % {'below' if ratio < 1 else 'above'} {baseline}"


def too_few(rounds: int) -> str:
    """Return in words that a study ended before it had the paired rounds that a verdict needs."""
    needed = f"{rounds} paired rounds, and a verdict needs {FEWEST}"
    return f"nothing gained: the default stays, for the study ended after {needed}; give more evaluations"


@dataclass(frozen=True)
class Plan:
    """The evaluations that are kept to confirm the fastest configuration.

    Args:
        reserved: Their number.
        paired: Whether one evaluation is a paired round, since a value is a ratio to the default.
    """

    reserved: int
    paired: bool

    @classmethod
    def of(cls, evaluations: int, share: float, evaluator: Any) -> "Plan | None":
        """Return the plan of a budget; None where values are exact, or are believed as they are.

        Args:
            evaluations: The budget.
            share: Share of it that is kept, but at least enough for :data:`FEWEST` rounds.
            evaluator: An :class:`fastslow_programs.tuning.evaluators.Evaluator`, or its class.
        """
        if not evaluator.noisy or share == 0:
            return None
        needed = cls(0, evaluator.paired).needed
        return cls(max(needed, int(evaluations * share)), evaluator.paired)

    @property
    def cost(self) -> int:
        """Evaluations of a paired round."""
        return 1 if self.paired else 2

    @property
    def needed(self) -> int:
        """Evaluations of the rounds that a verdict needs."""
        return FEWEST * self.cost

    @property
    def smallest(self) -> int:
        """Smallest budget that can end with a verdict: the default, another one, and the rounds."""
        return 2 + self.needed

    @property
    def contenders(self) -> int:
        """Number of the fastest that are measured once again; 0 where the fastest is taken as it is."""
        spare = self.reserved - self.needed
        count = min(_MOST, spare, self.reserved // _SCREENED)
        return count if count > 1 else 0

    @property
    def rounds(self) -> int:
        """Paired rounds after the contenders were measured again."""
        return (self.reserved - self.contenders) // self.cost


class Confirming:
    """A strategy that measures the contenders again, and then the best of them in paired rounds.

    Args:
        plan: The evaluations for it.
    """

    name = CONFIRMS

    def __init__(self, plan: Plan):
        self.plan = plan

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Propose the next round whole; nothing without a candidate, or at the end of plan or budget."""
        del rng  # the order alternates
        default = tuple(map(int, history.space.default))
        rounds = _rounds(history)
        means = history.means()
        number = max(rounds, default=-1) + 1
        if not rounds and not self.plan.contenders:
            number = 1
        pool = rounds.get(0, means.keys())  # the contenders that have a value, if there were any
        fastest = sorted(set(pool) - {default}, key=means.__getitem__)
        if number == 0:
            batch = fastest[: self.plan.contenders]
        else:
            candidate = _candidate(rounds, default)
            batch = [candidate] if candidate else fastest[:1]
            if batch and not self.plan.paired:
                batch.insert(number % 2, default)
        if default not in means or number > self.plan.rounds or len(batch) > count:
            return []
        return [Proposal(codes, CONFIRMS, {"round": number}) for codes in batch]


def count_confirming(done: Iterable[tuple[Proposal, Evaluation]]) -> int:
    """Return how many evaluations belong to paired rounds, the one of the contenders included."""
    return sum(proposal.by == CONFIRMS for proposal, _ in done)


def verdict(history: History, plan: Plan) -> Verdict | None:
    """Compare the candidate with the default.

    Args:
        history: All evaluations of the search.
        plan: The evaluations that confirm a candidate, as for :class:`Confirming`.

    Returns:
        The verdict; None where no round measured the candidate.
    """
    default = tuple(map(int, history.space.default))
    rounds = _rounds(history)
    candidate = _candidate(rounds, default)
    differences = []
    for number, values in rounds.items():
        if plan.paired:
            values = {default: 0.0} | values
        if number > 0 and {candidate, default} <= values.keys():
            differences.append(values[candidate] - values[default])
    if not differences:
        return None
    mean, half = student_interval(differences)
    ratio, low, high = np.exp([mean, mean - half, mean + half]).tolist()
    proposal = next(p for p, _ in reversed(history.done) if p.codes == candidate)
    return Verdict(proposal, ratio, low, high, len(differences))


def student_interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the mean of differences, and half the width of Student's interval of it at ``LEVEL``.

    With fewer than ``FEWEST`` differences the interval is infinite.
    """
    from scipy.stats import t  # a second

    mean = float(np.mean(differences))
    count = len(differences)
    if count < FEWEST:
        return mean, np.inf
    error = np.std(differences, ddof=1) / np.sqrt(count)
    return mean, float(t.ppf((1 + LEVEL) / 2, count - 1) * error)


def _rounds(history: History) -> dict[int, dict[tuple[int, ...], float]]:
    """Return the log values by configuration of each round since the last search; 0 are the contenders."""
    rounds: dict[int, dict[tuple[int, ...], float]] = {}
    for proposal, evaluation in history.done:
        if proposal.by != CONFIRMS:
            rounds.clear()
            continue
        values = rounds.setdefault(int(proposal.notes["round"]), {})
        if evaluation.value is not None:
            values[proposal.codes] = float(np.log(evaluation.value))
    return rounds


def _candidate(rounds: dict, default: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the configuration that the paired rounds measure; None before it has a value in one."""
    measured = (codes for number in sorted(rounds) if number > 0 for codes in rounds[number])
    return next((codes for codes in measured if codes != default), None)
