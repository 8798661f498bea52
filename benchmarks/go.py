"""GO's placement of programs against rules and searches.

Sections: ``unseen`` (the sample's test programs on drawn machines), ``latency`` and ``doppler`` (public
instances in ``../shared/placement``, the latter with their own costs), and ``best`` (long searches, whose
costs ``best_known.json`` keeps). Runtimes are computed by the models, not measured. Costs are means over the
seeds. On unseen programs they are relative to the split by layers (*human*). *best start* is the best result
of fourteen rules, *learned list* the best of the ten placements of the learned list scheduler, and *critical
path* DOPPLER's heuristic. *GO* and *GO without learning* start from the rules and the learned list, with the
same first weights. *without learned starts* does not learn either. *regions* anneals from the best start.
Intervals are Student's at 95 % over programs; the problems of one program are one draw. Every row is kept as
soon as it is there, and a second call goes on. The last line is one JSON object.
"""

import argparse
import copy
import json
from statistics import fmean

import numpy as np
import pandas as pd
import torch

from common.doppler_instances import critical_path, doppler_problems
from common.held_out_placement import best_known, held_out, long_search, ratio
from common.kept import finite, kept_parts
from common.latency_instances import latency_problems
from fastslow_placement.base.search import Found, best_of
from fastslow_placement.baselines import PLACEMENT_RULES
from fastslow_placement.go.policy import Policy
from fastslow_placement.go.ppo import Trainer
from fastslow_placement.go.schedule import Schedule
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.region_search import anneal_regions

TABLE = {
    "hours": 0.7,
    "needs": ("placement",),
    "sample": False,
    "commands": (("--sections", "unseen", "latency", "doppler", "--updates=60"),),
}
SEARCH = 60_000  # evaluations of the search after GO, as ``place`` has by default
PAIRS = (
    ("learned list", "best start"),
    ("learned list", "critical path"),
    ("GO", "GO without learning"),
    ("GO without learning", "without learned starts"),
    ("GO without learning", "regions"),
    ("GO, then search", "GO"),
    ("best known", "GO without learning"),
)


def new_policy(seed: int) -> Policy:
    """Return a policy with the first weights of a seed."""
    torch.manual_seed(seed)
    return Policy()


def learn(problem, updates: int, seed: int = 0, **schedule) -> Found:
    """Train a policy on one problem; return the best decision that it sampled."""
    return Trainer(new_policy(seed), problem, Schedule(updates=updates, **schedule), seed).run(updates)


def latency(options) -> list[dict]:
    """The latency instances of dnn-partitioning."""
    return _public("latency", latency_problems(), options)


def doppler(options) -> list[dict]:
    """The same columns for the graphs of DOPPLER, in the unit of its simulator."""
    return _public("doppler", doppler_problems(), options)


def _public(section: str, found: list[PlacementProblem], options) -> list[dict]:
    problems = {problem.name: problem for problem in found[: 1 if options.quick else None]}
    return options.kept.rows(section, [*problems], lambda name: _compared(problems[name], options))


def _compared(problem: PlacementProblem, options) -> dict:
    """Return costs, means over the seeds; searches have as many evaluations as GO."""
    plain = without_learned_starts(problem)
    starts = plain.evaluate(plain.starts).order
    row = {"program": problem.name, "devices": problem.devices, "groups": len(problem.choices)}
    row["bound"] = problem.bound
    rules = PLACEMENT_RULES | {"critical path": critical_path}
    row |= {name: best_of(problem, rule(problem)[None]).cost for name, rule in rules.items()}
    row["best start"] = float(starts.min())
    row["learned list"] = best_of(problem, problem.learned_starts).cost
    found = [learn(problem, options.updates, seed) for seed in options.seeds]
    count = found[0].evaluations

    def mean(search) -> float:
        return fmean(search(seed).cost for seed in options.seeds)

    row["GO"] = fmean(result.cost for result in found)
    row["GO without learning"] = mean(lambda seed: learn(problem, options.updates, seed, epochs=0))
    row["without learned starts"] = mean(lambda seed: learn(plain, options.updates, seed, epochs=0))
    row["regions"] = mean(lambda seed: anneal_regions(plain, count, seed))
    decisions = dict(zip(options.seeds, (result.decision for result in found), strict=True))
    row["GO, then search"] = mean(lambda seed: anneal_regions(problem, SEARCH, seed, decisions[seed]))
    return row


def without_learned_starts(problem: PlacementProblem) -> PlacementProblem:
    """Return the problem without the starts of the learned list scheduler."""
    plain = copy.copy(problem)
    plain.learned = False
    return plain


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


def unseen(options) -> list[dict]:
    """The sample's test programs, each on a drawn machine: cost over the human split, mean over the seeds."""
    found = held_out()
    problems = {problem.name: problem for problem in found[: 2 if options.quick else None]}
    return options.kept.rows("unseen", [*problems], lambda name: _unseen(problems[name], options))


def _unseen(problem: PlacementProblem, options) -> dict:
    plain, human = without_learned_starts(problem), problem.baseline
    starts = plain.evaluate(plain.starts).order
    row = {
        "program": problem.name,
        "units": len(problem.choices),
        "best known": best_known(problem.name) / human,
    }
    row |= {
        name: best_of(problem, rule(problem)[None]).cost / human for name, rule in PLACEMENT_RULES.items()
    }
    row["best start"] = starts.min() / human
    row["learned list"] = best_of(problem, problem.learned_starts).cost / human

    def mean(search) -> float:
        return fmean(search(seed).cost for seed in options.seeds) / human

    for count in (50, 200):
        updates = {variant: max((count - len(variant.starts) - 8) // 8, 1) for variant in (problem, plain)}
        row[f"GO {count}"] = mean(lambda seed, n=updates[problem]: learn(problem, n, seed))
        for name, variant in (("GO without learning", problem), ("without learned starts", plain)):
            row[f"{name} {count}"] = mean(
                lambda seed, variant=variant, n=updates[variant]: learn(variant, n, seed, epochs=0)
            )
        row[f"regions {count}"] = mean(lambda seed, count=count: anneal_regions(plain, count, seed))
    return row


def ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the ratios of geometric means of pairs of columns, with 95 % intervals over the programs."""
    logarithms = np.log(frame.set_index("program").select_dtypes("number"))
    pairs = dict.fromkeys(
        tuple(name + count * (name + count in logarithms) for name in pair)
        for pair in PAIRS
        for count in ("", " 50", " 200")
    )
    return pd.DataFrame(
        {"": f"{one} / {other}", "ratio (95 % interval)": ratio(logarithms, one, other)}
        for one, other in pairs
        if {one, other} <= {*logarithms}
    )


SECTIONS = {f.__name__: f for f in (unseen, latency, doppler, best)}


def main() -> None:
    """Run the chosen sections, print their tables and one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only check that everything runs")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=[*SECTIONS])
    parser.add_argument("--updates", type=int, default=180, help="updates of PPO per program")
    parser.add_argument("--search", type=int, default=2000, help="evaluations of each long search (best)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    if options.quick:
        options.updates, options.search, options.seeds = 2, 200, [0]
    options.kept = kept_parts(__file__, options)
    torch.set_num_threads(1)
    result = {name: SECTIONS[name](options) for name in options.sections}
    for name, rows in result.items():
        print(f"\n## {name}\n")
        frame = pd.DataFrame(rows)
        print(frame.to_markdown(index=False, floatfmt=".4g") if rows else "no instances found")
        if rows:
            print("", ratios(frame).to_markdown(index=False), sep="\n")
    settings = {key: value for key, value in vars(options).items() if key != "kept"}
    print(json.dumps(finite({"options": settings, **result})))


if __name__ == "__main__":
    main()
