"""Held-out placement problems: the sample's test programs and the zoo; their best known costs."""

from pathlib import Path

from fastslow.core.files import read_json, write_json
from fastslow.core.settings import PROJECT
from fastslow_placement.programs.problem_set import problems, program_files
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.region_search import Neighbourhood
from fastslow_placement.programs.roofline import DEVICES
from fastslow_placement.programs.zoo_graphs import PROGRAMS, zoo_placement

BEST_KNOWN = Path(__file__).resolve().parents[1] / "best_known.json"
_HEATS = (1e-2, 3e-3, 1e-3, 3e-4)  # first temperatures over the cost


def held_out(zoo: list[str]) -> list[PlacementProblem]:
    """Return the placements of these zoo programs, then those of the sample's test programs."""
    tests = program_files(PROJECT / "data" / "sample", ("test",))
    return [*(zoo_placement(name, DEVICES["p100"]) for name in zoo), *problems(tests, 1)]


def best_known(problem: PlacementProblem) -> float:
    """Return the lowest recorded cost in seconds; infinite where none is recorded."""
    return read_json(BEST_KNOWN)["seconds"].get(problem.name, float("inf")) if BEST_KNOWN.is_file() else float("inf")


def long_search(problem: PlacementProblem, evaluations: int, seed: int) -> float:
    """Return the lowest cost of eight annealings of regions, and record it if it is the best known.

    Four first temperatures, from the split by layers and from the best start.

    Args:
        problem: The problem.
        evaluations: Of each annealing.
        seed: Seed of the moves.
    """
    around, costs = Neighbourhood(problem), problem.evaluate(problem.starts).order
    begins = [problem.default, problem.starts[costs.argmin()]]
    found = [around.search(begin, evaluations, seed, heat=heat)[0].cost for begin in begins for heat in _HEATS]
    record(problem, min(found))
    return min(found)


def record(problem: PlacementProblem, cost: float) -> None:
    """Keep a cost if it is lower than the best known one."""
    if cost < best_known(problem) * (1 - 1e-9):
        known = read_json(BEST_KNOWN) if BEST_KNOWN.is_file() else {"seconds": {}}
        known["seconds"][problem.name] = float(cost)
        known["seconds"] = dict(sorted(known["seconds"].items()))
        write_json(BEST_KNOWN, known)
