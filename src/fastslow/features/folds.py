"""Folds of the train programs: each training leaves one out, and predicts what it has not learned from."""

from collections.abc import Mapping, Sequence

import numpy as np

from fastslow.competition.catalog import TRAIN
from fastslow.core.errors import DataError, SettingsError
from fastslow.features.graph import GraphSet

HELD_OUT_CONFIGS = 1000
"""Maximum configurations of a left-out program that are predicted; of more, that many are drawn."""


def split_folds(sources: Mapping[str, GraphSet], names: Sequence[str], folds: int) -> list[list[str]]:
    """Split train graphs into folds of about equally many.

    The graphs of one program in both searches are in one fold. So are programs that are copies of
    each other under different names: equal opcodes, edges and features of the nodes.

    Args:
        sources: Graphs of every collection, by the prefix of their graphs' names.
        names: The graphs, as :func:`fastslow.features.graph.trainable` returns them.
        folds: Number of folds, 2 or more.

    Returns:
        The names of the graphs of each fold, in the order of ``names``.

    Raises:
        SettingsError: There are fewer than 2 folds.
        DataError: There are fewer different programs than folds.
    """
    if folds < 2:
        raise SettingsError("folds", f"{folds} is not 2 or more")
    groups = _group_copies(sources, names)
    sizes = np.bincount(groups)
    if len(sizes) < folds:
        problem = f"{len(sizes)} different train programs cannot be split into {folds} folds"
        raise DataError(", ".join(s.origin for s in sources.values()), problem, "Choose fewer folds")
    fold_of = np.zeros(len(sizes), int)
    filled = np.zeros(folds, int)
    for group in np.random.default_rng(0).permutation(len(sizes)):
        fold_of[group] = filled.argmin()
        filled[fold_of[group]] += sizes[group]
    return [
        [name for name, group in zip(names, groups, strict=True) if fold_of[group] == fold]
        for fold in range(folds)
    ]


def _group_copies(sources: Mapping[str, GraphSet], names: Sequence[str]) -> np.ndarray:
    """Return the number ``(n,)`` of each graph's program, from 0, the same for copies."""
    from scipy.sparse import coo_matrix  # with csgraph half a second, which no settings need
    from scipy.sparse.csgraph import connected_components

    paths = [name.rpartition("/") for name in names]
    stems = [stem for _, _, stem in paths]
    contents = [sources[prefix].content(TRAIN, stem) for prefix, _, stem in paths]
    stem = np.unique(stems, return_inverse=True)[1]
    content = np.unique(contents, return_inverse=True)[1] + stem.max() + 1
    size = int(content.max()) + 1
    equal = coo_matrix((np.ones(len(names)), (stem, content)), (size, size))
    connected = connected_components(equal, directed=False)[1]
    return np.unique(connected[stem], return_inverse=True)[1]


def leave_fold_out(
    sources: Mapping[str, GraphSet], names: Sequence[str], folds: int, seed: int
) -> tuple[list[str], list[str]]:
    """Return the train graphs that a training learns from, and those that it leaves out.

    Args:
        sources: As of :func:`split_folds`.
        names: The graphs that may be learned from.
        folds: Number of folds, 2 or more.
        seed: Seed of the training, which leaves out fold ``seed`` modulo ``folds``.

    Returns:
        Names of the graphs to learn from, in the order given, and names of those that are left out.

    Raises:
        SettingsError: There are fewer than two folds.
        DataError: There are fewer programs than folds.
    """
    held_out = split_folds(sources, names, folds)[seed % folds]
    left_out = {*held_out}
    return [name for name in names if name not in left_out], held_out
