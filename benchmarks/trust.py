"""How often the bands and the probabilities of ``fastslow rank`` hold, on programs that were held out.

``python benchmarks/trust.py [--runs runs/sample]``, after ``make submit``. Valid and test programs, which no
model was trained on, make them. Each program is held out in turn with every other one of its architecture (a
test kernel, whose name does not tell it, by itself). What the others promise is compared with what it has.

*part*: thirds of the programs by their distance to the train programs, *smallest* to *largest*. *in 80%*:
share of the scores that are in the band of this level, which is made of the scores of all layout collections.
A program that both searches rank is two *rankings* and counts as one of the *programs* of a band.
*width*: of the bands of 80 %. *nearest 80%*, *nearest width*: the same of bands of the 39 programs whose
distance is most alike; they are little narrower, so ``rank`` does not have them. A program has no band if
no other one was scored that is as large, as small or as far. A third of one collection has 6 to 14 bands:
chance alone moves its shares by 10 to 20 points.

*said 80%*: of the pairs of configurations whose likelier order is said to have a probability of 75 to 85 %,
the share that has this order; a pair of equal runtimes counts half, every program counts as much as another.
*50%* is 50 to 55 %, *90%* is 86 to 94 %. *default*: the same of the pairs with the compiler's default, or
with the configuration nearest to it.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common import report
from common.command_line import run_main
from common.options import make_parser
from fastslow.competition.catalog import COLLECTIONS, list_programs
from fastslow.competition.reader import read_npz
from fastslow.core.settings import PROJECT, resolve
from fastslow.evaluation.score_tables import PARTS
from fastslow.evaluation.scores import read_solution, truth_of
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import read_predictions
from fastslow.runs.run_manifest import find_run
from fastslow_programs.program.configurations import find_default
from fastslow_programs.ranking.models import Models, read_models
from fastslow_programs.ranking.trust import LEVELS, TOLD, Seen, Trust, programs_before

TABLE = {"hours": 0.02, "needs": ("run",)}
DATA = "data/sample"
SAID = {"50%": (0.5, 0.55), "80%": (0.75, 0.85), "90%": (0.86, 0.94)}
MOST_ALIKE = 39  # programs of the narrower bands
_MOST = 50  # configurations of a kernel whose pairs are compared
_SCORED = "scored", "largest", "score", "steepness"
Bands = list[tuple[float, float] | None]


class Held(NamedTuple):
    """A ranking of a program that was held out: what it has, and what the others promise.

    Pairs are ``(2, n)``: the probability of the likelier order, and 1 where runtimes have it, 0.5 if equal.
    """

    collection: str
    program: str
    distance: float
    score: float
    bands: Bands  # by level
    nearest: Bands  # the same of the programs whose distance is most alike
    pairs: np.ndarray
    default: np.ndarray


def architectures() -> dict[str, str]:
    """Return the architecture of the zoo's programs by their names, and by the names of test files."""
    sys.path.append(str(PROJECT / "data"))  # the zoo is no installed package
    from make_sample.zoo.families import FAMILIES

    found = {f"{f.name}_{v.label}": f.name for f in FAMILIES for v in (*f.small, *f.large)}
    hidden = {hashlib.md5(name.encode(), usedforsecurity=False).hexdigest(): name for name in found}
    return found | {digest: found[name] for digest, name in hidden.items()}


def pairs_of(trust: Trust, prediction: np.ndarray, runtime: np.ndarray, of: Iterable[int]) -> np.ndarray:
    """Return the pairs of some configurations with all others, see :class:`Held`."""
    rows = [np.zeros((2, 0))]
    for one in of:
        faster = trust.faster(prediction, one)
        if faster is not None:
            faster = np.delete(faster, one)
            has = np.delete(0.5 + 0.5 * np.sign(runtime[one] - runtime), one)
            rows.append(np.array([np.maximum(faster, 1 - faster), np.where(faster > 0.5, has, 1 - has)]))
    return np.concatenate(rows, 1)


def nearest_only(others: Seen, trust: Trust) -> Trust:
    """Return the same with the scores of the programs whose distance is most alike."""
    order = np.argsort(np.abs(others.distance - trust.nearest), kind="stable")
    kept = order[programs_before(trust.shares[order]) < MOST_ALIKE]
    return replace(trust, scores=trust.scores[kept], shares=trust.shares[kept])


def hold_out(models: Models, runs: Path, kind: str, solution: dict) -> list[Held]:
    """Return the programs of a kind of collection, each with what all other architectures promise."""
    seen, zoo, programs = models.seen(kind), architectures(), []
    for collection in (candidate for candidate in COLLECTIONS if candidate.kind == kind):
        features = Features(resolve(f"features/{runs.name}/{collection.slug}"))
        predictions = read_predictions(find_run(runs, collection))
        for split, truth in truth_of(features, solution).items():
            files = {program.name: program for program in list_programs(resolve(DATA), collection, split)}
            for name, runtime in truth.items():
                given = predictions[split][name], runtime
                programs.append((features.graph(split, name), given, files[name]))
    names = [file.name for _, _, file in programs]
    kinds = np.array([zoo.get(name, zoo.get(name.rpartition("_")[0], name)) for name in names])
    held = []
    for number, (graph, given, file) in enumerate(programs):
        others = replace(seen, **{key: getattr(seen, key)[kinds != kinds[number]] for key in _SCORED})
        trust = others.judge(kind, graph)
        default = find_default(read_npz(file)).config
        nearest = nearest_only(others, trust)
        held.append(
            Held(
                collection=file.collection.name,
                program=file.name,
                distance=seen.distance[number],
                score=float(seen.score[number]),
                bands=[trust.band(level) for level in LEVELS],
                nearest=[nearest.band(level) for level in LEVELS],
                pairs=pairs_of(trust, *given, range(min(len(given[0]), _MOST))),
                default=pairs_of(trust, *given, [] if default is None else [default]),
            )
        )
    return held


def share_right(pairs: list[np.ndarray], low: float, high: float) -> float:
    """Return the share of pairs that have the likelier order, where its probability is said to be within."""
    right = count = 0.0
    for said, has in pairs:
        within = (low <= said) & (said <= high)
        right, count = right + has[within].sum() / max(1, len(has)), count + within.sum() / max(1, len(has))
    return right / count if count else np.nan


def coverage(held: list[Held], which: str) -> dict:
    """Return the share of programs whose score is in their bands, by level, and a width."""
    row = {}
    for place, level in enumerate(LEVELS):
        known = [
            (program.score, *getattr(program, which)[place])
            for program in held
            if getattr(program, which)[place]
        ]
        score, low, high = np.array(known).reshape(-1, 3).T
        row[f"{level:.0%}"] = np.mean((low <= score) & (score <= high)) if known else np.nan
        if level == TOLD:
            row["width"] = np.mean(high - low) if known else np.nan
    return row


def row_of(collection: str, part: str, held: list[Held]) -> dict:
    """Return how often bands and probabilities hold."""
    row = {"collection": collection, "part": part, "programs": len({ranking.program for ranking in held})}
    row |= {"rankings": len(held), "with a band": sum(ranking.bands[0] is not None for ranking in held)}
    row |= {
        "smallest": min(program.distance for program in held),
        "largest": max(program.distance for program in held),
    }
    row |= {"mean score": np.mean([program.score for program in held])}
    row |= {
        f"in {name}".replace("in width", "width"): figure for name, figure in coverage(held, "bands").items()
    }
    row |= {f"nearest {name}": figure for name, figure in coverage(held, "nearest").items()}
    row |= {
        f"said {name}": share_right([program.pairs for program in held], *ends) for name, ends in SAID.items()
    }
    beside = [program.default for program in held]
    return row | {f"default {name}": share_right(beside, *ends) for name, ends in SAID.items()}


def rows_of(collection: str, held: list[Held]) -> list[dict]:
    """Return a row of all programs and of each third of them by distance."""
    order = sorted(held, key=lambda program: program.distance)
    thirds = np.array_split(np.arange(len(order)), len(PARTS))
    rows = [row_of(collection, "all", order)]
    return rows + [
        row_of(collection, part, [order[number] for number in third])
        for part, third in zip(PARTS, thirds, strict=True)
    ]


def measure(runs: Path, solution: dict) -> list[dict]:
    """Return rows of the tiles, of all layout programs, and of each layout collection."""
    models = read_models(runs)
    layouts = hold_out(models, runs, "layout", solution)
    rows = rows_of("tile:xla", hold_out(models, runs, "tile", solution)) + rows_of("layout, all", layouts)
    for name in dict.fromkeys(program.collection for program in layouts):
        rows += rows_of(name, [program for program in layouts if program.collection == name])
    return rows


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default="runs/sample", help="folder of a run of make submit")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse_options(arguments)
    rows = measure(resolve(str(options.runs)), read_solution(resolve(f"{DATA}/solution.csv")))
    print(report.table([report.cells(row) for row in rows]))
    report.finish({"benchmark": "trust", "environment": report.environment(), "rows": rows})
    return 0


if __name__ == "__main__":
    run_main(main)
