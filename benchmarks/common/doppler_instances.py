"""The graphs of DOPPLER (Yao et al., ICLR 2026) as placements, with the cost model of its simulator.

``../shared/placement/doppler/README.md`` has format, cost model and licence. Devices are eager: a node starts
in the order in which it is ready, and no transfer waits. Costs have the simulator's unit. The order of nodes
that are ready at once is not stated: here the longest path comes first. The published times come from a real
engine and cannot be compared.
"""

from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastslow.core.errors import DataError
from fastslow.core.settings import PROJECT
from fastslow_placement.programs.cost_graph import build
from fastslow_placement.programs.list_placement import list_placements
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.roofline import Device

PUBLIC = PROJECT.parent / "shared" / "placement" / "doppler"
_DEVICE = Device("doppler", 1.0, 1.0, 1e15, 0.0, link_bytes_per_second=1.0, link_seconds=0.0, eager=True)
_UNIT = 1e10
_LONGEST_PATH = np.array([0.0, 1, 1, 0, 0, 0, 0, 0])  # then the device of the earliest start


def read_doppler_graph(path: Path, devices: int) -> PlacementProblem:
    """Return the placement of a graph on some devices, named by file and devices.

    Raises:
        DataError: A line is missing or no list of numbers, a number of nodes is wrong, or the graph has a
            cycle.
    """
    try:
        text = [line.strip(" ,") for line in path.read_text().split("\n")]
        lines = [np.array(line.split(","), float) for line in text if line]
        count, (_, producers, consumers), costs = int(lines[0][0]), lines[1:4], lines[4:]
        seconds, sent = np.array([cost[:2] for cost in costs]).T / _UNIT
        edges = np.stack([producers, consumers], 1).astype(np.int64)
    except (ValueError, IndexError) as error:
        raise DataError(path, f"is no graph of DOPPLER: {error}", "See ../shared/placement/doppler") from None
    if len(seconds) != count - len(lines[1]):
        raise DataError(path, f"has {len(seconds)} nodes, not {count} less its inputs", "Give a whole file")
    zero = np.zeros(len(seconds))
    columns = {name: zero for name in ("flops", "parameter_bytes", "read_bytes")}
    columns |= {"seconds": seconds, "output_bytes": sent}
    name, kinds = f"{path.stem} on {devices}", ["custom-call"] * len(seconds)
    graph = build(path, name, kinds, [()] * len(seconds), edges, **columns)
    return PlacementProblem(graph, devices, _DEVICE)


def doppler_problems() -> list[PlacementProblem]:
    """Return the placements of the graphs that are here, on 4 and 8 devices."""
    return [read_doppler_graph(path, devices) for path in sorted(PUBLIC.glob("*.txt")) for devices in (4, 8)]


def critical_path(problem: PlacementProblem) -> np.ndarray:
    """Return the placement of the paper's heuristic: (U,).

    The ready operator of the longest path to the end, transfers included, goes where it can start first.
    """
    graph, paths = problem.graph, copy(problem)
    sent = problem.device.transfer_seconds(graph.output_bytes) * [bool(after) for after in graph.consumers]
    paths.graph = replace(graph, seconds=graph.seconds + sent)
    return list_placements(paths, _LONGEST_PATH[None])[0]
