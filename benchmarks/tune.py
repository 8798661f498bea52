"""How many evaluations a search needs, guided and unguided, on labelled programs.

``python benchmarks/tune.py [--quick] [--run runs/sample] [--real ../shared/real]``, after ``make submit`` and
``pip install -r benchmarks/requirements.txt``. An evaluation is a look-up, so searches are exact and cheap:

(a) on every real file with measured runs, the best of 16, 64 and 256 measurements over the best of all;
(b) on programs of architectures that training has not seen, the evaluations until the best is within 5 % and
    1 % of the best known configuration, and until it is that, by the compiler's estimates: fused kernels with
    all their tiles, the layouts of whole programs as the sample has them, and larger pools of layouts, drawn
    at random and compiled (``--minutes`` of compiles, kept in ``data/labels``);
(c) candidates scored per second;
(d) the kernels as a fleet with weights: what is saved, by budget and by who decides;
(e) what trivial rules need on the test programs, whose configurations are evaluated in their order.

Every search starts from the same random configuration of its seed, not from the compiler's default, which is
the best known of most programs by the compiler's own estimate. It counts as the first evaluation.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from common import report
from common.fleets import fleet_curves, fleet_page, fleet_tables, plot_fleet
from common.graph_files import REAL
from common.in_order import pools_in_order, rules_in_order
from common.kept import Kept
from common.needs import GUIDED, UNGUIDED, WITHIN, join, needed, summarise
from common.options import make_parser
from common.pools import LARGE, LAYOUTS, kernel_pools, layout_config, layout_pools
from common.searches import replay_target, search, unseen_programs
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.ranking.inference import runs_folder
from fastslow.tuning.history import History, Outcome
from fastslow.tuning.settings import TuneSettings
from fastslow.tuning.target import Target, read_target
from fastslow.tuning.tune import make_strategy, propose

TABLE = Path(__file__).parent / "tables" / "tune.md"
OWN = "guided evolutionary, no run"
OF_REAL_FILES = (*GUIDED, OWN, "random", "evolutionary", "annealing")  # the others take minutes there
BUDGETS = (16, 64, 256)
LABELS = "data/labels/labels.sqlite"
DRAWN = "layouts, drawn at random"
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

    None for a file that cannot be searched, such as one without runtimes.
    """
    try:
        targets = tuple(replay_target(path, run) for run in (options.run, "none"))
    except DataError as error:
        print(f"left out: {path.name}: {error.args[1]}")
        return None
    budget = min(options.budgets[-1], targets[0].space.size)
    names = [name for name in options.strategies if name in OF_REAL_FILES]
    found = curves(targets, names, budget, options.batch, options.real_seeds)
    return {
        "configurations": targets[0].space.size,
        "within 1 %": float((targets[0].labels <= 1.01 * targets[0].labels.min()).mean()),
        "excess": {
            name: {
                str(b): [float(np.mean(at)), float(np.max(at))]
                for b in options.budgets
                for at in [[curve[min(b, len(curve)) - 1] for curve in own]]
            }
            for name, own in found.items()
        },
    }


def unseen(options: argparse.Namespace, pair: Pair) -> dict:
    """(b): evaluations needed by strategy and share, of every seed."""
    target = pair[0]
    found = curves(pair, options.strategies, target.space.size, options.small_batch, options.seeds)
    counts = {n: {str(w): [needed(c, w) for c in own] for w in WITHIN} for n, own in found.items()}
    near = float((target.labels <= 1.01 * target.labels.min()).mean())
    return {"counts": counts, "size": target.space.size, "near": near}


def groups(options: argparse.Namespace, folder: Path) -> dict[str, list[Pair]]:
    """Return the unseen programs of (b) by kind."""
    runs, quick = (options.run, "none"), slice(0, 1 if options.quick else None)
    programs = unseen_programs(folder)[quick]
    found = {
        "kernels, all tiles": kernel_pools(folder, runs)[quick],
        "layouts of the sample": [tuple(replay_target(p, run, c) for run in runs) for p, c in programs],
    }
    labels = resolve(LABELS)
    if not options.quick and options.pool and labels.is_file():
        pools = layout_pools(LAYOUTS, folder, runs, options.pool, options.minutes, labels)
        found[DRAWN] = pools
    return {name: pairs for name, pairs in found.items() if pairs}


def plot(found: dict[str, dict]) -> Figure:
    """Draw the share of searches that are within 5 % and 1 %, over evaluations, by kind of program."""
    figure = Figure(figsize=(9, 3.2 * len(found)), layout="constrained")
    for row, (title, raw) in zip(
        figure.subplots(len(found), 2, sharey=True, squeeze=False), found.items(), strict=True
    ):
        for axes, within in zip(row, WITHIN, strict=False):
            for name, by_share in raw["counts"].items():
                counts = np.sort(by_share[str(within)])
                style = "-" if name.startswith("guided") else ":"
                shares = np.arange(1, len(counts) + 1) / len(counts)
                axes.step(counts, shares, style, where="post", label=name)
            axes.set(xscale="log", xlabel="evaluations")
            axes.set_title(f"{title}: within {within:.0%} of the best known", fontsize=9)
        row[0].set_ylabel("share of searches")
    figure.axes[0].legend(fontsize=7)
    return figure


def speed(options: argparse.Namespace, folder: Path) -> float | None:
    """(c): candidates scored per CPU second of a program's open space, the run's predictions included."""
    try:
        target = read_target(layout_config(LARGE, folder, options.run, resolve(LABELS)))
    except SettingsError as error:
        print(f"candidates per second: {error}")
        return None
    settings = TuneSettings()
    history, strategy = History(target.space), make_strategy(settings, target)[0]
    for place, proposal in enumerate(propose(history, make_strategy(settings, target)[0], 16, 0)):
        history.add(proposal, Outcome(1.0 + place))
    began = time.process_time()
    strategy.ranked(history, settings.batch, np.random.default_rng(0))
    return strategy.guide.scored / (time.process_time() - began)


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--run", default="", help="trained run that guides (default: the newest)")
    parser.add_argument("--real", type=Path, default=REAL, help="folder of labelled files: npz_all/ is in it")
    parser.add_argument("--seeds", type=int, default=3, help="searches of an unseen program (default 3)")
    parser.add_argument("--real-seeds", type=int, default=10, help="searches of a real file (default 10)")
    parser.add_argument("--pool", type=int, default=64, help="layouts drawn of a program, 0 for none")
    parser.add_argument("--minutes", type=float, default=0.0, help="time for compiles that are not cached")
    parser.add_argument("--batch", type=int, default=8, help="evaluations between two fits, real files")
    parser.add_argument("--small-batch", type=int, default=4, help="the same, unseen programs")
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS, help="of (a): default 16 64 256")
    every = (*GUIDED, OWN, *UNGUIDED)
    parser.add_argument("--strategies", nargs="+", default=every, choices=every, help="default: all")
    parser.add_argument("--table", type=Path, help=f"Markdown file to write (default tables/{TABLE.name})")
    parser.add_argument("--keep", type=Path, help="file of finished parts, with which the next run resumes")
    options = parser.parse_args(arguments)
    options.budgets = options.budgets[: 1 if options.quick else None]
    if options.quick:
        options.seeds = options.real_seeds = 1
    options.table = options.table or (None if options.quick else TABLE)
    return options


def make_page(result: dict) -> str:
    """Return the Markdown page of all tables."""
    parts = ["# tune.py: evaluations that a search needs", "```\n.venv/bin/python benchmarks/tune.py\n```"]
    parts.append(
        f"Commit {result['environment']['commit']}; {result['seeds']} seeds of unseen programs, "
        f"{result['real seeds']} of real files; random starts, batches of "
        f"{result['batches']['unseen']} and {result['batches']['measured']}."
    )
    for name, group in result["unseen"].items():
        parts += [f"## Unseen {name}", _group_page(group)]
    if result["rules"]:
        said = "Evaluations in the order of a rule's predictions, after the random start; means."
        parts += ["## Trivial rules, in their order", said, report.table(result["rules"])]
    for name, file in result["measured"].items():
        title = f"## {name}: {file['configurations']} configurations, {file['within 1 %']:.0%} within 1 %"
        rows = [
            {"strategy": strategy} | {f"{b}, mean (max)": f"{m:.4%} ({x:.4%})" for b, (m, x) in own.items()}
            for strategy, own in file["excess"].items()
        ]
        parts += [title, "Best measurement above the best of all.", report.table(rows)]
    parts += ["## Fleet of the unseen kernels", fleet_page(result["fleet"])]
    if scored := result["candidates per CPU second"]:
        parts.append(f"Candidates scored per CPU second, the run's predictions included: {scored:.0f}.")
    return "\n\n".join(parts) + "\n"


def _group_page(group: dict) -> str:
    rows = [
        {"strategy": name}
        | {
            f"within {float(w):.0%}" if float(w) else "the best known": f"{own['mean']:.1f} "
            f"({'/'.join(f'{q:g}' for q in own['quartiles'])})"
            for w, own in entry.items()
        }
        for name, entry in group["needed"].items()
    ]
    ratios = {
        "strategy": "best unguided over guided evolutionary",
        **{
            column: f"{ratio:.1f}"
            for column, ratio in zip(
                list(rows[0])[1:], group["best unguided over guided"].values(), strict=False
            )
        },
    }
    middle, smallest, largest = group["configurations"]
    said = (
        f"{group['programs']} programs of {smallest} to {largest} configurations (median {middle}), of which "
        f"{group['within 1 %']:.1%} (median) are within 1 %. Evaluations needed, mean (quartiles)."
    )
    return f"{said}\n\n{report.table([*rows, ratios])}"


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse_options(arguments)
    torch.set_num_threads(1)
    kept = Kept(options.keep)
    result = {
        "benchmark": "tune",
        "environment": report.environment(),
        "seeds": options.seeds,
        "real seeds": options.real_seeds,
        "batches": {"measured": options.batch, "unseen": options.small_batch},
    }
    with tempfile.TemporaryDirectory() as folder:
        pairs = groups(options, Path(folder))
        raw = {}
        for name, own in pairs.items():
            found = []
            for pair in progress(own, desc=name, unit="program"):
                key = f"{name}: {pair[0].name}, {pair[0].space.size}"
                found.append(kept.part(key, lambda p=pair: unseen(options, p)))
            raw[name] = join(found)
        result["unseen"] = {name: summarise(own) for name, own in raw.items()}
        speed_of = kept.part("speed", lambda: speed(options, Path(folder)))
        result["candidates per CPU second"] = speed_of
        kernels, fleets = next(iter(pairs.values())), []
        for seed in progress(range(options.seeds), desc="fleets", unit="fleet"):
            fleets.append(kept.part(f"fleet {seed}", lambda s=seed: fleet_curves(kernels, s)))
        savings = {name: [fleet[name] for fleet in fleets] for name in fleets[0]}
    result["fleet"] = fleet_tables(savings)
    files = sorted((options.real / "npz_all").rglob("*.npz"), key=lambda path: path.stat().st_size)
    files = files[: 2 if options.quick else None]
    result["measured"] = {}
    for path in progress(files, desc="real files", unit="file"):
        name = f"{path.parent.parent.name}:{path.stem}"
        if found := kept.part(f"measured {name}", lambda p=path: measured(options, p)):
            result["measured"][name] = found
    run = runs_folder(options.run)
    trained = (run / "ensemble-tile-xla").is_dir()  # a run of `make submit`, not of one collection
    result["rules"] = rules_in_order(run, options.seeds) if trained else []
    if trained and DRAWN in pairs:
        result["rules"] += pools_in_order(run, [pair[0] for pair in pairs[DRAWN]], options.seeds)
    page = make_page(result)
    print(page)
    if options.table:
        with atomic_path(options.table) as temporary:
            temporary.write_text(page)
        save_figure(plot(raw), options.table.with_suffix(".png"), colours=64)
        save_figure(plot_fleet(savings), options.table.with_name("tune_fleet.png"), colours=64)
    report.finish(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
