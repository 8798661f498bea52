"""What options of the compiler, layouts and both gain on ten functions, measured on this machine.

``python benchmarks/options_gain.py [--quick] [--evaluations N]``. ``tune`` searches each space of each
function with as many evaluations, half of which compare the fastest with the default in interleaved rounds. A
cell is the time over the default's with its 99 % interval; *kept* marks a candidate whose whole interval is
below 1. The default against itself is measured with as many rounds: what it differs from 1 is noise.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import fastslow
from common import report
from common.kept import kept_parts
from common.options import make_parser
from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow_programs.compiler.bench import Bench
from fastslow_programs.compiler.device import ROUNDS, device_name
from fastslow_programs.compiler.lowering import lower_function
from fastslow_programs.tuning.confirmation import student_interval

TABLE = {"hours": 2.0, "needs": ("optuna",), "sample": False, "commands": ((),)}
SPACES = ("options", "layouts", "both")
EVALUATIONS = 48


def shape(*sizes: int) -> jax.ShapeDtypeStruct:
    """Return the shape of an array of float32."""
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def convolve(x, w):
    """Convolve images with a kernel."""
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def attend(q, k, v):
    """Attend over a sequence, for several heads."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def perceptron(weights, x):
    """Apply two layers with a normalisation between them."""
    hidden = jax.nn.gelu(x @ weights[0])
    hidden = (hidden - hidden.mean(-1, keepdims=True)) / (hidden.std(-1, keepdims=True) + 1e-5)
    return hidden.reshape(x.shape[0], -1) @ weights[1]


def step(weights, x, y):
    """Take a step of gradient descent."""
    gradient = jax.grad(lambda w: jnp.mean((perceptron(w, x) - y) ** 2))(weights)
    return [w - 0.01 * g for w, g in zip(weights, gradient, strict=True)]


def recur(w, x):
    """Run a recurrent network over a sequence."""
    return jax.lax.scan(lambda h, a: (jnp.tanh(h @ w + a), None), jnp.zeros(x.shape[1:]), x)[0]


def chain(x):
    """Apply a chain of elementwise functions."""
    for _ in range(6):
        x = jnp.tanh(jnp.sin(x) * 1.01 + jnp.sqrt(jnp.abs(x) + 1.0)) * jnp.exp(-x * x)
    return x


WEIGHTS = [shape(128, 256), shape(256, 64)]
FUNCTIONS = {
    "product": (lambda x, w: jnp.tanh(x @ w).reshape(16, 16, -1), (shape(256, 512), shape(512, 512))),
    "convolution": (convolve, (shape(8, 28, 28, 32), shape(3, 3, 32, 64))),
    "residual block": (
        lambda x, v, w: x + convolve(jax.nn.relu(convolve(x, v)), w),
        (shape(8, 28, 28, 32), shape(3, 3, 32, 32), shape(3, 3, 32, 32)),
    ),
    "attention": (attend, (shape(4, 128, 8, 32),) * 3),
    "perceptron": (perceptron, (WEIGHTS, shape(512, 128))),
    "training step": (step, (WEIGHTS, shape(512, 128), shape(512, 64))),
    "recurrent network": (recur, (shape(128, 128), shape(64, 32, 128))),
    "elementwise chain": (chain, (shape(400_000),)),
    "sums of a product": (lambda x, w: (x @ w).reshape(-1, 8, 64).sum(0), (shape(512, 512), shape(512, 64))),
    "sorted scores": (lambda x, w: jnp.sort(x @ w)[:, -8:], (shape(256, 256), shape(256, 512))),
}


def against_itself(name: str, rounds: int) -> str:
    """Return the default's time over its own, as the cells of searches are written."""
    function, arguments = FUNCTIONS[name]
    local = lower_function(function, arguments)
    with Bench(local, ROUNDS, 600).running() as times:
        ratios = [float(np.median(times([local.module]).ratios)) for _ in range(rounds)]
    mean, half = student_interval(np.log(ratios).tolist())
    return "{:.3f} ({:.3f} to {:.3f})".format(*np.exp([mean, mean - half, mean + half]))


def searched(name: str, space: str, evaluations: int) -> str:
    """Return what the search of a space ends with: the candidate's time over the default's."""
    function, arguments = FUNCTIONS[name]
    try:
        best = fastslow.tune(
            function, *arguments, space=space, evaluator="device", models="none", evaluations=evaluations
        ).best
    except DataError:
        return "no choice"
    ends = best.get("interval", {"low": np.nan, "high": np.nan})
    kept = " kept" * best["confirmed"]
    return f"{best['over_default']:.3f} ({ends['low']:.3f} to {ends['high']:.3f}){kept}"


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=EVALUATIONS, help="of each search (default 48)")
    options = parser.parse_args(arguments)
    kept = kept_parts(__file__, options)
    names, evaluations = list(FUNCTIONS), options.evaluations
    if options.quick:
        names, evaluations = ["product"], 7
    rows = []
    rounds = max(5, evaluations // 2)
    for name in progress(names, desc="functions", unit="function"):
        itself = kept.part(f"{name}: itself", lambda n=name: against_itself(n, rounds))
        row = {"function": name, "the default itself": itself}
        for space in SPACES:
            row[space] = kept.part(f"{name}: {space}", lambda n=name, s=space: searched(n, s, evaluations))
        rows.append(row)
    print(f"On {device_name()}, {evaluations} evaluations of each search.\n")
    print(report.table(rows))
    report.finish({"benchmark": "options_gain", "environment": report.environment(), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
