"""Noisy values: contenders are measured again by successive halving, and the fastest against the default.

Each round measures the default and the remaining contenders once, in random order. After two rounds the
slower half leaves (Jamieson and Talwalkar, AISTATS 2016). The measurements that chose the last one are too
low by choice, so that only the later rounds compare it with the default: the blocks, in which drift of the
machine cancels. A block measures the default twice, and a gain must exceed what the default shows against
itself. The comparison stops early where the blocks to come would not decide even if they were one standard
error better than those so far. A stop can only keep the default, so that no false gain is added. All is read
from the history: an interrupted confirmation resumes.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from fastslow_programs.tuning.history import History, Proposal

CONFIRMS = "confirmation"
TOO_FEW = "nothing gained: too few evaluations to confirm it; give more, or confirm=0 if nothing is noisy"
_LARGEST, _ROUNDS = 8, 2  # contenders at first, rounds of as many contenders
_BLOCK = 3  # evaluations of a block: the default twice, and the contender
_FEWEST, _BEFORE_STOP = 3, 4  # blocks that a gain needs, and before the comparison may stop


@dataclass(frozen=True)
class Verdict:
    """The comparison of the fastest configuration with the default.

    Args:
        proposal: The configuration.
        ratio: Its value over the default's, geometric mean over blocks.
        low: Lower end of the 95 % interval of the ratio, 0 where there are fewer than two blocks.
        high: Upper end, infinite where there are fewer than two blocks.
        itself: The default against itself: the second one of each block over the first one, geometric mean
            over blocks, or its inverse, whichever is at least 1.
        blocks: Number of blocks.
    """

    proposal: Proposal
    ratio: float
    low: float
    high: float
    itself: float
    blocks: int

    @property
    def is_faster(self) -> bool:
        """Whether it is faster with 95 % confidence, and by more than the default against itself."""
        return self.blocks >= _FEWEST and self.high < 1 and self.ratio * self.itself < 1

    @property
    def in_words(self) -> str:
        """The comparison in a sentence."""
        if self.blocks < _FEWEST:
            return TOO_FEW
        interval = f"{self.ratio:.4f} of the default, 95 % interval {self.low:.4f} to {self.high:.4f}"
        interval += f", {self.blocks} blocks, the default {self.itself:.4f} of itself"
        if self.is_faster:
            return f"gained: {interval}"
        return f"nothing gained: the default stays, for nothing is shown to be faster; next {interval}"


def sizes(budget: int) -> list[int]:
    """Return the number of contenders of each round of halving.

    It costs at most half of a budget, and leaves enough for the blocks that a gain needs.

    Args:
        budget: Evaluations for all rounds.
    """
    first = _LARGEST
    while first > 1:
        rungs = [first >> rung for rung in range(first.bit_length() - 1) for _ in range(_ROUNDS)]
        if sum(rungs) + len(rungs) <= min(budget // 2, budget - _FEWEST * _BLOCK):
            return rungs
        first //= 2
    return []


def _rounds(history: History) -> list[list[tuple[Proposal, float]]]:
    """Return the rounds since the last search, each with the proposals that have a value."""
    found: dict[int, list[tuple[Proposal, float]]] = {}
    for proposal, evaluation in history.done:
        if proposal.by != CONFIRMS:
            found.clear()
            continue
        own = found.setdefault(int(proposal.notes["round"]), [])
        if evaluation.value is not None:
            own.append((proposal, evaluation.value))
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
        contenders = sorted(pool - {default}, key=means.__getitem__)[:size]
        batch = [default, *contenders, *[default] * (len(rounds) >= len(plan))]
        if not contenders or default not in means or len(batch) > count:
            return []
        if is_hopeless(_compared(history, self.budget)[1], count // _BLOCK):
            return []
        notes = {"round": len(rounds)}
        return [Proposal(batch[place], CONFIRMS, notes) for place in rng.permutation(len(batch))]


def verdict(history: History, budget: int) -> Verdict | None:
    """Compare the last contender with the default; None where no block has been measured.

    Args:
        history: All evaluations.
        budget: As for :class:`Confirming`.
    """
    last, differences, own = _compared(history, budget)
    if last is None:
        return None
    mean, blocks = float(np.mean(differences)), len(differences)
    half = _half_width(differences, blocks) if blocks > 1 else np.inf
    ratio, low, high, itself = np.exp([mean, mean - half, mean + half, abs(np.mean(own))]).tolist()
    return Verdict(last, ratio, low, high, itself, blocks)


def is_hopeless(differences: list[float], left: int) -> bool:
    """Return whether more blocks would not show a gain, were they a standard error better than those so far.

    Args:
        differences: Log value of the contender less the default's, by block.
        left: Blocks that are left.
    """
    blocks = len(differences)
    if blocks < _BEFORE_STOP:
        return False
    hoped = np.mean(differences) - np.std(differences, ddof=1) / np.sqrt(blocks)
    return bool(hoped + _half_width(differences, blocks + left) >= 0)


def _half_width(differences: list[float], blocks: int) -> float:
    """Return half the 95 % interval of a mean over blocks that vary as these do."""
    return float(t.ppf(0.975, blocks - 1) * np.std(differences, ddof=1) / np.sqrt(blocks))


def _compared(history: History, budget: int) -> tuple[Proposal | None, list[float], list[float]]:
    """Return the last contender, and by block its log value less the default's, and of the two defaults."""
    default = tuple(map(int, history.space.default))
    differences, own, last = [], [], None
    for measured in _rounds(history)[len(sizes(budget)) :]:
        defaults = [np.log(value) for proposal, value in measured if proposal.codes == default]
        others = [(proposal, value) for proposal, value in measured if proposal.codes != default]
        if others and len(defaults) == 2:
            last, value = others[0]
            differences.append(float(np.log(value) - np.mean(defaults)))
            own.append(float(defaults[1] - defaults[0]))
    return last, differences, own
