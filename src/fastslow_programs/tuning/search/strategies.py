"""Strategies: each proposes the next configurations from what was evaluated so far.

A strategy keeps nothing of its own: it reads the history, so a study can be stopped and resumed.
"""

import numpy as np

from fastslow_programs.tuning.history import History, Proposal
from fastslow_programs.tuning.kept_study import import_optuna
from fastslow_programs.tuning.search.space import CODE

GUIDED = "guided"
"""Name of the setting ``strategy`` for what is not random."""
TRIES = 16  # wishes drawn for each proposal wanted


def proposals(codes: np.ndarray, by: str) -> list[Proposal]:
    """Return a proposal for each of some configurations.

    Args:
        codes: ``(n, G)`` number of the option of each of the G free choices.
        by: Who proposes, for the table of evaluations.
    """
    return [Proposal(tuple(map(int, row)), by) for row in codes]


class Random:
    """Configurations at random: listed ones evenly, others each choice by its weights."""

    name = "random"

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Draw configurations that are not taken.

        Args:
            history: The evaluations so far, with the space.
            count: Number wanted. There are fewer where few configurations are left.
            rng: Source of the random numbers.
        """
        wishes = history.space.draw(TRIES * count, rng)
        return proposals(history.space.fresh(wishes, history.taken, count, rng), self.name)


class Tpe:
    """Optuna's TPE, for a space of the user's, where no trained run predicts.

    Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization". Numbers are in their order. Where
    configurations are listed, the nearest free one replaces what it asks for.
    """

    name = f"{GUIDED}: tpe"

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Propose a batch, as :meth:`Random.propose`; random configurations while few have a value."""
        optuna = import_optuna()
        space = history.space
        asked = {
            f"choice{number}": optuna.distributions.IntDistribution(0, len(choice.options) - 1)
            if choice.ordered
            else optuna.distributions.CategoricalDistribution(range(len(choice.options)))
            for number, choice in enumerate(space.choices)
        }
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=int(rng.integers(2**31))))
        for codes, value in zip(history.codes.tolist(), history.values.tolist(), strict=True):
            params = dict(zip(asked, codes, strict=True))
            study.add_trial(optuna.trial.create_trial(params=params, distributions=asked, value=value))
        trials = []
        for _ in range(count):
            trials.append(study.ask(asked))
            study.tell(trials[-1], state=optuna.trial.TrialState.FAIL)  # else a running one counts as slow
        wishes = np.array([[trial.params[name] for name in asked] for trial in trials], CODE)
        wishes = np.concatenate([wishes, space.draw(TRIES * count, rng)])
        return proposals(space.fresh(wishes, history.taken, count, rng), self.name)
