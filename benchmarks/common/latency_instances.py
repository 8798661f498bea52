"""The latency instances of dnn-partitioning (Tarnawski et al., NeurIPS 2020) as placements of programs.

Format: README of github.com/msr-fiddle/dnn-partitioning. A node has a time on an accelerator, a size, and a
time to transfer its output between an accelerator and the host. Costs are the same as in ``fastslow place``:
the runtime of one sample by the list schedule, where an output goes to the host and from there to each other
accelerator. The authors run a whole contiguous part at a time, so their latencies cannot be compared. The
accelerators hold all of a public instance, so that no CPU is used.
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from fastslow.core.errors import DataError
from fastslow.core.records import Record, read_record
from fastslow.core.settings import PROJECT
from fastslow_placement.programs.cost_graph import build
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.roofline import Device

PUBLIC = PROJECT.parent / "shared" / "placement" / "dnn-partitioning" / "latency-inputs"
_FORMAT = "The format is described at github.com/msr-fiddle/dnn-partitioning"
_MILLISECOND = 1e-3  # in seconds; the instances count milliseconds
_Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]
_Number = Annotated[float, Field(ge=0, le=1e15)]  # of a time, size or transfer; sums stay finite


class _Node(Record):
    id: _Whole
    fpgaLatency: _Number
    size: _Number
    colorClass: _Whole | None = None


class _Edge(Record):
    sourceId: _Whole
    destId: _Whole
    cost: _Number


class _Instance(Record):
    nodes: Annotated[list[_Node], Field(min_length=1)]
    edges: list[_Edge]
    maxFPGAs: Annotated[int, Field(ge=1, le=256)]
    maxSizePerFPGA: Annotated[float, Field(gt=0, le=1e15)]


def read_latency_instance(path: Path) -> PlacementProblem:
    """Return the placement of an instance on its accelerators, named by folder and file.

    Raises:
        DataError: The file is missing or not JSON, lacks a field, or has two nodes of one id, a cycle, an
            edge without node, or two transfer times of one node.
        SettingsError: The accelerators cannot hold the nodes.
    """
    fields = read_record(path, _Instance, _FORMAT)
    nodes = fields["nodes"]
    number = {node["id"]: place for place, node in enumerate(nodes)}
    if len(number) < len(nodes):
        raise DataError(path, "has two nodes of one id", _FORMAT)
    transfer: dict[int, float] = {}
    for source, target, cost in ((e["sourceId"], e["destId"], e["cost"]) for e in fields["edges"]):
        if source not in number or target not in number:
            raise DataError(path, f"the edge {source} -> {target} names no node", _FORMAT)
        if abs(transfer.setdefault(source, cost) - cost) > 1e-6:
            raise DataError(path, f"node {source} has two transfer times", "An output has one size")
    classes = [("class", n["colorClass"]) if n.get("colorClass") is not None else n["id"] for n in nodes]
    known = {name: group for group, name in enumerate(dict.fromkeys(classes))}
    graph = build(
        path,
        f"{path.parent.name} {path.stem}",
        ["custom-call"] * len(nodes),
        [()] * len(nodes),
        [(number[edge["sourceId"]], number[edge["destId"]]) for edge in fields["edges"]],
        seconds=[_MILLISECOND * node["fpgaLatency"] for node in nodes],
        flops=[0.0] * len(nodes),
        output_bytes=[2 * _MILLISECOND * transfer.get(node["id"], 0.0) for node in nodes],
        parameter_bytes=[node["size"] for node in nodes],
        read_bytes=[0.0] * len(nodes),
        groups=[known[name] for name in classes],
        names=[str(node["id"]) for node in nodes],
    )
    memory = fields["maxSizePerFPGA"]
    accelerator = Device("accelerator", 1.0, 1.0, memory, 0.0, link_bytes_per_second=1.0, link_seconds=0.0)
    return PlacementProblem(graph, fields["maxFPGAs"], accelerator)


def latency_problems() -> list[PlacementProblem]:
    """Return the public instances that are here."""
    return [read_latency_instance(path) for path in sorted(PUBLIC.glob("*/*.json"))]
