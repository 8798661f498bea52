"""Tune a program: propose, evaluate, learn, until the budget is spent; every evaluation is kept at once.

``make tune`` runs this through a notebook.
"""

import time
from dataclasses import dataclass

import numpy as np

from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow.tuning.config import TuneConfig
from fastslow.tuning.guided import Guide, Guided
from fastslow.tuning.history import History, Outcome, Proposal
from fastslow.tuning.ledger import INTERRUPTED, Ledger
from fastslow.tuning.peers import SAMPLERS, OptunaStrategy
from fastslow.tuning.strategies import Annealing, Evolutionary, Random, Strategy
from fastslow.tuning.target import Target, read_target

DEFAULT = "default"
HOPELESS = 8  # failures in a row, from the first evaluation on, after which something is wrong


@dataclass
class Study:
    """A study and what it is of.

    Args:
        config: Its settings.
        target: The program.
        history: All its evaluations.
        guide: The model's inputs, None for an unguided strategy.
        exhausted: Whether no configuration was left to propose.
    """

    config: TuneConfig
    target: Target
    history: History
    guide: Guide | None
    exhausted: bool = False


def make_strategy(config, target: Target) -> tuple[Strategy, Guide | None]:
    """Return the strategy of the settings and, of a guided one, what makes its model's inputs."""
    if config.inner:
        guide = Guide(target.space, target.pretrained)
        return Guided(config.inner, guide, config.candidates, config.explore), guide
    if config.strategy in SAMPLERS:
        return OptunaStrategy(config.strategy, config.seed), None
    plain = {"random": Random, "evolutionary": Evolutionary}
    own = plain.get(config.strategy)
    return (own() if own else Annealing(config.evaluations)), None


def open_ledger(config: TuneConfig, target: Target) -> Ledger:
    """Return the study of a program, new or resumed.

    Raises:
        DataError: The journal is of another program, space or evaluator, or no journal.
    """
    identity = {
        "program": target.digest,
        "choices": " ".join(map(str, target.space.options.tolist())),
        "evaluator": target.evaluator.identity,
    }
    return Ledger(config.ledger, identity, target.space, config.seconds * config.attempts * config.batch)


def tune(config: TuneConfig) -> Study:
    """Search for a program's fastest configuration, resuming the study that is there.

    Args:
        config: Settings.

    Returns:
        The study; its journal is in the settings' folder.

    Raises:
        ConfigError: A setting is wrong, or something is not installed.
        DataError: The program, the run or the study cannot be used, or the first evaluations all failed.
    """
    target = read_target(config)
    ledger = open_ledger(config, target)
    ledger.release_dead()
    strategy, guide = make_strategy(config, target)
    study = Study(config, target, ledger.read(), guide)
    before, began = len(study.history), time.monotonic()
    with progress(total=config.evaluations, initial=before, desc=config.program, unit="evaluation") as bar:
        if before < config.evaluations:
            with target.evaluator.running() as evaluate:
                while not _is_spent(config, began):
                    started = _start(study, ledger, strategy)
                    if not started:
                        break
                    _evaluate(study, ledger, evaluate, started, bar)
    study.history = ledger.read()
    return study


def _is_spent(config: TuneConfig, began: float) -> bool:
    return 0 < config.budget_seconds <= time.monotonic() - began


def _start(study: Study, ledger: Ledger, strategy: Strategy) -> list[tuple[int, Proposal]]:
    """Propose the next batch; while one process proposes, the others of the study wait."""
    config = study.config
    with ledger.proposing() as history:
        study.history = history
        left = config.evaluations - len(history) - ledger.running()
        count = min(config.batch, left)
        if count <= 0:
            return []
        found = [] if history.taken else [Proposal(tuple(map(int, study.target.space.default)), DEFAULT)]
        if len(found) < count:
            asked = History(history.space)
            asked.done, asked.taken = history.done, set(history.taken)
            for proposal in found:
                asked.take(proposal)
            rng = np.random.default_rng([config.seed, len(history.taken)])
            found += strategy.propose(asked, count - len(found), rng)
        study.exhausted = not found
        return [(ledger.start(proposal), proposal) for proposal in found]


def _evaluate(study: Study, ledger: Ledger, evaluate, started: list[tuple[int, Proposal]], bar) -> None:
    open_trials = dict(enumerate(started))
    try:
        for place, outcome in evaluate([proposal for _, proposal in started]):
            number, proposal = open_trials.pop(place)
            ledger.finish(number, outcome)
            study.history.add(proposal, outcome)
            bar.n = min(len(study.history), bar.total)
            bar.set_postfix_str(best_so_far(study), refresh=False)
            bar.update(0)
    finally:
        for number, _ in open_trials.values():  # after Ctrl-C: they are free to be proposed again
            ledger.finish(number, Outcome(None, INTERRUPTED))
    history = study.history
    if not len(history.values) and len(history) >= HOPELESS:
        problem = f"all of the first {len(history)} evaluations failed, the last one: {history.failures[-1]}"
        raise DataError(ledger.path, problem, "The study is kept; correct the cause and delete it or resume")


def best_so_far(study: Study) -> str:
    """Return the best value against the default's, in words."""
    best, default = study.history.best, study.history.value_of(study.target.space.default)
    failed = len(study.history.failures)
    said = [f"best {best[1]:.6g}"] if best else []
    said += [f"{best[1] / default:.4f} of the default"] if best and default else []
    return ", ".join(said + ([f"{failed} failed"] if failed else []))
