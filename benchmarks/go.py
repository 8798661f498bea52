"""GO (placement, scheduling, fusion) against rules, searches and HDP; the public problem sets.

Sections: ``sharding`` (iopddl), ``partition`` (dnn-partitioning), ``zoo`` (the shape of GO's table),
``transfer``,
``tasks`` (multi-task against single tasks) and ``ablation``. The public instances are looked for in
``../shared/placement``. Runtimes and loads are of the models, not measured. The last line is one JSON object.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from fastslow.core.errors import DataError
from fastslow.core.settings import PROJECT
from fastslow.placement.baselines import PLACEMENT_RULES, best_random, metis, one_device
from fastslow.placement.compiler_problems import FusionProblem, PlacementProblem, SchedulingProblem
from fastslow.placement.contiguous_split import contiguous_optimum
from fastslow.placement.fusion import contract, single_consumer_clusters
from fastslow.placement.hierarchical import train_hierarchical
from fastslow.placement.joint import JointProblem
from fastslow.placement.local_search import Found, anneal, improve
from fastslow.placement.partition import read_split, read_workload
from fastslow.placement.policy import Policy, Shape
from fastslow.placement.ppo import Schedule, Trainer, zero_shot
from fastslow.placement.public_problems import PartitionProblem, ShardingProblem
from fastslow.placement.roofline import DEVICES
from fastslow.placement.sharding import read_sharding
from fastslow.placement.sharding_search import greedy, search
from fastslow.placement.zoo_graphs import PROGRAMS, read_zoo_graph

PUBLIC = PROJECT.parent / "shared" / "placement"
DEVICE = DEVICES["p100"]
BEST_KNOWN = {
    "A": 6548641531,
    "B": 532843,
    "C": 84102445260,
    "G": 217039,
    "M": 49928460991,
    "S": 1534613444,
    "V": 1632051,
}
"""Best contest team (asplos-contest/2025, misc/iopddl_final_results.csv)."""
XLA = {"A": 13214846074, "B": 990205, "C": 4195881092919, "G": 1264777}
"""XLA's own solver (same source; it gave no solution for M, S and V)."""
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
AUTHORS_LATENCY = {"bert24_inference": 100.2, "inceptionv3_inference": 2485.0, "bert_l-3_inference": 416.2}
AUTHORS_LATENCY |= {"bert_l-12_inference": 867.8}  # greedy.cpp; resnet50: 4197 by layer, 839.5 by operator


def learn(problem, updates: int, seed: int = 0, shape: Shape | None = None, policy=None, **schedule) -> Found:
    """Train a policy on one problem; return the best decision that it sampled."""
    torch.manual_seed(seed)
    policy = policy or Policy(shape or Shape())
    return Trainer(policy, [problem], Schedule(updates=updates, **schedule), seed).run(updates)[0]


def sharding(options) -> list[dict]:
    """The contest's problems: cost over the best known, within a budget of CPU seconds."""
    rows = []
    for path in sorted((PUBLIC / "iopddl").glob("*.json.gz")):
        if options.instances and not path.name.endswith(tuple(f"-{i}.json.gz" for i in options.instances)):
            continue
        instance = read_sharding(path)
        known = BEST_KNOWN.get(instance.name, np.nan)
        begin = time.process_time()
        first = greedy(instance)
        row = {"instance": instance.name, "nodes": len(instance), "best known": known}
        row["XLA"] = XLA.get(instance.name, np.nan) / known
        row["greedy"] = float(ShardingProblem(instance, first).evaluate(first[None]).order[0]) / known
        problem = ShardingProblem(instance, first)
        found = learn(problem, options.updates // 3, options.seed, samples=16)
        row["GO"] = found.cost / known
        start = found.decision if np.isfinite(found.cost) else first
        state = search(instance, options.seconds, options.seed, start)
        row["GO, then search"] = state.best_cost / known
        row["bound"] = state.bound / known
        row["CPU s of search"] = options.seconds
        row["CPU s"] = round(time.process_time() - begin, 1)
        rows.append(row)
        print(row, flush=True)
    return rows


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


def partition(options) -> list[dict]:
    """Every dnn-partitioning instance: human, PipeDream and optimum of the authors, our rules, searches
    and GO.
    """
    rows = []
    for objective in ("throughput", "latency"):
        for path in sorted((PUBLIC / "dnn-partitioning" / f"{objective}-inputs").glob("*/*.json")):
            if options.quick and path.stem != "bert24_inference":
                continue
            rows.append(_partition(path, objective, options))
            print(rows[-1], flush=True)
    return rows


def _partition(path: Path, objective: str, options) -> dict:
    workload = read_workload(path)
    problem = PartitionProblem(workload, objective)
    units = len(problem.choices)
    row = {"objective": objective, "graph": path.parent.name, "instance": workload.name, "units": units}
    row |= {"k": workload.devices, "bound": problem.bound}

    def cost(decision) -> float:
        return float(problem.evaluate(np.asarray(decision)[None]).order[0])

    expert = _expert(workload, path.parent.name)
    row["human"] = cost(problem.decision(expert)) if expert is not None else np.nan
    if objective == "throughput":
        pipedream, optimum = AUTHORS.get((path.parent.name, workload.name), (None, None))
        row |= {"PipeDream": pipedream, "DP optimum": optimum, "one device": cost(one_device(problem))}
        row["contiguous, one order"] = cost(contiguous_optimum(problem))
    row["METIS"] = cost(metis(problem))
    found = learn(problem, max(options.updates // 2, 1), options.seed)
    row["GO"], row["evaluations"] = found.cost, found.evaluations
    row["SA"] = anneal(problem, found.evaluations, options.seed).cost
    start = found.decision if np.isfinite(found.cost) else problem.default
    # a latency takes 20 times as long to evaluate
    search = options.search if objective == "throughput" else options.search // 20
    row["GO, then search"] = improve(problem, start, search, options.seed).cost
    return row


def placement_of(name: str, devices: int = 0) -> PlacementProblem:
    """Return the placement of a zoo program."""
    graph = read_zoo_graph(name, DEVICE)
    small = contract(graph, single_consumer_clusters(graph), DEVICE)
    return PlacementProblem(small, devices or PROGRAMS[name].devices, DEVICE)


def zoo(options) -> list[dict]:
    """The shape of GO's table on zoo programs."""
    rows = []
    for name in options.programs:
        problem = placement_of(name)
        row = {
            "program": name,
            "devices": problem.devices,
            "groups": len(problem.choices),
            "bound": problem.bound,
        }
        for rule, method in PLACEMENT_RULES.items():
            row[rule] = float(problem.evaluate(method(problem)[None]).order[0])
        found = learn(problem, options.updates, options.seed)
        row["GO-one"], row["evaluations"] = found.cost, found.evaluations
        row["SA"] = anneal(problem, found.evaluations, options.seed).cost
        draws = best_random(problem, found.evaluations, np.random.default_rng(options.seed))
        row["random"] = float(problem.evaluate(draws[None]).order[0])
        row["GO, then search"] = improve(problem, found.decision, found.evaluations, options.seed).cost
        other = train_hierarchical(problem, options.episodes, options.seed)
        row["HDP"], row["HDP evaluations"] = other.cost, other.evaluations
        reached = [count for count, cost in found.history if cost <= other.cost]
        row["evaluations to HDP's best"] = reached[0] if reached else np.nan
        rows.append(row)
        print(row, flush=True)
    return rows


def transfer(options) -> list[dict]:
    """Leave one architecture out: zero-shot, 50 updates from the pre-trained policy, 50 and 500 from
    scratch.
    """
    rows = []
    for name in options.programs:
        family = PROGRAMS[name].family
        others = [placement_of(other) for other in options.programs if PROGRAMS[other].family != family]
        if not others:
            continue
        problem, few = placement_of(name), options.fine_tune
        torch.manual_seed(options.seed)
        trainer = Trainer(Policy(Shape()), others, Schedule(updates=options.updates), options.seed)
        trainer.run(options.updates * len(others))
        row = {"held out": name, "human": problem.baseline, "updates": few}
        row["zero-shot"] = zero_shot(trainer.policy, problem).cost
        row["fine-tuned"] = learn(problem, few, options.seed, policy=trainer.policy).cost
        row["from scratch"] = learn(problem, few, options.seed).cost
        row["from scratch, longer"] = learn(problem, few * options.longer, options.seed).cost
        row["times"] = options.longer
        rows.append(row)
        print(row, flush=True)
    return rows


def tasks(options) -> list[dict]:
    """Fusion, placement and scheduling decided together, against one task after the other."""
    rows = []
    for name in options.programs[:1]:
        graph, devices = read_zoo_graph(name, DEVICE), PROGRAMS[name].devices
        updates = max(options.updates // 3, 1)
        joint = JointProblem(graph, devices, DEVICE)
        together = learn(joint, updates * 3, options.seed, samples=12)
        fusion = learn(FusionProblem(graph, DEVICE), updates, options.seed, samples=12)
        problem = FusionProblem(graph, DEVICE)
        parts = np.split(joint.default.copy(), 3)
        small = contract(graph, single_consumer_clusters(graph), DEVICE)
        place = PlacementProblem(small, devices, DEVICE)
        placed = learn(place, updates, options.seed, samples=12)
        where = place.place(placed.decision)
        ordered = SchedulingProblem(small, where, devices, DEVICE)
        scheduled = learn(ordered, updates, options.seed, samples=12)
        rows.append(
            {
                "program": name,
                "operators": len(graph),
                "devices": devices,
                "joint default": joint.baseline,
                "joint GO": together.cost,
                "no fusion": problem.baseline,
                "compiler-like fusion": problem.compiler_like(),
                "every operator once": float(problem.evaluate(parts[0][None]).cost[0]),
                "fusion GO": fusion.cost,
                "placement GO": placed.cost,
                "then scheduling GO": scheduled.cost,
                "topological order": ordered.baseline,
                "longest path first": float(ordered.scheduler.run(where).seconds),
            }
        )
        print(rows[-1], flush=True)
    return rows


def ablation(options) -> list[dict]:
    """Each part of the policy removed in turn."""
    variants = {"whole": {}, "no attention": {"attention": False}, "no modulation": {"modulation": False}}
    variants |= {"one pass": {"passes": 1}, "mean pooling": {"pooling": False}}
    rows = []
    for name in options.programs[:2]:
        problem = placement_of(name)
        row = {"program": name, "human": problem.baseline}
        for variant, changes in variants.items():
            shape = dataclasses.replace(Shape(), **changes)
            row[variant] = learn(problem, options.updates, options.seed, shape).cost
        row["samples of all units"] = learn(
            problem, options.updates, options.seed, whole=True, imitation=0.0
        ).cost
        rows.append(row)
        print(row, flush=True)
    return rows


SECTIONS = {f.__name__: f for f in (sharding, partition, zoo, transfer, tasks, ablation)}


def main() -> None:
    """Run the chosen sections, print their tables and one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only check that everything runs")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=[*SECTIONS])
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=[*PROGRAMS], metavar="NAME")
    parser.add_argument("--updates", type=int, default=120, help="updates of PPO per program")
    parser.add_argument("--episodes", type=int, default=2000, help="episodes of HDP")
    parser.add_argument("--fine-tune", type=int, default=50, help="updates on a held-out program")
    parser.add_argument("--longer", type=int, default=10, help="how many times as many updates from scratch")
    parser.add_argument("--search", type=int, default=50_000, help="evaluations of the local search")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU seconds per sharding problem")
    parser.add_argument("--instances", nargs="+", metavar="LETTER", help="sharding problems; all by default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.quick:
        options.updates, options.episodes, options.fine_tune, options.longer = 2, 3, 1, 2
        options.search, options.seconds, options.programs = 200, 2.0, ["inception_b32", "transformer_2"]
    torch.set_num_threads(1)
    result = {name: SECTIONS[name](options) for name in options.sections}
    for name, rows in result.items():
        print(f"\n## {name}\n")
        print(pd.DataFrame(rows).to_markdown(index=False, floatfmt=".4g") if rows else "no instances found")
    print(json.dumps({"options": vars(options), **result}, default=float))


if __name__ == "__main__":
    main()
