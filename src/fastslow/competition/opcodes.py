"""The HLO opcodes as TpuGraphs numbers them in ``node_opcode``: 1 to 120, and 0 for one it does not know.

Source: the order of TpuGraphs' feature extractor. ``trace`` and ``tuple-select`` have since left HLO but keep
their numbers.
"""

from collections.abc import Iterable

import numpy as np

_TABLE = """
abs add add-dependency after-all all-reduce all-to-all atan2 batch-norm-grad batch-norm-inference
batch-norm-training bitcast bitcast-convert broadcast call ceil cholesky clamp collective-permute
count-leading-zeros compare complex concatenate conditional constant convert convolution copy copy-done
copy-start cosine custom-call divide domain dot dynamic-slice dynamic-update-slice exponential
exponential-minus-one fft floor fusion gather get-dimension-size set-dimension-size get-tuple-element
imag infeed iota is-finite log log-plus-one and not or xor map maximum minimum multiply negate outfeed
pad parameter partition-id popcnt power real recv recv-done reduce reduce-precision reduce-window
remainder replica-id reshape reverse rng rng-get-and-update-state rng-bit-generator round-nearest-afz
rsqrt scatter select select-and-scatter send send-done shift-left shift-right-arithmetic
shift-right-logical sign sine slice sort sqrt subtract tanh trace transpose triangular-solve tuple
tuple-select while cbrt all-gather collective-permute-start collective-permute-done logistic
dynamic-reshape all-reduce-start all-reduce-done reduce-scatter all-gather-start all-gather-done
opt-barrier async-start async-update async-done round-nearest-even stochastic-convert tan
"""
_NAMES = _TABLE.split()

OPCODES: dict[str, int] = {name: number for number, name in enumerate(_NAMES, start=1)}
"""Opcode id, 1 to 120, by HLO name (``"all-reduce"``)."""

NEAREST = {
    "ragged-dot": "dot",  # a product of matrices, of groups of rows or with scales of its operands
    "scaled-dot": "dot",
    "topk": "sort",  # what the compiler makes of it
    "ragged-all-to-all": "all-to-all",
    "collective-broadcast": "collective-permute",
} | dict.fromkeys(("acos", "acosh", "asin", "asinh", "atanh", "cosh", "erf", "sinh"), "tanh")
"""For opcodes that are newer than TpuGraphs, the one whose cost and layouts are most alike."""

CONVOLUTION = OPCODES["convolution"]
DOT = OPCODES["dot"]
RESHAPE = OPCODES["reshape"]

CONFIGURED = {"convolution": CONVOLUTION, "dot": DOT, "reshape": RESHAPE}
"""Ids of the opcodes whose tensors a layout configuration arranges, by the names that columns have."""


def opcode_number(name: str) -> int:
    """Return the number of an HLO opcode such as ``dot``, 1 to 120, as ``node_opcode`` has it.

    An opcode without a number in the competition counts as the nearest opcode; 0 where there is none.
    """
    return OPCODES.get(NEAREST.get(name, name), 0)


def opcode_name(opcode: int) -> str:
    """Return the HLO name of an opcode number, such as ``dot``; ``unknown`` for 0 and above 120."""
    return _NAMES[opcode - 1] if 1 <= opcode <= len(_NAMES) else "unknown"


def opcode_shares(opcodes: Iterable[np.ndarray]) -> np.ndarray:
    """Return the share of each opcode among a graph's nodes, ``(graphs, 256)``, from its ``node_opcode``."""
    size = np.iinfo(np.uint8).max + 1
    return np.array([np.bincount(codes, minlength=size) / len(codes) for codes in opcodes]).reshape(-1, size)


def distance(shares: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the total variation ``(n, m)`` of opcode shares ``(n, 256)`` and ``(m, 256)``, 0 to 1.

    It is the share of nodes that would need another opcode.
    """
    return np.array([np.abs(others - share).sum(1) / 2 for share in shares]).reshape(len(shares), len(others))
