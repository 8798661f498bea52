"""How many evaluations a search needs, guided and unguided, on labelled programs.

``python benchmarks/tune.py [--quick] [--run runs/sample] [--real ../shared/real]``, after ``make submit`` and
``pip install -r benchmarks/requirements.txt``. An evaluation is a look-up, so searches are exact and cheap:

(a) on every real file with measured runs, the best of 16, 64 and 256 measurements over the best of all;
(b) on the sample's test programs, whose architectures training has not seen, the evaluations until the best
    is within 5 % and 1 % of the best known configuration, by the compiler's estimated cycles;
(c) candidates scored per second;
(d) the same programs as a fleet with weights, at a tenth of the exhaustive budget.

Every search starts from the same random configuration of its seed, not from the compiler's default, which is
the best known of most programs by the compiler's own estimate.
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
from common.graph_files import REAL
from common.options import make_parser
from common.searches import NEVERGRAD, replay_target, search, unseen_programs
from fastslow.core.errors import DataError
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path
from fastslow.core.progress import progress
from fastslow.tuning.fleet import Member, tune_members
from fastslow.tuning.fleet_config import FleetConfig
from fastslow.tuning.history import History, Outcome
from fastslow.tuning.target import Target
from fastslow.tuning.tune import make_strategy, propose

TABLE = Path(__file__).parent / "tables" / "tune.md"
GUIDED = ("guided evolutionary", "guided random", "guided annealing")
OWN = "guided evolutionary, no run"
UNGUIDED = ("random", "evolutionary", "annealing", "tpe", "nsga2", NEVERGRAD)
BUDGETS, WITHIN = (16, 64, 256), (0.05, 0.01)
_SHARE = 0.1  # of the exhaustive budget, for a fleet


def curves(with_run: Target, without: Target, names, budget, batch, seeds) -> dict[str, list[np.ndarray]]:
    """Return, by strategy, the best value after each evaluation over the best of all, minus 1, per seed."""
    best, found = with_run.labels.min(), {}
    for name in names:
        target, plain = (without, name.removesuffix(", no run")) if name == OWN else (with_run, name)
        histories = [search(target, plain, budget, batch, seed) for seed in range(seeds)]
        found[name] = [history.curve / best - 1 for history in histories]
    return found


def needed(curve: np.ndarray, within: float) -> int:
    """Return the evaluations until a curve is within a share of the best; all of them where it never is."""
    return int(min(len(curve), (curve > within).sum() + 1))


def measured(options: argparse.Namespace) -> dict[str, dict]:
    """(a): excess over the best after each budget, mean and maximum over seeds, by file and strategy."""
    result = {}
    for path in sorted((options.real / "npz_all").rglob("*.npz")):
        try:
            targets = [replay_target(path, run) for run in (options.run, "none")]
        except DataError as error:
            print(f"left out: {path.name}: {error.args[1]}")
            continue
        budget = min(options.budgets[-1], targets[0].space.size)
        found = curves(*targets, options.strategies, budget, options.batch, options.seeds)
        result[f"{path.parent.parent.name}:{path.stem}"] = {
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
        print(path.name, flush=True)
    return result


def unseen(options: argparse.Namespace, targets: list[tuple[Target, Target]]) -> tuple[dict, dict]:
    """(b): evaluations needed by strategy and share, over programs and seeds; and the curves."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in options.strategies}
    for pair in progress(targets, desc="unseen programs", unit="program"):
        own = curves(*pair, found, pair[0].space.size, options.small_batch, options.seeds)
        for name, some in own.items():
            found[name] += some
    table = {}
    for name, some in found.items():
        table[name] = {}
        for within in WITHIN:
            counts = [needed(curve, within) for curve in some]
            quartiles = np.quantile(counts, [0.25, 0.5, 0.75]).tolist()
            table[name][str(within)] = {"mean": float(np.mean(counts)), "quartiles": quartiles}
    return table, found


def fleet(options: argparse.Namespace, targets: list[tuple[Target, Target]]) -> dict:
    """(d): share of the possible saving over a random configuration, at a tenth of the exhaustive budget."""
    result: dict[str, list] = {}
    for seed in range(options.seeds):
        rng = np.random.default_rng([seed, 7])
        weights = rng.permutation(1.0 / np.arange(1, len(targets) + 1))  # as Zipf's law
        starts = [pair[0].space.draw(1, rng)[0] for pair in targets]
        for name, strategy, allocation, guided in (
            ("expected saving, guided", GUIDED[0], "expected saving", True),
            ("expected saving, no run", GUIDED[0], "expected saving", False),
            ("even, guided", GUIDED[0], "even", True),
            ("even, random", "random", "even", True),
        ):
            total = sum(pair[0].space.size for pair in targets)
            config = FleetConfig(
                strategy=strategy, allocation=allocation, evaluations=int(_SHARE * total), seed=seed, batch=2
            )
            members = []
            for (own, alone), weight, start in zip(targets, weights, starts, strict=True):
                target = own if guided else alone
                target.space.default = start
                strategy_of = make_strategy(config, target)[0]
                members.append(Member(target, float(weight), [0], strategy_of, None, History(target.space)))
            savings = tune_members(members, config, lambda m, count, s=seed: advance(m, count, s))
            possible = sum(m.weight * (m.default - m.target.labels.min()) for m in members)
            result.setdefault(name, []).append(savings[-1] / possible)
    return {name: [float(np.mean(own)), min(own), max(own)] for name, own in result.items()}


def advance(member: Member, count: int, seed: int) -> None:
    """Look up the next proposals of a member of a fleet."""
    for proposal in propose(member.history, member.strategy, count, seed):
        row = member.target.space.rows(np.array([proposal.codes]))[0]
        member.history.add(proposal, Outcome(float(member.target.labels[row])))


def plot(found: dict[str, list[np.ndarray]], path: Path) -> None:
    """Draw the share of searches that are within 5 % and 1 %, over evaluations."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, within in zip(figure.subplots(1, 2, sharey=True), WITHIN, strict=True):
        for name, some in found.items():
            counts = np.sort([needed(curve, within) for curve in some])
            style = "-" if name.startswith("guided") else ":"
            axes.step(counts, np.arange(1, len(counts) + 1) / len(counts), style, where="post", label=name)
        axes.set(xscale="log", xlabel="evaluations", title=f"within {within:.0%} of the best known")
    axes.legend(fontsize=7)
    figure.axes[0].set_ylabel("share of searches")
    save_figure(figure, path, colours=64)


def speed(target: Target) -> float:
    """(c): candidates scored per second by a fitted model, the trained run's predictions included."""
    config = FleetConfig()
    history, strategy = History(target.space), make_strategy(config, target)[0]
    for proposal in propose(history, strategy, 16, 0):
        history.add(proposal, Outcome(float(target.labels[target.space.rows(np.array([proposal.codes]))[0]])))
    strategy.guide._known.clear()
    began = time.perf_counter()
    strategy.ranked(history, 8, np.random.default_rng(0))
    return strategy.guide.scored / (time.perf_counter() - began)


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--run", default="", help="trained run that guides (default: the newest)")
    parser.add_argument("--real", type=Path, default=REAL, help="folder of labelled files: npz_all/ is in it")
    parser.add_argument("--seeds", type=int, default=10, help="searches of each program (default 10)")
    parser.add_argument("--batch", type=int, default=8, help="evaluations between two fits, real files")
    parser.add_argument("--small-batch", type=int, default=2, help="the same, programs of the sample")
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS, help="of (a): default 16 64 256")
    every = (*GUIDED, OWN, *UNGUIDED)
    parser.add_argument("--strategies", nargs="+", default=every, choices=every, help="default: all")
    parser.add_argument("--table", type=Path, help=f"Markdown file to write (default tables/{TABLE.name})")
    options = parser.parse_args(arguments)
    options.budgets = options.budgets[: 1 if options.quick else None]
    options.seeds = 1 if options.quick else options.seeds
    options.table = options.table or (None if options.quick else TABLE)
    return options


def make_page(result: dict) -> str:
    """Return the Markdown page of all tables."""
    parts = ["# tune.py: evaluations that a search needs", "```\n.venv/bin/python benchmarks/tune.py\n```"]
    parts.append(f"Commit {result['environment']['commit']}, {result['seeds']} seeds, random starts.")
    for name, file in result["measured"].items():
        title = f"## {name}: {file['configurations']} configurations, {file['within 1 %']:.0%} within 1 %"
        rows = [
            {"strategy": strategy} | {f"{b}, mean (max)": f"{m:.4%} ({x:.4%})" for b, (m, x) in own.items()}
            for strategy, own in file["excess"].items()
        ]
        parts += [title, "Best measurement above the best of all.", report.table(rows)]
    rows = [
        {"strategy": name}
        | {
            f"within {float(w):.0%}": f"{own['mean']:.1f} ({'/'.join(f'{q:g}' for q in own['quartiles'])})"
            for w, own in entry.items()
        }
        for name, entry in result["unseen"].items()
    ]
    what = f"## {result['programs']} unseen programs: evaluations needed, mean (quartiles)"
    parts += [what, report.table(rows)]
    rows = [
        {"fleet": n, "share of the possible saving": report.spread(v)} for n, v in result["fleet"].items()
    ]
    parts += ["## Fleet, a tenth of the exhaustive budget", report.table(rows)]
    parts.append(f"Candidates scored per second: {result['candidates per second']:.0f}.")
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse_options(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        programs = unseen_programs(Path(folder))[: 1 if options.quick else None]
        targets = [tuple(replay_target(p, run, c) for run in (options.run, "none")) for p, c in programs]
        table, found = unseen(options, targets)
        result = {
            "benchmark": "tune",
            "environment": report.environment(),
            "seeds": options.seeds,
            "batches": {"measured": options.batch, "unseen": options.small_batch},
            "programs": len(targets),
            "measured": measured(options) if options.real.is_dir() else {},
            "unseen": table,
            "fleet": fleet(options, targets),
            "candidates per second": speed(targets[0][0]),
        }
    page = make_page(result)
    print(page)
    if options.table:
        with atomic_path(options.table) as temporary:
            temporary.write_text(page)
        plot(found, options.table.with_suffix(".png"))
    report.finish(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
