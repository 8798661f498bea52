"""Tune a program: propose, evaluate, learn, until the budget is spent; every evaluation is kept at once.

``fastslow.tune``, ``make tune`` and notebook 54 call it.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fastslow.core.errors import DataError, counted
from fastslow.core.progress import TICK_SECONDS, progress, ticking
from fastslow_programs.compiler.layout_constraints import AS_COMPILED, MEASURE_INSTEAD, UNBOUND
from fastslow_programs.program.convert import count_reasons
from fastslow_programs.program.measured import Measured, module_digest
from fastslow_programs.tuning.confirmation import (
    CONFIRMS,
    Confirming,
    Plan,
    Verdict,
    count_confirming,
    verdict,
)
from fastslow_programs.tuning.evaluators import Evaluate
from fastslow_programs.tuning.history import KNOWN, Evaluation, History, Proposal
from fastslow_programs.tuning.kept_study import KeptStudy, another_name, open_study
from fastslow_programs.tuning.search.guided import Guided
from fastslow_programs.tuning.search.strategies import GUIDED, Random, Tpe
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import Target, read_target

Strategy = Guided | Tpe | Random | Confirming
"""What proposes configurations from the evaluations so far."""
DEFAULT = "default"
HOPELESS = 8  # failures in a row, from the first evaluation on, after which something is wrong


class OtherCode(DataError):
    """A study of which a configuration has other code now than when it was measured."""


@dataclass
class Study:
    """A study, its program and its strategy."""

    settings: TuneSettings
    target: Target
    strategy: Strategy
    kept: KeptStudy  # its evaluations, in memory and on disk
    exhausted: bool = False  # whether no configuration was left to propose
    without_constraints: Evaluation | None = None  # of the program; None where the default has none

    @property
    def history(self) -> History:
        """All its evaluations."""
        return self.kept.history

    @property
    def searched_by(self) -> str:
        """The strategy in words: its name, and whether it has no model to be guided by at the start."""
        alone = self.strategy.name == GUIDED and not self.target.pretrained
        return f"{self.strategy.name}, from a random order" if alone else self.strategy.name

    @property
    def default(self) -> float | None:
        """Value of the default: as the file states it, or as it was evaluated; None where it is not known."""
        if self.target.default_value:
            return self.target.default_value
        evaluated = self.history.evaluation_of(self.target.space.default)
        return evaluated[1] if evaluated else None

    @property
    def as_compiled(self) -> float | None:
        """Value of the program without constraints; None where it is unknown, or the default has none."""
        return self.without_constraints.value if self.without_constraints else None

    @property
    def baseline(self) -> float | None:
        """Value that a gain is measured against: the default's, or if lower the program's as compiled."""
        known = [value for value in (self.default, self.as_compiled) if value is not None]
        return min(known, default=None)

    @property
    def baseline_is(self) -> str:
        """What has the value of the baseline, in words."""
        return "the default" if self.baseline == self.default else AS_COMPILED

    @property
    def keeps_program(self) -> bool:
        """Whether the program without constraints is what to compile: no configuration is below it."""
        as_compiled, candidate = self.as_compiled, self.candidate
        return as_compiled is not None and (candidate is None or candidate[1] >= as_compiled)

    @property
    def plan(self) -> Plan | None:
        """Evaluations that are kept to compare the fastest with the default; None where nothing is noisy."""
        return Plan.of(self.settings.evaluations, self.settings.confirm, self.target.evaluator)

    @property
    def to_search(self) -> int:
        """Evaluations that the search may still spend: of its own share, and so that a verdict can follow.

        Paired rounds are no search, and a search that goes on after some makes them void. Neither number
        grows, so the search of an interrupted study goes on exactly where it would have.
        """
        budget, plan = self.settings.evaluations, self.plan
        left = budget - self.history.spent
        if not plan:
            return left
        share = budget - min(plan.reserved, budget - 2)
        searched = self.history.spent - count_confirming(self.history.done)
        return min(share - searched, left - plan.needed)

    @property
    def confirming(self) -> Confirming | None:
        """What confirms the candidate by what the search left of the budget; None where nothing is noisy."""
        if not self.plan:
            return None
        since_search = itertools.takewhile(lambda pair: pair[0].by == CONFIRMS, reversed(self.history.done))
        left = self.settings.evaluations - self.history.spent + count_confirming(since_search)
        return Confirming(replace(self.plan, reserved=min(self.plan.reserved, left)))

    @property
    def verdict(self) -> Verdict | None:
        """The comparison of the candidate with the default in paired rounds; None without any."""
        return verdict(self.history, self.plan) if self.plan else None

    @property
    def candidate(self) -> tuple[Proposal, float] | None:
        """The fastest configuration and its value, confirmed or not; None where nothing has a value.

        In paired rounds its value is the ratio that they show, times the default's value. Where the fastest
        is the default itself, its value is the default's: a single one may be below it by chance.
        """
        default, best = self.default, self.history.best
        if default is not None and (compared := self.verdict):
            return compared.proposal, compared.ratio * default
        if best and default is not None and best[0].codes == tuple(map(int, self.target.space.default)):
            return best[0], default
        return best

    @property
    def confirmed(self) -> bool:
        """Whether the candidate is surely faster than the baseline: by rounds, or as values are exact."""
        candidate, baseline = self.candidate, self.baseline
        if candidate is None or baseline is None:
            return False
        if self.plan:
            return self.verdict is not None and self.verdict.is_faster
        return not self.target.evaluator.noisy and candidate[1] < baseline

    @property
    def best(self) -> tuple[Proposal, float] | None:
        """The configuration to use and its value: the default where nothing is faster.

        Where values are noisy, only a confirmed candidate is faster. Where the program is to be compiled
        without constraints (``keeps_program``), the value is that program's. None where nothing has a value.
        """
        candidate, default, as_compiled = self.candidate, self.default, self.as_compiled
        if as_compiled is not None and self.keeps_program:
            return Proposal(tuple(map(int, self.target.space.default)), DEFAULT), as_compiled
        if self.plan and default is not None and not self.confirmed:
            return Proposal(tuple(map(int, self.target.space.default)), DEFAULT), default
        if not candidate or default is None or candidate[1] < default or self.target.default_value:
            return candidate
        return self.history.evaluation_of(self.target.space.default) or candidate


def make_strategy(name: str, target: Target) -> Strategy:
    """Return the strategy that proposes configurations.

    Args:
        name: One of :data:`fastslow_programs.tuning.settings.STRATEGIES`.
        target: The program, its space and, for ``guided``, the models' predictions.
    """
    if name != GUIDED:
        return Random()
    if target.values_of and not target.layouts:  # a space of the user's, or options of the compiler
        return Tpe()
    return Guided(target.space, target.pretrained)


def complete_study(settings: TuneSettings, target: Target | None = None, is_kept: bool = True) -> Study:
    """Search for a program's fastest configuration, resuming the study that is there.

    Args:
        settings: Settings of the study.
        target: The program, where it was read before.
        is_kept: Whether the study stays on disk, for messages.

    Returns:
        The study; its journal is in the settings' folder.

    Raises:
        SettingsError: A setting is wrong, something is not installed, or ``budget_seconds`` is too short for
            one evaluation.
        DataError: The program, the run or the study cannot be used, or all evaluations failed. It is
            :class:`OtherCode` where a function makes another program of a configuration that was measured.
    """
    target = target or read_target(settings)
    identity = {
        "program": target.digest,
        "choices": " ".join(map(str, target.space.options.tolist())),
        "evaluator": target.evaluator.identity,
    }
    with open_study(settings.journal, identity, target.space) as kept:
        study = Study(settings, target, make_strategy(settings.strategy, target), kept)
        if target.is_traced_anew:
            _require_same_code(study)
        study.without_constraints = target.evaluator.without_constraints()
        if target.measured and not study.history.spent:
            _take_known(study, target.measured)
        try:
            if study.history.spent < settings.evaluations:
                _search(study)
        finally:
            if target.measured:
                target.measured.add(
                    (target.layouts(proposal.codes), evaluation.value)
                    for proposal, evaluation in study.history.done
                    if evaluation.value is not None and proposal.by != KNOWN
                )
    history = study.history
    settings.require(
        len(history) or not settings.budget_seconds, "budget_seconds", "enough for one evaluation"
    )
    if history.failures and not len(history.values):
        failed = counted(len(history), "evaluation")
        reasons = count_reasons(history.failures)
        if study.as_compiled is not None:
            raise DataError(target.name, f"{UNBOUND} ({reasons})", MEASURE_INSTEAD)
        problem = f"not one of {failed} has a value ({reasons})"
        if not is_kept:
            remedy = "Read the reasons above; evaluator=device or another program may work"
            raise DataError(target.name, problem, remedy)
        remedy = f"The study is kept: read the reasons above. {another_name(settings.journal)}"
        raise DataError(settings.journal, problem, remedy)
    study.exhausted = history.spent < settings.evaluations and len(history.taken) >= study.target.space.size
    return study


def _require_same_code(study: Study) -> None:
    """Raise :class:`OtherCode` where a configuration's code is not what was measured: values would mix."""
    target = study.target
    measured = {p.codes: evaluation.code for p, evaluation in study.history.done if evaluation.code}
    shown = progress(total=len(measured), desc="comparing code", unit="configuration", delay=TICK_SECONDS)
    with shown as bar, ticking(bar):
        for codes, code in measured.items():
            try:
                here = module_digest(target.module_of(codes))
            except DataError:  # the function refuses what it took
                here = ""
            if here != code:
                problem = f"is the study of other code: what {target.values_of(codes)} runs has changed"
                remedy = f"{another_name(study.kept.path)}, or delete the folder"
                raise OtherCode(study.kept.path, problem, remedy)
            bar.update()


def _take_known(study: Study, measured: Measured) -> None:
    """Write the known values of the program to a study that begins: later they are not looked up again."""
    means = study.history.means()  # of a beginning that was interrupted
    for configuration, values in measured.read().items():
        codes = tuple(configuration[place] for place in study.target.free)
        if codes not in means:
            mean = values[0] if len(values) == 1 else float(np.exp(np.mean(np.log(values))))
            study.kept.keep(Proposal(codes, KNOWN), Evaluation(mean), (0, 0, 0))


def _search(study: Study) -> None:
    """Search until the budget is spent, of which a part confirms the candidate where values are noisy."""
    settings, history = study.settings, study.history
    began = time.monotonic()
    with (
        progress(
            total=settings.evaluations, initial=history.spent, desc=settings.program, unit="evaluation"
        ) as bar,
        ticking(bar),
        study.target.evaluator.running() as evaluate,
    ):

        def show() -> None:
            bar.n = min(history.spent, bar.total)
            candidate, baseline = study.candidate, study.baseline
            said = [f"best {candidate[1]:.6g}"] if candidate else []
            if candidate and baseline and candidate[1] >= baseline:
                said = [f"best: {study.baseline_is}"]
            elif candidate and baseline:
                unconfirmed = " (unconfirmed)" if study.plan and not study.confirmed else ""
                ratio = f"{candidate[1] / baseline:.4f} of {study.baseline_is}{unconfirmed}"
                said = [f"best {ratio}"] if study.target.evaluator.paired else [*said, ratio]
            said += [f"{len(history.failures)} failed"] if history.failures else []
            bar.set_postfix_str(", ".join(said), refresh=False)
            bar.update(0)

        def go_on(strategy: Strategy, count: int) -> bool:
            """Evaluate the next batch; return whether there was anything to evaluate, and hope for more."""
            in_time = not 0 < settings.budget_seconds <= time.monotonic() - began
            if count <= 0 or not in_time or not _advance(study, strategy, evaluate, count, show):
                return False
            return history.spent < HOPELESS or len(history.failures) < history.spent

        while go_on(study.strategy, min(settings.batch, study.to_search)):
            pass
        confirming = study.confirming
        while confirming and go_on(confirming, settings.evaluations - history.spent):
            pass


def propose(history: History, strategy: Strategy, count: int, seed: int) -> list[Proposal]:
    """Return the next configurations to evaluate; the same history gives the same.

    Args:
        history: All evaluations so far.
        strategy: How the search proposes configurations.
        count: Maximum number of proposals.
        seed: Seed of the search.

    Returns:
        Proposals, the default first while it has no value; none at the end.
    """
    batch: list[Proposal] = []
    default = tuple(map(int, history.space.default))
    asked = history.beside([default])
    if asked.taken > history.taken:
        batch = [Proposal(default, DEFAULT)]
    if len(batch) < count:
        rng = np.random.default_rng([seed, len(history)])
        batch += strategy.propose(asked, count - len(batch), rng)
    return batch


def _advance(
    study: Study, strategy: Strategy, evaluate: Evaluate, count: int, show: Callable[[], object]
) -> int:
    """Propose a batch, evaluate it and keep each evaluation at once; return their number, 0 at the end.

    A batch that was interrupted is proposed again from what was known before it, and completed.
    """
    kept, seed = study.kept, study.settings.seed
    history, (before, asked, given) = kept.history, kept.batch
    batch: list[Proposal] = []
    confirms = strategy.name == CONFIRMS
    if len(history) < before + given and (history.done[before][0].by == CONFIRMS) == confirms:
        whole = propose(History(history.space, history.done[:before]), strategy, asked, seed)
        done = {proposal.codes for proposal, _ in history.done[before:]}
        left = [proposal for proposal in whole if proposal.codes not in done]
        batch = left[: min(count, before + given - len(history))]
    if not batch:
        batch = propose(history, strategy, count, seed)
        before = len(history)
        asked = count
        given = len(batch)
    for place, evaluation in evaluate(batch):
        kept.keep(batch[place], evaluation.checked(), (before, asked, given))
        show()
    return len(batch)
