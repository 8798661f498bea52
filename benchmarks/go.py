"""GO's placement of programs against rules and searches.

Sections: ``unseen`` (the sample's test programs on drawn machines), ``zoo`` (the shape of GO's table),
``latency`` (the latency instances of dnn-partitioning, in ``../shared/placement``) and ``best`` (long
searches, whose costs ``best_known.json`` keeps). Runtimes are computed by the models, not measured. With
``--keep FILE`` every row is kept as soon as it is there, and a second call goes on. The last line is one JSON
object.
"""

import argparse
import copy
import json
from pathlib import Path
from statistics import fmean

import pandas as pd
import torch

from common.held_out_placement import best_known, held_out, long_search
from common.kept import Kept, finite
from common.latency_instances import latency_problems
from fastslow_placement.base.search import Found, anneal, best_of
from fastslow_placement.baselines import PLACEMENT_RULES
from fastslow_placement.go.policy import Policy, Shape
from fastslow_placement.go.ppo import Schedule, Trainer, zero_shot
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.region_search import anneal_regions
from fastslow_placement.programs.roofline import DEVICES
from fastslow_placement.programs.zoo_graphs import PROGRAMS, zoo_placement

TABLE = {
    "hours": 0.7,
    "needs": ("placement",),
    "sample": False,
    "commands": (
        (
            "--sections",
            "unseen",
            "latency",
            "--seeds",
            "0",
            "--updates",
            "60",
            "--keep",
            "benchmarks/results/go.json",
        ),
    ),
}
DEVICE = DEVICES["p100"]
SEARCH = 60_000  # evaluations of the search after GO, as ``place`` has by default


def new_policy(seed: int, shape: Shape | None = None) -> Policy:
    """Return a policy with the first weights of a seed."""
    torch.manual_seed(seed)
    return Policy(shape or Shape())


def learn(problem, updates: int, seed: int = 0, shape: Shape | None = None, policy=None, **schedule) -> Found:
    """Train a policy on one problem; return the best decision that it sampled."""
    policy = policy or new_policy(seed, shape)
    return Trainer(policy, [problem], Schedule(updates=updates, **schedule), seed).run(updates)[0]


def placement_of(name: str) -> PlacementProblem:
    """Return the placement of a zoo program on its own number of devices."""
    return zoo_placement(name, DEVICE)


def zoo(options) -> list[dict]:
    """The shape of GO's table on zoo programs; means over the seeds."""
    return options.kept.rows("zoo", options.programs, lambda name: _compared(placement_of(name), options))


def latency(options) -> list[dict]:
    """The same columns for the latency instances of dnn-partitioning."""
    problems = {problem.name: problem for problem in latency_problems()[: 1 if options.quick else None]}
    return options.kept.rows("latency", [*problems], lambda name: _compared(problems[name], options))


def _compared(problem: PlacementProblem, options) -> dict:
    seeds = options.seeds
    plain = without_learned_starts(problem)
    starts = plain.evaluate(plain.starts).order
    start = plain.starts[starts.argmin()]
    row = {"program": problem.name, "devices": problem.devices, "groups": len(problem.choices)}
    row["bound"] = problem.bound
    row |= {rule: best_of(problem, method(problem)[None]).cost for rule, method in PLACEMENT_RULES.items()}
    row["best start"] = float(starts.min())
    row["learned list"] = best_of(problem, problem.learned_starts).cost
    found = [learn(problem, options.updates, seed) for seed in seeds]
    evaluations = row["evaluations"] = found[0].evaluations
    row["GO"] = fmean(f.cost for f in found)
    row["GO's seeds"] = " ".join(f"{1e3 * f.cost:.4g}" for f in found)
    for column, own in (("learned starts", problem), ("untrained", plain)):
        row[column] = fmean(learn(own, options.updates, seed, epochs=0).cost for seed in seeds)
    row["SA from it"] = fmean(anneal(plain, evaluations, seed, start).cost for seed in seeds)
    row["SA"] = fmean(anneal(plain, evaluations, seed).cost for seed in seeds)
    row["regions"] = fmean(anneal_regions(plain, evaluations, seed).cost for seed in seeds)
    searches = [
        anneal_regions(problem, SEARCH, seed, own.decision) for seed, own in zip(seeds, found, strict=True)
    ]
    row["GO, then search"] = fmean(f.cost for f in searches)
    return row | {"best known": best_known(problem.name)}


def without_learned_starts(problem: PlacementProblem) -> PlacementProblem:
    """Return the problem without the starts of the learned list scheduler."""
    plain = copy.copy(problem)
    plain.learned = False
    return plain


def best(options) -> list[dict]:
    """Long searches of every held-out problem and instance; ``best_known.json`` keeps their costs."""
    found = [*latency_problems(), *held_out(options.programs)][: 4 if options.quick else None]
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
    found = held_out([])
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

    row["zero-shot"] = mean(lambda seed: zero_shot(new_policy(seed), problem, starts=False))
    start = plain.starts[starts.argmin()]
    for count in (50, 200) if options.quick else (50, 200, 1500):
        updates = {own: max((count - len(own.starts) - 8) // 8, 1) for own in (problem, plain)}
        if count < 1500:  # 184 updates of PPO for each program and seed would take most of the time
            row[f"GO {count}"] = mean(lambda seed, n=updates[problem]: learn(problem, n, seed))
        for name, own in (("learned starts", problem), ("untrained", plain)):
            row[f"{name} {count}"] = mean(lambda seed, own=own, n=updates[own]: learn(own, n, seed, epochs=0))
        row[f"regions {count}"] = mean(lambda seed, count=count: anneal_regions(plain, count, seed))
        row[f"SA {count}"] = mean(lambda seed, count=count: anneal(plain, count - len(starts), seed, start))
    return row


SECTIONS = {f.__name__: f for f in (unseen, zoo, latency, best)}


def main() -> None:
    """Run the chosen sections, print their tables and one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only check that everything runs")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=[*SECTIONS])
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=[*PROGRAMS], metavar="NAME")
    parser.add_argument("--updates", type=int, default=180, help="updates of PPO per program")
    parser.add_argument("--search", type=int, default=2000, help="evaluations of each long search (best)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--keep", type=Path, help="file of the rows, from which a second call goes on")
    options = parser.parse_args()
    if options.quick:
        options.updates = 2
        options.search, options.programs = 200, ["inception_b32", "transformer_2"]
        options.seeds = [0]
    options.kept = Kept(options.keep)
    torch.set_num_threads(1)
    result = {name: SECTIONS[name](options) for name in options.sections}
    for name, rows in result.items():
        print(f"\n## {name}\n")
        frame = pd.DataFrame(rows)
        if "units" in frame:  # costs over the human split
            frame.loc[len(frame)] = {"program": "**mean**", **frame.mean(numeric_only=True).drop("units")}
        print(frame.to_markdown(index=False, floatfmt=".4g") if rows else "no instances found")
    settings = {key: value for key, value in vars(options).items() if key not in ("keep", "kept")}
    print(json.dumps(finite({"options": settings, **result})))


if __name__ == "__main__":
    main()
