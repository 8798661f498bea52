"""Learn the weights of the list scheduler that places programs, and score its placements on held-out ones.

``python benchmarks/list_placement.py [--quick] [--seeds N ...] [--write]``. Problems to learn from: the
sample's train and valid programs without the zoo's architectures, each on three drawn machines
(``common/held_out_placement.py``). Ten sets of weights are learned; a program takes the best of their ten
placements. First ten of ``--drawn`` random sets are chosen one after the other, each so that the mean
logarithm of the best cost is least. Then ``--steps`` changes of one set lower it. No search, no policy and no
start is involved, and costs come from the schedule's model, as everywhere in this package. The ablation
learns from fewer programs, or without some of the weights, an eighth as long.

``--write`` learns from train and valid and writes ``list_placement.json``. Otherwise the sets learn from
train alone and are scored on valid too, where design and settings were chosen. Test programs and the zoo only
report.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from common import report
from common.held_out_placement import best_known, held_out, to_learn_from
from common.kept import Kept
from common.options import make_parser
from fastslow.competition.catalog import TRAIN, VALID
from fastslow.core.files import write_json
from fastslow.core.progress import progress
from fastslow.core.source import source_digest
from fastslow_placement.baselines import metis
from fastslow_placement.programs import list_placement
from fastslow_placement.programs.list_placement import M_ETF, WEIGHTS, list_placements
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.roofline import DEVICES
from fastslow_placement.programs.zoo_graphs import PROGRAMS, zoo_placement

TABLE = {
    "hours": 0.2,
    "needs": ("placement",),
    "commands": (("--keep", "benchmarks/results/list_placement.json"),),
}
SETS, TRIES = 10, 16
_LOW, _HIGH, _USED = -2.0, 1.2, 0.6  # logarithms of the smallest and largest weight; share of weights above 0
_ABLATION = 8  # times as short
_WITHOUT = {
    "the longest path": ("rank",),
    "the load": ("load",),
    "neighbours": ("neighbours",),
    "both splits": ("layers", "bisection"),
    "memory": ("memory",),
}
_FEWER = (6, 30)  # programs
_WORST = 3.0  # a logarithm of a cost over the human split counts up to this
_RESAMPLES = 10_000


def draw(count: int, rng: np.random.Generator) -> np.ndarray:
    """Return random sets of weights: (count, 8)."""
    sizes = 10 ** rng.uniform(_LOW, _HIGH, (count, len(WEIGHTS)))
    return np.where(rng.random(sizes.shape) < _USED, sizes, 0.0)


def change(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return changed copies of a set of weights: (count, 8)."""
    shape, size = (count, len(weights)), rng.choice([0.1, 0.3, 0.8])
    scaled = weights * np.exp(size * rng.normal(size=shape) * (rng.random(shape) < 0.3))
    return np.where(rng.random(shape) < 0.05, draw(count, rng), scaled)


def costs(problems: list[PlacementProblem], weights: np.ndarray, bar: bool = False) -> np.ndarray:
    """Return the logarithm of each placement's cost over the human split: (problems, sets)."""
    return np.stack(
        [
            np.log(np.minimum(p.evaluate(list_placements(p, weights)).order / p.baseline, np.exp(_WORST)))
            for p in (progress(problems, desc="random weights", unit="problem") if bar else problems)
        ]
    )


def learn(
    problems: list[PlacementProblem], drawn: int, steps: int, seed: int, without: tuple[str, ...] = ()
) -> np.ndarray:
    """Return ten sets of weights that are learned together: (10, 8).

    Args:
        problems: The problems to learn from.
        drawn: Number of random sets.
        steps: Number of changes that are tried.
        seed: Seed of sets and changes.
        without: Weights that stay 0.
    """
    rng, used = np.random.default_rng(seed), ~np.isin(WEIGHTS, without)
    pool = draw(drawn, rng) * used
    table, chosen = costs(problems, pool, bar=True), []
    best = np.full(len(problems), np.inf)
    for _ in range(SETS):
        chosen.append(int(np.minimum(best[:, None], table).mean(0).argmin()))
        best = np.minimum(best, table[:, chosen[-1]])
    sets, own = pool[chosen], table[:, chosen]
    for step in progress(range(steps), desc="changes", unit="change"):
        place = step % SETS
        tries = change(sets[place], TRIES, rng) * used
        others, found = np.delete(own, place, 1).min(1), costs(problems, tries)
        means = np.minimum(others[:, None], found).mean(0)
        if means.min() < own.min(1).mean():
            sets[place], own[:, place] = tries[means.argmin()], found[:, means.argmin()]
    return sets


def compare(problems: list[PlacementProblem], learned: list[np.ndarray]) -> pd.DataFrame:
    """Return logarithms of costs over the human split: rules, learned sets (means over seeds), best known."""
    rows = []
    for problem in problems:
        starts = np.log(problem.evaluate(problem.rule_starts).order / problem.baseline)
        row = {
            "human": 0.0,
            "METIS": float(np.log(problem.evaluate(metis(problem)[None]).order[0] / problem.baseline)),
            "m-ETF": float(costs([problem], M_ETF[None])[0, 0]),
            "best start": float(starts.min()),
        }
        found = [costs([problem], sets)[0] for sets in learned]
        row["first set"] = float(np.mean([own[0] for own in found]))
        row["learned"] = float(np.mean([own.min() for own in found]))
        row["learned and starts"] = float(np.mean([min(own.min(), starts.min()) for own in found]))
        row["best known"] = float(np.log(best_known(problem.name) / problem.baseline))
        rows.append(row)
    return pd.DataFrame(rows).replace(np.inf, np.nan)


def ablation(
    problems: list[PlacementProblem],
    reported: dict[str, list[PlacementProblem]],
    options,
    kept: Kept,
    code: str,
) -> list[dict]:
    """Return for each variant of shorter learning the geometric mean over the human split, with its range."""
    programs = list(dict.fromkeys(program_of(problem) for problem in problems))
    rng = np.random.default_rng(0)
    variants: dict[str, tuple] = {"whole": (programs, ())}
    for count in _FEWER:
        variants[f"{count} programs"] = ([*rng.permutation(programs)[:count]], ())
    variants |= {f"without {name}": (programs, without) for name, without in _WITHOUT.items()}
    drawn, steps, rows = options.drawn // _ABLATION, options.steps // _ABLATION, []
    for variant, (names, without) in variants.items():
        own, row = [problem for problem in problems if program_of(problem) in names], {"variant": variant}
        found = []
        for seed in options.seeds:
            key = f"{code} {variant} {len(own)} {drawn} {steps} {seed}"
            found.append(
                np.array(
                    kept.part(key, lambda o=own, s=seed, w=without: learn(o, drawn, steps, s, w).tolist())
                )
            )
        for name, those in reported.items():
            means = [np.exp(np.mean([costs([p], sets).min() for p in those])) for sets in found]
            row[name] = report.spread(means, 3)
        rows.append(row)
    return rows


def program_of(problem: PlacementProblem) -> str:
    """Return the name of a problem's program."""
    return problem.name.split(" on ")[0]


def ratio(table: pd.DataFrame, one: str, other: str) -> str:
    """Return the ratio of two geometric means with its 95 % interval, bootstrap over problems."""
    away = (table[one] - table[other]).dropna().to_numpy()
    rows = np.random.default_rng(0).integers(len(away), size=(_RESAMPLES, len(away)))
    low, high = np.quantile(away[rows].mean(1), [0.025, 0.975])
    return f"{np.exp(away.mean()):.3f} ({np.exp(low):.3f} to {np.exp(high):.3f})"


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--drawn", type=int, default=8000, help="random sets of weights (default 8000)")
    parser.add_argument("--steps", type=int, default=400, help="changes that are tried (default 400)")
    parser.add_argument("--keep", type=Path, help="file of learned weights, with which the next call goes on")
    parser.add_argument("--write", action="store_true", help="write the weights of the first seed")
    options = parser.parse_args(arguments)
    if options.quick:
        options.drawn, options.steps, options.seeds = 30, 2, options.seeds[:1]
    valid = to_learn_from(VALID)
    problems = to_learn_from(TRAIN) + (valid if options.write else [])
    kept, code = Kept(options.keep), source_digest("list_placement:learn", Path(__file__).parent)

    def weights_of(seed: int) -> np.ndarray:
        key = f"{code} {len(problems)} {options.drawn} {options.steps} {seed}"
        return np.array(kept.part(key, lambda: learn(problems, options.drawn, options.steps, seed).tolist()))

    learned = [weights_of(seed) for seed in options.seeds]
    names = {program_of(problem) for problem in problems}
    print(f"Learned from {len(problems)} problems of {len(names)} programs, seeds {options.seeds}.\n")
    reported = {"test programs": held_out([]), "zoo": [zoo_placement(n, DEVICES["p100"]) for n in PROGRAMS]}
    reported |= {} if options.write else {"valid programs": valid}
    tables = {name: compare(own[: 2 if options.quick else None], learned) for name, own in reported.items()}
    means = [{"problems": name, "number": len(t), **np.exp(t.mean())} for name, t in tables.items()]
    print(report.table([report.cells(row) for row in means]))
    ratios = [
        {"problems": name, **{f"learned / {other}": ratio(t, "learned", other) for other in t.columns[:4]}}
        for name, t in tables.items()
    ]
    print("\n" + report.table(ratios))
    if not options.write:
        few = {name: own[: 2 if options.quick else None] for name, own in reported.items()}
        rows = ablation(problems, few, options, kept, code)
        print(f"\n## Ablation: learned, mean (range) over seeds\n\n{report.table(rows)}")
    facts = {"problems": len(problems), "programs": len(names), "seed": options.seeds[0]}
    if options.write:
        rows = [[float(f"{weight:.4g}") for weight in own] for own in learned[0]]
        write_json(Path(list_placement.__file__).with_suffix(".json"), {**facts, "weights": rows})
    logarithms = {name: table.to_dict("list") for name, table in tables.items()}
    report.finish({"benchmark": "list_placement", **facts, "logarithms": logarithms})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
