"""Optuna's samplers and a process on what a prediction missed, to compare searches with."""

import warnings
from collections.abc import Callable

import numpy as np

from fastslow_programs.ranking.known_models import Configurations, Encoder, Known, Stack
from fastslow_programs.tuning.history import History, Proposal
from fastslow_programs.tuning.kept_study import import_optuna
from fastslow_programs.tuning.search.space import CODE, Space
from fastslow_programs.tuning.search.strategies import Random, proposals

SAMPLERS = {"tpe": "TPESampler", "nsga2": "NSGAIISampler", "gp": "GPSampler"}
"""By name; Bergstra et al. 2011, Deb et al. 2002, and Optuna's process with expected improvement."""


class Sampler:
    """A sampler of Optuna with one parameter for each choice, a whole number where the options are ordered.

    Where configurations are listed, the nearest free one replaces the configuration that the sampler asked
    for, and is reported to the sampler with its value.
    """

    def __init__(self, name: str, space: Space, seed: int):
        self.name, self._told, self._optuna = name, 0, import_optuna()
        distributions = self._optuna.distributions
        self._space = {
            f"choice{g}": distributions.IntDistribution(0, len(choice.options) - 1)
            if choice.ordered
            else distributions.CategoricalDistribution(range(len(choice.options)))
            for g, choice in enumerate(space.choices)
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is experimental
            sampler = getattr(self._optuna.samplers, SAMPLERS[name])(seed=seed)
        self._study = self._optuna.create_study(sampler=sampler)

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Tell the sampler what is new, and ask it; random ones where it repeats itself."""
        trial, taken, found = self._optuna.trial, set(history.taken), []
        for proposal, evaluation in history.done[self._told :]:
            params = dict(zip(self._space, map(int, proposal.codes), strict=True))
            facts = {"params": params, "distributions": self._space, "system_attrs": proposal.notes}
            self._study.add_trial(trial.create_trial(value=evaluation.value, **facts))
        self._told = len(history)
        for _ in range(4 * count):
            if len(found) == count:
                break
            asked = self._study.ask(self._space)
            notes = self._study.trials[asked.number].system_attrs  # such as its generation
            self._study.tell(asked, state=trial.TrialState.FAIL)
            wish = np.array([[asked.params[name] for name in self._space]], CODE)
            fresh = history.space.fresh(wish, taken, 1, rng)
            taken |= set(history.space.keys(fresh))
            found += [Proposal(tuple(map(int, row)), self.name, notes) for row in fresh]
        return found or Random().propose(history, count, rng)


class Learner:
    """The prediction joined with a process and trees that are fitted to every value (``KNOWN=`` of ``rank``).

    Args:
        space: The listed configurations.
        pretrained: The prediction of configurations.
        columns: ``(C, F)`` features of the listed configurations.
    """

    name = "learner"

    def __init__(self, space: Space, pretrained: Callable[[np.ndarray], np.ndarray], columns: np.ndarray):
        prediction = pretrained(space.listed)
        listed = Configurations(space.listed, columns, prediction[:, None], prediction)
        self._inputs = Encoder(listed)(listed)

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Propose the free configurations of the lowest expected score."""
        space = history.space
        known = Known(space.rows(history.codes), history.values)
        free = space.rows(space.untaken(space.listed, history.taken))
        if not len(free):
            return []
        score = Stack(self._inputs.take(known.config), known).mean(self._inputs.take(free))
        return proposals(space.listed[free[np.argsort(score, kind="stable")[:count]]], self.name)
