"""What options of the compiler, layouts and both gain on ten functions, measured on this machine.

``python benchmarks/options_gain.py [--quick] [--evaluations N] [--sharded]``. ``tune`` searches each
space of each function with as many evaluations, half of which compare the fastest with the default in
interleaved rounds. *over the default* is the time of the fastest candidate over the default's, with its
99 % interval. A gain is *confirmed* where the whole interval is below 1; otherwise ``tune`` keeps the
default. *the default itself* is measured with as many rounds: what it differs from 1 is noise. *rank's
first* is what the models in the package rank first, with nothing known, beside the default: one
measurement, in which it ran fifteen times. *seconds* is the time of the whole search, from the function
to the verdict. A function without a product, a convolution or a reshape has *no choice* of layouts;
*both* are then its options. A table has the changes of each confirmed candidate.

The last table has the configuration that ``rank`` gives in place of a search, by number of configurations
that are *known*: of 24 that are measured, by their even rounds. With 0 known it is the first of the order.
With 8, drawn at random (or all, where a function has fewer), it is the fastest of these and the first of the
others, or the default where that is faster. *rank* orders as ``fastslow rank`` does, *rule* by the single
feature that was best on the sample, *none* adds nothing to the known ones. Cells are times over the default's
in the odd rounds; *fastest* is the fastest of all in the even rounds. *seconds* is what measuring and ranking
took, for both rows.

With ``--sharded`` the function is a layer that is split over four devices of this machine, whose options are
searched. The layouts of a function on a mesh are not searched. *rank* and *rule* choose layouts for *part of
the layer*: what one of the devices computes, before the sum over devices.
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

import fastslow
from common import report
from common.command_line import run_main
from common.kept import kept_parts
from common.options import at_least, make_parser
from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow.runs.packaged import packaged_models
from fastslow_programs.compiler.bench import Bench
from fastslow_programs.compiler.device import ROUNDS, device_name
from fastslow_programs.compiler.lowering import lower_function
from fastslow_programs.program.configurations import identify
from fastslow_programs.tuning.confirmation import FEWEST, student_interval
from fastslow_programs.tuning.search.strategies import GUIDED

TABLE = {
    "hours": 0.4,
    "needs": ("package", "optuna", "optax", "equinox"),
    "sample": False,
    "commands": ((), ("--sharded",)),
}
ITSELF = "the default itself"
SPACES = ("options", "layouts", "both")
EVALUATIONS = 24
CONFIGURATIONS = 24
"""Configurations of a function that are measured, of which some are known."""
KNOWN = 8
Call = tuple[Callable, tuple]
"""A function and its arguments."""


def shape(*sizes: int) -> jax.ShapeDtypeStruct:
    """Return the shape of an array of float32."""
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def product() -> Call:
    """A product of matrices with what follows it."""
    return lambda x, w: jnp.tanh(x @ w).reshape(16, 16, -1), (shape(256, 512), shape(512, 512))


def convolve(x, w):
    """Convolve images with a kernel."""
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def residual_block() -> Call:
    """Two convolutions and the sum with their input."""

    def block(x, v, w):
        return x + convolve(jax.nn.relu(convolve(x, v)), w)

    return block, (shape(8, 28, 28, 32), shape(3, 3, 32, 32), shape(3, 3, 32, 32))


def attention() -> Call:
    """Attention over a sequence, for several heads."""

    def attend(q, k, v):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)

    return attend, (shape(4, 128, 8, 32),) * 3


def experts() -> Call:
    """A layer of eight experts, of which two answer each token, as language models have it."""

    def layer(gate, up, down, x):
        share, chosen = jax.lax.top_k(jax.nn.softmax(x @ gate), 2)
        weights = (jax.nn.one_hot(chosen, 8) * share[..., None]).sum(1)
        hidden = jax.nn.silu(jnp.einsum("td,edf->etf", x, up))
        return jnp.einsum("etd,te->td", jnp.einsum("etf,efd->etd", hidden, down), weights)

    return layer, (shape(128, 8), shape(8, 128, 256), shape(8, 256, 128), shape(256, 128))


def training_step() -> Call:
    """A step of optax: gradients clipped, AdamW with a schedule, new weights and state."""
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-2, 100))
    )
    weights = {"first": jnp.full((128, 256), 0.1), "second": jnp.full((256, 64), 0.1)}

    def loss(weights, images, targets):
        hidden = jax.nn.gelu(images @ weights["first"])
        return jnp.mean((hidden @ weights["second"] - targets) ** 2)

    def step(weights, state, images, targets):
        value, gradient = jax.value_and_grad(loss)(weights, images, targets)
        change, state = optimiser.update(gradient, state, weights)
        return optax.apply_updates(weights, change), state, value

    return step, (weights, optimiser.init(weights), shape(256, 128), shape(256, 64))


def equinox_model() -> Call:
    """A module of equinox on a batch: convolutions with features first, and a perceptron."""
    first, second, last = jax.random.split(jax.random.key(0), 3)
    model = equinox.nn.Sequential(
        [
            equinox.nn.Conv2d(3, 16, 3, 2, key=first),
            equinox.nn.Lambda(jax.nn.relu),
            equinox.nn.Conv2d(16, 32, 3, 2, key=second),
            equinox.nn.Lambda(jnp.ravel),
            equinox.nn.MLP(1568, 10, 128, 1, key=last),
        ]
    )
    return lambda model, images: jax.vmap(model)(images), (model, shape(16, 3, 32, 32))


def recurrent_network() -> Call:
    """A recurrent network over a sequence."""

    def recur(w, x):
        return jax.lax.scan(lambda h, a: (jnp.tanh(h @ w + a), None), jnp.zeros(x.shape[1:]), x)[0]

    return recur, (shape(128, 128), shape(64, 32, 128))


def elementwise_chain() -> Call:
    """A chain of elementwise functions, which has no choice of layouts."""

    def chain(x):
        for _ in range(6):
            x = jnp.tanh(jnp.sin(x) * 1.01 + jnp.sqrt(jnp.abs(x) + 1.0)) * jnp.exp(-x * x)
        return x

    return chain, (shape(200_000),)


def sums_of_a_product() -> Call:
    """Sums over blocks of a product."""
    return lambda x, w: (x @ w).reshape(-1, 8, 64).sum(0), (shape(512, 512), shape(512, 64))


def sorted_scores() -> Call:
    """The largest scores of each row of a product."""
    return lambda x, w: jnp.sort(x @ w)[:, -8:], (shape(64, 256), shape(256, 256))


def perceptron(x, up, down):
    """Return what a transformer's perceptron makes of tokens."""
    return jax.nn.gelu(x @ up) @ down


def sharded_layer() -> Call:
    """A layer of a transformer's perceptron, whose weights are split over four devices."""
    split = jax.sharding.PartitionSpec
    mesh = jax.make_mesh((4,), ("d",), (jax.sharding.AxisType.Auto,))
    places = [jax.sharding.NamedSharding(mesh, s) for s in (split(), split(None, "d"), split("d"))]
    return jax.jit(perceptron, in_shardings=places), (shape(256, 256), shape(256, 1024), shape(1024, 256))


def part_of_the_layer() -> Call:
    """What one of the four devices computes of :func:`sharded_layer`, before the sum over devices."""
    return perceptron, (shape(256, 256), shape(256, 256), shape(256, 256))


FUNCTIONS = (
    product,
    residual_block,
    attention,
    experts,
    training_step,
    equinox_model,
    recurrent_network,
    elementwise_chain,
    sums_of_a_product,
    sorted_scores,
)


def against_itself(make: Callable[[], Call], rounds: int) -> dict[str, Any]:
    """Return the default's time over its own, as a row of the table."""
    began = time.monotonic()
    local = lower_function(*make())
    with Bench(local, ROUNDS, 600).running() as times:
        ratios = [float(np.median(times([local.module]).ratios)) for _ in range(rounds)]
    mean, half = student_interval(np.log(ratios).tolist())
    ratio, low, high = np.exp([mean, mean - half, mean + half])
    seconds = time.monotonic() - began
    return {"over the default": f"{ratio:.3f} ({low:.3f} to {high:.3f})", "seconds": round(seconds)}


def searched(make: Callable[[], Call], space: str, evaluations: int) -> dict[str, Any]:
    """Return what the search of a space ends with, as a row of the table."""
    function, arguments = make()
    models = "none" if space == "options" else packaged_models()
    began = time.monotonic()
    settings = {"space": space, "evaluator": "device", "evaluations": evaluations}
    try:
        tuned = fastslow.tune(function, *arguments, models=models, **settings)
    except DataError as error:
        _require_no_choice(error)
        return {"over the default": "no choice"}
    best, table = tuned.best, tuned.table
    candidate = best["candidate"]
    ends = candidate.get("interval", {"low": np.nan, "high": np.nan})
    row = {
        "over the default": f"{candidate['over_default']:.3f} ({ends['low']:.3f} to {ends['high']:.3f})",
        "gain": "confirmed" if best["confirmed"] else "not confirmed",
        "changes": tuned.study.target.space.in_words(candidate["options"]),
        "seconds": round(time.monotonic() - began),
    }
    if space == "layouts":
        value = table.loc[table["by"] == GUIDED, "value"].iloc[0]
        row["rank's first"] = "failed" if np.isnan(value) else f"{value:.3f}"
    return row


def _require_no_choice(error: DataError) -> None:
    """Raise an error again, except for the one of a function without layouts to choose."""
    if "has no convolution, dot or reshape" not in str(error):
        raise error


def known(make: Callable[[], Call], configurations: int) -> list[dict[str, Any]]:
    """Return what is taken with none and with :data:`KNOWN` configurations known, as two rows."""
    function, arguments = make()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        given = {"name": "measured", "configs": configurations}
        try:
            measured = fastslow.measure(function, *arguments, out=folder, **given)
        except DataError as error:
            _require_no_choice(error)
            return []
        chooses = np.median(measured.rounds[::2], 0)
        scores = np.median(measured.rounds[1::2], 0)
        ran = np.flatnonzero(np.isfinite(scores))
        drawn = np.random.default_rng(0).permutation(ran)[:KNOWN]
        ids = identify(measured.program)
        table = pd.DataFrame({"id": ids[drawn], "runtime": chooses[drawn] * measured.default_ns})
        rows = []
        for runtimes, positions in ((None, []), (table, drawn)):
            ranking = fastslow.rank(
                measured.source, models=packaged_models(), known=runtimes, cache=False, **given
            )
            orders = {
                "rank": ranking.table["config"].to_numpy(),
                "rule": ranking.rule.prediction.argsort(kind="stable"),
            }
            left = {
                name: order[np.isin(order, ran) & ~np.isin(order, positions)]
                for name, order in orders.items()
            }
            row = {"known": len(positions)}
            for name, order in left.items():
                row[name] = _taken([*positions, *order[:1]], chooses, scores, bool(len(positions)))
            row["none"] = _taken(positions, chooses, scores, True)
            row["fastest"] = _taken(ran, chooses, scores, True)
            rows.append(row)
    seconds = round(time.monotonic() - began)
    return [row | {"seconds": seconds} for row in rows]


def _taken(picks: Sequence[int], chooses: np.ndarray, scores: np.ndarray, measured: bool) -> str:
    """Return the time over the default's of the fastest of some configurations, or of the default.

    Args:
        picks: Positions of the configurations.
        chooses: ``(C,)`` times over the default's that choose.
        scores: ``(C,)`` times over the default's that count.
        measured: Whether the configurations are measured, so that the default stays where it is faster.
    """
    fastest = min(picks, key=lambda pick: chooses[pick], default=None)
    if fastest is None or (measured and chooses[fastest] >= 1):
        return "1.000"
    return f"{scores[fastest]:.3f}"


def totals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each space: its searches, its confirmed gains, the largest of them, the seconds."""
    found = []
    for space in SPACES:
        of_space = [row for row in rows if row["searched"] == space and row.get("gain")]
        gains = [row["over the default"].split()[0] for row in of_space if row["gain"] == "confirmed"]
        found.append(
            {
                "searched": space,
                "functions": len(of_space),
                "confirmed gains": len(gains),
                "the largest": min(gains, key=float, default=""),
                "seconds, mean": round(sum(row["seconds"] for row in of_space) / max(1, len(of_space))),
            }
        )
    return found


def mean_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the geometric means over functions by number of known configurations."""
    means = []
    for number, some in ((0, False), (f"up to {KNOWN}", True)):
        of_number = [row for row in rows if bool(row["known"]) is some]
        if not of_number:
            continue
        times = {
            name: np.exp(np.mean([np.log(float(row[name])) for row in of_number]))
            for name in ("rank", "rule", "none", "fastest")
        }
        cells = {name: f"{value:.3f}" for name, value in times.items()}
        seconds = round(sum(row["seconds"] for row in of_number) / len(of_number))
        means.append({"function": "geometric mean", "known": number, **cells, "seconds": seconds})
    return means


def changes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row with the changes of each confirmed candidate."""
    names = ("function", "searched", "changes")
    return [{name: row[name] for name in names} for row in rows if row.get("gain") == "confirmed"]


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--evaluations", type=at_least(1), default=EVALUATIONS, help="of each search (default %(default)s)"
    )
    parser.add_argument("--sharded", action="store_true", help="a layer on four devices of this machine")
    options = parser.parse_args(arguments)
    kept = kept_parts(__file__, options)
    functions: tuple[Callable[[], Call], ...] = FUNCTIONS
    ranked: tuple[Callable[[], Call], ...] = FUNCTIONS
    spaces: tuple[str, ...] = SPACES
    if options.sharded:  # before JAX looks for devices, in the processes that measure too
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=4"
        functions = (sharded_layer,)
        ranked = (part_of_the_layer,)
        spaces = ("options",)
    evaluations = options.evaluations
    configurations = CONFIGURATIONS
    if options.quick:
        functions = functions[:1]
        ranked = ranked[:1]
        evaluations = 7
        configurations = 3
    rounds = max(FEWEST, evaluations // 2)
    rows = []
    for make in progress(functions, desc="functions", unit="function"):
        name = make.__name__.replace("_", " ")
        parts = {ITSELF: lambda make=make: against_itself(make, rounds)}
        for space in spaces:
            parts[space] = lambda make=make, space=space: searched(make, space, evaluations)
        for part, measure in parts.items():
            rows.append({"function": name, "searched": part, **kept.part(f"{name}: {part}", measure)})
    columns = ("function", "searched", "over the default", "gain", "seconds", "rank's first")
    print(f"On {device_name()}, {evaluations} evaluations of each search.\n")
    print(report.table([{column: row.get(column, "") for column in columns} for row in rows]))
    if not options.sharded:
        print(f"\n{report.table(totals(rows))}")
    if confirmed := changes(rows):
        print(f"\nConfirmed candidates\n\n{report.table(confirmed)}")
    known_rows = []
    for make in progress(ranked, desc="known", unit="function"):
        name = make.__name__.replace("_", " ")
        part = kept.part(f"{name}: known", lambda make=make: known(make, configurations))
        known_rows += [{"function": name, **row} for row in part]
    means = [] if options.sharded else mean_rows(known_rows)
    print(f"\nKnown configurations\n\n{report.table(known_rows + means)}")
    learnt = [row for row in known_rows if row["known"] != 0]
    level = sum(row["rank"] == row["rule"] == row["none"] for row in learnt)
    print(f"\nWith some known, *rank*, *rule* and *none* are equal in {level} of {len(learnt)} rows.")
    results = {"rows": rows, "known": known_rows}
    report.finish({"benchmark": "options_gain", "environment": report.environment(), **results})
    return 0


if __name__ == "__main__":
    run_main(main)
