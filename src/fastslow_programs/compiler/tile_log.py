"""Tile candidates of each fused kernel, read from the TPU compiler's log of window selection.

Logging must be enabled by :data:`LOGGING` before libtpu is loaded. Each compiler thread logs one kernel at a
time, so the thread number assigns a line to its kernel.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastslow.hlo.messages import Module

LOGGING = {
    "LIBTPU_INIT_ARGS": "--vmodule=spatial_major_convolution=3,fusion_emitter=5",
    "TPU_STDERR_LOG_LEVEL": "0",
    "TPU_MIN_LOG_LEVEL": "0",
}
"""Environment variables under which libtpu logs candidates and little else."""

DOES_NOT_FIT = 1 << 60  # an estimate this high means that the tile does not fit into memory

_LINE = re.compile(
    r"I\d+ [\d:.]+ +(?P<thread>\d+) (?:spatial_major_convolution|fusion_emitter)\.cc:\d+\] (?P<text>.*)"
)
_CONVOLUTION_STARTS = re.compile(r"SpatialMajorConvolution::ComputeWindowConfigInternal called for (\S+)")
_CONVOLUTION_TILE = re.compile(r"Generated Candidate: out=([\d,]*) kern=([\d,]*) cycles=(\d+)")
_CONVOLUTION_ENDS = re.compile(r"ComputeWindowConfigInternal returning config: .*cycles=(\d+)")
_LOOP_STARTS = "FusionEmitter constructor"
_LOOP_TILE = re.compile(r"Potential window config \[([\d, ]*)\] .*total_cycles (\d+)")
_LOOP_ENDS = re.compile(
    r"ComputeWindowConfigInternal Selected Settings for HLO: (\S+) \| .*estimated_cycles: (\d+)"
)

Tile = tuple[tuple[int, ...], tuple[int, ...]]
"""Bounds of the kernel window (empty but for convolutions and dots) and of the output window."""


@dataclass
class TileKernel:
    """Candidates of one fused kernel.

    Args:
        cycles: The compiler's estimate in cycles for each tile that fits; see :data:`Tile`.
        chosen: Its estimate in cycles for the tile that it chose; 0 until that is known.
    """

    cycles: dict[Tile, int] = field(default_factory=dict)
    chosen: int = 0

    def add(self, tile: Tile, cycles: int) -> None:
        """Add a candidate; of two estimates for the same tile the lower one is kept."""
        if cycles < DOES_NOT_FIT:
            self.cycles[tile] = min(cycles, self.cycles.get(tile, cycles))


def _bounds(text: str) -> tuple[int, ...]:
    return tuple(int(bound) for bound in text.split(",") if bound.strip())


def read_candidates(log: Iterable[str]) -> dict[str, TileKernel]:
    """Return the candidates in the lines of the compiler's log, by name of the fused instruction.

    A kernel that the compiler examines several times counts as at the first time.
    """
    kernels: dict[str, TileKernel] = {}
    convolutions: dict[str, tuple[str, TileKernel]] = {}
    loops: dict[str, TileKernel] = {}
    for line in log:
        if not (match := _LINE.match(line)):
            continue
        thread, text = match["thread"], match["text"]
        if match := _CONVOLUTION_STARTS.search(text):
            convolutions[thread] = match[1], TileKernel()
        elif (match := _CONVOLUTION_TILE.search(text)) and thread in convolutions:
            convolutions[thread][1].add((_bounds(match[2]), _bounds(match[1])), int(match[3]))
        elif (match := _CONVOLUTION_ENDS.search(text)) and thread in convolutions:
            name, kernel = convolutions.pop(thread)
            kernel.chosen = int(match[1])
            kernels.setdefault(name, kernel)
        elif _LOOP_STARTS in text:
            loops[thread] = TileKernel()
        elif match := _LOOP_TILE.search(text):
            loops.setdefault(thread, TileKernel()).add(((), _bounds(match[1])), int(match[2]))
        elif (match := _LOOP_ENDS.search(text)) and thread in loops:
            kernel = loops.pop(thread)
            kernel.chosen = int(match[2])
            kernels.setdefault(match[1], kernel)
    return kernels


def kernel_module(optimized: Module, kernel: str) -> Module:
    """Return the computation that a fusion of a module calls, with all called from it, as a module.

    Raises:
        KeyError: The module has no fusion of that name.
    """
    fusions = {
        instruction.name: instruction
        for computation in optimized.computations
        for instruction in computation.instructions
        if instruction.opcode == "fusion"
    }
    by_id = {computation.id: computation for computation in optimized.computations}
    called = set()
    pending = list(fusions[kernel].called_computation_ids)
    entry = pending[0]
    while pending:
        computation_id = pending.pop()
        if computation_id not in called:
            called.add(computation_id)
            for instruction in by_id[computation_id].instructions:
                pending.extend(instruction.called_computation_ids)
    name = by_id[entry].name
    return Module(
        name=kernel,
        entry_computation_name=name,
        entry_computation_id=entry,
        computations=[c for c in optimized.computations if c.id in called],
    )
