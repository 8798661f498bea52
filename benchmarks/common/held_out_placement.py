"""Placement problems of the sample's programs on drawn machines: test programs, and others to learn from.

A machine has 2, 4 or 8 devices of a drawn model, whose rates are divided by 1, 16 or 256, as if all tensors
were larger by that factor (the sample's programs are small). One in four has little memory: together 1.25
times what the program holds. ``best_known.json`` keeps the lowest costs that long searches found.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student

from fastslow.competition.catalog import COLLECTIONS, TEST, list_programs
from fastslow.core.errors import SettingsError
from fastslow.core.files import read_json, write_json
from fastslow.core.settings import PROJECT
from fastslow_placement.programs.fusion import contract
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.program_graph import read_cost_graph
from fastslow_placement.programs.region_search import anneal_regions
from fastslow_placement.programs.roofline import DEVICES

BEST_KNOWN = Path(__file__).resolve().parents[1] / "best_known.json"
_COUNTS, _DIVISORS, _MEMORY = (2, 4, 8), (1, 16, 256), 1.25
_MODELS = ("p100", "v100", "tpu-v3", "cpu")  # a further one would draw other machines than have best costs
_HEATS = (1e-2, 3e-3, 1e-3, 3e-4)  # first temperatures over the cost
_OF_THE_ZOO = ("gpt_", "inception_resnet_", "inflated_inception_", "lstm_", "translator_", "wavenet_")
_LARGEST = 1500  # units of a problem to learn from


def held_out() -> list[PlacementProblem]:
    """Return the placements of the sample's test programs, each on a drawn machine."""
    return [problem for path in _programs(TEST) for problem in _on_machines(path, 1)]


def program_paths() -> dict[str, Path]:
    """Return the layout file of each of the sample's test programs, by name."""
    return {path.stem: path for path in _programs(TEST)}


def to_learn_from(split: str, machines: int = 3) -> list[PlacementProblem]:
    """Return the placements of the sample's train or valid programs, each on some drawn machines.

    The zoo's architectures are left out, as are programs of more than 1,500 units or that do not fit.
    """
    paths = [path for path in _programs(split) if not path.name.startswith(_OF_THE_ZOO)]
    found = (problem for path in paths for problem in _on_machines(path, machines))
    return [problem for problem in found if len(problem.choices) <= _LARGEST]


def _programs(split: str) -> list[Path]:
    """Return the layout files of a split, one for each program, sorted by name."""
    found = {}
    for collection in COLLECTIONS:
        if collection.kind == "layout":
            programs = list_programs(PROJECT / "data" / "sample", collection, split)
            found |= {program.name: program.path for program in programs}
    return [found[name] for name in sorted(found)]


def _on_machines(path: Path, count: int) -> Iterator[PlacementProblem]:
    """Yield the placements of a program on machines that its name draws, where it fits."""
    rng = np.random.default_rng([*path.stem.encode()])
    yield from filter(None, (_on_a_machine(path, rng) for _ in range(count)))


def _on_a_machine(path: Path, rng: np.random.Generator) -> PlacementProblem | None:
    """Return the placement of a program on the machine that is drawn; None where it does not fit."""
    devices, name = int(rng.choice(_COUNTS)), str(rng.choice(_MODELS))
    divisor, little = int(rng.choice(_DIVISORS)), bool(rng.random() < 0.25)
    base = DEVICES[name]
    rates = ("flops_per_second", "bytes_per_second", "link_bytes_per_second")
    device = replace(base, **{rate: getattr(base, rate) / divisor for rate in rates})
    graph = contract(read_cost_graph(path, device), device)
    held = float((graph.parameter_bytes + graph.output_bytes).sum())
    try:
        problem = PlacementProblem(graph, devices, device, little * _MEMORY * held / devices)
    except SettingsError:
        return None
    problem.name = f"{path.stem} on {devices} {name} / {divisor}"
    return problem if problem.evaluate(problem.default[None]).valid[0] else None


def best_known(name: str) -> float:
    """Return the lowest recorded cost of a problem; infinite where none is recorded."""
    return read_json(BEST_KNOWN).get(name, float("inf")) if BEST_KNOWN.is_file() else float("inf")


def record(name: str, cost: float) -> None:
    """Record a cost if it is the best known of a problem."""
    if cost < best_known(name) * (1 - 1e-9):
        known = read_json(BEST_KNOWN) if BEST_KNOWN.is_file() else {}
        write_json(BEST_KNOWN, dict(sorted({**known, name: cost}.items())))


def long_search(problem: PlacementProblem, evaluations: int, seed: int) -> float:
    """Return the lowest cost of eight annealings of regions, and record it if it is the best known.

    Four first temperatures, from the split by layers and from the best start.

    Args:
        problem: The problem.
        evaluations: Of each annealing.
        seed: Seed of the moves.
    """
    begins = problem.default, None
    cost = min(
        anneal_regions(problem, evaluations, seed, begin, heat).cost for begin in begins for heat in _HEATS
    )
    record(problem.name, cost)
    return cost


def program_of(problem: str) -> str:
    """Return the program of a problem's name, which ends with the devices."""
    return problem.split(" on ")[0]


def ratio(table: pd.DataFrame, one: str, other: str) -> str:
    """Return the ratio of two geometric means of problems, with Student's 95 % interval over programs.

    A bootstrap of six problems would cover 0.86, not 0.95. Problems of one program count as one draw: the
    error is clustered.

    Args:
        table: Logarithms of costs by column, a row for each problem, with the problems' names as index.
        one: A column.
        other: Another one.
    """
    away = (table[one] - table[other]).dropna()
    sums = (away - away.mean()).groupby([program_of(name) for name in away.index]).sum()
    degrees = len(sums) - 1
    error = np.sqrt(np.square(sums).sum() * (1 + 1 / degrees)) / len(away) if degrees else np.nan
    wide = student.ppf(0.975, degrees) * error if degrees else np.nan
    low, high = np.exp([away.mean() - wide, away.mean() + wide])
    return f"{np.exp(away.mean()):.3f} ({low:.3f} to {high:.3f})"
