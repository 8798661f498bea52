"""Samplers of Optuna as unguided strategies: TPE (Bergstra et al. 2011) and NSGA-II (Deb et al. 2002)."""

import warnings

import numpy as np

from fastslow.core.errors import SettingsError
from fastslow_programs.tuning.history import History, Proposal
from fastslow_programs.tuning.search.space import CODE

SAMPLERS = {"tpe": "TPESampler", "nsga2": "NSGAIISampler"}


def import_optuna():
    """Return Optuna, silenced below errors.

    Raises:
        SettingsError: It is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise SettingsError("optuna is not installed: pip install -e '.[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class OptunaStrategy:
    """A sampler of Optuna with one categorical parameter per choice.

    What the sampler needs of earlier trials is in the proposals' notes, so it resumes from a history. Where
    configurations are listed, the nearest free one stands for what the sampler asked, and is what it is told.

    Args:
        sampler: One of ``SAMPLERS``.
        seed: Seed of the sampler.
    """

    def __init__(self, sampler: str, seed: int):
        self.name, self._optuna = sampler, import_optuna()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is experimental
            self._sampler = getattr(self._optuna.samplers, SAMPLERS[sampler])(seed=seed)
        self._study = self._optuna.create_study(sampler=self._sampler)
        self._told = 0

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Ask the sampler, after telling it what was evaluated."""
        self._tell(history)
        taken, found = set(history.taken), []
        for _ in range(4 * count):
            if len(found) == count:
                break
            trial = self._study.ask()
            wish = [trial.suggest_categorical(n, d.choices) for n, d in self._space(history)]
            notes = dict(self._study._storage.get_trial_system_attrs(trial._trial_id))
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            fresh = history.space.fresh(np.array([wish], CODE), taken, 1, rng)
            taken |= set(history.space.keys(fresh))
            found += [Proposal(tuple(map(int, row)), self.name, notes) for row in fresh]
        if not found:  # the sampler repeats itself
            fresh = history.space.fresh(history.space.draw(64, rng), taken, count, rng)
            found = [Proposal(tuple(map(int, row)), self.name) for row in fresh]
        return found

    def _space(self, history: History):
        categorical = self._optuna.distributions.CategoricalDistribution
        return [(f"choice{g}", categorical(range(n))) for g, n in enumerate(history.space.options.tolist())]

    def _tell(self, history: History) -> None:
        distributions = dict(self._space(history))
        for proposal, outcome in history.done[self._told :]:
            state = self._optuna.trial.TrialState
            self._study.add_trial(
                self._optuna.trial.create_trial(
                    state=state.FAIL if outcome.value is None else state.COMPLETE,
                    value=outcome.value,
                    params=dict(zip(distributions, proposal.codes, strict=True)),
                    distributions=distributions,
                    system_attrs=proposal.notes,
                )
            )
        self._told = len(history)
