"""GO on the instances of dnn-partitioning: the section ``partition`` of ``go.py``."""

from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from common.held_out_placement import best_known, record
from fastslow.core.errors import DataError
from fastslow.core.files import read_json
from fastslow.core.settings import PROJECT
from fastslow_placement.base.search import Found, anneal
from fastslow_placement.baselines import metis
from fastslow_placement.go.policy import Policy, Shape
from fastslow_placement.go.ppo import Schedule, Trainer
from fastslow_placement.partition.load_search import move_regions
from fastslow_placement.partition.problems import PartitionProblem
from fastslow_placement.partition.workload import Workload, read_workload

MOVES = 1_200_000  # of the search after GO, as ``place`` has by default
PUBLIC = PROJECT.parent / "shared" / "placement"
AUTHORS = {  # measured with the authors' dp.cpp: PipeDream, contiguous optimum over all ideals
    ("LayerGraphs", "bert24_inference"): (17.79, 17.790),
    ("LayerGraphs", "bert24_training"): (None, 41.746),
    ("LayerGraphs", "gnmt_inference"): (33.03, 32.911),
    ("LayerGraphs", "gnmt_training"): (None, 107.00),
    ("LayerGraphs", "resnet50_inference"): (39.40, 33.775),
    ("LayerGraphs", "resnet50_training"): (None, 78.632),
    ("LayerGraphs", "inceptionv3_inference"): (60.42, None),
    ("OperatorGraphs", "bert_l-3_inference"): (37.46, 27.919),
    ("OperatorGraphs", "bert_l-3_training"): (None, 65.303),
    ("OperatorGraphs", "bert_l-6_inference"): (65.56, 29.580),
    ("OperatorGraphs", "bert_l-12_inference"): (642.8, 147.48),
    ("OperatorGraphs", "bert_L-12_training"): (None, 438.00),
    ("OperatorGraphs", "resnet50_inference"): (129.2, 124.35),
    ("OperatorGraphs", "resnet50_training"): (None, 255.19),
}


def new_policy(seed: int, shape: Shape | None = None) -> Policy:
    """Return a policy with the first weights of a seed."""
    torch.manual_seed(seed)
    return Policy(shape or Shape())


def learn(problem, updates: int, seed: int = 0, shape: Shape | None = None, policy=None, **schedule) -> Found:
    """Train a policy on one problem; return the best decision that it sampled."""
    policy = policy or new_policy(seed, shape)
    return Trainer(policy, [problem], Schedule(updates=updates, **schedule), seed).run(updates)[0]


def read_split(path: Path, workload: Workload) -> np.ndarray:
    """Return the device of each unit from a file with a human expert's split: (U,) int64.

    A node that the file does not name follows the other nodes of its co-location class: an expert's split for
    inference is used for training too.

    Raises:
        DataError: The split uses too many devices, or leaves a unit without one.
    """
    data, split = read_json(path), np.full(int(workload.units.max()) + 1, -1, np.int64)
    unit_of = dict(zip(workload.ids.tolist(), workload.units.tolist(), strict=True))
    parts = [(device, part["nodes"]) for device, part in enumerate(data["fpgas"])]
    parts += [(workload.devices + cpu, part["nodes"]) for cpu, part in enumerate(data["cpus"])]
    for device, nodes in parts:
        for node in nodes:
            if node in unit_of:
                split[unit_of[node]] = device
    if len(data["fpgas"]) > workload.devices or (split < 0).any():
        raise DataError(path, "is no split of this instance", "Give one of its own accelerators and nodes")
    return split


def _expert(workload, units: str):
    """Return the human expert's split, that for inference where there is none for training, or None."""
    folder = PUBLIC / "dnn-partitioning" / "human-experts"
    names = (workload.name, workload.name.replace("training", "inference"))
    files = [folder / f"{name}_expert.json" for name in names if (folder / f"{name}_expert.json").is_file()]
    if not files or units != "LayerGraphs":
        return None
    try:
        return read_split(files[0], workload)
    except DataError:  # it uses more accelerators than the instance has
        return None


def split_problems(options) -> list[PartitionProblem]:
    """Return the dnn-partitioning instances that are here, named by graph and instance."""
    files = sorted((PUBLIC / "dnn-partitioning/throughput-inputs").glob("*/*.json"))
    problems = [PartitionProblem(read_workload(path)) for path in files]
    for path, problem in zip(files, problems, strict=True):
        problem.name = f"{path.parent.name} {path.stem}"
    return [p for p in problems if not options.quick or p.name.endswith("bert24_inference")]


def long_split_search(problem: PartitionProblem, evaluations: int, seed: int) -> float:
    """Return the lowest load of four searches from each of two starts; record it if it is the best known."""
    space = problem.space()
    starts = space.decode(space.default), metis(problem)
    seeds = range(4 * seed, 4 * seed + 4)
    cost = min(move_regions(problem, start, evaluations, s).cost for start in starts for s in seeds)
    record(problem.name, cost)
    return cost


def partition(options) -> list[dict]:
    """Every dnn-partitioning instance: human, PipeDream and optimum of the authors, our rules and GO."""
    problems = {problem.name: problem for problem in split_problems(options)}
    return options.kept.rows("partition", [*problems], lambda name: _partition(problems[name], options))


def _partition(problem: PartitionProblem, options) -> dict:
    workload, graph, space, seeds = problem.workload, problem.name.split()[0], problem.space(), options.seeds

    def cost(decision) -> float:
        return float(problem.evaluate(np.asarray(decision)[None]).order[0])

    def searched(splits) -> float:
        pairs = zip(splits, seeds, strict=True)
        own = [move_regions(problem, split, MOVES, seed).cost for split, seed in pairs]
        record(problem.name, min(own))
        return fmean(own)

    expert = _expert(workload, graph)
    pipedream, optimum = AUTHORS.get((graph, workload.name), (None, None))
    updates = max(options.updates // 2, 1)
    found = [learn(space, updates, seed) for seed in seeds]
    costs, evaluations = [one.cost for one in found], found[0].evaluations
    of_order = anneal(space, evaluations, seeds[0]).cost
    record(problem.name, min(of_order, *costs))
    return {
        "graph": graph,
        "instance": workload.name,
        "units": len(problem.choices),
        "k": workload.devices,
        "bound": problem.bound,
        "human": np.nan if expert is None else cost(expert),
        "PipeDream": pipedream,
        "DP optimum": optimum,
        "METIS": cost(metis(problem)),
        "depth-first order": problem.baseline,
        "best order": space.baseline,
        "GO": fmean(costs),
        "evaluations": evaluations,
        "untrained": fmean([learn(space, updates, seed, epochs=0).cost for seed in seeds]),
        "SA of the order": of_order,
        "SA of devices": anneal(problem, evaluations, seeds[0]).cost,
        "GO, then search": searched([space.decode(one.decision) for one in found]),
        "search from the best order": searched([space.decode(space.default)] * len(seeds)),
        "best known": best_known(problem.name),
    }
