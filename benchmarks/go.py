"""GO (placement, scheduling, fusion) against rules, searches and HDP; the public problem sets.

Sections: ``sharding`` (iopddl), ``partition`` (dnn-partitioning), ``zoo`` (the shape of GO's table),
``transfer``,
``tasks`` (multi-task against single tasks) and ``ablation``. The public instances are looked for in
``../shared/placement``. Runtimes and loads are of the models, not measured. The last line is one JSON object.
"""

import argparse
import dataclasses
import json

import numpy as np
import pandas as pd
import torch

from common.public_placement import learn, partition, sharding
from fastslow.placement.baselines import PLACEMENT_RULES, best_random
from fastslow.placement.compiler_problems import FusionProblem, PlacementProblem, SchedulingProblem
from fastslow.placement.fusion import contract, single_consumer_clusters
from fastslow.placement.hierarchical import train_hierarchical
from fastslow.placement.joint import JointProblem
from fastslow.placement.local_search import anneal, improve
from fastslow.placement.policy import Policy, Shape
from fastslow.placement.ppo import Schedule, Trainer, zero_shot
from fastslow.placement.roofline import DEVICES
from fastslow.placement.zoo_graphs import PROGRAMS, read_zoo_graph

DEVICE = DEVICES["p100"]


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


def finite(value):
    """Return a value for JSON, which has no word for infinity: None where nothing valid was found."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


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
    parser.add_argument("--search", type=int, default=2000, help="evaluations of the search after GO")
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
    print(json.dumps(finite({"options": vars(options), **result})))


if __name__ == "__main__":
    main()
