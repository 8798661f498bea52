"""Optuna's samplers: TPE (Bergstra et al. 2011), NSGA-II (Deb et al. 2002), a Gaussian process."""

import warnings

import numpy as np

from fastslow_programs.tuning.history import History, Proposal
from fastslow_programs.tuning.kept_study import import_optuna
from fastslow_programs.tuning.search.space import CODE
from fastslow_programs.tuning.search.strategies import Random

SAMPLERS = {"tpe": "TPESampler", "nsga2": "NSGAIISampler", "gp": "GPSampler"}


class Sampler:
    """A sampler of Optuna with one parameter for each choice, a whole number where the options are ordered.

    It is made anew from the history for each batch. Where configurations are listed, the nearest free one
    replaces the configuration that the sampler asked for, and is reported to the sampler with its value.
    """

    def __init__(self, name: str):
        self.name, self._optuna = name, import_optuna()

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Tell the sampler what was evaluated, and ask it; random ones where it repeats itself."""
        study, space = self._study(history, int(rng.integers(2**31))), self._space(history)
        taken, found = set(history.taken), []
        for _ in range(4 * count):
            if len(found) == count:
                break
            trial = study.ask(space)
            notes = study.trials[trial.number].system_attrs  # such as its generation
            study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            wish = np.array([[trial.params[name] for name in space]], CODE)
            fresh = history.space.fresh(wish, taken, 1, rng)
            taken |= set(history.space.keys(fresh))
            found += [Proposal(tuple(map(int, row)), self.name, notes) for row in fresh]
        return found or Random().propose(history, count, rng)

    def _space(self, history: History) -> dict:
        own = self._optuna.distributions
        return {
            f"choice{g}": own.IntDistribution(0, len(choice.options) - 1)
            if choice.ordered
            else own.CategoricalDistribution(range(len(choice.options)))
            for g, choice in enumerate(history.space.choices)
        }

    def _study(self, history: History, seed: int):
        trial, space = self._optuna.trial, self._space(history)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is experimental
            sampler = getattr(self._optuna.samplers, SAMPLERS[self.name])(seed=seed)
        study = self._optuna.create_study(sampler=sampler)
        for proposal, evaluation in history.done:
            own = trial.create_trial(
                state=trial.TrialState.FAIL if evaluation.value is None else trial.TrialState.COMPLETE,
                value=evaluation.value,
                params=dict(zip(space, proposal.codes, strict=True)),
                distributions=space,
                system_attrs=proposal.notes,
            )
            study.add_trial(own)
        return study
