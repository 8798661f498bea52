"""Searches over labelled files without a journal: their targets, and the loop."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from common.needs import KERNEL
from fastslow.competition.catalog import COLLECTIONS, TEST, get_collection, list_programs
from fastslow.core.npz_io import read_arrays
from fastslow.core.settings import resolve
from fastslow.evaluation.solution import read_solution
from fastslow_programs.tuning.history import Evaluation, History, Proposal
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import Target, read_target
from fastslow_programs.tuning.tune import make_strategy


def search(target: Target, strategy: str, budget: int, batch: int, seed: int) -> History:
    """Search a labelled target from a random start, which is the same for every strategy of a seed.

    It ends where the best of all is found.
    """
    own = make_strategy(strategy, target)
    history, space = History(target.space), target.space
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


def layout_targets(folder: Path, runs: Sequence[str]) -> list[tuple[Target, ...]]:
    """Write the sample's labelled test programs, both searches of each in one file.

    Args:
        folder: Folder of the files.
        runs: Run folders that predict, or ``none``.

    Returns:
        For each program its targets, one per run.
    """
    data, found = resolve("data/sample"), []
    solution = read_solution(data / "solution.csv")
    for collection in (c for c in COLLECTIONS if c.name.endswith(":random")):
        other = get_collection(collection.name.replace(":random", ":default"))
        for program in list_programs(data, collection, TEST):
            parts = [_read_all(c.folder(data, TEST) / program.path.name) for c in (collection, other)]
            arrays = dict(parts[0])
            arrays["node_config_feat"] = np.concatenate([part["node_config_feat"] for part in parts])
            labels = [solution[f"{c.name}:{program.name}"] for c in (collection, other)]
            arrays["config_runtime"] = np.concatenate(labels)
            path = folder / collection.slug / program.path.name
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, **arrays)
            found.append(tuple(replay_target(path, run, collection.name) for run in runs))
    return found


def kernel_targets(folder: Path, runs: Sequence[str]) -> list[tuple[Target, ...]]:
    """Return the sample's test kernels with at least ``KERNEL`` tiles, as :func:`layout_targets` does."""
    data, collection = resolve("data/sample"), get_collection("tile:xla")
    solution, found = read_solution(data / "solution.csv"), []
    for program in list_programs(data, collection, TEST):
        labels = solution[f"{collection.name}:{program.name}"]
        if len(labels) >= KERNEL:
            path = folder / program.path.name
            np.savez(path, **_read_all(program.path) | {"config_runtime": labels.astype(np.int64)})
            found.append(tuple(replay_target(path, run, collection.name) for run in runs))
    return found


def _read_all(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        names = file.files
    return dict(read_arrays(path, names))
