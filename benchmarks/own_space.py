"""Compare searches of a space of tiles, a loop order and unrolling, measured whole on this CPU.

``python benchmarks/own_space.py [--quick] [--seeds N] [--chosen]``. Each configuration of two matrix
products, compiled by numba, is measured in rounds of random order; its time is the least of the rounds. A
search looks times up, four at a time. What ``tune`` does in a space of the user's (*guided*: Optuna's TPE)
was chosen on two other products (``--chosen``), whose left operand is not transposed. Optuna's samplers know
the order of numbers. *Nearest* tries the nearest to the fastest, as ``tune`` does with layouts without a run.
Every search starts from the same random configuration of its seed.
"""

import json
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numba
import numpy as np

from common import report
from common.command_line import run_main
from common.kept import kept_parts
from common.needs import GUIDED, needs_of, summarise
from common.options import at_least, make_parser
from common.samplers import Sampler
from common.searches import search
from fastslow.core.progress import progress
from fastslow_programs.tuning.search.guided import Guided
from fastslow_programs.tuning.search.space import Space
from fastslow_programs.tuning.search.strategies import Random, Tpe
from fastslow_programs.tuning.user_space import UserSpace
from tune import searches_page

TABLE = {"hours": 0.3, "needs": ("optuna", "numba"), "sample": False, "commands": ((),)}
SEARCHES: dict[str, Callable] = {
    GUIDED: lambda space, seed: Tpe(),
    "nearest": lambda space, seed: Guided(space),
    "random": lambda space, seed: Random(),
    "Optuna's process": lambda space, seed: Sampler("gp", space, seed),
    "NSGA-II": lambda space, seed: Sampler("nsga2", space, seed),
}
BUDGET, BATCH, ROUNDS = 100, 4, 12
PRODUCTS = {
    "A product with a transposed operand": ("a[{k}, i]", "b[{k}, {j}]"),
    "A product with both operands transposed": ("a[{k}, i]", "b[{j}, {k}]"),
}
CHOSEN = {
    "A matrix product": ("a[i, {k}]", "b[{k}, {j}]"),
    "A product with a transposed right operand": ("a[i, {k}]", "b[{j}, {k}]"),
}
"""By title, an element of the left and one of the right operand."""
SPACE = {
    "choices": {
        **dict.fromkeys(("tile_i", "tile_j", "tile_k"), [8, 16, 32, 64, 192]),
        "order": ["ikj", "ijk"],
        "unroll": [1, 2, 4, 8],
        "fastmath": [False, True],
    }
}
_CODE = """
def product(a, b, c, ti, tj, tk):
    n = a.shape[0]
    c[:] = 0
    for i0 in range(0, n, ti):
        for k0 in range(0, n, tk):
            for j0 in range(0, n, tj):
                for i in range(i0, min(i0 + ti, n)):
                    {body}
"""


def variant(product: str, order: str, unroll: int, fastmath: bool) -> Callable:
    """Return the kernel, which takes two inputs, the output and three tiles; its first call compiles it."""
    parts, names = range(unroll), {"np": np}
    left, right = (PRODUCTS | CHOSEN)[product]
    if order == "ikj":
        each = " + ".join(f"{left.format(k=f'k + {u}')} * {right.format(k=f'k + {u}', j='j')}" for u in parts)
        lines = [
            f"for k in range(k0, min(k0 + tk, n), {unroll}):",
            "    for j in range(j0, min(j0 + tj, n)):",
            f"        c[i, j] += {each}",
        ]
    else:
        lines = [
            f"for j in range(j0, min(j0 + tj, n), {unroll}):",
            *(f"    s{u} = np.float32(0)" for u in parts),
            "    for k in range(k0, min(k0 + tk, n)):",
            *(f"        s{u} += {left.format(k='k')} * {right.format(k='k', j=f'j + {u}')}" for u in parts),
            *(f"    c[i, j + {u}] += s{u}" for u in parts),
        ]
    exec(_CODE.format(body=("\n" + " " * 20).join(lines)), names)
    return numba.njit(fastmath=fastmath)(names["product"])


def measure_all(product: str, configurations: list[dict], rounds: int) -> list[float]:
    """Return the seconds of configurations: of each the least of some rounds in random order.

    Raises:
        ArithmeticError: A configuration computes something else.
    """
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((3, 192, 192)).astype(np.float32)
    keys = [
        (configuration["order"], configuration["unroll"], configuration["fastmath"])
        for configuration in configurations
    ]
    compiled = {key: variant(product, *key) for key in {*keys}}
    left, right = (PRODUCTS | CHOSEN)[product]
    wanted = (a if left.startswith("a[i") else a.T) @ (b.T if right.startswith("b[{j}") else b)
    seconds = np.full(len(keys), np.inf)
    for number in progress(range(rounds), desc="measuring", unit="round"):
        for place in rng.permutation(len(keys)):
            configuration = configurations[place]
            call = a, b, c, configuration["tile_i"], configuration["tile_j"], configuration["tile_k"]
            if not number:  # the first call of a variant compiles it
                compiled[keys[place]](*call)
                if not np.allclose(c, wanted, rtol=1e-3, atol=1e-3):
                    raise ArithmeticError(f"{configuration} computes something else")
            began = time.perf_counter()
            compiled[keys[place]](*call)
            seconds[place] = min(seconds[place], time.perf_counter() - began)
    return seconds.tolist()


def searched(space: Space, seconds: list[float], name: str, seeds: int) -> list[dict[str, int]]:
    """Return the evaluations that a search needs with each seed."""
    labels, counts = np.array(seconds), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is experimental in Optuna
        for seed in range(seeds):
            history = search(space, labels, SEARCHES[name](space, seed), BUDGET, BATCH, seed)
            counts.append(needs_of(history.curve / labels.min() - 1))
    return counts


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--seeds", type=at_least(1), default=10, help="searches of each strategy (default 10)"
    )
    parser.add_argument("--chosen", action="store_true", help="the products on which the search was chosen")
    options = parser.parse_args(arguments)
    kept = kept_parts(__file__, options)
    seeds, step, rounds = (1, 97, 2) if options.quick else (options.seeds, 1, ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "space.json").write_text(json.dumps(SPACE))
        user_space = UserSpace(Path(folder, "space.json"))
    space = Space(user_space.space.choices, user_space.space.listed[::step])
    every = [user_space.values(codes) for codes in space.listed]
    found = {}
    for title in CHOSEN if options.chosen else PRODUCTS:
        seconds = kept.part(f"{title}: seconds", partial(measure_all, title, every, rounds))
        searches = {
            name: kept.part(f"{title}: {name}", partial(searched, space, seconds, name, seeds))
            for name in progress(SEARCHES, desc="searching", unit="search")
        }
        near = float((np.array(seconds) <= 1.01 * min(seconds)).mean())
        low, middle, high = 1e3 * np.quantile(seconds, [0, 0.5, 1])
        print(searches_page(title, summarise([{"counts": searches, "size": len(seconds), "near": near}])))
        print(
            f"\n{low:.2f} ms the fastest, {middle:.2f} the median, {high:.2f} the slowest; {seeds} seeds.\n"
        )
        found[title] = {"seconds": seconds, "searches": searches}
    report.finish({"benchmark": "own_space", "environment": report.environment(), "found": found})
    return 0


if __name__ == "__main__":
    run_main(main)
