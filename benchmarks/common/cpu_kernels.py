"""Small kernels with tiles, unrolling and loop orders, compiled for this CPU by numba and measured whole."""

import time
from collections.abc import Callable

import numba
import numpy as np

from fastslow.core.progress import progress

_UNROLL = (1, 2, 4, 8)
_FLAG = (False, True)
SPACES: dict[str, dict] = {
    "matmul": {
        "choices": {
            **dict.fromkeys(("tile_i", "tile_j", "tile_k"), [8, 16, 32, 64, 192]),
            "order": ["ikj", "ijk"],
            "unroll": [*_UNROLL],
            "fastmath": [*_FLAG],
        },
        "constraints": [],
    },
    "convolution": {
        "choices": {
            "tile_h": [1, 2, 4, 8, 16, 32],
            "tile_w": [2, 4, 8, 16, 32],
            "tile_c": [4, 8, 16, 32],
            "order": ["pixels first", "channels first"],
            "unroll": [*_UNROLL],
            "fastmath": [*_FLAG],
        },
        "constraints": ["unroll <= tile_c"],
    },
}
"""The spaces, in the form of :class:`fastslow_programs.tuning.user_space.UserSpace`."""
_MATMUL = """
def matmul(a, b, c, ti, tj, tk):
    n = a.shape[0]
    c[:] = 0
    for i0 in range(0, n, ti):
        for k0 in range(0, n, tk):
            for j0 in range(0, n, tj):
                for i in range(i0, min(i0 + ti, n)):
{body}
"""
_CONVOLUTION = """
def convolution(x, w, y, th, tw, tc):
    h, v, channels = y.shape
    y[:] = 0
    for h0 in range(0, h, th):
        for v0 in range(0, v, tw):
            for c0 in range(0, channels, tc):
{body}
"""


def _lines(depth: int, *lines: str) -> str:
    return "\n".join("    " * depth + line for line in lines)


def _matmul_body(order: str, unroll: int) -> str:
    if order == "ikj":
        each = " + ".join(f"a[i, k + {u}] * b[k + {u}, j]" for u in range(unroll))
        loops = (
            f"for k in range(k0, min(k0 + tk, n), {unroll}):",
            "    for j in range(j0, min(j0 + tj, n)):",
        )
        return _lines(5, *loops, f"        c[i, j] += {each}")
    sums = [f"s{u}" for u in range(unroll)]
    return _lines(
        5,
        f"for j in range(j0, min(j0 + tj, n), {unroll}):",
        *(f"    {s} = np.float32(0)" for s in sums),
        "    for k in range(k0, min(k0 + tk, n)):",
        *(f"        {s} += a[i, k] * b[k, j + {u}]" for u, s in enumerate(sums)),
        *(f"    c[i, j + {u}] += {s}" for u, s in enumerate(sums)),
    )


def _convolution_body(order: str, unroll: int) -> str:
    pixels = ("for p in range(h0, min(h0 + th, h)):", "for q in range(v0, min(v0 + tw, v)):")
    output = (f"for o in range(c0, min(c0 + tc, channels), {unroll}):",)
    loops = (*pixels, *output) if order == "pixels first" else (*output, *pixels)
    taps = ("for r in range(3):", "for s in range(3):", "for i in range(x.shape[2]):")
    steps = [f"s{u} += x[p + r, q + s, i] * w[r, s, o + {u}, i]" for u in range(unroll)]
    own = [f"s{u} = np.float32(0)" for u in range(unroll)]
    nested = [_lines(4 + depth, line) for depth, line in enumerate(loops)]
    nested += [_lines(7, *own), *(_lines(7 + depth, line) for depth, line in enumerate(taps))]
    nested += [_lines(10, *steps), _lines(7, *(f"y[p, q, o + {u}] = s{u}" for u in range(unroll)))]
    return "\n".join(nested)


def variant(kernel: str, order: str, unroll: int, fastmath: bool) -> Callable:
    """Compile a kernel; it takes two inputs, the output and three tiles."""
    template, body = {"matmul": (_MATMUL, _matmul_body), "convolution": (_CONVOLUTION, _convolution_body)}[
        kernel
    ]
    names: dict = {"np": np}
    exec(template.format(body=body(order, unroll)), names)
    return numba.njit(fastmath=fastmath)(names[kernel])


def arrays(kernel: str) -> tuple[np.ndarray, ...]:
    """Return two inputs and the array of the output."""
    rng = np.random.default_rng(0)
    shapes = {"matmul": [(192, 192)] * 3, "convolution": [(34, 34, 16), (3, 3, 32, 16), (32, 32, 32)]}[kernel]
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)


def measure_all(kernel: str, configurations: list[dict], rounds: int) -> np.ndarray:
    """Return the seconds ``(C,)`` of configurations: of each the least of some rounds in random order.

    Raises:
        ArithmeticError: The outputs of two configurations differ.
    """
    *inputs, output = arrays(kernel)
    tiles = [name for name in SPACES[kernel]["choices"] if name.startswith("tile")]
    keys = [(c["order"], c["unroll"], c["fastmath"]) for c in configurations]
    compiled = {key: variant(kernel, *key) for key in progress(sorted({*keys}), desc=f"compiling {kernel}")}
    calls = [(compiled[key], [c[t] for t in tiles]) for key, c in zip(keys, configurations, strict=True)]
    wanted, seconds = None, np.full(len(calls), np.inf)
    rng = np.random.default_rng(0)
    for number in progress(range(rounds), desc=f"measuring {kernel}", unit="round"):
        for place in rng.permutation(len(calls)):
            function, own = calls[place]
            if not number:  # compiles what was not called yet
                function(*inputs, output, *own)
                wanted = output.copy() if wanted is None else wanted
                if not np.allclose(output, wanted, rtol=1e-3, atol=1e-3):
                    raise ArithmeticError(f"{kernel}: {configurations[place]} computes something else")
            began = time.perf_counter()
            function(*inputs, output, *own)
            seconds[place] = min(seconds[place], time.perf_counter() - began)
    return seconds
