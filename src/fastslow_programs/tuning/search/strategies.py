"""Strategies without a model: each proposes the next configurations from what was evaluated so far.

A strategy keeps nothing of its own: it reads the history, so a study can be stopped, resumed and shared.
"""

from typing import Protocol

import numpy as np

from fastslow_programs.tuning.history import History, Proposal
from fastslow_programs.tuning.search.layout_search import CROSSOVER, ELITE, MUTATION_RATES
from fastslow_programs.tuning.search.space import CODE

_TRIES = 16  # wishes drawn for each proposal wanted
HOT, COLD = 0.3, 0.003  # temperatures of annealing, on log values: differences of 30 % and of 0.3 %


class Strategy(Protocol):
    """What proposes configurations."""

    name: str

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Return up to ``count`` new proposals; fewer where the space is exhausted."""


def proposals(codes: np.ndarray, by: str) -> list[Proposal]:
    """Return a proposal for each of the configurations ``(n, G)``."""
    return [Proposal(tuple(map(int, row)), by) for row in codes]


class Random:
    """Configurations at random."""

    name = "random"

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Draw new configurations."""
        wishes = history.space.draw(_TRIES * count, rng)
        return proposals(history.space.fresh(wishes, history.taken, count, rng), self.name)


class Evolutionary:
    """The genetic search of the sample's ``default`` files: mutation and crossover of the fastest so far."""

    name = "evolutionary"

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Breed new configurations."""
        wishes = children(history.space, fastest(history), _TRIES * count, rng)
        return proposals(history.space.fresh(wishes, history.taken, count, rng), self.name)


def fastest(history: History, count: int = ELITE) -> np.ndarray:
    """Return the fastest configurations so far ``(n, G)``; the default where nothing has a value."""
    codes = history.codes[np.argsort(history.values, kind="stable")[:count]]
    return codes if len(codes) else history.space.default[None]


def children(space, parents: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return mutated copies ``(count, G)`` of parents, half of them crossed with another one first."""
    own = parents[rng.integers(len(parents), size=count)]
    other = parents[rng.integers(len(parents), size=count)]
    crossed = np.where(rng.random((count, 1)) < CROSSOVER, space.cross(own, other, rng), own)
    return space.mutate(crossed, rng.choice(MUTATION_RATES, count), rng)


class Annealing:
    """Simulated annealing (Kirkpatrick et al. 1983) on log values, one choice drawn again per step.

    Args:
        budget: Evaluations over which it cools down.
    """

    name = "annealing"

    def __init__(self, budget: int):
        self.budget = budget

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Propose neighbours of the current configuration, which the history gives."""
        current = np.repeat(self.current(history)[None], _TRIES * count, 0)
        wishes = history.space.mutate(current, np.zeros(len(current)), rng)
        return proposals(history.space.fresh(wishes, history.taken, count, rng), self.name)

    def current(self, history: History) -> np.ndarray:
        """Return where the chain is ``(G,)``: each evaluation was accepted or not, always alike."""
        chance = np.random.default_rng(len(history.space.choices)).random(len(history) + 1)
        place, value = history.space.default, None
        for step, (proposal, outcome) in enumerate(history.done):
            if outcome.value is None:
                continue
            temperature = HOT * (COLD / HOT) ** min(1.0, step / self.budget)
            rise = 0.0 if value is None else np.log(outcome.value / value)
            if rise <= 0 or chance[step] < np.exp(-rise / temperature):
                place, value = np.array(proposal.codes, CODE), outcome.value
        return place
