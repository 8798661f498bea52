"""Placement problems that nothing was developed on: the sample's test programs, each on a drawn machine.

A machine has 2, 4 or 8 devices of a drawn model, whose rates are divided by 1, 16 or 256, as if all tensors
were larger by that factor (the sample's programs are small). One in four has little memory: together 1.25
times what the program holds. ``best_known.json`` keeps the lowest costs that long searches found.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, TEST, list_programs
from fastslow.core.errors import SettingsError
from fastslow.core.files import read_json, write_json
from fastslow.core.settings import PROJECT
from fastslow_placement.programs.fusion import contract
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.program_graph import read_cost_graph
from fastslow_placement.programs.region_search import anneal_regions
from fastslow_placement.programs.roofline import DEVICES
from fastslow_placement.programs.zoo_graphs import zoo_placement

BEST_KNOWN = Path(__file__).resolve().parents[1] / "best_known.json"
_COUNTS, _DIVISORS, _MEMORY = (2, 4, 8), (1, 16, 256), 1.25
_HEATS = (1e-2, 3e-3, 1e-3, 3e-4)  # first temperatures over the cost


def held_out(zoo: list[str]) -> list[PlacementProblem]:
    """Return the placements of these zoo programs, then those of the sample's test programs."""
    found = {}
    for collection in COLLECTIONS:
        if collection.kind == "layout":
            programs = list_programs(PROJECT / "data" / "sample", collection, TEST)
            found |= {program.name: program.path for program in programs}
    drawn = [_on_a_machine(found[name]) for name in sorted(found)]
    return [*(zoo_placement(name, DEVICES["p100"]) for name in zoo), *filter(None, drawn)]


def _on_a_machine(path: Path) -> PlacementProblem | None:
    """Return the placement of a program on the machine that its name draws; None where it does not fit."""
    rng = np.random.default_rng([*path.stem.encode()])
    devices, name = int(rng.choice(_COUNTS)), str(rng.choice([*DEVICES]))
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


def best_known(problem: PlacementProblem) -> float:
    """Return the lowest recorded cost in seconds; infinite where none is recorded."""
    return read_json(BEST_KNOWN).get(problem.name, float("inf")) if BEST_KNOWN.is_file() else float("inf")


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
    if cost < best_known(problem) * (1 - 1e-9):
        known = read_json(BEST_KNOWN) if BEST_KNOWN.is_file() else {}
        write_json(BEST_KNOWN, dict(sorted({**known, problem.name: cost}.items())))
    return cost
