"""Partitioning a DNN for throughput or latency: the instances of Tarnawski et al. (NeurIPS 2020).

Format and cost model: github.com/msr-fiddle/dnn-partitioning. A node runs on one of k accelerators or on one
of the CPUs. *Throughput*: the largest load of a device, where an accelerator's load is its times plus the
transfers of outputs that it receives or that others need, each producer once, and a CPU's is its times alone.
*Latency*: an accelerator runs a contiguous set of nodes as one step (receive, compute, send); a set that is
not contiguous is run in several steps; a CPU node runs by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from fastslow.core.errors import DataError
from fastslow.core.files import read_json
from fastslow_placement.base.public_schema import Instance, checked
from fastslow_placement.programs.cost_graph import check_sizes, neighbours, topological_by, topological_order

_FORMAT = "The format is that of github.com/msr-fiddle/dnn-partitioning"


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
    def producers(self) -> list[list[int]]:
        """Producers of each node."""
        return neighbours(self.edges[:, ::-1], len(self))

    def device_of(self, split: Sequence[int]) -> np.ndarray:
        """Return the device of each node, given that of each unit: (N,) or (B, N)."""
        return np.asarray(split)[..., self.units]


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
    data = read_json(path) if data is None else data
    instance = checked(path, data, Instance, "instance", _FORMAT)
    nodes = instance.nodes
    ids = np.array([node.id for node in nodes], np.int64)
    columns = {
        "accelerator": np.array([node.fpgaLatency for node in nodes], float),
        "cpu": np.array([node.cpuLatency for node in nodes], float),
        "size": np.array([node.size for node in nodes], float),
    }
    supported = np.array([node.supportedOnFpga for node in nodes], bool)
    backward = np.array([node.isBackwardNode for node in nodes], bool)
    pairs = [(edge.sourceId, edge.destId, edge.cost) for edge in instance.edges]
    if len(set(ids.tolist())) < len(ids):
        raise DataError(path, "has two nodes of one id", _FORMAT)
    labels = [str(node.id if node.name is None else node.name) for node in nodes]
    check_sizes(path, labels, **columns)
    if not (np.where(supported, columns["accelerator"], 0) + columns["cpu"]).any():
        raise DataError(path, "all its times are 0", "Give fpgaLatency and cpuLatency of the nodes")
    number = {node: place for place, node in enumerate(ids.tolist())}
    transfer, rows = np.zeros(len(ids)), []
    for source, target, cost in pairs:
        if source not in number or target not in number:
            raise DataError(path, f"the edge {source} -> {target} names no node", _FORMAT)
        if transfer[number[source]] and abs(transfer[number[source]] - cost) > 1e-6:
            raise DataError(path, f"node {source} has two transfer times", "An output has one size")
        transfer[number[source]] = cost
        rows.append((number[source], number[target]))
    check_sizes(path, labels, transfer=transfer)
    rows = np.unique(np.array(rows, np.int64).reshape(-1, 2), axis=0)
    order = topological_order(rows, len(ids), path, labels)
    position = np.argsort(order)
    colours = [("own", node.id) if node.colorClass is None else ("class", node.colorClass) for node in nodes]
    first: dict = {}
    units = np.array([first.setdefault(colours[node], len(first)) for node in order], np.int64)
    columns["accelerator"][~supported] = np.inf
    return Workload(
        path.stem,
        ids[order],
        tuple(labels[node] for node in order),
        np.unique(position[rows], axis=0).reshape(-1, 2),
        backward=backward[order],
        transfer=transfer[order],
        units=units,
        devices=instance.maxFPGAs,
        cpus=instance.maxCPUs,
        memory=instance.maxSizePerFPGA,
        **{name: column[order] for name, column in columns.items()},
    )


def read_split(path: Path, workload: Workload) -> np.ndarray:
    """Return the device of each unit from a file with a split, such as a human expert's: (U,) int64.

    A node that the file does not name follows the other nodes of its co-location class: an expert's split for
    inference is used for training too.

    Raises:
        DataError: The file is missing or no split, uses too many devices, or leaves a unit without one.
    """
    data = read_json(path)
    split = np.full(int(workload.units.max()) + 1, -1, np.int64)
    unit_of = dict(zip(workload.ids.tolist(), workload.units.tolist(), strict=True))
    try:
        parts = [(device, part["nodes"]) for device, part in enumerate(data["fpgas"])]
        parts += [(workload.devices + cpu, part["nodes"]) for cpu, part in enumerate(data["cpus"])]
        for device, nodes in parts:
            for node in nodes:
                if node in unit_of:
                    split[unit_of[node]] = device
    except (KeyError, TypeError) as error:
        raise DataError(path, f"is no split ({type(error).__name__}: {error})", _FORMAT) from None
    if len(data["fpgas"]) > workload.devices:
        problem = f"uses {len(data['fpgas'])} accelerators, the instance has {workload.devices}"
        raise DataError(path, problem, "Give a split for this instance")
    if (split < 0).any():
        node = workload.labels[int((workload.device_of(split) < 0).argmax())]
        raise DataError(path, f"gives no device to {node!r}", "Give one to a node of each co-location class")
    return split


def excess_memory(workload: Workload, memory: np.ndarray) -> np.ndarray:
    """Return the bytes over the limit, summed over the devices: (B,), for (B, devices)."""
    return np.maximum(memory - workload.memory, 0).sum(1)


def latency(workload: Workload, split: np.ndarray, several: bool = True) -> float:
    """Return the latency of one sample; infinite where two steps would wait for each other.

    Args:
        workload: The instance.
        split: (U,) device of each unit.
        several: Whether an accelerator may run in several steps; if not, its latency is infinite.
    """
    device = workload.device_of(split)
    steps = _steps(workload, device)
    on = device < workload.devices
    if not several and len(np.unique(steps[on])) > len(np.unique(device[on])):
        return np.inf
    finish = np.zeros(len(workload))
    producers = workload.producers
    sends = np.zeros(len(workload), bool)
    cut = steps[workload.edges[:, 0]] != steps[workload.edges[:, 1]]
    sends[workload.edges[cut, 0]] = True
    members: dict[int, list[int]] = {}
    for node, step in enumerate(steps.tolist()):
        members.setdefault(step, []).append(node)
    waits = np.unique(steps[workload.edges].reshape(-1, 2), axis=0)
    order = topological_by(np.zeros(len(members)), waits[waits[:, 0] != waits[:, 1]])
    if len(order) < len(members):
        return np.inf
    for nodes in (members[step] for step in order.tolist()):
        outside = {p for node in nodes for p in producers[node] if steps[p] != steps[nodes[0]]}
        begin = max((finish[p] for p in outside), default=0.0)
        if device[nodes[0]] >= workload.devices:
            finish[nodes[0]] = begin + workload.cpu[nodes[0]]
            continue
        moved = sum(workload.transfer[p] for p in outside) + workload.transfer[nodes][sends[nodes]].sum()
        finish[nodes] = begin + moved + workload.accelerator[nodes].sum()
    return float(finish.max())


def _steps(workload: Workload, device: np.ndarray) -> np.ndarray:
    """Return the step of each node: one per contiguous piece of an accelerator, one per CPU node.

    The piece of a node is the largest number of times that a path to it leaves and enters its device again.
    """
    pieces = np.zeros((len(workload), workload.devices), np.int64)
    for node in range(len(workload)):
        own = device[node]
        for producer in workload.producers[node]:
            np.maximum(pieces[node], pieces[producer], out=pieces[node])
            if own < workload.devices and device[producer] != own:
                pieces[node, own] = max(pieces[node, own], pieces[producer, own] + 1)
        if own < workload.devices:
            pieces[node, own] = max(pieces[node, own], 1)
    on_cpu = device >= workload.devices
    piece = pieces[np.arange(len(workload)), np.minimum(device, workload.devices - 1)]
    keys = np.where(on_cpu, -1 - np.arange(len(workload)), device * (len(workload) + 1) + piece)
    return np.unique(keys, return_inverse=True)[1]
