"""Pools of labelled configurations to replay searches on: programs that training has not seen.

A layout program of the zoo gets a pool of random configurations of what ``make tune`` searches, labelled by
the compiler's estimated cycles (its whole space where that is small); that of a kernel are all its tiles.
"""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from common.needs import KERNEL
from common.searches import replay_target
from fastslow.competition.catalog import TEST, get_collection, list_programs
from fastslow.core.npz_io import read_arrays
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.kaggle.solution import read_solution
from fastslow.programs.zoo import FAMILY_SPLIT, PROGRAMS
from fastslow.tuning.evaluators import Compiled, Replay
from fastslow.tuning.settings import TuneSettings
from fastslow.tuning.space import Space
from fastslow.tuning.strategies import proposals
from fastslow.tuning.target import Target, read_target
from fastslow.xla.compile_pool import Labeller

# of test, the programs whose compiles take least time
LAYOUTS = (
    "graph_network_train_w40_d3_b8_f32",
    "speech_network_forward_w96_d5_b8",
    "radiance_field_train_w96_d4_b4_f32",
    "llama_forward_w128_d4_b8",
    "llama_train_w64_d2_b4",
    "cached_decoder_forward_w128_d5_b4_f32",
    "parallel_decoder_forward_w128_d5_b8",
    "non_local_forward_w64_d4_b4",
    "yolo_forward_w32_d4_b8",
    "shufflenet_forward_w48_d5_b4",
    "retention_train_w64_d2_b4_f32",
    "factorised_inception_train_w40_d2_b8",
)
LARGE = "llama_train_w64_d2_b4"  # whose space is open: 1.2e10 configurations
_DRAWN = 4096
_TOGETHER = 16  # compiles after which the time is looked at
_WORTH = 32  # labels of a program that make a search worth while


def layout_pools(names, folder: Path, runs, size: int, minutes: float, labels: Path) -> list[list[Target]]:
    """Return the pools of programs of the zoo, one target per run.

    Args:
        names: Programs of the zoo.
        folder: Where to write their sources.
        runs: Folders of runs whose predictions guide, or ``none``.
        size: Configurations of a pool.
        minutes: Time for compiles; what is not labelled by then, or fails, is left out.
        labels: The cache of labels.
    """
    deadline, found = time.monotonic() + 60 * minutes, []
    for name in progress(names, desc="pools", unit="program"):
        split = FAMILY_SPLIT[PROGRAMS[name].source, PROGRAMS[name].family]
        assert split == TEST, f"{name} is not of test"
        whole = [read_target(layout_config(name, folder, run, labels)) for run in runs]
        codes = _draw(whole[0].space, size)
        values = _labels(whole[0], codes, Labeller(labels, deadline=deadline, processes=1))
        known = np.isfinite(values)
        if known.sum() >= _WORTH:
            found.append([_pool(target, codes[known], values[known], name) for target in whole])
    return found


def layout_config(name: str, folder: Path, run: str, labels: Path) -> TuneSettings:
    """Return the settings of tuning a program of the zoo, whose source is written."""
    source = folder / f"{name}.py"
    body = f"def make():\n    return PROGRAMS[{name!r}].build()\n"
    source.write_text(f"from fastslow.programs.zoo import PROGRAMS\n\n\n{body}")
    collection = f"layout:{PROGRAMS[name].source}:random"
    return TuneSettings(source=f"{source}:make", collection=collection, run=run, data_root=str(labels.parent))


def _draw(space: Space, size: int) -> np.ndarray:
    if space.size <= size:
        return space.listed
    drawn = space.draw(_DRAWN, np.random.default_rng(0))
    first = np.unique(drawn, axis=0, return_index=True)[1]
    return drawn[np.sort(first)[:size]]  # a larger pool contains a smaller one


def _labels(target: Target, codes: np.ndarray, labeller: Labeller) -> np.ndarray:
    values, found = np.full(len(codes), np.nan), proposals(codes, "pool")
    with Compiled(target.module_of, labeller).running() as evaluate:
        for start in range(0, len(codes), _TOGETHER):
            for place, outcome in evaluate(found[start : start + _TOGETHER]):
                values[start + place] = np.nan if outcome.value is None else outcome.value
    return values


def _pool(target: Target, codes: np.ndarray, values: np.ndarray, name: str) -> Target:
    space = Space(target.space.choices, codes)
    table = dict(zip(map(tuple, codes.tolist()), values.tolist(), strict=True))
    pretrained = None
    if target.pretrained:
        known = target.pretrained(codes)

        def pretrained(wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            rows = space.rows(wanted)
            return known[0][rows], known[1][rows]

    return replace(
        target, name=name, space=space, evaluator=Replay(table, name), pretrained=pretrained, labels=values
    )


def kernel_pools(folder: Path, runs) -> list[list[Target]]:
    """Return the sample's test kernels with at least ``KERNEL`` tiles, one target per run."""
    data, collection = resolve("data/sample"), get_collection("tile:xla")
    solution, found = read_solution(data / "solution.csv"), []
    for program in list_programs(data, collection, TEST):
        labels = solution[f"{collection.name}:{program.name}"]
        if len(labels) < KERNEL:
            continue
        with np.load(program.path, allow_pickle=False) as file:
            names = file.files
        arrays = dict(read_arrays(program.path, names)) | {"config_runtime": labels.astype(np.int64)}
        path = folder / program.path.name
        np.savez(path, **arrays)
        found.append([replay_target(path, run, collection.name) for run in runs])
    return found
