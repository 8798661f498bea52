"""Runtimes of small programs under layout configurations on this machine: is there anything to gain?

``python benchmarks/device.py [--quick] [--programs N] [--configs N] [--rounds N]``. Programs are those of the
zoo in float32, and programs of transposes, batched dots and reshapes. Each configuration binds the outputs
that differ from the default. Every program is measured twice, in rounds that run all configurations in random
order. Measure on an otherwise idle machine.

*ms*: one run of the unconstrained program. *spread*: the slowest over the fastest configuration, by medians
of the first measurement. *noise*: median difference of two runs of the unconstrained program in one round.
*replicate tau*: Kendall's tau-b between the medians of the two measurements. *best over default*: time of the
configuration that was fastest in the first measurement over the unconstrained program's, in the second one,
with its 95 % interval; below 1 is a gain.
"""

import sys
from collections.abc import Iterator

import numpy as np
from scipy.stats import binom

from common import report
from common.options import make_parser
from fastslow.competition.metrics import kendall_tau
from fastslow.core.progress import progress
from fastslow_programs.compiler.device import Bench, LocalProgram, bind_differences, lower_function
from fastslow_programs.compiler.layout_choices import layouts_of, tie
from fastslow_programs.compiler.layout_constraints import is_imposed
from fastslow_programs.compiler.layout_space import configurable_nodes
from make_sample.zoo import PRODUCTS, PROGRAMS, ZooProgram

TABLE = {"hours": 0.4, "needs": ("jax",), "sample": False}
RELIABLE, ENOUGH = (
    0.5,
    10,
)  # replicate tau, and programs that reach it, that would make labels worth their time
SLOWEST = 0.05  # seconds; slower programs are left out
SECONDS = 120.0  # time limit of a configuration


def programs() -> Iterator[ZooProgram]:
    """Yield every program: products first, then those of the committed sample in float32."""
    yield from PRODUCTS.values()
    yield from (p for p in PROGRAMS.values() if p.name.endswith("_f32") and p.size == "small")


def interval(ratios: np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of the median of ``(rounds,)`` ratios by order statistics (the sign test).

    It holds for every distribution and, unlike a bootstrap, for few rounds. Too few give 0 to infinity.
    """
    below = int(binom.ppf((1 - confidence) / 2, len(ratios), 0.5))
    ordered = np.sort(ratios)
    return (float(ordered[below - 1]), float(ordered[-below])) if below else (0.0, np.inf)


def configurations(program: LocalProgram, count: int, rng: np.random.Generator) -> list:
    """Return the program under distinct random configurations of what can be bound."""
    nodes = configurable_nodes(program.module)
    tied = tie(nodes)
    default = tuple(choice.default for choice in tied)
    free = [g for g, choice in enumerate(tied) if is_imposed(choice.roles) and len(choice.options) > 1]
    drawn = set()
    for _ in range(20 * count):
        codes = list(default)
        for group in free:
            codes[group] = int(rng.integers(len(tied[group].options)))
        drawn.add(tuple(codes))
        if len(drawn) > count:
            break
    return [
        bind_differences(program.module, layouts_of(c, tied), nodes)
        for c in sorted(drawn - {default})[:count]
    ]


def measure(name: str, program: LocalProgram, configs: int, rounds: int) -> dict | None:
    """Measure a program twice and return its row; None where it is too slow or has nothing to bind."""
    modules = configurations(program, configs, np.random.default_rng(0))
    if len(modules) < 2:
        return None
    with Bench(program, 2, SECONDS).running() as times:
        if np.median(times([]).seconds) > SLOWEST:
            return None
    with Bench(program, rounds, SECONDS).running() as times:
        one, other = times(modules), times(modules)
    ran = np.isfinite(one.seconds[0, 2:]) & np.isfinite(other.seconds[0, 2:])
    if ran.sum() < 2:
        return None
    first, second = (np.median(t.ratios[:, ran], 0) for t in (one, other))
    best = int(np.argmin(first))
    low, high = interval(other.ratios[:, ran][:, best])
    return {
        "program": name,
        "ms": 1000 * float(np.median(one.seconds[:, :2])),
        "configs": int(ran.sum()),
        "failed": len(modules) - int(ran.sum()),
        "spread": float(first.max() / first.min()),
        "noise": float(np.median(np.concatenate([one.noise, other.noise]))),
        "replicate tau": float(kendall_tau(first, second)),
        "best over default": float(second[best]),
        "interval": [low, high],
    }


def page(rows: list[dict]) -> str:
    """Return the table and its conclusion in Markdown."""
    shown = [
        report.cells({key: value for key, value in row.items() if key != "interval"})
        | {"interval": "{:.3f} to {:.3f}".format(*row["interval"])}
        for row in rows
    ]
    reliable = sum(row["replicate tau"] >= RELIABLE for row in rows)
    gained = [row["program"] for row in rows if row["interval"][1] < 1]
    verdict = "labels of this machine are worth making" if reliable >= ENOUGH else "labels would be noise"
    return "\n\n".join(
        [
            report.table(shown),
            f"{reliable} of {len(rows)} programs have a replicate tau of {RELIABLE} or more;"
            f" {ENOUGH} are wanted: {verdict}.",
            f"Faster than the default with 95 % confidence: {len(gained)} of {len(rows)}"
            + (f" ({', '.join(gained)})." if gained else "."),
        ]
    )


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=30, help="programs that are measured (default 30)")
    parser.add_argument("--configs", type=int, default=16, help="configurations of a program (default 16)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of a measurement (default 15)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.programs, options.configs, options.rounds = 1, 3, 3
    rows: list[dict] = []
    with progress(total=options.programs, desc="programs", unit="program") as bar:
        for program in programs():
            if len(rows) == options.programs:
                break
            row = measure(program.name, lower_function(*program.build()), options.configs, options.rounds)
            if row:
                rows.append(row)
                bar.update()
    print(page(rows))
    report.finish({"benchmark": "device", **report.environment(), "programs": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
