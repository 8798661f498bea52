"""Searches over labelled files without a journal: their targets, and the loop."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from common.labelled_sample import labelled_sample
from common.samplers import SAMPLERS, Sampler
from fastslow.competition.catalog import TEST
from fastslow_programs.tuning.history import Evaluation, History, Proposal
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import Target, read_target
from fastslow_programs.tuning.tune import make_strategy


def search(target: Target, strategy: str, budget: int, batch: int, seed: int) -> History:
    """Search a labelled target from a random start, which is the same for every strategy of a seed.

    It ends where the best of all is found.
    """
    history, space = History(target.space), target.space
    own = Sampler(strategy, space, seed) if strategy in SAMPLERS else make_strategy(strategy, target)
    found = [Proposal(tuple(map(int, space.draw(1, np.random.default_rng([seed, 1]))[0])), "start")]
    while found:
        for proposal in found:
            row = space.rows(np.array([proposal.codes]))[0]
            history.add(proposal, Evaluation(float(target.labels[row])))
        left = 0 if history.best[1] <= target.labels.min() else min(batch, budget - len(history))
        found = own.propose(history, left, np.random.default_rng([seed, len(history)])) if left > 0 else []
    return history


def replay_target(path: Path, run: str, collection: str = "") -> Target:
    """Return a labelled file as a target; ``run`` is a folder or ``none``."""
    return read_target(TuneSettings(source=str(path), run=run, collection=collection))


def sample_targets(folder: Path, runs: Sequence[str], kind: str) -> list[tuple[Target, ...]]:
    """Return the sample's labelled test programs of a kind, see :mod:`common.labelled_sample`.

    Args:
        folder: Folder of the files.
        runs: Run folders that predict, or ``none``.
        kind: ``tile`` or ``layout``.

    Returns:
        For each program its targets, one per run.
    """
    return [
        tuple(replay_target(path, run, collection.name) for run in runs)
        for collection, path in labelled_sample(folder, TEST)
        if collection.kind == kind
    ]
