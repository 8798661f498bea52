"""The sample competition with labels as noisy and as damaged as the genuine TpuGraphs files'."""

import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, TEST, TRAIN, VALID, ProgramFile, list_programs
from fastslow.competition.reader import config_groups, read_npz
from fastslow.core.files import write_json


@dataclass(frozen=True)
class Level:
    """The repeated measurements of a genuine file.

    Args:
        tau: Kendall's tau between two measurements of its repeated configurations.
        repeated: Share of its configurations that were measured more than once.
        runs: Mean number of measurements of these.
    """

    tau: float
    repeated: float
    runs: float


LEVELS = {
    "alexnet_train_batch_32": Level(0.59, 0.22, 2.4),
    "unet3d": Level(0.83, 0.30, 3.3),
    "unet_3d.4x4.bf16": Level(0.28, 0.20, 2.7),
}
"""Measured with ``fastslow data-quality`` on the files of layout:xla:default."""
DEFAULT_RUNS = 8
"""Measurements of the default configuration: 25, 47 and 43 in the three files, of 681 to 18,154
configurations."""
FASTER = 0.75
"""Share of the configurations, the fastest, of which some are repeated: a search returns to good ones."""
DAMAGED = 0.1
"""Share of the graphs whose runtimes jump in blocks of rows, as the 2nd place shows them."""
BLOCKS = 4


def noise_for(values: np.ndarray, tau: float, rng: np.random.Generator) -> float:
    """Return the standard deviation of noise at which two measurements of some values agree with a tau.

    Args:
        values: ``(n,)`` true values.
        tau: Kendall's tau, above 0.
        rng: Source of the random numbers.
    """
    runs = rng.normal(size=(2, 32, len(values)))
    low, high = np.log(1e-4), np.log(10 * values.std() + 1e-3)
    for _ in range(20):
        middle = (low + high) / 2
        drawn = values + np.exp(middle) * runs
        signs = np.sign(drawn[..., :, None] - drawn[..., None, :])  # no two are equal
        agreed = signs.prod(0).sum() / (signs[0] != 0).sum()
        low, high = (middle, high) if agreed > tau else (low, middle)
    return float(np.exp(low))


def noisy_rows(
    runtime: np.ndarray, level: Level, damaged: bool, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw repeated rows and noisy runtimes.

    Args:
        runtime: ``(C,)`` true runtimes of distinct configurations, the default first.
        level: Size of the noise, and number of repeats.
        damaged: Whether the runtimes jump in blocks of rows.
        rng: Source of randomness.

    Returns:
        ``(C',)`` position of the configuration of each row, in random order; and its runtime.
    """
    values, count = np.log(runtime.astype(np.float64)), len(runtime)
    fast = np.argsort(values, kind="stable")[: max(2, round(FASTER * count))]
    noise = noise_for(values[fast], level.tau, rng)
    repeated = rng.choice(fast, min(len(fast), rng.binomial(count, level.repeated)), replace=False)
    more = np.repeat(repeated, 1 + rng.poisson(level.runs - 2, len(repeated)))
    rows = rng.permutation(np.concatenate([np.arange(count), more, np.zeros(DEFAULT_RUNS - 1, int)]))
    noisy = values[rows] + noise * rng.normal(size=len(rows))
    if damaged:
        shift = rng.normal(size=BLOCKS) * values.std()
        noisy += np.repeat(shift, -(-len(rows) // BLOCKS))[: len(rows)]
    return rows, np.maximum(1, np.round(np.exp(noisy) * 1e3)).astype(np.int64)


def write_noisy(
    source: Path, target: Path, seed: int, limit: int | None = None, noisy: Sequence[str] = (TRAIN, VALID)
) -> None:
    """Write the sample's layout collections with noisy labels of some splits.

    The files of the others and ``solution.csv`` stay as they are.

    Args:
        source: The sample.
        target: Folder to write, whole or not at all.
        seed: Seed of noise, repeats and damage.
        limit: Maximum graphs of a split; by default all.
        noisy: The splits whose labels get noise, of train and valid.
    """
    if (target / "noise.json").is_file():
        return
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    shutil.copy2(source / "solution.csv", target)
    levels = {}
    for collection in (c for c in COLLECTIONS if c.kind == "layout"):
        for split in (TRAIN, VALID, TEST):
            for program in list_programs(source, collection, split)[:limit]:
                path = target / program.path.relative_to(source)
                path.parent.mkdir(parents=True, exist_ok=True)
                if split in noisy:
                    levels[f"{collection.name} {split} {program.name}"] = _write(program, path, seed)
                else:
                    shutil.copy2(program.path, path)
    write_json(target / "noise.json", levels)


def _write(program: ProgramFile, path: Path, seed: int) -> str:
    rng = np.random.default_rng([seed, zlib.crc32(f"{program.collection.name} {program.name}".encode())])
    _, group = config_groups(read_npz(program))
    kept = np.unique(group, return_index=True)[1]
    with np.load(program.path, allow_pickle=False) as file:
        arrays = dict(file)
    name = str(rng.choice(list(LEVELS)))
    damaged = rng.random() < DAMAGED
    rows, runtime = noisy_rows(arrays["config_runtime"][kept], LEVELS[name], damaged, rng)
    arrays["node_config_feat"] = arrays["node_config_feat"][kept][rows]
    arrays["config_runtime"] = runtime
    np.savez_compressed(path, **arrays)
    return name + ", damaged" * damaged
