"""Partitioning a DNN for throughput: the instances of Tarnawski et al. (NeurIPS 2020), and their cost.

Format and cost model: github.com/msr-fiddle/dnn-partitioning. A node runs on one of k accelerators or on one
of the CPUs. The cost is the largest load of a device. An accelerator's load is its times plus the transfers
of outputs that it receives or that others need, each producer once. A CPU's load is its times alone.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fastslow.core.errors import DataError
from fastslow.core.files import read_json
from fastslow.core.records import Record, check_record
from fastslow_placement.programs.cost_graph import topological_order

_FORMAT = "The format is that of github.com/msr-fiddle/dnn-partitioning"
_MOST_DEVICES = 4096
_Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]
_Number = Annotated[float, Field(ge=0, le=1e15)]  # of a time, size or transfer; sums stay finite


class _Node(Record):
    id: _Whole
    fpgaLatency: _Number
    cpuLatency: _Number
    supportedOnFpga: Literal[0, 1] | bool
    isBackwardNode: Literal[0, 1] | bool
    size: _Number = 0.0
    name: str | _Whole | None = None
    colorClass: _Whole | str | None = None


class _Edge(Record):
    sourceId: _Whole
    destId: _Whole
    cost: _Number


class _Instance(Record):
    nodes: Annotated[list[_Node], Field(min_length=1)]
    edges: list[_Edge]
    maxFPGAs: Annotated[int, Field(ge=1, le=_MOST_DEVICES)]
    maxCPUs: Annotated[int, Field(ge=0, le=_MOST_DEVICES)]
    maxSizePerFPGA: Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Workload:
    """One instance, nodes in topological order.

    Args:
        name: Name.
        ids: (N,) int64 ids of the nodes in the file.
        labels: (N,) names of the nodes.
        edges: (E, 2) rows (producer, consumer).
        accelerator: (N,) time on an accelerator; infinite where it is not supported.
        cpu: (N,) time on a CPU.
        size: (N,) memory on an accelerator.
        transfer: (N,) time to move the output between an accelerator and the host.
        backward: (N,) bool, nodes of the backward pass.
        units: (N,) int64 co-location class.
        devices: Number of accelerators k.
        cpus: Number of CPUs; devices k, k + 1, ... are CPUs.
        memory: Limit of an accelerator.
    """

    name: str
    ids: np.ndarray
    labels: tuple[str, ...]
    edges: np.ndarray
    accelerator: np.ndarray
    cpu: np.ndarray
    size: np.ndarray
    transfer: np.ndarray
    backward: np.ndarray
    units: np.ndarray
    devices: int
    cpus: int
    memory: float

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def of_units(self) -> tuple[np.ndarray, ...]:
        """(U,) time on an accelerator, time on a CPU and memory of each unit."""
        accelerator, cpu, size = (np.bincount(self.units, c) for c in (self.accelerator, self.cpu, self.size))
        return accelerator, cpu, size

    @cached_property
    def touches(self) -> tuple[np.ndarray, np.ndarray]:
        """(P,) producers whose output several units make or need, ascending, and (P,) those units."""
        ends = [np.stack([self.edges[:, 0], self.units[self.edges[:, side]]], 1) for side in (0, 1)]
        rows = np.unique(np.concatenate(ends), axis=0).reshape(-1, 2)
        rows = rows[np.bincount(rows[:, 0], minlength=len(self))[rows[:, 0]] > 1]
        return rows[:, 0], rows[:, 1]

    def loads(self, splits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return load and memory of every device.

        Args:
            splits: (B, U) devices of the units; from ``devices`` on they are CPUs.

        Returns:
            Loads (B, devices + cpus), infinite where a node is not supported, and bytes (B, devices).
        """
        splits, k, total = np.asarray(splits), self.devices, self.devices + self.cpus
        batch = len(splits)
        key = (splits + np.arange(batch)[:, None] * total).ravel()

        def by_device(values: np.ndarray) -> np.ndarray:
            wide = np.broadcast_to(values, splits.shape).ravel()
            return np.bincount(key, wide, batch * total).reshape(batch, total)

        accelerator, cpu, size = self.of_units
        loads = by_device(np.where(splits >= k, cpu, accelerator))
        producers, units = self.touches
        senders, sender = np.unique(producers, return_inverse=True)
        there = np.zeros((batch, len(senders), total), bool)
        there[np.arange(batch)[:, None], sender, splits[:, units]] = True
        there &= there.sum(2, keepdims=True) > 1  # an output that stays on its device is not sent
        loads[:, :k] += np.einsum("bsd,s->bd", there, self.transfer[senders])[:, :k]
        return loads, by_device(size)[:, :k]

    def in_depth_first_order(self) -> "Workload":
        """Return the workload with its units renumbered by :func:`depth_first_order`."""
        return replace(self, units=np.argsort(depth_first_order(self))[self.units])


def read_workload(path: Path, data: object = None) -> Workload:
    """Read an instance.

    Args:
        path: The file.
        data: What it holds, where that was read before.

    Raises:
        DataError: The file is missing or not JSON, lacks a field, or has a cycle, an edge without node, a
            negative time or size, or two transfer times of one node.
    """
    path = Path(path)
    fields = check_record(path, read_json(path) if data is None else data, _Instance, _FORMAT)
    nodes, count = fields["nodes"], len(fields["nodes"])
    ids = np.array([node["id"] for node in nodes], np.int64)
    labels = [str(node["id"] if node.get("name") is None else node["name"]) for node in nodes]
    accelerator, cpu = (np.array([n[key] for n in nodes], float) for key in ("fpgaLatency", "cpuLatency"))
    accelerator[~np.array([node["supportedOnFpga"] for node in nodes], bool)] = np.inf
    number = {node: place for place, node in enumerate(ids.tolist())}
    if len(number) < count:
        raise DataError(path, "has two nodes of one id", _FORMAT)
    if not (np.where(np.isinf(accelerator), 0, accelerator) + cpu).any():
        raise DataError(path, "all its times are 0", "Give fpgaLatency and cpuLatency of the nodes")
    transfer, rows = np.zeros(count), []
    for source, target, cost in ((e["sourceId"], e["destId"], e["cost"]) for e in fields["edges"]):
        if source not in number or target not in number:
            raise DataError(path, f"the edge {source} -> {target} names no node", _FORMAT)
        if transfer[number[source]] and abs(transfer[number[source]] - cost) > 1e-6:
            raise DataError(path, f"node {source} has two transfer times", "An output has one size")
        transfer[number[source]] = cost
        rows.append((number[source], number[target]))
    edges = np.unique(np.array(rows, np.int64).reshape(-1, 2), axis=0)
    order = topological_order(edges, count, path, labels)
    colours = [("class", n["colorClass"]) if n.get("colorClass") is not None else n["id"] for n in nodes]
    first: dict = {}
    return Workload(
        path.stem,
        ids[order],
        tuple(labels[node] for node in order),
        np.unique(np.argsort(order)[edges], axis=0).reshape(-1, 2),
        accelerator[order],
        cpu[order],
        np.array([node.get("size", 0.0) for node in nodes], float)[order],
        transfer[order],
        np.array([node["isBackwardNode"] for node in nodes], bool)[order],
        np.array([first.setdefault(colours[node], len(first)) for node in order], np.int64),
        fields["maxFPGAs"],
        fields["maxCPUs"],
        fields["maxSizePerFPGA"],
    )


def depth_first_order(workload: Workload) -> np.ndarray:
    """Return the units such that each stands right before what needs it: (U,) int64.

    The postorder of a depth-first walk from the last units to what they need, the deepest first, so that few
    outputs are in use between two neighbours and a weight stands just before its use. The backward pass,
    whose nodes share units with the forward pass, is walked the other way. Without cycles between units the
    order is topological.
    """
    units, backward = workload.units, workload.backward
    count = int(units.max()) + 1
    ahead = workload.edges[~backward[workload.edges].any(1)]
    back = workload.edges[backward[workload.edges].all(1)][::-1, ::-1]
    depth = np.zeros(len(workload), np.int64)
    walk = ahead[np.argsort(ahead[:, 1], kind="stable")], back[np.argsort(-back[:, 1], kind="stable")]
    for before, after in np.concatenate(walk).tolist():
        depth[after] = max(depth[after], depth[before] + 1)
    deepest = np.zeros(count, np.int64)
    np.maximum.at(deepest, units, depth)
    pairs = units[np.concatenate([ahead, back])]
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).reshape(-1, 2)
    needs: list[list[int]] = [[] for _ in range(count)]
    for before, after in pairs[np.argsort(-deepest[pairs[:, 0]], kind="stable")].tolist():
        needs[after].append(before)
    needed = np.bincount(pairs[:, 0], minlength=count) > 0
    return _postorder(needs, np.lexsort((deepest, needed)).tolist())


def _postorder(needs: list[list[int]], roots: list[int]) -> np.ndarray:
    """Return all nodes, each after those that it needs (but for cycles)."""
    seen, order = set(), []
    for root in roots:
        stack = [] if root in seen else [(root, iter(needs[root]))]
        seen.add(root)
        while stack:
            node, rest = stack[-1]
            other = next((other for other in rest if other not in seen), None)
            if other is None:
                order.append(node)
                stack.pop()
            else:
                seen.add(other)
                stack.append((other, iter(needs[other])))
    return np.array(order, np.int64)
