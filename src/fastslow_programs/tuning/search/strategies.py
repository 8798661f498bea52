"""Strategies: each proposes the next configurations from what was evaluated so far.

A strategy keeps nothing of its own: it reads the history, so a study can be stopped and resumed.
"""

import warnings

import numpy as np

from fastslow_programs.tuning.history import History, Proposal
from fastslow_programs.tuning.kept_study import import_optuna
from fastslow_programs.tuning.search.space import CODE

GUIDED = "guided"
"""Name of the strategy whose candidates a model chooses from."""
MUTATION_RATES = (0.1, 0.3, 0.7)  # probability that a choice is drawn again; one per configuration
CROSSOVER = 0.5  # probability that a configuration has two parents
ELITE = 8  # number of parents: the fastest configurations so far
_TRIES = 16  # wishes drawn for each proposal wanted
MAX_FITTED = 512  # the work of a process is cubic


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
        wishes = history.space.draw(_TRIES * count, rng)
        return proposals(history.space.fresh(wishes, history.taken, count, rng), self.name)


class Process:
    """Optuna's Gaussian process, which learns from the values how much each choice matters.

    Snoek et al. 2012, arXiv 1206.2944; it takes what promises the largest improvement.
    """

    name = f"{GUIDED}: process"

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Propose a batch, as :meth:`Random.propose`; random configurations while few have a value."""
        optuna, space = import_optuna(), history.space
        asked = {
            f"choice{number}": optuna.distributions.IntDistribution(0, len(choice.options) - 1)
            if choice.ordered
            else optuna.distributions.CategoricalDistribution(range(len(choice.options)))
            for number, choice in enumerate(space.choices)
        }
        rows = thinned(np.argsort(history.values, kind="stable"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is experimental in Optuna
            study = optuna.create_study(sampler=optuna.samplers.GPSampler(seed=int(rng.integers(2**31))))
            for codes, value in zip(history.codes[rows].tolist(), np.log(history.values[rows]), strict=True):
                params = dict(zip(asked, codes, strict=True))
                study.add_trial(
                    optuna.trial.create_trial(params=params, distributions=asked, value=float(value))
                )
            trials = [study.ask(asked).params for _ in range(count)]
        wishes = np.array([[params[name] for name in asked] for params in trials], CODE)
        wishes = np.concatenate([wishes, space.draw(_TRIES * count, rng)])
        return proposals(space.fresh(wishes, history.taken, count, rng), self.name)


def thinned(order: np.ndarray) -> np.ndarray:
    """Return at most ``MAX_FITTED`` configurations, of an order by speed: most fast ones, few slow ones."""
    places = (np.linspace(0, 1, MAX_FITTED) ** 2 * (len(order) - 1)).astype(int)
    return order if len(order) <= MAX_FITTED else order[np.unique(places)]


def fastest(history: History, count: int = ELITE) -> np.ndarray:
    """Return the ``count`` fastest configurations so far ``(n, G)``; the default where none has a value."""
    codes = history.codes[np.argsort(history.values, kind="stable")[:count]]
    return codes if len(codes) else history.space.default[None]


def children(space, parents: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return mutated copies of configurations, half of them crossed with another one first.

    Args:
        space: The space.
        parents: ``(n, G)`` option of each choice.
        count: Number wanted.
        rng: Source of the random numbers.

    Returns:
        ``(count, G)``; some may be equal or taken.
    """
    own = parents[rng.integers(len(parents), size=count)]
    other = parents[rng.integers(len(parents), size=count)]
    crossed = np.where(rng.random((count, 1)) < CROSSOVER, space.cross(own, other, rng), own)
    return space.mutate(crossed, rng.choice(MUTATION_RATES, count), rng)
