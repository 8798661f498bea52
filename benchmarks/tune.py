"""Count the evaluations that a search needs, with and without guidance by a model, on labelled programs.

``python benchmarks/tune.py [--quick] [--run runs/sample] [--real ../shared/real]``, after ``make submit``. An
evaluation is a look-up, so searches are exact and fast:

(a) Every real file with measurements: the best of 16, 64 and 256 measurements over the best of all. (b)
Programs of architectures that training has not seen, by the compiler's estimates: the evaluations until the
best is within 5 % and 1 % of the best known configuration, and until it is that configuration. These are
fused kernels with all their tiles and the layouts of whole programs in the sample. (c) The evaluations that
trivial rules need on the test programs, evaluated in the order of their predictions.

Every search starts from the same random configuration of its seed, not from the compiler's default, which is
the best known configuration of most programs by the compiler's own estimate. The start counts as the first
evaluation.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from common import report
from common.graph_files import REAL
from common.kept import kept_parts
from common.needs import GUIDED, UNGUIDED, needs_of, rules_in_order, summarise
from common.options import make_parser
from common.searches import replay_target, sample_targets, search
from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow_programs.ranking.runs import runs_folder
from fastslow_programs.tuning.target import Target

TABLE = {"hours": 0.15, "needs": ("run", "real", "optuna"), "commands": (("--run", "runs/sample"),)}
OWN = f"{GUIDED}, no run"
STRATEGIES = (GUIDED, OWN, *UNGUIDED)
OF_REAL_FILES = (GUIDED, "random")
BUDGETS = (16, 64, 256)
REAL_BATCH, UNSEEN_BATCH = 8, 4  # evaluations between two fits
REAL_SEEDS = 5
Pair = tuple[Target, Target]  # a program with a run's prediction, and without


def curves(pair: Pair, names, budget, batch, seeds) -> dict[str, list[np.ndarray]]:
    """Return, by strategy, the best value after each evaluation over the best of all, minus 1, per seed."""
    best, found = pair[0].labels.min(), {}
    for name in names:
        target, plain = (pair[1], name.removesuffix(", no run")) if name == OWN else (pair[0], name)
        histories = [search(target, plain, budget, batch, seed) for seed in range(seeds)]
        found[name] = [history.curve / best - 1 for history in histories]
    return found


def measured(options: argparse.Namespace, path: Path) -> dict | None:
    """(a): excess over the best after each budget, mean and maximum over seeds, by strategy.

    Returns:
        None for a file that cannot be searched, such as one without runtimes.
    """
    try:
        targets = tuple(replay_target(path, run) for run in (options.run, "none"))
    except DataError as error:
        print(f"left out: {path.name}: {error.args[1]}", file=sys.stderr)
        return None
    budgets, labels = BUDGETS[: 1 if options.quick else None], targets[0].labels
    budget, seeds = min(budgets[-1], targets[0].space.size), 1 if options.quick else REAL_SEEDS
    excess = {}
    for name, own in curves(targets, OF_REAL_FILES, budget, REAL_BATCH, seeds).items():
        at = {b: [curve[min(b, len(curve)) - 1] for curve in own] for b in budgets}
        excess[name] = {str(b): [float(np.mean(values)), float(np.max(values))] for b, values in at.items()}
    near = float((labels <= 1.01 * labels.min()).mean())
    return {"configurations": targets[0].space.size, "within 1 %": near, "excess": excess}


def unseen(options: argparse.Namespace, pair: Pair) -> dict:
    """(b): evaluations needed by strategy and distance to the best, of every seed."""
    target = pair[0]
    found = curves(pair, STRATEGIES, target.space.size, UNSEEN_BATCH, options.seeds)
    near = float((target.labels <= 1.01 * target.labels.min()).mean())
    counts = {name: [needs_of(curve) for curve in own] for name, own in found.items()}
    return {"counts": counts, "size": target.space.size, "near": near}


def measured_page(name: str, file: dict) -> str:
    """Return the table of one real file in Markdown."""
    title = f"## {name}: {file['configurations']} configurations, {file['within 1 %']:.0%} within 1 %"
    rows = [
        {"strategy": strategy} | {f"{b}, mean (max)": f"{m:.4%} ({x:.4%})" for b, (m, x) in own.items()}
        for strategy, own in file["excess"].items()
    ]
    return f"{title}\n\nBest measurement above the best of all.\n\n{report.table(rows)}"


def searches_page(title: str, group: dict) -> str:
    """Return the table of the searches of some programs in Markdown."""
    rows = [
        {"strategy": strategy}
        | {w: f"{n[0]:.1f} ({'/'.join(f'{q:g}' for q in n[1:])})" for w, n in own.items()}
        for strategy, own in group["needed"].items()
    ]
    ratios = {w: f"{ratio:.1f}" for w, ratio in group["best unguided over guided"].items()}
    middle, smallest, largest = group["configurations"]
    text = (
        f"Programs: {group['programs']}, of {smallest} to {largest} configurations (median {middle}), of "
        f"which {group['within 1 %']:.1%} (median) are within 1 %. Evaluations needed, mean (quartiles)."
    )
    rows.append({"strategy": f"best unguided over {GUIDED}", **ratios})
    return f"## {title}\n\n{text}\n\n{report.table(rows)}"


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--run", default="", help="trained run that guides (default: the newest)")
    parser.add_argument("--real", type=Path, default=REAL, help="folder of labelled files: npz_all/ is in it")
    parser.add_argument("--seeds", type=int, default=3, help="searches of an unseen program (default 3)")
    options = parser.parse_args(arguments)
    options.seeds = 1 if options.quick else options.seeds
    return options


def measure(options: argparse.Namespace, folder: Path) -> dict:
    """Run all searches; return the figures."""
    kept = kept_parts(__file__, options, runs_folder(options.run))
    part = slice(0, 1 if options.quick else None)
    runs, result = (options.run, "none"), {"unseen": {}, "measured": {}}
    for name, kind in {"kernels, all tiles": "tile", "layouts": "layout"}.items():
        pairs, found = sample_targets(folder, runs, kind)[part], []
        for pair in progress(pairs, desc=name, unit="program"):
            key = f"{name}: {pair[0].name}, {pair[0].space.size}"
            found.append(kept.part(key, lambda p=pair: unseen(options, p)))
        result["unseen"][name] = summarise(found)
    files = sorted((options.real / "npz_all").rglob("*.npz"), key=lambda path: path.stat().st_size)
    for path in progress(files[: 2 if options.quick else None], desc="real files", unit="file"):
        name = f"{path.parent.parent.name}:{path.stem}"
        if found := kept.part(f"measured {name}", lambda p=path: measured(options, p)):
            result["measured"][name] = found
    return result


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse_options(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options, Path(folder))
    run = runs_folder(options.run)
    trained = (run / "ensemble-tile-xla" / "baselines").is_dir()  # a run of `make submit`, not the package's
    result["rules"] = rules_in_order(run, options.seeds) if trained else []
    print(f"{options.seeds} seeds of unseen programs, {REAL_SEEDS} of real files.")
    pages = [searches_page(f"Unseen {name}", group) for name, group in result["unseen"].items()]
    text = "Evaluations in the order of a rule's predictions, after the random start; means."
    pages += [f"## Trivial rules, in their order\n\n{text}\n\n{report.table(result['rules'])}"] * trained
    pages += [measured_page(name, file) for name, file in result["measured"].items()]
    print("\n" + "\n\n".join(pages))
    report.finish({"benchmark": "tune", "environment": report.environment(), **result})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
