"""Time of an operator by the roofline model (Williams et al. 2009), and constants of devices.

Sources of the constants: NVIDIA's white papers of P100 (WP-08019) and V100 (WP-08608); TPU v3 from Jouppi et
al., "A domain-specific supercomputer for training deep neural networks" (CACM 2020), per core. Latencies of
launches and links are assumptions; that of the TPU is the smallest estimate of its compiler, 260 cycles.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt


@dataclass(frozen=True)
class Device:
    """Constants of one device and of a link between two.

    Args:
        name: Name.
        flops_per_second: Peak, float32 on GPUs and bfloat16 on the TPU.
        bytes_per_second: Bandwidth of its memory.
        memory: Bytes.
        launch_seconds: Added to every operator.
        link_bytes_per_second: Bandwidth of one link in one direction.
        link_seconds: Latency of a transfer.
        clock: Cycles per second, for the compiler's estimates.
    """

    name: str
    flops_per_second: float
    bytes_per_second: float
    memory: float
    launch_seconds: float
    link_bytes_per_second: float
    link_seconds: float
    clock: float

    def seconds(self, flops, moved_bytes):
        """Return the roofline time of operators with these FLOPs and bytes read and written."""
        bound = flops / self.flops_per_second, moved_bytes / self.bytes_per_second
        return _maximum(*bound) + self.launch_seconds

    def transfer_seconds(self, size):
        """Return the time to send this many bytes to another device."""
        return self.link_seconds + size / self.link_bytes_per_second


def names(text: str) -> frozenset[str]:
    """Return the set of the words of a text."""
    return frozenset(text.split())


def _maximum(first, second):
    """Return the element-wise maximum of two scalars or arrays."""
    larger = first > second
    return first * larger + second * (1 - larger)


DEVICES = {
    "p100": Device("p100", 10.6e12, 732e9, 16e9, 5e-6, 20e9, 10e-6, 1.48e9),
    "v100": Device("v100", 15.7e12, 900e9, 16e9, 5e-6, 25e9, 10e-6, 1.53e9),
    "tpu-v3": Device("tpu-v3", 61.5e12, 450e9, 16e9, 260 / 0.94e9, 82e9, 1e-6, 0.94e9),
}

FREE = names(
    "parameter constant tuple get-tuple-element bitcast after-all opt-barrier domain partition-id replica-id "
    "add-dependency"
)
"""Opcodes that take no time by themselves."""
_SOURCES = names("iota rng-get-and-update-state")
_MOVES = names(
    "broadcast reshape transpose copy slice concatenate pad reverse gather dynamic-slice "
    "dynamic-update-slice copy-start copy-done convert bitcast-convert"
)


def operator_flops(
    opcode: str, output: Sequence[int], operands: Sequence[Sequence[int]], **attributes
) -> float:
    """Return the floating-point operations of an operator.

    A dot has 2 x output elements x contracted elements, a convolution 2 x output elements x kernel elements /
    output features, reductions one per input element, moves of data none, everything else one per output
    element.

    Args:
        opcode: HLO opcode.
        output: Dimensions of the output.
        operands: Dimensions of each operand.
        **attributes: ``contracted``, elements summed per output element of a dot (by default from the sizes
        of
            its tensors, which is exact without batch dimensions); ``output_features`` of a convolution (by
            default the kernel's last dimension).
    """
    elements = prod(output)
    if opcode in FREE or opcode in _MOVES or opcode in _SOURCES:
        return 0.0
    if opcode == "dot" and len(operands) >= 2:
        return 2.0 * elements * (attributes.get("contracted") or _contracted(output, operands))
    if opcode == "convolution" and len(operands) >= 2:
        features = attributes.get("output_features") or (operands[1] or [1])[-1]
        return 2.0 * elements * prod(operands[1]) / features
    if opcode in ("reduce", "reduce-window", "select-and-scatter", "sort", "all-reduce"):
        return float(max([elements, *map(prod, operands[:1])]))
    return float(elements)


def _contracted(output: Sequence[int], operands: Sequence[Sequence[int]]) -> float:
    """Return lhs x rhs / output = (batch x contracted) ** 2 / batch, batch from the common leading
    dimensions.
    """
    left, right = operands[:2]
    batch = 1
    for out, a, b in zip(output, left, right, strict=False):
        if not out == a == b or len(output) < 3:
            break
        batch *= out
    return sqrt(max(prod(left) * prod(right) / max(prod(output), 1) / batch, 1.0))
