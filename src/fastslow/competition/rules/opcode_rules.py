"""What each HLO opcode takes and gives: the one table that HLO modules and competition files are checked by.

:mod:`fastslow.hlo.shape_rules` asks it for instructions, and
:mod:`fastslow.competition.rules.node_rules` for nodes.

Source: XLA's ``HloInstruction::CreateFromProto``, ``ShapeInference`` and ``HloVerifier``.
"""

from typing import NamedTuple

MANY = 1 << 30
"""A number without a bound."""
SAME, SIZES, PRED, SELECT, CLAMP, TYPE, OTHER = "same", "sizes", "pred", "select", "clamp", "type", "other"
"""What the output has of its operands: sizes and element type; sizes; sizes, with truth values; sizes and
type, but for a predicate or bounds, which may be scalars; the element type of the first; nothing of the kind.
"""


class Rule(NamedTuple):
    """The row of an opcode.

    Args:
        operands: Smallest and largest number of operands.
        called: Smallest and largest number of computations that it calls.
        output: What its output has of its operands, such as :data:`SAME`.
    """

    operands: tuple[int, int]
    called: tuple[int, int]
    output: str


# operands, called computations, output, opcodes
_TABLE = """
1   0   same   cbrt ceil copy cosine count-leading-zeros exponential exponential-minus-one floor log
1   0   same   log-plus-one logistic negate not popcnt reduce-precision round-nearest-afz round-nearest-even
1   0   same   rsqrt sign sine sqrt tan tanh acos acosh asin asinh atanh cosh erf sinh reverse
2   0   same   add and atan2 divide maximum minimum multiply or power remainder subtract xor
2   0   same   shift-left shift-right-arithmetic shift-right-logical
1   0   same   all-reduce-done domain opt-barrier
1   0   sizes  abs convert imag real
2   0   sizes  complex stochastic-convert
1   0   pred   is-finite
2   0   pred   compare
3   0   select select tuple-select
3   0   clamp  clamp
1   0   type   broadcast cholesky reshape slice transpose
2   0   type   gather pad set-dimension-size triangular-solve
1+  0   type   concatenate dynamic-reshape
2+  0   type   dynamic-slice
3+  0   type   dynamic-update-slice
3   2   type   select-and-scatter
0   0   other  parameter constant iota partition-id replica-id rng-get-and-update-state
1   0   other  bitcast bitcast-convert fft get-dimension-size get-tuple-element rng-bit-generator
1   0   other  copy-start copy-done recv recv-done send-done trace
1   0   other  collective-permute-done all-gather-done async-update async-done
2   0   other  add-dependency convolution dot send
2+  0   other  rng
3   0   other  batch-norm-training
5   0   other  batch-norm-inference batch-norm-grad
3   0   other  ragged-dot
4   0   other  scaled-dot
6   0   other  ragged-all-to-all
1+  0   other  all-gather all-gather-start all-to-all collective-broadcast collective-permute
1+  0   other  collective-permute-start
1   0-1 other  topk
1   0   other  infeed
2   0   other  outfeed
0+  0   other  after-all tuple
1+  1   other  all-reduce all-reduce-start reduce-scatter sort
2+  1   other  reduce reduce-window
3+  1   other  scatter
1+  1   sizes  map
0+  1   other  call fusion
2+  1+  other  conditional
1   2   other  while
0+  1   other  async-start
0+  0+  other  custom-call
"""


_OUTPUTS = """
tuple                         infeed recv recv-done send copy-start async-start async-update all-gather-start
tuple                         tuple collective-permute-start batch-norm-training batch-norm-grad tuple-select
token                         after-all outfeed send-done
s32                           get-dimension-size
u32                           partition-id replica-id
u64                           rng-get-and-update-state
c64|c128                      complex
f16|bf16|f32|f64|c64|c128     fft cholesky triangular-solve
"""
GIVES = {
    opcode: frozenset(types.split("|"))
    for types, *opcodes in map(str.split, _OUTPUTS.strip().splitlines())
    for opcode in opcodes
}
"""Element types that the output may have, of opcodes that give only some."""

_KINDS = """
tuple  copy-done collective-permute-done all-gather-done async-update async-done send-done recv-done
whole  gather scatter dynamic-slice dynamic-update-slice set-dimension-size dynamic-reshape stochastic-convert
token  infeed outfeed send recv add-dependency
two    dynamic-slice dynamic-update-slice gather pad set-dimension-size outfeed send add-dependency
two    batch-norm-training batch-norm-inference batch-norm-grad stochastic-convert
three  reduce reduce-window scatter while
operand  dynamic-update-slice scatter sort topk select-and-scatter triangular-solve cholesky
operand  batch-norm-inference all-reduce all-to-all ragged-all-to-all collective-broadcast collective-permute
tensor   batch-norm-inference bitcast bitcast-convert collective-broadcast convolution fft rng
tensor   dot ragged-dot scaled-dot dynamic-reshape gather dynamic-slice dynamic-update-slice
square   cholesky triangular-solve
single   reduce reduce-window scatter map select-and-scatter sort topk
single   all-reduce all-reduce-start reduce-scatter
moves    reshape transpose slice copy reverse broadcast dynamic-slice gather dynamic-reshape
moves    all-gather all-to-all collective-broadcast collective-permute
axis     concatenate iota sort topk get-dimension-size set-dimension-size
axis     all-gather all-to-all ragged-all-to-all reduce-scatter
"""


def _with(word: str) -> frozenset[str]:
    """Return the opcodes of the lines of ``_KINDS`` that begin with a word."""
    lines = map(str.split, _KINDS.strip().splitlines())
    return frozenset(opcode for first, *opcodes in lines if first == word for opcode in opcodes)


TAKES_TUPLE = _with("tuple")
"""Opcodes whose only operand is a tuple."""
TAKES_WHOLE = _with("whole")
"""Opcodes that take positions or sizes: one operand at least has whole numbers."""
TAKES_TOKEN = _with("token")
"""Opcodes one of whose operands is a token: it orders them."""
TAKES_SQUARE = _with("square")
"""Opcodes of matrices with as many rows as columns."""
MOVES = _with("moves")
"""Opcodes that put the elements of their first operand elsewhere, and change none."""
OF_SINGLES = _with("single")
"""Opcodes whose computation is called with single numbers."""
LEAST_RANK = {"convolution": 2, "cholesky": 2, "triangular-solve": 2, "iota": 1}
"""Smallest number of dimensions of the output: a batch and a feature, a matrix, an axis that is counted."""
DIFFERENT = dict.fromkeys(_with("two"), 2) | dict.fromkeys(_with("three"), 3)
"""Smallest number of operands and called computations that differ from each other: a start is no tensor."""
STARTED_BY = {
    "copy-done": ("copy-start",),
    "all-reduce-done": ("all-reduce-start",),
    "all-gather-done": ("all-gather-start",),
    "collective-permute-done": ("collective-permute-start",),
    "async-update": ("async-start", "async-update"),
    "async-done": ("async-start", "async-update"),
}
"""What an opcode that goes on with, or ends, an asynchronous operation takes: what began it."""
ONE_TENSOR = {
    "reduce": 3,
    "reduce-window": 3,
    "sort": 2,
    "scatter": 4,
    "all-reduce": 2,
    "all-reduce-start": 2,
    "reduce-scatter": 2,
    "all-gather": 1,
    "all-to-all": 1,
    "collective-broadcast": 1,
}
"""Largest number of operands and called computations where the output is one tensor, and no tuple of them."""
ONE_PART_IS_A_TENSOR = frozenset(ONE_TENSOR) - {"all-to-all"} | {"collective-permute"}
"""Opcodes whose output is no tuple of one element: of one operand they give the tensor as it stands."""
NEVER_A_TUPLE = _with("tensor")
"""Opcodes whose output is no tuple, and whose element type no other table names."""
TUPLE_PARTS = {
    **dict.fromkeys(("batch-norm-training", "batch-norm-grad", "send", "recv", "copy-start"), 3),
    **dict.fromkeys(("infeed", "recv-done", "rng-bit-generator"), 2),
}
"""Number of elements of the output where it is a tuple."""
GIVES_OPERAND = _with("operand")
"""Opcodes whose output has the sizes and the element type of an operand, where it is no tuple."""
ONE_AXIS = _with("axis")
"""Opcodes that name one axis at most."""


def _range(text: str) -> tuple[int, int]:
    """Return the numbers of ``2``, ``1-2`` or ``1+``."""
    if text.endswith("+"):
        return int(text.removesuffix("+")), MANY
    low, _, high = text.partition("-")
    return int(low), int(high or low)


OPCODE_RULES: dict[str, Rule] = {
    opcode: Rule(_range(operands), _range(called), output)
    for operands, called, output, *opcodes in map(str.split, _TABLE.strip().splitlines())
    for opcode in opcodes
}
"""The row of every opcode that is known, by its HLO name."""


_ELEMENTS = """
floats  acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exponential exponential-minus-one
floats  log log-plus-one logistic rsqrt sine sinh sqrt tan tanh
floats  batch-norm-training batch-norm-inference batch-norm-grad
numbers abs divide negate power remainder sign subtract
tensors add broadcast clamp compare concatenate convert maximum minimum multiply pad reshape reverse select
tensors slice transpose
reals   ceil floor is-finite reduce-precision round-nearest-afz round-nearest-even
bits    and not or xor
whole   count-leading-zeros popcnt shift-left shift-right-arithmetic shift-right-logical
"""
_FLOATS = frozenset(("f16", "f32", "f64", "bf16"))
_COMPLEX = frozenset(("c64", "c128"))
_WHOLE = frozenset(("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"))
_NO_TENSOR = frozenset(("tuple", "token", "opaque"))
_REFUSED = {
    "numbers": frozenset({"pred"}),
    "tensors": frozenset(),
    "floats": _WHOLE | {"pred"},
    "reals": _WHOLE | _COMPLEX | {"pred"},
    "bits": _FLOATS | _COMPLEX,
    "whole": _FLOATS | _COMPLEX | {"pred"},
}

REFUSED_ELEMENTS: dict[str, frozenset[str]] = {
    opcode: _NO_TENSOR | _REFUSED[kind]
    for kind, *opcodes in map(str.split, _ELEMENTS.strip().splitlines())
    for opcode in opcodes
}
"""Element types that an opcode does not take, by its HLO name: an XOR takes no floating-point number."""


def count_wanted(bounds: tuple[int, int]) -> str:
    """Return least and most of a count in words: ``3``, ``1 or more``, ``1 to 2``."""
    low, high = bounds
    if low == high:
        return str(low)
    return f"{low} or more" if high == MANY else f"{low} to {high}"
