"""Learn the weights of the list scheduler that places programs, and score its placements on held-out ones.

``python benchmarks/list_placement.py [--quick] [--seeds N ...] [--write]``. Problems to learn from: the
sample's train and valid programs without the zoo's architectures, each on three drawn machines
(``common/held_out_placement.py``). Ten sets of weights are learned; a program takes the best of their ten
placements. First ten of ``--drawn`` random sets are chosen one after the other, each so that the mean
logarithm of the best cost is least. Then ``--steps`` changes of one set lower it. No search and no
start is involved, and costs come from the schedule's model, as everywhere in this package.

``--write`` learns from train and valid and writes ``list_placement.json``. The present one was written with
``--drawn 8000 --steps 400``; the table shows an eighth of both. Without ``--write`` the sets learn from train
alone and are scored on valid too, where design and settings were chosen. Test programs and the zoo only
report. Intervals are Student's at 95 % over programs; the problems of one program are one draw.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from common import report
from common.command_line import run_main
from common.held_out_placement import best_known, held_out, program_of, ratio, to_learn_from
from common.kept import kept_parts
from common.options import at_least, make_parser
from fastslow.competition.catalog import TRAIN, VALID
from fastslow.core.files import write_json
from fastslow.core.progress import progress
from fastslow_placement.base.stored_programs import PROGRAMS
from fastslow_placement.baselines import metis
from fastslow_placement.programs import list_placement
from fastslow_placement.programs.list_placement import M_ETF, WEIGHTS, list_placements
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.roofline import DEVICES
from fastslow_placement.programs.zoo_graphs import zoo_placement

TABLE = {
    "hours": 0.1,
    "needs": ("placement",),
}
SETS, TRIES = 10, 16
_LOW, _HIGH, _USED = -2.0, 1.2, 0.6  # logarithms of the smallest and largest weight; share of weights above 0
_FEWER = (6, 30)  # programs
_WORST = 3.0  # a logarithm of a cost over the human split counts up to this


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


def learn(problems: list[PlacementProblem], drawn: int, steps: int, seed: int) -> np.ndarray:
    """Return ten sets of weights that are learned together: (10, 8).

    Args:
        problems: The problems to learn from.
        drawn: Number of random sets.
        steps: Number of changes that are tried.
        seed: Seed of sets and changes.
    """
    rng = np.random.default_rng(seed)
    pool = draw(drawn, rng)
    table, chosen = costs(problems, pool, bar=True), []
    best = np.full(len(problems), np.inf)
    for _ in range(SETS):
        chosen.append(int(np.minimum(best[:, None], table).mean(0).argmin()))
        best = np.minimum(best, table[:, chosen[-1]])
    sets, chosen_costs = pool[chosen], table[:, chosen]
    for step in progress(range(steps), desc="changes", unit="change"):
        place = step % SETS
        tries = change(sets[place], TRIES, rng)
        others, found = np.delete(chosen_costs, place, 1).min(1), costs(problems, tries)
        means = np.minimum(others[:, None], found).mean(0)
        if means.min() < chosen_costs.min(1).mean():
            sets[place], chosen_costs[:, place] = tries[means.argmin()], found[:, means.argmin()]
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
        row["first set"] = float(np.mean([set_costs[0] for set_costs in found]))
        row["learned"] = float(np.mean([set_costs.min() for set_costs in found]))
        row["learned and starts"] = float(
            np.mean([min(set_costs.min(), starts.min()) for set_costs in found])
        )
        row["best known"] = float(np.log(best_known(problem.name) / problem.baseline))
        rows.append(row)
    return pd.DataFrame(rows, index=[problem.name for problem in problems]).replace(np.inf, np.nan)


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=at_least(0), nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--drawn", type=at_least(1), default=1000, help="random sets of weights (default 1000)"
    )
    parser.add_argument("--steps", type=at_least(1), default=50, help="changes that are tried (default 50)")
    parser.add_argument("--write", action="store_true", help="write the weights of the first seed")
    options = parser.parse_args(arguments)
    if options.quick:
        options.drawn, options.steps, options.seeds = 30, 2, options.seeds[:1]
    valid = to_learn_from(VALID)
    problems = to_learn_from(TRAIN) + (valid if options.write else [])
    kept = kept_parts(__file__, options)

    def weights_of(some_problems: list[PlacementProblem], seed: int) -> np.ndarray:
        def make() -> list:
            return learn(some_problems, options.drawn, options.steps, seed).tolist()

        return np.array(kept.part(f"{len(some_problems)} {seed}", make))

    learned = [weights_of(problems, seed) for seed in options.seeds]
    names = [*dict.fromkeys(program_of(problem.name) for problem in problems)]
    print(f"Learned from {len(problems)} problems of {len(names)} programs, seeds {options.seeds}.\n")
    reported = {"test programs": held_out(), "zoo": [zoo_placement(n, DEVICES["p100"]) for n in PROGRAMS]}
    reported |= {} if options.write else {"valid programs": valid}
    tables = {
        name: compare(reported_problems[: 2 if options.quick else None], learned)
        for name, reported_problems in reported.items()
    }
    means = [{"problems": name, "number": len(t), **np.exp(t.mean())} for name, t in tables.items()]
    print(report.table([report.cells(row) for row in means]))
    ratios = [
        {"problems": name, **{f"learned / {other}": ratio(t, "learned", other) for other in t.columns[:4]}}
        for name, t in tables.items()
    ]
    print("\n" + report.table(ratios))
    if not options.write:
        rows = []
        for count in (*_FEWER, len(names)):
            some = {*np.random.default_rng(0).permutation(names)[:count].tolist()}
            fewer_problems = [problem for problem in problems if program_of(problem.name) in some]
            fewer = [weights_of(fewer_problems, seed) for seed in options.seeds]
            rows.append({"programs": count, "problems": len(fewer_problems)})
            for name, those in reported.items():
                parts = [compare(those[: 2 if options.quick else None], [sets])["learned"] for sets in fewer]
                rows[-1][name] = report.spread([float(np.exp(part.mean())) for part in parts])
        print(f"\n## Learned from fewer programs: mean (range) over seeds\n\n{report.table(rows)}")
    facts = {"problems": len(problems), "programs": len(names), "seed": options.seeds[0]}
    if options.write:
        rows = [[float(f"{weight:.4g}") for weight in weight_set] for weight_set in learned[0]]
        write_json(Path(list_placement.__file__).with_suffix(".json"), {**facts, "weights": rows})
    logarithms = {name: table.to_dict("list") for name, table in tables.items()}
    report.finish({"benchmark": "list_placement", **facts, "logarithms": logarithms})
    return 0


if __name__ == "__main__":
    run_main(main)
