"""Score a model where configurations of both searches are ranked together, and where they are apart.

``python benchmarks/mixed_searches.py [--runs runs/sample]``, after ``make submit``. Each layout test program
of the sample has a file of random configurations and one of a search near the compiler's default. Both are
predicted as one file, by networks and rankers that were trained on both. The same predictions are scored on
all configurations and within each file, as orders without ties. OPA is the share of pairs with different
runtimes that are ordered rightly; equal predictions count half. *Which file* is a rule that knows only the
file of a configuration: default is faster.
"""

import argparse
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from common import report
from common.command_line import run_main
from common.labelled_sample import labelled_sample
from common.options import make_parser
from common.pretrained import Pretrained, run_with_features
from fastslow.competition.catalog import TEST
from fastslow.competition.metrics import ordered_pair_accuracy, ranking_tau
from fastslow.core.npz_io import read_headers
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.steps.unseen import read_unseen

TABLE = {"hours": 0.03, "needs": ("run",), "commands": (("--runs", "runs/sample"),)}
RULE = "which file"


def evaluate(path: Path, pretrained: Pretrained, randoms: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return tau and OPA of a program by configurations and model; its first ``randoms`` rows are random."""
    graph = read_unseen(pretrained.features.folder, [path]).graph(TEST, path.stem)
    predictions = pretrained.predict(graph)
    predictions[RULE] = -(np.arange(len(graph.file_runtime)) >= randoms).astype(float)
    parts = {"random": slice(randoms), "default": slice(randoms, None), "together": slice(None)}
    return {
        part: {
            name: (
                ranking_tau(graph.file_runtime[rows], prediction[rows]),
                ordered_pair_accuracy(graph.file_runtime[rows], prediction[rows]),
            )
            for name, prediction in predictions.items()
            if name != RULE or part == "together"
        }
        for part, rows in parts.items()
    }


def rows_of(collection: str, programs: list[dict]) -> list[dict]:
    """Return a row for each part of the configurations: means over programs, and over seeds of a model."""
    rows = []
    for part in programs[0]:
        row = {"collection": collection, "configurations": part}
        for title, start in {"networks": "gnn", "rankers": "ranker", "ensemble": "ens", RULE: RULE}.items():
            model_scores = [
                scores for p in programs for name, scores in p[part].items() if name.startswith(start)
            ]
            tau, pairs = np.mean(model_scores, 0).tolist() if model_scores else ("", "")
            row |= {f"{title}, tau": tau, f"{title}, OPA": pairs}
        rows.append(row)
    return rows


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, help="folder of a run of make submit (default: the newest)")
    options: argparse.Namespace = parser.parse_args(arguments)
    runs, found = run_with_features(options.runs), {}
    pretrained = cache(lambda collection: Pretrained(runs, collection))
    with tempfile.TemporaryDirectory() as folder:
        cases = [case for case in labelled_sample(Path(folder), TEST) if case[0].kind == "layout"]
        for collection, path in progress(cases, desc="programs", unit="program"):
            apart = collection.folder(resolve("data/sample"), TEST) / path.name
            randoms = read_headers(apart)["config_runtime"].shape[0]
            part_scores = evaluate(path, pretrained(collection), randoms)
            found.setdefault(collection.name.removesuffix(":random"), []).append(part_scores)
    rows = [row for name, programs in found.items() for row in rows_of(name, programs)]
    print(report.table([report.cells(row) for row in rows]))
    report.finish({"benchmark": "mixed_searches", "environment": report.environment(), "rows": rows})
    return 0


if __name__ == "__main__":
    run_main(main)
