"""Count the evaluations that searches need beside the simplest rules, on pools of distinct configurations.

``python benchmarks/tune.py [--quick] [--run runs/sample] [--real ../shared/real] [--split valid]``, after
``make submit``. An evaluation is a look-up, so searches are exact and fast:

(a) Programs of architectures that training has not seen, by the compiler's estimates: the evaluations until
the best is within 5 % and 1 % of the best known configuration. These are fused kernels with all their tiles
and the layouts of whole programs in the sample. Configurations of equal estimates are one: the compiler makes
one program of them. (b) Every real file with measurements: the best of 16, 64 and 256 measurements over the
best of all.

Every search starts from the same random configuration of its seed, not from the compiler's default, which is
the best known configuration of most programs by the compiler's own estimate. The start counts as the first
evaluation, so at least two are needed where it is not good itself.

*guided* is what ``tune`` does: the order of the ensemble's prediction for four configurations, then the
nearest to the fastest; *no run* has a random order instead. A whole neighbourhood after 16 is how Helion
finishes its search. *Models fitted to the values* are the models of ``rank`` with known runtimes. An *order
of* something never changes. All propose one configuration at a time, if a row names no batch; Optuna's
process, which takes seconds for each, four, with one seed. The rule was chosen with ``--split valid``; the
table reports test programs.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import report
from common.command_line import run_main
from common.graph_files import REAL
from common.kept import finite, kept_parts
from common.labelled_sample import labelled_sample
from common.needs import GUIDED, needs_of, needs_table, summarise
from common.options import at_least, make_parser
from common.samplers import Learner, Sampler
from common.searches import Pool, distinct, replay_target, search
from fastslow.competition.catalog import TEST, VALID, Collection, ProgramFile
from fastslow.competition.reader import read_npz
from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow.ensemble.baselines import PRODUCT, RIDGE, SINGLE, fit_baselines
from fastslow.features.scaling import standardise
from fastslow.runs.features_folder import Features
from fastslow.steps.finished_run import FinishedRun
from fastslow.steps.unseen import build_unseen
from fastslow_programs.program.configurations import find_default
from fastslow_programs.ranking.choices import name_choices
from fastslow_programs.ranking.models import runs_folder
from fastslow_programs.tuning.search.guided import Guided
from fastslow_programs.tuning.search.strategies import Random

TABLE = {"hours": 0.2, "needs": ("run", "real", "optuna"), "commands": (("--run", "runs/sample"),)}
BUDGETS = (16, 64, 256)
BATCH = 8  # the default of tune
REAL_SEEDS = 5
NEVER = 10**9  # configurations before values decide: the order never changes
AT_THE_END = 16  # in the prediction's order, before the neighbourhood
OPTUNA_BATCH, OPTUNA_BUDGET = 4, 60
Search = tuple[Callable[[int], Any], int, int, int]  # strategy of a seed, batch, budget, seeds


def searches_of(pool: Pool, predictions: dict[str, np.ndarray], columns: np.ndarray, seeds: int) -> dict:
    """Return the searches by name, see :data:`Search`.

    Args:
        pool: The configurations.
        predictions: Of the ensemble and of rules, by name, of all configurations of the target.
        columns: ``(C, F)`` features of these.
        seeds: Number of starts.
    """
    space, every = pool.space, pool.space.size
    ensemble = pool.follow(predictions["ensemble"])

    def guided(prediction=None, start: int = 4, batch: int = 1) -> Search:
        return (lambda seed: Guided(space, prediction, start)), batch, every, seeds

    features = standardise(columns[pool.rows])
    found = {
        GUIDED: guided(ensemble),
        f"{GUIDED}, in batches of {BATCH}": guided(ensemble, batch=BATCH),
        f"neighbourhood after {AT_THE_END}": guided(ensemble, AT_THE_END),
        "models fitted to the values": ((lambda seed: Learner(space, ensemble, features)), 1, every, seeds),
    }
    for name, prediction in predictions.items():
        found[f"order of {name}"] = guided(pool.follow(prediction), NEVER)
    return found | {
        f"{GUIDED}, no run": guided(),
        f"{GUIDED}, no run, in batches of {BATCH}": guided(batch=BATCH),
        "random": ((lambda seed: Random()), 1, every, seeds),
        "TPE": (partial(Sampler, "tpe", space), 1, min(every, OPTUNA_BUDGET), seeds),
        "Optuna's process": (partial(Sampler, "gp", space), OPTUNA_BATCH, min(every, OPTUNA_BUDGET), 1),
    }


@cache
def rules(features: Path) -> dict:
    """Return the trivial rules of a collection, fitted on its train graphs."""
    return fit_baselines(Features(features)) if features.is_dir() else {}


def unseen(collection: Collection, path: Path, run: Path, seeds: int) -> dict:
    """(a): evaluations needed by search and distance to the best, of every seed."""
    target = replay_target(path, "none", collection.name)
    finished = FinishedRun(run / f"ensemble-{collection.slug}")
    program = read_npz(ProgramFile(collection, TEST, path))
    graphs = build_unseen(finished.folder, [program])
    graph, first = graphs.graph(TEST, path.stem), _rows(program)
    predictions = {"ensemble": finished.predict(graphs)[path.stem][first]}
    columns = np.asarray(graph.config_feat)
    fitted = rules(run.parents[1] / "features" / run.name / collection.slug)
    for name, rule in {"ridge": RIDGE, "one column": SINGLE, PRODUCT: PRODUCT}.items():
        if rule in fitted:
            predictions[name] = graph.expand(fitted[rule].predict(columns))[first]
    pool = distinct(target)
    searches = searches_of(pool, predictions, columns[graph.config_row][first], seeds)
    counts = {
        name: [needs_of(curve(pool, each, seed)) for seed in range(each[3])]
        for name, each in searches.items()
    }
    return {"counts": counts, "size": pool.space.size, "near": pool.near}


def _rows(program) -> np.ndarray:
    """Return the position in its file of each configuration of a target."""
    choices = name_choices(program, find_default(program))
    return np.unique(np.stack([choice.values for choice in choices], 1), axis=0, return_index=True)[1]


def curve(pool: Pool, search_plan: Search, seed: int) -> np.ndarray:
    """Return the best value after each evaluation over the best of all, minus 1."""
    strategy, batch, budget, _ = search_plan
    return search(pool.space, pool.labels, strategy(seed), budget, batch, seed).curve / pool.labels.min() - 1


def measured(options: argparse.Namespace, path: Path) -> dict | None:
    """(b): excess over the best after each budget, mean and maximum over seeds, by search.

    Returns:
        None for a file that cannot be searched, such as one without runtimes.
    """
    try:
        target = replay_target(path, options.run)
    except DataError as error:
        print(f"left out: {path.name}: {error.args[1]}", file=sys.stderr)
        return None
    pool = Pool(target.space, target.labels, np.arange(target.space.size))
    budgets, seeds = BUDGETS[: 1 if options.quick else None], 1 if options.quick else REAL_SEEDS
    space, budget = target.space, min(budgets[-1], target.space.size)
    searches: dict[str, Search] = {
        GUIDED: ((lambda seed: Guided(space, target.pretrained)), BATCH, budget, seeds),
        "order of the models": ((lambda seed: Guided(space, target.pretrained, NEVER)), BATCH, budget, seeds),
        f"{GUIDED}, no run": ((lambda seed: Guided(space)), BATCH, budget, seeds),
        "random": ((lambda seed: Random()), BATCH, budget, seeds),
    }
    excess = {}
    for name, each in searches.items():
        curves = [curve(pool, each, seed) for seed in range(seeds)]
        at = {b: [values[min(b, len(values)) - 1] for values in curves] for b in budgets}
        excess[name] = {str(b): [float(np.mean(values)), float(np.max(values))] for b, values in at.items()}
    return {"configurations": space.size, "within 1 %": pool.near, "excess": excess}


def measured_page(name: str, file: dict) -> str:
    """Return the table of one real file in Markdown."""
    title = f"## {name}: {file['configurations']} configurations, {file['within 1 %']:.0%} within 1 %"
    rows = [
        {"search": search_name} | {f"{b}, mean (max)": f"{m:.4%} ({x:.4%})" for b, (m, x) in excess.items()}
        for search_name, excess in file["excess"].items()
    ]
    return f"{title}\n\nBest measurement above the best of all.\n\n{report.table(rows)}"


def searches_page(title: str, group: dict) -> str:
    """Return the table of the searches of some programs in Markdown."""
    middle, smallest, largest = group["configurations"]
    text = (
        f"Programs: {group['programs']}, of {smallest} to {largest} distinct configurations (median {middle})"
        f", of which {group['within 1 %']:.1%} (median) are within 1 %. Evaluations needed, mean ± standard"
        f" error, and how many more than {GUIDED} from the same starts."
    )
    return f"## {title}\n\n{text}\n\n{report.table(needs_table(group))}"


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--run", default="", help="trained run that guides (default: the newest)")
    parser.add_argument("--real", type=Path, default=REAL, help="folder of labelled files: npz_all/ is in it")
    parser.add_argument(
        "--seeds", type=at_least(1), default=3, help="searches of an unseen program (default 3)"
    )
    parser.add_argument("--split", choices=(TEST, VALID), default=TEST, help="programs of (a)")
    options = parser.parse_args(arguments)
    options.seeds = 1 if options.quick else options.seeds
    return options


def measure(options: argparse.Namespace, folder: Path) -> dict:
    """Run all searches; return the figures."""
    run = runs_folder(options.run).resolve()
    kept = kept_parts(__file__, options, run)
    result: dict[str, dict] = {"unseen": {}, "measured": {}}
    cases = list(labelled_sample(folder, options.split))
    for name, kind in {"layouts": "layout", "kernels, all tiles": "tile"}.items():
        kind_cases = [case for case in cases if case[0].kind == kind][: 1 if options.quick else None]
        found = []
        for collection, path in progress(kind_cases, desc=name, unit="program"):
            key = f"{name}: {path.stem}"
            make = partial(unseen, collection, path, run, options.seeds)
            found.append(kept.part(key, make))
        result["unseen"][name] = summarise(found)
    files = sorted((options.real / "npz_all").rglob("*.npz"), key=lambda path: path.stat().st_size)
    for path in progress(files[: 2 if options.quick else None], desc="real files", unit="file"):
        name = f"{path.parent.parent.name}:{path.stem}"
        if figures := kept.part(f"measured {name}", partial(measured, options, path)):
            result["measured"][name] = figures
    return result


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse_options(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options, Path(folder))
    print(f"{options.seeds} seeds of unseen programs, {REAL_SEEDS} of real files.")
    pages = [searches_page(f"Unseen {name}", group) for name, group in result["unseen"].items()]
    pages += [measured_page(name, file) for name, file in result["measured"].items()]
    print("\n" + "\n\n".join(pages))
    report.finish(finite({"benchmark": "tune", "environment": report.environment(), **result}))
    return 0


if __name__ == "__main__":
    run_main(main)
