"""Tune many programs with one budget: the next evaluations go where they are expected to save most per cost.

The saving of a program is weight x (default - tuned). What the next batch is expected to save is the model's
expected improvement of its best candidates; before a program has values, what the first evaluations of the
others saved on average. Programs of equal content share one study and the sum of their weights. Noisy values
save once they are confirmed (``confirmation.py``): a share of the budget is kept for that, divided equally.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow_programs.tuning.confirmation import CONFIRMS, Confirming, confirmed
from fastslow_programs.tuning.fleet_settings import FleetSettings
from fastslow_programs.tuning.history import History, Proposal
from fastslow_programs.tuning.ledger import Ledger
from fastslow_programs.tuning.search.guided import Guided
from fastslow_programs.tuning.search.strategies import Strategy
from fastslow_programs.tuning.target import Target, read_target
from fastslow_programs.tuning.tune import evaluate_started, make_strategy, open_ledger, start

HOPED = 0.1  # share that a program is hoped to save while the fleet has no experience
FEW = 4  # values of a program below which the fleet's experience counts for it
_WORTHLESS = 3  # failures of a program that has no value, after which it gets nothing more


@dataclass
class Member:
    """A program of a fleet.

    Args:
        target: The program.
        weight: Sum of the weights of all rows that are this program.
        rows: Their positions in the list.
        strategy: What proposes its configurations.
        ledger: Its study.
        history: Its evaluations.
        seconds: Time that its evaluations took.
        exhausted: Whether nothing is left to propose.
        reserved: Evaluations that measure its fastest configurations and the default again; None where single
            values are believed.
    """

    target: Target
    weight: float
    rows: list[int]
    strategy: Strategy
    ledger: Ledger | None
    history: History
    exhausted: bool = False
    reserved: int | None = None
    waiting: tuple = field(default=())

    @property
    def default(self) -> float | None:
        """Value of the default configuration."""
        return self.target.value_of_default(self.history)

    @property
    def noisy(self) -> bool:
        """Whether two evaluations of a configuration differ."""
        return self.target.evaluator.noisy

    @property
    def best(self) -> tuple[Proposal, float] | None:
        """The fastest configuration and its value; of noisy values only one that was confirmed."""
        return self.history.best if self.reserved is None else confirmed(self.history, self.reserved)

    @property
    def saved(self) -> float:
        """Weight x (default - best), 0 where either is not known, or the default is faster and kept."""
        best = self.best
        return self.weight * max(self.default - best[1], 0.0) if best and self.default else 0.0

    @property
    def cost(self) -> float:
        """Seconds of an evaluation, on average; 1 where evaluations take no time."""
        seconds = [outcome.seconds for _, outcome in self.history.done]
        return float(np.mean(seconds)) if seconds and max(seconds) > 0 else 1.0

    @property
    def unknown(self) -> bool:
        """Whether it has so few values that the fleet's experience counts for it."""
        guided = isinstance(self.strategy, Guided) and self.strategy.guide.pretrained
        return len(self.history.values) < (1 if guided else FEW)

    @property
    def hopeless(self) -> bool:
        """Whether nothing more is to be had of it."""
        failed = len(self.history.failures)
        return self.exhausted or (not len(self.history.values) and failed >= _WORTHLESS)


class Experience(NamedTuple):
    """What a fleet's evaluations so far say of a program without any.

    Args:
        value: Mean of the best values.
        cost: Mean seconds of an evaluation.
        hoped: Share of the default that an early evaluation saved on average.
    """

    value: float
    cost: float
    hoped: float


def expected_saving(member: Member, experience: Experience, batch: int, rng) -> float:
    """Return what the next evaluations of a program are expected to save, per second.

    Args:
        member: The program.
        experience: That of the fleet, which counts for programs with few values.
        batch: Number of evaluations.
        rng: Random generator of the candidates.
    """
    if member.hopeless:
        return 0.0
    best = member.history.best
    value, cost = (best[1], member.cost) if best else (experience.value, experience.cost)
    if member.unknown:
        share = experience.hoped
    elif isinstance(member.strategy, Guided):
        gain = member.strategy.ranked(member.history, batch, rng)[1]
        share = float(-np.expm1(-gain).mean()) if len(gain) else 0.0
    else:  # without a model: what its last evaluations brought
        recent = member.history.curve[-2 * FEW :]
        share = float(np.log(recent[0] / recent[-1])) / FEW if np.isfinite(recent[0]) else HOPED
    return share * member.weight * value / cost


def _typical(members: Sequence[Member]) -> tuple[float, float]:
    """Return the value and the cost that a program without any is taken to have: the mean of the others."""
    known = [(m.history.best[1], m.cost) for m in members if m.history.best]
    return tuple(np.mean(known, 0)) if known else (1.0, 1.0)


def _hoped(members: Sequence[Member]) -> float:
    """Return the share that an early evaluation is hoped to save: the fleet's experience so far."""
    shares, counts = [HOPED], [FEW]
    for member in members:
        values = member.history.values[: 1 + FEW]
        if member.default and len(values) > 1:
            shares.append(1.0 - min(values) / values[0])
            counts.append(len(values) - 1)
    return sum(shares) / sum(counts)


def next_member(members: Sequence[Member], settings: FleetSettings, rng) -> Member | None:
    """Return the program that gets the next batch; None where nothing is left to do."""
    open_members, experience = [member for member in members if not member.hopeless], None
    if not open_members:
        return None
    if settings.allocation == "even":
        return min(open_members, key=lambda member: len(member.history))
    savings = []
    for member in open_members:
        key = len(member.history.taken)
        # with nothing new of it the expectation is the same, unless it rests on what is new of the others
        if member.unknown or not member.waiting or member.waiting[0] != key:
            experience = experience or Experience(*_typical(members), _hoped(members))
            member.waiting = key, expected_saving(member, experience, settings.batch, rng)
        savings.append(member.waiting[1])
    return open_members[int(np.argmax(savings))]


def read_fleet(settings: FleetSettings) -> list[Member]:
    """Read the programs of a fleet; rows of equal content become one member.

    Raises:
        SettingsError: A setting is wrong, or something is not installed.
        DataError: The list, a program, its run or its study cannot be used.
    """
    members: dict[tuple, Member] = {}
    targets: dict[tuple[str, str], Target] = {}
    for row, (own, weight) in enumerate(settings.read()):
        place = own.source, own.collection
        target = targets.get(place) or targets.setdefault(place, read_target(own))
        same = members.get((target.digest, target.evaluator.identity))
        if same:
            same.weight += weight
            same.rows.append(row)
            continue
        ledger = open_ledger(own, target)
        ledger.release_dead()
        strategy = make_strategy(own, target)[0]
        member = Member(target, weight, [row], strategy, ledger, ledger.read())
        members[target.digest, target.evaluator.identity] = member
    return list(members.values())


@dataclass
class Fleet:
    """A tuned fleet.

    Args:
        settings: Its settings.
        members: Its programs.
        savings: Total saving after each evaluation of this process.
    """

    settings: FleetSettings
    members: list[Member]
    savings: list[float]


def _step(known: int, settings: FleetSettings) -> int:
    """Return how many evaluations a program gets after ``known`` ones: 1, 1, 2, 4 up to a batch.

    The default alone comes first, what it is and costs is needed to decide. The first proposals bring most,
    and each value tells whether more are worth while: a whole batch would be spent before it is known.
    """
    return min(settings.batch, max(1, known))


def tune_members(members: list[Member], settings: FleetSettings, advance, reserved: int = 0) -> list[float]:
    """Spend the budget of evaluations, or of seconds, on the members.

    Args:
        members: The programs.
        settings: Settings.
        advance: Called with the member and the number of evaluations that it gets; evaluates them.
        reserved: Evaluations that are kept to confirm what was found.

    Returns:
        Total saving after each evaluation.
    """
    rng, savings, began = np.random.default_rng(settings.seed), [], time.monotonic()
    while (left := settings.evaluations - reserved - sum(len(m.history) for m in members)) > 0:
        if 0 < settings.budget_seconds <= time.monotonic() - began:
            break
        member = next_member(members, settings, rng)
        if member is None:
            break
        before = len(member.history)
        advance(
            member, min(left, settings.batch if settings.allocation == "even" else _step(before, settings))
        )
        done = len(member.history) - before
        member.exhausted |= done == 0
        savings += [sum(m.saved for m in members)] * done
    return savings


def confirm(member: Member, advance) -> None:
    """Measure the fastest configurations of a program and its default again, within what is reserved."""
    before, reserved = -1, member.reserved or 0
    while len(member.history) != before:
        before = len(member.history)
        again = sum(proposal.by == CONFIRMS for proposal, _ in member.history.done)
        if again < reserved:
            advance(member, reserved - again, Confirming(reserved))


def tune_fleet(settings: FleetSettings) -> Fleet:
    """Tune a fleet, resuming the studies that are there.

    Raises:
        SettingsError: A setting is wrong, or something is not installed.
        DataError: The list, a program, its run or a study cannot be used, or all evaluations failed.
    """
    members = read_fleet(settings)
    noisy = [member for member in members if member.noisy and settings.confirm > 0]
    reserved = int(settings.evaluations * settings.confirm) if noisy else 0
    for member in noisy:
        member.reserved = reserved // len(noisy)
    with (
        progress(total=settings.evaluations, desc=settings.fleet_name, unit="evaluation") as bar,
        contextlib.ExitStack() as stack,
    ):
        running: list = [None, None]  # the member whose evaluator is open, and that

        def show() -> None:
            bar.n = min(bar.total, sum(len(m.history) for m in members))
            bar.set_postfix_str(f"saved {sum(m.saved for m in members):.4g}", refresh=False)
            bar.update(0)

        def advance(member: Member, count: int, strategy: Strategy | None = None) -> None:
            if running[0] is not member:
                stack.close()
                running[:] = member, stack.enter_context(member.target.evaluator.running())
            member.history, started = start(member.ledger, strategy or member.strategy, settings, count)
            evaluate_started(member.ledger, member.history, running[1], started, show)

        savings = tune_members(members, settings, advance, reserved)
        for member in noisy:
            confirm(member, advance)
    settings.require(
        any(m.history.done or m.history.running for m in members),
        "budget_seconds",
        "enough for one evaluation",
    )
    if not any(m.history.best for m in members):
        failed = next(failure for m in members for failure in m.history.failures)
        remedy = "The studies are kept: correct the cause, then use another name="
        raise DataError(resolve(settings.fleet), f"all evaluations failed, the first one: {failed}", remedy)
    return Fleet(settings, members, savings)
