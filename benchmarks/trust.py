"""The score that ``fastslow rank`` expects of a program, against the score on test programs.

``python benchmarks/trust.py [--runs runs/sample]``, after ``make submit``. The expectation is a line over the
agreement of the members, fitted to the valid programs. The test programs have architectures of neither split.
Beside it: the mean score of the collection's valid programs, and a line over the distance to the nearest
train program. No test label is used but for the comparison.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from common import report
from common.options import make_parser
from fastslow.competition.catalog import COLLECTIONS, TEST, Collection
from fastslow.competition.metrics import collection_score
from fastslow.core.errors import DataError
from fastslow.core.settings import resolve
from fastslow.evaluation.predictions import read_predictions
from fastslow.evaluation.scores import as_submitted, read_solution, runtimes_of
from fastslow.features.store import Features, Graph
from fastslow_programs.ranking.experience import Experience, agreement
from fastslow_programs.ranking.models import load_models

TABLE = {"hours": 0.02, "needs": ("run",)}
LINES = ("agreement", "constant", "distance")


def expectations(experience: Experience, collection: Collection, program: Graph, members: list) -> dict:
    """Return the score to expect of a program, by the line that is fitted."""
    near, agreed = experience.to_nearest(program), agreement(members)
    lines = {
        "agreement": (experience, agreed),
        "constant": (replace(experience, agreement=np.zeros_like(experience.score)), 0.0),
        "distance": (replace(experience, agreement=-experience.distance), -near),
    }
    return {name: own.expect(collection, near, at) for name, (own, at) in lines.items()}


def measure(runs: Path, solution: dict) -> list[dict]:
    """Return one row per collection and line: the mean error, and how often the interval holds."""
    models, rows = load_models(runs), []
    for collection in COLLECTIONS:
        run, experience = models.of(collection), models.experience(collection.kind)
        features = Features(resolve(f"features/{runs.name}/{collection.slug}"))
        stored = as_submitted(read_predictions(run.folder)[TEST])
        scores = collection_score(collection.kind, runtimes_of(solution, collection), stored)["per_graph"]
        members = [read_predictions(member.folder)[TEST] for member in run.members.values()]
        found = {
            name: expectations(
                experience, collection, features.graph(TEST, name), [own[name] for own in members]
            )
            for name in scores
        }
        known = [name for name in scores if found[name]["constant"]]
        own = np.array([scores[name] for name in known])
        for line in LINES:
            expected, low, high = np.array([found[name][line] for name in known]).T
            rows.append(
                {
                    "collection": collection.name,
                    "line over": line,
                    "programs": len(known),
                    "farther than scored": len(scores) - len(known),
                    "mean score": own.mean(),
                    "mean error": np.abs(expected - own).mean(),
                    "width of the interval": np.mean(high - low),
                    "in the interval": np.mean((low <= own) & (own <= high)),
                }
            )
    return rows


def pooled(rows: list[dict]) -> list[dict]:
    """Return the mean over the layout programs, one row per line."""
    table = pd.DataFrame([row for row in rows if row["collection"].startswith("layout")])
    means = ("mean score", "mean error", "width of the interval", "in the interval")
    found = []
    for line, own in table.groupby("line over", sort=False):
        row = {"collection": "layout, all", "line over": line, "programs": int(own["programs"].sum())}
        row["farther than scored"] = int(own["farther than scored"].sum())
        found.append(row | {name: float(np.average(own[name], weights=own["programs"])) for name in means})
    return found


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
    rows += pooled(rows)
    print(report.table([report.cells(row) for row in rows]))
    report.finish({"benchmark": "trust", "environment": report.environment(), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
