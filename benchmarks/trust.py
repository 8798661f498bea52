"""How often the bands and the probabilities of ``fastslow rank`` hold, on programs that were held out.

``python benchmarks/trust.py [--runs runs/sample]``, after ``make submit``. Valid and test programs, which no
model was trained on, make them. Each program is held out in turn with every other one of its architecture (a
test kernel, whose name does not tell it, by itself). What the others promise is compared with what it has.

*in N%*: share of the programs whose score is in the band of this level. *said 80%*: of the pairs of
configurations whose likelier order is said to have a probability of 75 to 85 %, the share that has this
order; a pair of equal runtimes counts half, every program counts as much as another. *50%* is 50 to 55 %,
*90%* is 86 to 94 %. *default*: the same of the pairs with the compiler's default, or with the configuration
nearest to it.
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
from common.options import make_parser
from fastslow.competition.catalog import COLLECTIONS, Collection, list_programs
from fastslow.competition.reader import read_npz
from fastslow.core.errors import DataError
from fastslow.core.settings import PROJECT, resolve
from fastslow.evaluation.predictions import read_predictions
from fastslow.evaluation.scores import read_solution, truth_of
from fastslow.features.store import Features
from fastslow_programs.program.default import find_default
from fastslow_programs.ranking.models import Models, read_models
from fastslow_programs.ranking.runs import find_run
from fastslow_programs.ranking.trust import LEVELS, TOLD, Trust

TABLE = {"hours": 0.02, "needs": ("run",)}
DATA = "data/sample"
SAID = {"50%": (0.5, 0.55), "80%": (0.75, 0.85), "90%": (0.86, 0.94)}
_MOST = 50  # configurations of a kernel whose pairs are compared
_SCORED = "collection", "distance", "score", "steepness"


class Held(NamedTuple):
    """A program that was held out: its score, the bands by level, its pairs and those with the default.

    Pairs are ``(2, n)``: the probability of the likelier order, and 1 where runtimes have it, 0.5 if equal.
    """

    score: float
    bands: list[tuple[float, float] | None]
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
    for one in of if trust.band(TOLD) else ():
        faster = np.delete(trust.faster(prediction, one), one)
        has = np.delete(0.5 + 0.5 * np.sign(runtime[one] - runtime), one)
        rows.append(np.array([np.maximum(faster, 1 - faster), np.where(faster > 0.5, has, 1 - has)]))
    return np.concatenate(rows, 1)


def hold_out(models: Models, runs: Path, collection: Collection, solution: dict) -> dict[str, list[Held]]:
    """Return the programs of a collection by split, each with what all other architectures promise."""
    seen, zoo = models.seen(collection.kind), architectures()
    truth = truth_of(Features(resolve(f"features/{runs.name}/{collection.slug}")), solution)
    predictions = read_predictions(find_run(runs, collection))
    programs = [(split, name) for split, own in truth.items() for name in own]
    kinds = np.array([zoo.get(name, zoo.get(name.rpartition("_")[0], name)) for _, name in programs])
    own, found = np.flatnonzero(seen.collection == COLLECTIONS.index(collection)), {}
    files = {p.name: p for split in truth for p in list_programs(resolve(DATA), collection, split)}
    for row, kind, (split, name) in zip(own, kinds, programs, strict=True):
        others = replace(seen, **{key: getattr(seen, key)[own[kinds != kind]] for key in _SCORED})
        near, given = seen.distance[row], (predictions[split][name], truth[split][name])
        trust = Trust(collection.kind, near, *others.at(collection, near), [])
        default = find_default(read_npz(files[name])).config
        pairs = pairs_of(trust, *given, range(min(len(given[0]), _MOST)))
        beside = pairs_of(trust, *given, [] if default is None else [default])
        bands = [trust.band(level) for level in LEVELS]
        found.setdefault(split, []).append(Held(float(seen.score[row]), bands, pairs, beside))
    return found


def share_right(pairs: list[np.ndarray], low: float, high: float) -> float:
    """Return the share of pairs that have the likelier order, where its probability is said to be within."""
    right = count = 0.0
    for said, has in pairs:
        within = (low <= said) & (said <= high)
        right, count = right + has[within].sum() / max(1, len(has)), count + within.sum() / max(1, len(has))
    return right / count if count else np.nan


def row_of(collection: str, split: str, held: list[Held]) -> dict:
    """Return how often bands and probabilities hold."""
    row = {"collection": collection, "held out": split, "programs": len(held)}
    row |= {"mean score": np.mean([own.score for own in held])}
    for place, level in enumerate(LEVELS):
        known = np.array([(own.score, *own.bands[place]) for own in held if own.bands[place]]).reshape(-1, 3)
        score, low, high = known.T
        row[f"in {level:.0%}"] = np.mean((low <= score) & (score <= high)) if len(known) else np.nan
        if level == TOLD:
            row |= {"width": np.mean(high - low), "without a band": len(held) - len(known)}
    row |= {f"said {name}": share_right([own.pairs for own in held], *ends) for name, ends in SAID.items()}
    beside = [own.default for own in held]
    return row | {f"default {name}": share_right(beside, *ends) for name, ends in SAID.items()}


def measure(runs: Path, solution: dict) -> list[dict]:
    """Return a row for each collection and split, and of all layout programs."""
    models, rows, layouts = read_models(runs), [], {}
    for collection in COLLECTIONS:
        for split, held in hold_out(models, runs, collection, solution).items():
            rows.append(row_of(collection.name, split, held))
            if collection.kind == "layout":
                layouts.setdefault(split, []).extend(held)
    layouts["both"] = [own for held in layouts.values() for own in held]
    return rows + [row_of("layout, all", split, held) for split, held in layouts.items()]


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default="runs/sample", help="folder of a run of make submit")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse_options(arguments)
    try:
        rows = measure(resolve(str(options.runs)), read_solution(resolve(f"{DATA}/solution.csv")))
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report.table([report.cells(row) for row in rows]))
    report.finish({"benchmark": "trust", "environment": report.environment(), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
