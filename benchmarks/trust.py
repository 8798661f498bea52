"""How often the band of ``fastslow rank`` holds the score of a program that was held out.

``python benchmarks/trust.py [--runs runs/sample]``, after ``make submit``. The scores of valid programs make
the band. It is applied to each valid program in turn, without this program or any other of its architecture,
and to the test programs, of architectures in neither split. No test label is used but for the comparison.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from common import report
from common.options import make_parser
from fastslow.competition.catalog import COLLECTIONS, TEST, Collection
from fastslow.competition.metrics import collection_score
from fastslow.core.errors import DataError
from fastslow.core.settings import resolve
from fastslow.evaluation.predictions import read_predictions
from fastslow.evaluation.scores import as_submitted, read_solution, runtimes_of
from fastslow.features.store import Features
from fastslow_programs.ranking.models import read_models
from fastslow_programs.ranking.runs import find_run
from fastslow_programs.ranking.trust import Seen

TABLE = {"hours": 0.02, "needs": ("run",)}
Held = tuple[float, tuple[float, float] | None]
"""The score of a program that was held out, and its band."""


def held_valid(seen: Seen, collection: Collection, names: list[str]) -> Iterator[Held]:
    """Yield each valid program of a collection with the band of programs of other architectures."""
    own = np.flatnonzero(seen.collection == COLLECTIONS.index(collection))
    families = np.array([name.split("_")[0] for name in names])
    for row, family in zip(own, families, strict=True):
        rest = own[families != family]
        taken = {key: getattr(seen, key)[rest] for key in ("collection", "distance", "score")}
        yield float(seen.score[row]), replace(seen, **taken).band(collection, seen.distance[row])


def held_test(seen: Seen, collection: Collection, runs: Path, solution: dict) -> Iterator[Held]:
    """Yield each test program of a collection with its band."""
    features = Features(resolve(f"features/{runs.name}/{collection.slug}"))
    stored = as_submitted(read_predictions(find_run(runs, collection))[TEST])
    scores = collection_score(collection.kind, runtimes_of(solution, collection), stored)["per_graph"]
    for name, score in scores.items():
        yield score, seen.band(collection, seen.to_nearest(features.graph(TEST, name)))


def row_of(collection: str, programs: str, held: list[Held]) -> dict:
    """Return how often the band holds, over the programs that have one."""
    known = [(score, *band) for score, band in held if band]
    score, low, high = np.array(known).T
    return {
        "collection": collection,
        "held out": programs,
        "programs": len(held),
        "without a band": len(held) - len(known),
        "mean score": score.mean(),
        "width of the band": np.mean(high - low),
        "in the band": np.mean((low <= score) & (score <= high)),
    }


def measure(runs: Path, solution: dict) -> list[dict]:
    """Return a row for each collection and split, and one for all layout programs of a split."""
    models, rows, layouts = read_models(runs), [], {"valid": [], "test": []}
    for collection in COLLECTIONS:
        seen = models.seen(collection.kind)
        names = list(models.of(collection).manifest["valid"]["per_graph"])
        held = {
            "valid": list(held_valid(seen, collection, names)),
            "test": list(held_test(seen, collection, runs, solution)),
        }
        for split, own in held.items():
            rows.append(row_of(collection.name, split, own))
            layouts[split] += own * (collection.kind == "layout")
    return rows + [row_of("layout, all", split, own) for split, own in layouts.items()]


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default="runs/sample", help="folder of a run of make submit")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse_options(arguments)
    try:
        rows = measure(resolve(str(options.runs)), read_solution(resolve("data/sample/solution.csv")))
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report.table([report.cells(row) for row in rows]))
    report.finish({"benchmark": "trust", "environment": report.environment(), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
