"""Tune a program: propose, evaluate, learn, until the budget is spent; every evaluation is kept at once.

``fastslow.tune``, ``make tune`` and notebook 54 call it.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow_programs.tuning.confirmation import Confirming, Verdict, confirmed, verdict
from fastslow_programs.tuning.evaluators import Evaluate
from fastslow_programs.tuning.history import History, Outcome, Proposal
from fastslow_programs.tuning.ledger import INTERRUPTED, Ledger
from fastslow_programs.tuning.peers import SAMPLERS, OptunaStrategy
from fastslow_programs.tuning.search.guided import Guide, Guided
from fastslow_programs.tuning.search.strategies import Annealing, Evolutionary, Random, Strategy
from fastslow_programs.tuning.settings import SearchSettings, TuneSettings
from fastslow_programs.tuning.target import Target, read_target

DEFAULT = "default"
HOPELESS = 8  # failures in a row, from the first evaluation on, after which something is wrong


@dataclass
class Study:
    """A study and what it is of.

    Args:
        settings: Its settings.
        target: The program.
        history: All its evaluations.
        guide: The model's inputs, None for an unguided strategy.
        exhausted: Whether no configuration was left to propose.
        cut: What was cut off a torn journal, in words.
    """

    settings: TuneSettings
    target: Target
    history: History
    guide: Guide | None
    exhausted: bool = False
    cut: str = ""

    @property
    def default(self) -> float | None:
        """Value of the default: as the file states it, or as it was evaluated; None where it is not known."""
        return self.target.value_of_default(self.history)

    @property
    def confirms(self) -> bool:
        """Whether single measurements are not believed."""
        return self.target.evaluator.noisy and self.settings.confirm > 0

    @property
    def reserved(self) -> int:
        """Evaluations that are kept to measure contenders and the default again."""
        return int(self.settings.evaluations * self.settings.confirm) if self.confirms else 0

    @cached_property
    def verdict(self) -> Verdict | None:
        """How the fastest compares with the default by repeated measurements; None without any."""
        return verdict(self.history, self.reserved) if self.reserved else None

    @property
    def best(self) -> tuple[Proposal, float] | None:
        """What to use and its value: the default where nothing is faster, with noise by 95 % confidence.

        None where nothing has a value.
        """
        found, default = self.history.best, self.default
        if self.confirms and default is not None:
            if better := confirmed(self.history, self.reserved):
                return better
        elif not found or default is None or found[1] < default or self.target.default_value:
            return found
        return self.history.evaluation_of(self.target.space.default) or found


def make_strategy(settings, target: Target) -> tuple[Strategy, Guide | None]:
    """Return the strategy of the settings and, of a guided one, what makes its model's inputs."""
    if settings.inner:
        guide = Guide(target.space, target.pretrained)
        return Guided(settings.inner, guide, settings.candidates, settings.explore), guide
    if settings.strategy in SAMPLERS:
        return OptunaStrategy(settings.strategy, settings.seed), None
    plain: dict[str, Callable[[], Strategy]] = {"random": Random, "evolutionary": Evolutionary}
    own = plain.get(settings.strategy)
    return (own() if own else Annealing(settings.evaluations)), None


def open_ledger(settings: TuneSettings, target: Target) -> Ledger:
    """Return the study of a program, new or resumed.

    Raises:
        DataError: The journal is of another program, space or evaluator, or no journal.
    """
    identity = {
        "program": target.digest,
        "choices": " ".join(map(str, target.space.options.tolist())),
        "evaluator": target.evaluator.identity,
    }
    return Ledger(
        settings.ledger, identity, target.space, settings.seconds * settings.attempts * settings.batch
    )


def tune(settings: TuneSettings) -> Study:
    """Search for a program's fastest configuration, resuming the study that is there.

    Args:
        settings: Settings.

    Returns:
        The study; its journal is in the settings' folder.

    Raises:
        SettingsError: A setting is wrong, something is not installed, or ``budget_seconds`` is too short for
            one evaluation.
        DataError: The program, the run or the study cannot be used, or all evaluations failed.
    """
    target = read_target(settings)
    ledger = open_ledger(settings, target)
    ledger.release_dead()
    strategy, guide = make_strategy(settings, target)
    study = Study(settings, target, ledger.read(), guide, cut=ledger.cut)
    before, began = len(study.history), time.monotonic()
    with progress(
        total=settings.evaluations, initial=before, desc=settings.program, unit="evaluation"
    ) as bar:

        def show() -> None:
            bar.n = min(len(study.history), bar.total)
            bar.set_postfix_str(best_so_far(study), refresh=False)
            bar.update(0)

        def advance(proposer: Strategy, count: int = 0) -> bool:
            """Evaluate what is proposed next within the budget; return whether there was anything."""
            if 0 < settings.budget_seconds <= time.monotonic() - began:
                return False
            study.history, started = start(ledger, proposer, settings, count, study.reserved)
            evaluate_started(ledger, study.history, evaluate, started, show)
            hopeless = not len(study.history.values) and len(study.history) >= HOPELESS
            return bool(started) and not hopeless

        if before < settings.evaluations:
            with target.evaluator.running() as evaluate:
                while advance(strategy):
                    pass
                confirming = Confirming(study.reserved)
                while study.reserved and advance(confirming, settings.evaluations - len(study.history)):
                    pass
    study.history = ledger.read()
    _refuse_without_value(ledger, settings, study.history)
    study.exhausted = len(study.history) < settings.evaluations and len(study.history) >= target.space.size
    return study


Started = list[tuple[int, Proposal]]
"""Trials that are being evaluated: number and proposal."""


def propose(history: History, strategy: Strategy, count: int, seed: int) -> list[Proposal]:
    """Return up to ``count`` new proposals, the default first of all; the same history gives the same."""
    default = history.space.default
    found = [] if history.taken else [Proposal(tuple(map(int, default)), DEFAULT)]
    if len(found) < count:
        asked = History(history.space)
        asked.done, asked.taken = history.done, set(history.taken)
        for proposal in found:
            asked.take(proposal)
        rng = np.random.default_rng([seed, len(history.taken)])
        found += strategy.propose(asked, count - len(found), rng)
    return found


def start(
    ledger: Ledger, strategy: Strategy, settings: SearchSettings, count: int = 0, reserved: int = 0
) -> tuple[History, Started]:
    """Propose the next batch and note that it is being evaluated.

    While one process proposes, the others of the study wait.

    Args:
        ledger: The study.
        strategy: What proposes.
        settings: Settings.
        count: Number of proposals; by default the settings' batch, within their budget.
        reserved: Evaluations of the budget that are kept for what is measured again.

    Returns:
        The history, and what was started: nothing where the budget is spent or the space exhausted.
    """
    with ledger.proposing() as history:
        left = settings.evaluations - reserved - len(history) - history.running
        count = count or min(settings.batch, left)
        if count <= 0:
            return history, []
        if history.pending:  # an interrupted batch is completed as if it had not been interrupted
            return history, [(ledger.start(proposal), proposal) for proposal in history.pending[:count]]
        batch = propose(history, strategy, count, settings.seed)
        return history, [(ledger.start(p, () if n else batch), p) for n, p in enumerate(batch)]


def evaluate_started(ledger: Ledger, history: History, evaluate: Evaluate, started: Started, show) -> None:
    """Evaluate what was started; each outcome is kept as it comes, and ``show`` is called."""
    waiting = dict(enumerate(started))
    try:
        for place, outcome in evaluate([proposal for _, proposal in started]):
            number, proposal = waiting.pop(place)
            ledger.finish(number, outcome)
            history.add(proposal, outcome)
            show()
    finally:
        for number, _ in waiting.values():  # after Ctrl-C: they are free to be proposed again
            ledger.finish(number, Outcome(None, INTERRUPTED))


def _refuse_without_value(ledger: Ledger, settings: SearchSettings, history: History) -> None:
    """Raise an error where there is no value to report, with the reasons."""
    settings.require(
        len(history) or history.running or not settings.budget_seconds,
        "budget_seconds",
        "enough for one evaluation",
    )
    if history.failures and not len(history.values):
        reasons = "; ".join(
            f"{count} times {said}" for said, count in Counter(history.failures).most_common(3)
        )
        problem = f"all of its {len(history)} evaluations failed: {reasons}"
        raise DataError(ledger.path, problem, "The study is kept: correct the cause, then use another name=")


def best_so_far(study: Study) -> str:
    """Return the best value against the default's, in words."""
    best, default = study.history.best, study.default
    failed = len(study.history.failures)
    said = [f"best {best[1]:.6g}"] if best else []
    said += [f"{best[1] / default:.4f} of the default"] if best and default else []
    return ", ".join(said + ([f"{failed} failed"] if failed else []))
