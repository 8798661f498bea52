"""Rank programs for another TPU generation with models that were trained on labels for TPU v3.

``python benchmarks/transfer.py [--quick] [--runs runs/sample] [--generations v2 v5e]``, after ``make
submit`` and ``.venv/bin/pip install -e '.[compiler]'``. The compiler labels programs of architectures that
training has not seen for another generation, under the sample's own configurations. The predictors are models
trained for v3 without change, v3's own labels, and v3's best single feature.

Tables show Kendall's tau with the compiler's estimated cycles, mean over programs, and mean (minimum to
maximum) over seeds. The programs of valid chose epochs and weights, for v3. Nothing is chosen on these
scores. An instruction without an estimate counts the bytes that it moves. Labels are kept in
``benchmarks/results/transfer``: an interrupted call resumes.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from common import report
from common.options import make_parser
from common.relabel import Relabelled, relabel, smallest_programs
from fastslow.competition.catalog import TEST, get_collection
from fastslow.competition.metrics import kendall_tau
from fastslow.core.settings import resolve
from fastslow.evaluation.baselines import SINGLE, fit_baselines, predict_configs
from fastslow.features.store import Features
from fastslow.features.unseen import build_unseen
from fastslow.ranking.inference import FinishedRun
from fastslow.ranking.runs import runs_folder
from fastslow.xla.compile_pool import Labeller
from fastslow.xla.libtpu import TOPOLOGIES, require_compiler

TABLE = {"hours": 1.0, "needs": ("run", "libtpu")}
COLLECTION = "layout:xla:random"


def mean_tau(programs: Sequence[Relabelled], generation: str, predictions: dict[str, np.ndarray]) -> float:
    """Return the mean tau of predictions by name of the file."""
    found = [kendall_tau(p.cycles[generation], predictions[p.program.name]) for p in programs]
    return float(np.mean(found))


def zero_shot(
    run: FinishedRun, features: Features, programs: list[Relabelled], generation: str
) -> dict[str, list[float]]:
    """Return the mean taus of all predictors, one per seed.

    Args:
        run: The ensemble trained for v3.
        features: The features that it was trained on.
        programs: Programs to rank.
        generation: The generation of the labels.
    """
    graphs = build_unseen(run.folder, [p.file(generation) for p in programs])
    members, single = run.predict_members(graphs), fit_baselines(features)[SINGLE]
    rules = {
        f"{SINGLE} of v3": {g: predict_configs(single, graphs.graph(TEST, g)) for g in graphs.names(TEST)},
        "v3's own labels": {p.program.name: p.cycles["v3"] for p in programs},
        "ensemble": members[run.name],
    }
    found = {name: [mean_tau(programs, generation, own)] for name, own in rules.items()}
    for name, own in members.items():
        if name != run.name:
            found.setdefault(name.partition("-")[0], []).append(mean_tau(programs, generation, own))
    return found


def useful(programs: list[Relabelled], generation: str) -> list[Relabelled]:
    """Return the programs of which two configurations differ for v3 and for the generation."""
    return [p for p in programs if all(len(np.unique(p.cycles[g])) > 1 for g in ("v3", generation))]


def evaluate(run: FinishedRun, features: Features, labeller: Labeller, options: argparse.Namespace) -> dict:
    """Label and rank the programs for every generation."""
    programs = smallest_programs(options.data_root, COLLECTION, ("valid", "test"), options.programs)
    results = {}
    for generation in options.generations:
        counts = dict.fromkeys(programs, options.configs)
        labelled = relabel(options.data_root, counts, [generation], labeller)
        own = useful(labelled, generation)
        results[generation] = {
            "programs": [p.name for p in own],
            "configs": sum(len(p.rows) for p in own),
            "without estimate": float(np.mean([p.missing[generation] for p in labelled])),
            "tau": zero_shot(run, features, own, generation),
        }
    return results


def tables(results: dict) -> str:
    """Return the Markdown tables of all generations."""
    names = dict.fromkeys(name for own in results.values() for name in own["tau"])
    rows = [
        {"predictor": name} | {g: report.spread(own["tau"].get(name, [])) for g, own in results.items()}
        for name in names
    ]
    facts = [
        {
            "generation": generation,
            "programs": len(own["programs"]),
            "configurations": own["configs"],
            "instructions without an estimate": f"{own['without estimate']:.0%}",
        }
        for generation, own in results.items()
    ]
    return f"{report.table(facts)}\n\n{report.table(rows)}"


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    add = parser.add_argument
    add("--runs", type=Path, help="folder of a run of make submit (default: the newest)")
    add("--data-root", type=Path, default=resolve("data/sample"), help="the sample (default data/sample)")
    add("--generations", nargs="+", default=["v2", "v5e"], choices=[g for g in TOPOLOGIES if g != "v3"])
    add("--programs", type=int, default=6, help="programs to rank, the smallest (default 6)")
    add("--configs", type=int, default=12, help="configurations of each (default 12)")
    add("--processes", type=int, default=2, help="compiles side by side (default 2)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.programs, options.configs, options.generations = 2, 3, ["v2"]
    return options


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse_options(arguments)
    require_compiler()
    torch.set_num_threads(1)
    runs = runs_folder(options.runs)
    run = FinishedRun(runs / f"ensemble-{get_collection(COLLECTION).slug}")
    features = Features(runs.parents[1] / "features" / runs.name / run.collection.slug)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if options.quick else report.RESULTS / "transfer"
        labeller = Labeller(folder / "labels.sqlite", processes=options.processes, seconds=600)
        results = evaluate(run, features, labeller, options)
    print(f"Run `{runs.name}` of commit {run.manifest['commit']}, {COLLECTION}.\n\n{tables(results)}")
    facts = {"environment": report.environment(), "run": runs.name, "generations": results}
    report.finish({"benchmark": "transfer", **facts})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
