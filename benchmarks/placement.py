"""Placements, schedules and fusions by rules and by the search of ``make place``.

Sections: ``unseen`` has the test programs of the sample on drawn machines. ``latency`` and ``doppler`` have
public instances in ``../shared/placement``, the latter with their own costs. ``scheduling``, ``fusion`` and
``joint`` are the other tasks on the unseen programs. ``best`` makes long searches, whose costs
``best_known.json`` keeps. Runtimes are computed by the models, not measured. Costs are means over the seeds,
and on unseen programs relative to the split by layers (*human*). *best start* is the best of fourteen
placements by rules, and *learned list* the best of the ten placements of the learned list scheduler. *search
N* anneals regions with N evaluations from the better of these two; *without learned starts* from *best
start*. *critical path* is DOPPLER's heuristic. The other tasks have one seed and costs relative to the
default: the longest path first, greedy fusion, or the split by layers with greedy fusion. *rule* is the best
placement by rules, or else the default. Intervals are Student's at 95 % over programs; the problems of one
program are one draw. Every row is kept as soon as it is there, and a second call goes on. The last line is
one JSON object.
"""

import argparse
import copy
import json
from collections.abc import Callable
from statistics import fmean

import numpy as np
import pandas as pd

from common.command_line import run_main
from common.doppler_instances import critical_path, doppler_problems
from common.held_out_placement import best_known, held_out, long_search, program_of, program_paths, ratio
from common.kept import finite, kept_parts
from common.latency_instances import latency_problems
from common.options import at_least
from fastslow_placement.base.search import anneal, best_of
from fastslow_placement.baselines import PLACEMENT_RULES, best_placement, by_hand
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.joint import JointProblem
from fastslow_placement.programs.problems import FusionProblem, PlacementProblem, SchedulingProblem
from fastslow_placement.programs.program_graph import read_cost_graph
from fastslow_placement.programs.region_search import anneal_regions

TABLE = {
    "hours": 0.6,
    "needs": ("placement",),
    "sample": False,
    "commands": (("--sections", "unseen", "latency", "doppler", "scheduling", "fusion", "joint"),),
}
SHORT, LONG = 200, 60_000  # evaluations; ``make place`` has the latter by default
OF_TASKS = 2_500  # evaluations of another task than placement there
PAIRS = (
    ("learned list", "m-ETF"),
    ("learned list", "best start"),
    ("learned list", "critical path"),
    (f"search {SHORT}", "best start"),
    (f"search {LONG}", "best start"),
    (f"search {SHORT}", f"without learned starts {SHORT}"),
    (f"search {LONG}", f"without learned starts {LONG}"),
    ("best known", f"search {LONG}"),
    ("rule", "default"),
    ("annealing", "rule"),
)


def unseen(options) -> list[dict]:
    """The sample's test programs, each on a drawn machine: cost over the human split."""
    return _placements("unseen", held_out(), options)


def latency(options) -> list[dict]:
    """The latency instances of dnn-partitioning."""
    return _placements("latency", latency_problems(), options)


def doppler(options) -> list[dict]:
    """The same columns for the graphs of DOPPLER, in the unit of its simulator."""
    return _placements("doppler", doppler_problems(), options)


def _placements(section: str, problems: list[PlacementProblem], options) -> list[dict]:
    by_name = {problem.name: problem for problem in problems[: 1 if options.quick else None]}
    return options.kept.rows(section, [*by_name], lambda name: _compared(by_name[name], section, options))


def _compared(problem: PlacementProblem, section: str, options) -> dict:
    """Return the costs of the rules and, as means over the seeds, of the searches."""
    unit = problem.baseline if section == "unseen" else 1.0
    plain = copy.copy(problem)
    plain.learned = False
    row = {"program": problem.name, "units": len(problem.choices)}
    if section != "doppler":
        row["best known"] = best_known(problem.name) / unit
    row["bound"] = problem.bound / unit
    rules = PLACEMENT_RULES | ({} if section == "unseen" else {"critical path": critical_path})
    row |= {name: best_of(problem, rule(problem)[None]).cost / unit for name, rule in rules.items()}
    row["best start"] = best_of(problem, problem.rule_starts).cost / unit
    row["learned list"] = best_of(problem, problem.learned_starts).cost / unit
    for count in (SHORT, LONG if not options.quick else SHORT + 1):
        for name, variant in (("search", problem), ("without learned starts", plain)):
            costs = [anneal_regions(variant, count, seed).cost for seed in options.seeds]
            row[f"{name} {count}"] = fmean(costs) / unit
    return row


def scheduling(options) -> list[dict]:
    """Priorities of the unseen programs, placed by layers."""

    def problem_of(placed: PlacementProblem) -> SchedulingProblem:
        placement = placed.place(placed.default)
        return SchedulingProblem(placed.graph, placement, placed.devices, placed.device)

    return _annealed("scheduling", problem_of, by_hand, options)


def fusion(options) -> list[dict]:
    """Fusion of the unseen programs for one of their devices."""

    def problem_of(placed: PlacementProblem) -> FusionProblem:
        return FusionProblem(_before_fusion(placed), placed.device)

    return _annealed("fusion", problem_of, by_hand, options)


def joint(options) -> list[dict]:
    """Fusion, placement and scheduling of the unseen programs together."""

    def problem_of(placed: PlacementProblem) -> JointProblem:
        return JointProblem(_before_fusion(placed), placed.devices, placed.device, placed.memory)

    return _annealed("joint", problem_of, best_placement, options)


def _before_fusion(placed: PlacementProblem) -> CostGraph:
    return read_cost_graph(program_paths()[program_of(placed.name)], placed.device)


def _annealed(section: str, problem_of: Callable, rule: Callable, options) -> list[dict]:
    """Return the costs of a rule and of annealing, over the default's, for each unseen program."""
    placements = {problem.name: problem for problem in held_out()[: 1 if options.quick else None]}

    def compared(name: str) -> dict:
        problem = problem_of(placements[name])
        return {
            "program": name,
            "units": len(problem.choices),
            "default": 1.0,
            "rule": best_of(problem, rule(problem)[None]).cost / problem.baseline,
            "annealing": anneal(problem, options.evaluations, options.seeds[0]).cost / problem.baseline,
        }

    return options.kept.rows(section, [*placements], compared)


def best(options) -> list[dict]:
    """Long searches of every held-out problem and instance; ``best_known.json`` keeps their costs."""
    found = [*latency_problems(), *held_out()][: 4 if options.quick else None]
    costs = {problem.name: problem for problem in found}
    return options.kept.rows("best", [*costs], lambda name: _best(costs[name], options))


def _best(problem: PlacementProblem, options) -> dict:
    found = long_search(problem, options.search, options.seeds[0])
    known, human = best_known(problem.name), problem.baseline
    return {
        "program": problem.name,
        "units": len(problem.choices),
        "found": found / human,
        "best known": known / human,
    }


def ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the ratios of geometric means of pairs of columns, with 95 % intervals over the programs."""
    logarithms = np.log(frame.set_index("program").select_dtypes("number"))
    return pd.DataFrame(
        {"": f"{one} / {other}", "ratio (95 % interval)": ratio(logarithms, one, other)}
        for one, other in PAIRS
        if {one, other} <= {*logarithms}
    )


PLACEMENTS = ("unseen", "latency", "doppler")
SECTIONS = {f.__name__: f for f in (unseen, latency, doppler, scheduling, fusion, joint, best)}


def main(arguments: list[str]) -> int:
    """Run the chosen sections, print their tables and one JSON object; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only check that everything runs")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=[*SECTIONS])
    parser.add_argument(
        "--evaluations", type=at_least(1), default=OF_TASKS, help="of the annealing of other tasks"
    )
    parser.add_argument(
        "--search", type=at_least(1), default=2000, help="evaluations of each long search (best)"
    )
    parser.add_argument("--seeds", type=at_least(0), nargs="+", default=[0, 1, 2])
    options = parser.parse_args(arguments)
    if options.quick:
        options.search, options.evaluations, options.seeds = 200, 50, [0]
    options.kept = kept_parts(__file__, options)
    result = {name: SECTIONS[name](options) for name in options.sections}
    for name, rows in result.items():
        print(f"\n## {name}\n")
        frame = pd.DataFrame(rows)
        print(frame.to_markdown(index=False, floatfmt=".4g") if rows else "no instances found")
        if rows:
            print("", ratios(frame).to_markdown(index=False), sep="\n")
    if placements := [row for name in PLACEMENTS for row in result.get(name, [])]:
        print("\n## all placements\n", ratios(pd.DataFrame(placements)).to_markdown(index=False), sep="\n")
    settings = {key: value for key, value in vars(options).items() if key != "kept"}
    print(json.dumps(finite({"options": settings, **result})))
    return 0


if __name__ == "__main__":
    run_main(main)
