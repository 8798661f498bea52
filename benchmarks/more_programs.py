"""What more programs to train on buy: the same models trained on the sample, and on it and ``data/more``.

``python benchmarks/more_programs.py``, after ``make submit`` and ``make sample SIZE=more``. It trains three
further runs on the sample's train files and layout files of ``data/more``: ``runs/half`` has every other
architecture of the latter, ``runs/more`` has all, ``runs/smaller`` has the half of all these files whose
tensors are smaller. Settings, seeds, valid and test files are as in ``runs/sample``.
*gain* is the mean over programs of the score with these files minus the score without, plus or minus its
standard error; of networks and rankers it is the mean over seeds. Valid programs chose epochs and weights.

*Unseen*: programs of ``data/more`` that ``runs/half`` lacks, with many *reshapes* or *large* tensors, and
genuine files with TpuGraphs' runtimes. Means over programs, of networks and rankers *(minimum to maximum)*
over seeds. *rule* is the best single feature on the train programs, *ridge* the regression on configuration
features that is fitted to them. *ceiling* is what the noise of repeated configurations leaves possible on
distinct ones. *minus ridge*: the ensemble minus ridge, ± the standard error over programs. *Shares*, medians
over random files: reshapes among configurable nodes, and outputs, inputs and kernels left to the compiler
(-1), as in ``data/README.md``.

*By size*: the larger half, ranked by ``runs/smaller``. *size shift* is the number of standard deviations by
which their tensors are larger than its train programs' (``FinishedRun.size_shift``). *networks* and
*rankers* are the mean of three seeds. *ensemble* joins them with the ensemble's weights, *equal* with the
same weight for both, *as ranked* as ``fastslow rank`` does. ± is the standard error over programs, both
searches of one together.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Container, Iterator
from itertools import pairwise, product
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from common import report
from common.ceilings import distinct_ceiling
from common.command_line import run_main
from common.graph_files import REAL
from common.options import make_parser
from common.pretrained import labelled_files
from fastslow.competition.catalog import COLLECTIONS, TEST, TRAIN, VALID, ProgramFile, list_programs
from fastslow.competition.layouts import LAYOUT_WIDTH
from fastslow.competition.metrics import ranking_tau
from fastslow.competition.node_columns import SHAPE_PRODUCT
from fastslow.competition.opcodes import RESHAPE
from fastslow.competition.reader import read_npz
from fastslow.core.npz_io import read_arrays
from fastslow.core.settings import PROJECT, resolve
from fastslow.ensemble.baselines import fit_ridge, predict_configs, read_examples
from fastslow.ensemble.weights import combine, equal_weights
from fastslow.evaluation.compare import CompareSettings, compare_table
from fastslow.evaluation.paired import clustered_mean, paired_results
from fastslow.evaluation.scores import list_runs
from fastslow.runs.features_folder import Features
from fastslow.steps.finished_run import best_rule
from fastslow.steps.unseen import build_unseen
from fastslow_programs.ranking.models import Models

TABLE = {"hours": 0.3, "needs": ("fastslow", "run", "real", "more")}
SAMPLE, MORE = "data/sample", "data/more"
RUNS = {name: f"runs/{name}" for name in ("sample", "half", "more", "smaller")}  # by what they are trained on
_SHIFTS = (-np.inf, 0.5, 1.0, 1.5, np.inf)  # bounds of the size shift of a row of *By size*
_ARRAYS = "node_opcode", "node_config_ids", "node_config_feat"
LAYOUTS = [collection for collection in COLLECTIONS if collection.kind == "layout"]


def further(collection, parts: Container[int]) -> list[ProgramFile]:
    """Return the programs of ``data/more`` whose architecture has one of these remainders modulo 2."""
    programs = list_programs(resolve(MORE), collection, TRAIN)
    architectures = [re.split("_(forward|train|adam)_", program.name)[0] for program in programs]
    number = {name: number for number, name in enumerate(sorted({*architectures}))}
    return [p for p, name in zip(programs, architectures, strict=True) if number[name] % 2 in parts]


def larger_half(collection) -> set[str]:
    """Return the train programs of sample and ``data/more`` whose tensors are larger than the median."""
    programs = list_programs(resolve(SAMPLE), collection, TRAIN) + further(collection, {0, 1})
    sizes = {program.name: _mean_log_size(program.path) for program in programs}
    return {name for name, size in sizes.items() if size > median(sizes.values())}


def _mean_log_size(path: Path) -> float:
    elements = read_arrays(path, ["node_feat"])["node_feat"][:, SHAPE_PRODUCT]
    return float(np.log1p(np.maximum(elements, 0)).mean())


def train(title: str, parts: Container[int], left_out: Callable[..., Container[str]] = lambda _: ()) -> None:
    """Write the sample with some further train files to a folder of ``data``, and train a run on it.

    Args:
        title: Name of the run; the folder is ``sample_and_TITLE``.
        parts: Of the further programs, see :func:`further`.
        left_out: Returns the names of the train programs of a collection that are left out.
    """
    data = f"data/sample_and_{title}"
    shutil.rmtree(resolve(data), ignore_errors=True)
    shutil.copytree(resolve(SAMPLE), resolve(data))
    for collection in LAYOUTS:
        folder, names = collection.folder(resolve(data), TRAIN), left_out(collection)
        for program in further(collection, parts):
            shutil.copy(program.path, folder)
        for path in [path for path in folder.glob("*.npz") if path.stem in names]:
            path.unlink()
    command = [sys.executable, "-m", "fastslow", "submit", f"data={data}", "preset=sample", f"name={title}"]
    subprocess.run(command, check=True, cwd=PROJECT, stdout=sys.stderr)


def gains(split: str) -> list[dict]:
    """Return the scores of the first and the last run on a split by collection and model, and the gain."""
    tables: dict[tuple[str, str], list[pd.DataFrame]] = {}
    for collection in LAYOUTS:
        features = f"features/{RUNS['sample'].removeprefix('runs/')}/{collection.slug}"
        settings = CompareSettings(one="more", other="sample", split=split, features=features)
        ensembles = [resolve(RUNS[title]) / f"ensemble-{collection.slug}" for title in ("sample", "more")]
        for (model, *_, other), (*_, one) in zip(*map(list_runs, ensembles), strict=True):
            model = model.removesuffix(f"-{collection.slug}")
            for name in (collection.name, "layout, all"):
                tables.setdefault((name, model), []).append(compare_table(settings, [one], [other])[0])
    rows = []
    for (collection, model), model_tables in sorted(tables.items()):
        table = pd.concat(model_tables).groupby("graph").mean()
        ((_, facts),) = paired_results({collection: table}).iterrows()
        row = {"collection": collection, "model": model, "programs": len(table)}
        row |= {"sample": table["other"].mean(), "more": table["one"].mean()}
        rows.append(row | {"gain": f"{facts['difference']:+.3f} ± {facts['standard_error']:.3f}"})
    return rows


def unseen() -> Iterator[dict]:
    """Yield the scores on the programs of ``data/more`` that ``runs/half`` lacks, and on genuine files."""
    for kind, collection in product(("reshapes", "large"), LAYOUTS):
        kind_files = [p for p in further(collection, {1}) if p.name.startswith("large_") == (kind == "large")]
        yield from _scores(f"{collection.name}, {kind}", kind_files, "half")
    for collection, path in labelled_files(REAL):
        if collection in LAYOUTS:
            yield from _scores(path.stem, [ProgramFile(collection, TRAIN, path)], "more")


def _scores(what: str, files: list[ProgramFile], other: str) -> Iterator[dict]:
    """Yield means over the programs with several configurations for the first run, then for another one."""
    programs = [p for p in (read_npz(file, labelled=True) for file in files) if len(p.choices.varying)]
    for title in ("sample", other) if programs else ():
        run = Models(resolve(RUNS[title])).of(files[0].collection)
        graphs = build_unseen(run.folder, programs)
        learned = Features(resolve(f"{RUNS[title].replace('runs', 'features', 1)}/{run.collection.slug}"))
        ridge = fit_ridge(read_examples(learned))
        members, taus, ceilings = run.predict_members(graphs), {}, []
        for name in (program.name for program in programs):
            graph = graphs.graph(TEST, name)
            orders = {model: predictions[name] for model, predictions in members.items()}
            orders["rule"] = best_rule(run, graphs, name).prediction
            orders["ridge"] = predict_configs(ridge, graph)
            for model, order in orders.items():
                taus.setdefault(model, []).append(ranking_tau(graph.runtime, order[graph.config_ids]))
            ceilings.append(distinct_ceiling(graph.file_runtime, graph.config_row))
        means = {model: float(np.mean(model_taus)) for model, model_taus in taus.items()}
        row = {"programs": what, "number": len(programs), "trained on": title}
        for kind in ("gnn", "ranker"):
            row[kind] = report.spread([mean for model, mean in means.items() if model.startswith(kind)])
        row |= {"ensemble": means[run.name], "rule": means["rule"], "ridge": means["ridge"]}
        ahead = pd.Series(taus[run.name]) - pd.Series(taus["ridge"])
        row["minus ridge"] = f"{ahead.mean():+.3f}" + (f" ± {ahead.sem():.3f}" if len(ahead) > 1 else "")
        yield row | {"ceiling": float(np.mean(ceilings))}


def by_size() -> list[dict]:
    """Return the scores of ``runs/smaller`` on the larger half, by size shift."""
    scores = pd.DataFrame([row for collection in LAYOUTS for row in _larger(collection)])
    rows = []
    for low, high in pairwise(_SHIFTS):
        part = scores[(scores["shift"] > low) & (scores["shift"] <= high)].drop(columns="shift")
        if len(part):
            gain = (part["rankers"] - part["ensemble"]).groupby(part.pop("program")).mean()
            row = {"size shift": f"{low:g} to {high:g}", "rankings": len(part), "programs": len(gain)}
            row |= part.mean().to_dict()
            facts = clustered_mean({"rankers - ensemble": gain})
            rows.append(row | {"rankers - ensemble": f"{facts['mean']:+.3f} ± {facts['standard_error']:.3f}"})
    return rows


def _larger(collection) -> Iterator[dict]:
    """Yield the scores on each program of the larger half with several configurations."""
    run, names = Models(resolve(RUNS["smaller"])).of(collection), larger_half(collection)
    files = list_programs(resolve(SAMPLE), collection, TRAIN) + further(collection, {0, 1})
    for program in (read_npz(file, labelled=True) for file in files if file.name in names):
        if not len(program.choices.varying):
            continue
        graphs = build_unseen(run.folder, [program])
        graph, predictions = graphs.graph(TEST, program.name), run.predict_members(graphs)
        members = {
            name: {TEST: graph_predictions}
            for name, graph_predictions in predictions.items()
            if name != run.name
        }
        networks, rankers = (
            [name for name in members if name.startswith(kind)] for kind in ("gnn", "ranker")
        )
        chosen = {name: member["weight"] for name, member in run.manifest["members"].items()}
        weights = {"networks": equal_weights([networks]), "rankers": equal_weights([rankers])}
        weights |= {"ensemble": chosen, "equal": equal_weights([networks, rankers])}
        weights["as ranked"] = run.weights(graph)
        row = {"program": program.name, "shift": run.size_shift(graph)}
        for way, shares in weights.items():
            joined = combine(members, TEST, "min_max", shares)[program.name]
            row[way] = ranking_tau(graph.runtime, joined[graph.config_ids])
        yield row


def shares() -> Iterator[dict]:
    """Yield what the random files of a folder have, see the module."""
    for title, root in {SAMPLE: resolve(SAMPLE), MORE: resolve(MORE), "TpuGraphs": REAL}.items():
        for collection in (c for c in LAYOUTS if c.name.endswith(":random")):
            reshapes, left = [], []
            for path in collection.folder(root, TRAIN).parent.glob("*/*.npz"):
                opcode, ids, values = read_arrays(path, _ARRAYS).values()
                reshapes.append((opcode[ids] == RESHAPE).mean())
                left.append((values.reshape(-1, LAYOUT_WIDTH) == -1).all(-1).mean())
            if left:
                row = {"folder": title, "collection": collection.name, "files": len(left)}
                yield row | {"reshapes": median(reshapes), "left to the compiler": median(left)}


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    if make_parser(__doc__.splitlines()[0]).parse_args(arguments).quick:
        RUNS.update(dict.fromkeys(RUNS, RUNS["sample"]))
    else:
        train("half", {0})
        train("more", {0, 1})
        train("smaller", {0, 1}, larger_half)
    tables = {"Test": gains(TEST), "Valid": gains(VALID)}
    tables |= {"Unseen": [*unseen()], "By size": by_size(), "Shares": [*shares()]}
    for title, rows in tables.items():
        print(f"## {title}\n\n{report.table([report.cells(row) for row in rows])}\n")
    report.finish({"benchmark": "more_programs", "environment": report.environment(), **tables})
    return 0


if __name__ == "__main__":
    run_main(main)
