"""What more programs to train on buy: the same models trained on the sample, and on the sample and data/more.

``python benchmarks/more_programs.py``, after ``make submit`` and ``make sample SIZE=more``. It trains
``runs/more`` on ``data/both``: the sample, with the layout files of ``data/more`` among its train files.
Settings, seeds, valid and test files are as in ``runs/sample``. *gain* is the mean over programs of the
score with these files minus the score without, plus or minus its standard error; of networks and rankers it
is the mean over seeds. Valid programs chose the epochs and the weights of both runs.

*Genuine* files have runtimes that TpuGraphs measured. *(minimum to maximum)* is over seeds, *rule* the best
single feature on the train programs, *ceiling* what the noise of repeated configurations leaves possible.
*Shares*, means over random files: reshapes among configurable nodes, and outputs and inputs left to the
compiler (-1).
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd

from common import report
from common.graph_files import REAL
from common.options import make_parser
from common.pretrained import labelled_files
from fastslow.competition.catalog import COLLECTIONS, TEST, TRAIN, VALID, ProgramFile, list_programs
from fastslow.competition.data_quality import quality_of
from fastslow.competition.layouts import LAYOUT_WIDTH
from fastslow.competition.metrics import ranking_tau
from fastslow.competition.opcodes import RESHAPE
from fastslow.competition.reader import read_npz
from fastslow.core.npz_io import read_arrays
from fastslow.core.settings import PROJECT, resolve
from fastslow.evaluation.compare import CompareSettings, compare_table, paired_difference
from fastslow.evaluation.scores import list_runs
from fastslow.features.unseen import build_unseen
from fastslow_programs.ranking.models import Models
from fastslow_programs.ranking.rules import best_rule

TABLE = {"hours": 0.15, "needs": ("fastslow", "run", "real", "more")}
SAMPLE, MORE, BOTH = "data/sample", "data/more", "data/both"
RUNS = {"sample": "runs/sample", "both": "runs/more"}
"""Folder of a run by the data that it was trained on."""
_ARRAYS = "node_opcode", "node_config_ids", "node_config_feat"
LAYOUTS = [collection for collection in COLLECTIONS if collection.kind == "layout"]


def train() -> None:
    """Write the folder with the train files of both, and train the second run on it."""
    shutil.rmtree(resolve(BOTH), ignore_errors=True)
    shutil.copytree(resolve(SAMPLE), resolve(BOTH))
    for collection in LAYOUTS:
        for program in list_programs(resolve(MORE), collection, TRAIN):
            shutil.copy(program.path, collection.folder(resolve(BOTH), TRAIN))
    command = [sys.executable, "-m", "fastslow", "submit", f"data={BOTH}", "preset=sample", "name=more"]
    subprocess.run(command, check=True, cwd=PROJECT, stdout=sys.stderr)


def gains(split: str) -> list[dict]:
    """Return the scores of both runs on a split by collection and model, and the gain."""
    tables: dict[tuple[str, str], list[pd.DataFrame]] = {}
    for collection in LAYOUTS:
        features = f"features/{RUNS['sample'].removeprefix('runs/')}/{collection.slug}"
        settings = CompareSettings(one="both", other="sample", split=split, features=features)
        ensembles = [resolve(runs) / f"ensemble-{collection.slug}" for runs in RUNS.values()]
        for (model, *_, other), (*_, one) in zip(*map(list_runs, ensembles), strict=True):
            model = model.removesuffix(f"-{collection.slug}")
            for name in (collection.name, "layout, all"):
                tables.setdefault((name, model), []).append(compare_table(settings, one, other))
    rows = []
    for (collection, model), own in sorted(tables.items()):
        table = pd.concat(own).groupby("graph").mean()
        facts = paired_difference(table)
        row = {"collection": collection, "model": model, "programs": len(table)}
        row |= {"sample": table["other"].mean(), "both": table["one"].mean()}
        rows.append(row | {"gain": f"{facts['mean']:+.3f} ± {facts['standard_error']:.3f}"})
    return rows


def genuine() -> Iterator[dict]:
    """Yield the tau of both runs on each layout file with measured runtimes."""
    for collection, path in labelled_files(REAL):
        if collection.kind != "layout":
            continue
        program = read_npz(ProgramFile(collection, TEST, path))
        for title, runs in RUNS.items():
            run = Models(resolve(runs)).of(collection)
            graphs = build_unseen(run.folder, [program])
            graph = graphs.graph(TEST, program.name)
            orders = {name: own[program.name] for name, own in run.predict_members(graphs).items()}
            orders["rule"] = best_rule(run, graphs, program.name).prediction
            tau = {name: ranking_tau(graph.runtime, own[graph.config_ids]) for name, own in orders.items()}
            row = {"program": program.name, "trained on": title}
            for name, start in {"networks": "gnn", "rankers": "ranker"}.items():
                row[name] = report.spread([own for member, own in tau.items() if member.startswith(start)])
            row |= {"ensemble": tau[run.name], "rule": tau["rule"]}
            yield row | {"ceiling": float(quality_of(graph.file_runtime, graph.config_row).ceiling)}


def shares() -> Iterator[dict]:
    """Yield what the random files of a folder have, see the module."""
    for title, root in {SAMPLE: resolve(SAMPLE), MORE: resolve(MORE), "TpuGraphs": REAL}.items():
        for collection in (c for c in LAYOUTS if c.name.endswith(":random")):
            reshapes, left = [], []
            for path in collection.folder(root, TRAIN).parent.glob("*/*.npz"):
                opcode, ids, values = read_arrays(path, _ARRAYS).values()
                reshapes.append((opcode[ids] == RESHAPE).mean())
                tensors = values.reshape(*values.shape[:2], -1, LAYOUT_WIDTH)[:, :, :2]
                left.append((tensors == -1).all(-1).mean())
            if left:
                row = {"folder": title, "collection": collection.name, "files": len(left)}
                yield row | {
                    "reshapes": float(np.mean(reshapes)),
                    "left to the compiler": float(np.mean(left)),
                }


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    if make_parser(__doc__.splitlines()[0]).parse_args(arguments).quick:
        RUNS["both"] = RUNS["sample"]
    else:
        train()
    tables = {"Test": gains(TEST), "Valid": gains(VALID)}
    tables |= {"Genuine files": [*genuine()], "Shares": [*shares()]}
    for title, rows in tables.items():
        print(f"## {title}\n\n{report.table([report.cells(row) for row in rows])}\n")
    report.finish({"benchmark": "more_programs", "environment": report.environment(), **tables})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
