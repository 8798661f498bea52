"""Spoil a made-up competition as the real one is: repeats, damage in blocks of rows, another row order.

The numbers follow genuine files: a tenth of the graphs jumps in blocks (the 2nd place shows such graphs), in
extreme graphs 99 % of the rows are repeats, and the layout test files of August 2023 hold the rows in
another order than the files that are scored.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, LABELLED_SPLITS, TEST, TRAIN, ProgramFile, list_programs
from fastslow.competition.data_quality import ENOUGH_ROWS
from fastslow.competition.row_order import RowOrder, row_order
from fastslow.core.files import atomic_path
from fastslow.core.npz_io import read_arrays

DAMAGED, REPEATED, BLOCK_ROWS, JUMP, NOISE = 0.1, 0.99, 50, 0.5, 0.002
"""Shares of the graphs and of the rows; rows of a block; factor of a block that was measured under other
conditions, minus 1; relative noise of a run."""
REORDERED = "layout:nlp:default"


class Spoiled(NamedTuple):
    """What was done to a competition.

    Args:
        damaged: ``ID (split)`` of the graphs whose runtimes jump.
        repeated: ``ID (split)`` of the graph whose rows are nearly all repeats.
        launch: Row order of the test files of ``REORDERED``, by ID: for ``LAUNCH`` of ``row_order.py``.
    """

    damaged: list[str]
    repeated: str
    launch: Mapping[str, RowOrder]


def spoil(root: Path, seed: int = 0) -> Spoiled:
    """Rewrite some files of a made-up competition under ``root``, each whole or not at all; once only."""
    rng = np.random.default_rng(seed)
    layouts = [collection for collection in COLLECTIONS if collection.kind == "layout"]
    every = [p for c in layouts for split in LABELLED_SPLITS for p in list_programs(root, c, split)]
    labelled = [program for program in every if _rows(program) >= ENOUGH_ROWS]
    first = next(program for program in labelled if program.split == TRAIN)
    others = [program for program in labelled if program != first]
    chosen = rng.permutation(len(others))[: max(1, round(DAMAGED * len(labelled)))]
    _rewrite(first, _repeat, rng)
    for place in chosen:
        _rewrite(others[place], _jump, rng)
    tests = [p for c in layouts if c.name == REORDERED for p in list_programs(root, c, TEST)]
    for program in tests:
        _rewrite(program, _shuffle, rng)
    names = [f"{program.id} ({program.split})" for program in (first, *(others[place] for place in chosen))]
    return Spoiled(sorted(names[1:]), names[0], {p.id: row_order(p.path) for p in tests})


def _rows(program: ProgramFile) -> int:
    return len(read_arrays(program.path, ["config_runtime"])["config_runtime"])


def _rewrite(program: ProgramFile, change, rng: np.random.Generator) -> None:
    arrays = read_arrays(program.path)
    arrays |= change(arrays["node_config_feat"], arrays["config_runtime"], rng)
    with atomic_path(program.path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)


def _repeat(rows: np.ndarray, runtime: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    distinct = max(2, round((1 - REPEATED) * len(rows)))
    drawn = np.sort(np.r_[np.arange(distinct), rng.integers(0, distinct, len(rows) - distinct)])
    noisy = runtime[drawn] * np.exp(NOISE * rng.standard_normal(len(rows)))
    order = rng.permutation(len(rows))
    return {"node_config_feat": rows[drawn][order], "config_runtime": np.rint(noisy[order]).astype(np.int64)}


def _jump(rows: np.ndarray, runtime: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    blocks = np.arange(len(rows)) // max(1, min(BLOCK_ROWS, len(rows) // 10))
    factor = 1 + JUMP * rng.integers(0, 2, blocks.max() + 1)
    return {"config_runtime": np.rint(runtime * factor[blocks]).astype(np.int64)}


def _shuffle(rows: np.ndarray, runtime: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"node_config_feat": rows[rng.permutation(len(rows))]}
