"""Time of an operator by the roofline model (Williams et al. 2009), and constants of devices.

:data:`DEVICES` names the source of each device's constants. Latencies of launches and links are assumptions.
A launch on a TPU takes the smallest estimate of its compiler, 260 cycles. ``cpu`` is one core of a server
with AVX-512, and shared memory as its link; all its numbers are assumptions.
"""

from collections.abc import Sequence
from dataclasses import MISSING, fields
from math import prod, sqrt
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import parse_json
from fastslow.core.input_files import read_text
from fastslow.core.records import describe_fault

_Rate = Annotated[float, Field(ge=1, le=1e30)]  # less than one a second overflows times
_Seconds = Annotated[float, Field(ge=0, le=1e6)]


@dataclass(frozen=True, config=ConfigDict(strict=True, allow_inf_nan=False, extra="forbid"))
class Device:
    """Constants of one device and of a link between two.

    Args:
        name: Name.
        flops_per_second: Peak: float32 on p100 and v100, else dense bfloat16.
        bytes_per_second: Bandwidth of its memory.
        memory: Bytes.
        launch_seconds: Added to every operator.
        link_bytes_per_second: Bandwidth of one link in one direction.
        link_seconds: Latency of a transfer.
        clock: Cycles per second, for the compiler's estimates.
        source: Where the numbers stand.
        eager: Whether operators start in the order in which they are ready instead of by the longest path to
            the end, and transfers wait for no other: the model of DOPPLER (arXiv:2505.23131).
    """

    name: str
    flops_per_second: _Rate
    bytes_per_second: _Rate
    memory: _Rate
    launch_seconds: _Seconds
    link_bytes_per_second: _Rate
    link_seconds: _Seconds
    clock: _Rate = 1e9
    source: str = ""
    eager: bool = False

    def seconds(self, flops, moved_bytes):
        """Return the roofline time in seconds of operators with so many FLOPs and bytes read and written."""
        bound = np.maximum(flops / self.flops_per_second, moved_bytes / self.bytes_per_second)
        return bound + self.launch_seconds

    def transfer_seconds(self, size):
        """Return the seconds that it takes to send ``size`` bytes to another device."""
        return self.link_seconds + size / self.link_bytes_per_second


def names(text: str) -> frozenset[str]:
    """Return the set of the words of a text."""
    return frozenset(text.split())


_DEVICES = (
    Device("p100", 10.6e12, 732e9, 16e9, 5e-6, 20e9, 10e-6, 1.48e9, "NVIDIA WP-08019; a link of four"),
    Device("v100", 15.7e12, 900e9, 16e9, 5e-6, 25e9, 10e-6, 1.53e9, "NVIDIA WP-08608; a link of six"),
    Device("a100", 312e12, 2039e9, 80e9, 5e-6, 300e9, 10e-6, 1.41e9, "NVIDIA's data sheet, SXM; NVSwitch"),
    Device("h100", 989e12, 3350e9, 80e9, 5e-6, 450e9, 10e-6, 1.83e9, "NVIDIA's data sheet, SXM; NVSwitch"),
    Device("tpu-v3", 61.5e12, 450e9, 16e9, 260 / 0.94e9, 82e9, 1e-6, 0.94e9, "Jouppi et al., CACM 2020"),
    Device("v5e", 197e12, 819e9, 16e9, 260 / 1.5e9, 50e9, 1e-6, 1.5e9, "docs.cloud.google.com/tpu/docs/v5e"),
    Device("cpu", 0.1e12, 12e9, 8e9, 1e-6, 10e9, 1e-6, 2.5e9, "assumed"),
)
DEVICES = {device.name: device for device in _DEVICES}
"""Devices by name; a ``tpu-v3`` is a core of a pod slice."""


def read_device(name: str) -> Device:
    """Return a device by its name, or from a JSON file of the fields of :class:`Device`.

    Raises:
        SettingsError: There is neither a device nor a JSON file of that name.
        DataError: The file is missing, or a field is missing, unknown, of another type or out of range.
    """
    if name in DEVICES:
        return DEVICES[name]
    if not name.endswith(".json"):
        raise SettingsError(
            "device", f"{name!r} is none of {', '.join(DEVICES)}, nor the name of a JSON file"
        )
    constants = [f.name if f.default is MISSING else f"{f.name} (optional)" for f in fields(Device)]
    remedy = f"Give an object of these constants: {', '.join(constants)}"
    given = parse_json(Path(name), read_text(Path(name), remedy), remedy)
    if not isinstance(given, dict):
        raise DataError(name, "is no device: an object is wanted", remedy)
    try:
        return Device(**given)
    except ValidationError as error:
        raise DataError(name, f"is no device: {describe_fault(error)}", remedy) from None


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
            of its tensors, which is exact without batch dimensions); ``output_features`` of a convolution (by
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
