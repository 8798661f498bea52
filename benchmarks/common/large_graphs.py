"""GO on graphs of about 50,000 nodes: the section ``large`` of ``go.py``.

A public instance or a zoo program is repeated, the copies one after the other and joined by edges. Each is
read and decided in a process of its own, whose peak memory is its own.
"""

import dataclasses
import gzip
import json
import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

from common.public_placement import BEST_KNOWN, PUBLIC
from fastslow_placement.base.problem import Problem
from fastslow_placement.base.search import Budget
from fastslow_placement.go.policy import Policy, Shape
from fastslow_placement.go.ppo import Schedule, Trainer
from fastslow_placement.partition.problems import PartitionProblem
from fastslow_placement.partition.workload import read_workload
from fastslow_placement.place import compare, read_problem
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.fusion import contract
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.roofline import DEVICES
from fastslow_placement.programs.zoo_graphs import PROGRAMS, read_zoo_graph
from fastslow_placement.settings import PlaceSettings
from fastslow_placement.sharding.sharding import FORBIDDEN

GRAPHS = {
    "bert_L-12_training": (24, PUBLIC / "dnn-partitioning/throughput-inputs/OperatorGraphs"),
    "asplos-2025-iopddl-G": (62, PUBLIC / "iopddl"),
    "asplos-2025-iopddl-V": (12, PUBLIC / "iopddl"),
    "transformer_8": (21, None),
}
"""Copies that give about 50,000 nodes (V, of larger tables: 10,000), and the folder; none for the zoo."""
_JOINED = 16  # every so many edges of a sharding problem also join a copy and the next


def large(options) -> list[dict]:
    """Size, seconds and peak memory at half the copies and at all: of two updates, on iopddl of ``place``."""
    graphs = {}
    for name, (copies, folder) in GRAPHS.items():
        path = _file(name, folder) if folder else None
        if path or not folder:
            counts = (2,) if options.quick else (copies // 2, copies)
            graphs |= {f"{name} x {count}": (name, path, count) for count in counts}
    return options.kept.rows(
        "large", [*graphs], lambda name: {"graph": name} | _large(*graphs[name], options.seconds)
    )


def _file(name: str, folder: Path) -> Path | None:
    return next(folder.glob(f"{name}.json*"), None)


def _large(name: str, path: Path | None, copies: int, seconds: float) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        repeated = Path(folder) / f"{name}.json"
        if path:
            _alone(_write, path, repeated, copies)
        return _alone(_decide, name, repeated if path else None, copies, seconds)


def _alone(work, *arguments):
    """Return what a function returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def _write(path: Path, target: Path, copies: int) -> None:
    data = path.read_bytes()
    data = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    sharding = "problem" in data
    many = repeated_sharding(data, copies, _JOINED) if sharding else repeated_workload(data, copies)
    target.write_text(json.dumps(many))


def repeated_workload(data: dict, copies: int) -> dict:
    """Return an instance of dnn-partitioning whose copies follow each other, with memory for all."""
    nodes, edges, numbers = [], [], ("id", "colorClass", "layerId")
    step = {key: 1 + max(node.get(key, 0) for node in data["nodes"]) for key in numbers}
    first = data["nodes"][0]["id"]
    last = ({node["id"] for node in data["nodes"]} - {edge["sourceId"] for edge in data["edges"]}).pop()
    for copy in range(copies):
        nodes += [n | {key: n[key] + copy * step[key] for key in numbers if key in n} for n in data["nodes"]]
        shift = copy * step["id"]
        ends = ("sourceId", "destId")
        edges += [edge | {end: edge[end] + shift for end in ends} for edge in data["edges"]]
        if copy:
            edges.append({"sourceId": last + shift - step["id"], "destId": first + shift, "cost": 0.0})
    memory = data["maxSizePerFPGA"] * copies
    return data | {"nodes": nodes, "edges": edges, "maxSizePerFPGA": memory}


def repeated_sharding(data: dict, copies: int, every: int = 0) -> dict:
    """Return a problem of iopddl whose copies live one after the other, under the limit of one.

    Args:
        data: The instance.
        copies: Number of copies.
        every: Of the edges whose pairs are all allowed and not all free, each with a number divisible by this
            also leads from a copy to the next; 0 for none, so that copies share no cost.
    """
    nodes, edges = data["problem"]["nodes"], data["problem"]["edges"]
    count, end = len(nodes["costs"]), max(max(own) for own in nodes["intervals"] if own)
    intervals = [[t + copy * end for t in own or ()] for copy in range(copies) for own in nodes["intervals"]]
    pairs = [[u + copy * count, v + copy * count] for copy in range(copies) for u, v in edges["nodes"]]
    joined = [k for k, own in enumerate(edges["costs"]) if 0 < max(own) < FORBIDDEN][:: every or None]
    joined = joined if every else []
    ends = [edges["nodes"][k] for k in joined]
    link = [0.0] * len(nodes["costs"][0]) ** 2
    steps = range(copies - 1)
    across = [[u + copy * count, v + (copy + 1) * count] for copy in steps for u, v in [[0, 0], *ends]]
    return {
        "problem": data["problem"]
        | {
            "nodes": {
                "intervals": intervals,
                "costs": nodes["costs"] * copies,
                "usages": nodes["usages"] * copies,
            },
            "edges": {
                "nodes": pairs + across,
                "costs": edges["costs"] * copies
                + [link, *(edges["costs"][k] for k in joined)] * (copies - 1),
            },
        }
    }


def repeated_graph(graph: CostGraph, copies: int) -> CostGraph:
    """Return copies of a program, each after the other: its last operator feeds the next one's first."""
    count, groups = len(graph), int(graph.groups.max()) + 1
    shift = np.arange(copies)
    edges = (graph.edges[None] + shift[:, None, None] * count).reshape(-1, 2)
    links = np.stack([shift[1:] * count - 1, shift[1:] * count], 1)
    alike = ("shapes", "seconds", "flops", "output_bytes", "parameter_bytes", "read_bytes")
    return dataclasses.replace(
        graph,
        opcodes=graph.opcodes * copies,
        names=graph.names * copies,
        edges=np.unique(np.concatenate([edges, links]), axis=0),
        groups=(graph.groups[None] + shift[:, None] * groups).ravel(),
        **{name: np.concatenate([getattr(graph, name)] * copies) for name in alike},
    )


def _problem(name: str, path: Path | None, copies: int) -> tuple[int, Problem]:
    """Return the number of nodes, and the problem as the policy decides it."""
    if path is None:
        device = dataclasses.replace(DEVICES["p100"], memory=DEVICES["p100"].memory * copies)
        graph = repeated_graph(read_zoo_graph(name, device), copies)
        return len(graph), PlacementProblem(contract(graph, device), PROGRAMS[name].devices, device)
    workload = read_workload(path)
    return len(workload), PartitionProblem(workload).space()


def _decide(name: str, path: Path | None, copies: int, seconds: float) -> dict:
    torch.set_num_threads(1)
    if path and "iopddl" in name:
        return _place(path, copies * BEST_KNOWN[name[-1]], seconds)
    times = [time.process_time()]
    nodes, problem = _problem(name, path, copies)
    row = {"nodes": nodes, "units": len(problem.choices), "options": int(problem.choices.sum())}
    times.append(time.process_time())
    row["read GB"] = _peak()
    trainer = Trainer(Policy(Shape()), [problem], Schedule(updates=2), 0)
    for update in (1, 2):
        best = trainer.run(update)[0]
        times.append(time.process_time())
    names = ("read s", "first update s", "second update s")
    row |= dict(zip(names, np.diff(times).round(1).tolist(), strict=True))
    return row | {"peak GB": _peak(), "cost": best.cost, "of start": best.cost / problem.baseline}


def _place(path: Path, unit: float, seconds: float) -> dict:
    """Return the costs of ``fastslow place`` in CPU seconds, over the best known of separate copies."""
    settings = PlaceSettings(source=str(path), seconds=seconds)
    budget, begin = Budget(seconds), time.process_time()
    problem = read_problem(settings, budget)
    row = {"nodes": len(problem.choices), "read s": round(time.process_time() - begin, 1)}
    placed = compare(settings, problem, budget)
    row |= {name: found.cost / unit for name, found in placed.found.items() if np.isfinite(found.cost)}
    return row | {"CPU s": round(time.process_time() - begin, 1), "peak GB": _peak()}


def _peak() -> float:
    """Return the peak memory of this process in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
