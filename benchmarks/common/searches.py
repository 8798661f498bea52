"""Pools of distinct configurations with labels, and searches of them without a journal."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.competition.layouts import ROLES
from fastslow_programs.tuning.history import Evaluation, History, Proposal
from fastslow_programs.tuning.search.space import Choice, Space
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import Target, read_target


@dataclass(frozen=True)
class Pool:
    """Distinct configurations of a program with their values.

    Args:
        space: The configurations.
        labels: ``(C,)`` their values.
        rows: ``(C,)`` their positions among the target's.
    """

    space: Space
    labels: np.ndarray
    rows: np.ndarray

    def follow(self, prediction: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return what predicts configurations ``(n, G)``, from predictions of all of the target's."""
        pool_prediction = prediction[self.rows]
        return lambda codes: pool_prediction[self.space.rows(codes)]

    @property
    def near(self) -> float:
        """Fraction of the configurations within 1 % of the best."""
        return float((self.labels <= 1.01 * self.labels.min()).mean())


def _are_sizes(choice: Choice) -> bool:
    """Return whether the options are sizes of a tile, and no layouts."""
    return all(option.isdecimal() for option in choice.options)


def distinct(target: Target) -> Pool:
    """Merge the configurations of a target that have equal values: equal exact estimates mean one program.

    Of equal ones the nearest to the default stays. Choices that the compiler does not take, such as layouts
    of operands, are left out.
    """
    space, labels = target.space, target.labels
    distance = (space.listed != space.default).sum(1)
    order = np.argsort(distance, kind="stable")
    _, first = np.unique(labels[order], return_index=True)
    rows = np.sort(order[first])
    codes, output = space.listed[rows], ROLES[0]
    taken = [g for g, choice in enumerate(space.choices) if output in choice.where or _are_sizes(choice)]
    taken = [g for g in taken if len(np.unique(codes[:, g])) > 1]
    choices = [
        Choice(c.where, c.options, c.default, ordered=_are_sizes(c))
        for c in (space.choices[g] for g in taken)
    ]
    return Pool(Space(choices, codes[:, taken]), labels[rows], rows)


def search(space: Space, labels: np.ndarray, strategy: Any, budget: int, batch: int, seed: int) -> History:
    """Search listed configurations from a random start, which is the same for every strategy of a seed.

    It ends where the best of all is found. The start is the first evaluation.

    Args:
        space: The configurations.
        labels: ``(C,)`` their values.
        strategy: What proposes.
        budget: Number of evaluations.
        batch: Number of evaluations between two proposals.
        seed: Seed of the start and of the strategy.
    """
    history = History(space)
    start = space.draw(1, np.random.default_rng([seed, 1]))[0]
    found = [Proposal(tuple(map(int, start)), "start")]
    while found:
        for proposal in found:
            row = space.rows(np.array([proposal.codes]))[0]
            history.add(proposal, Evaluation(float(labels[row])))
        left = 0 if history.best[1] <= labels.min() else min(batch, budget - len(history))
        rng = np.random.default_rng([seed, len(history)])
        found = strategy.propose(history, left, rng) if left > 0 else []
    return history


def replay_target(path: Path, run: str, collection: str = "") -> Target:
    """Return a labelled file as a target; ``run`` is a folder or ``none``."""
    return read_target(TuneSettings(source=str(path), run=run, collection=collection))
