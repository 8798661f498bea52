"""Strategies: each proposes the next configurations from what was evaluated so far.

A strategy keeps nothing of its own: it reads the history, so a study can be stopped and resumed.
"""

import numpy as np

from fastslow_programs.tuning.history import History, Proposal

GUIDED = "guided"
"""Name of the strategy whose candidates a model chooses from."""
MUTATION_RATES = (0.1, 0.3, 0.7)  # probability that a choice is drawn again; one per configuration
CROSSOVER = 0.5  # probability that a configuration has two parents
ELITE = 8  # number of parents: the fastest configurations so far
_TRIES = 16  # wishes drawn for each proposal wanted


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
