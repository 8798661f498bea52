"""Place, schedule or fuse one program with every rule, search and the policy, and compare them."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from fastslow.core.artifacts import Artifact
from fastslow.core.errors import SettingsError
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path, file_digest, write_json
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow_placement.base.budget import Budget, unlimited
from fastslow_placement.base.local_search import Found, anneal
from fastslow_placement.base.problem import Problem
from fastslow_placement.baselines import PLACEMENT_RULES, best_random, metis, one_device
from fastslow_placement.figures import plot_decision, plot_learning, plot_memory
from fastslow_placement.go.policy import Policy, torch_threads
from fastslow_placement.go.policy_file import load_policy
from fastslow_placement.go.ppo import Trainer
from fastslow_placement.go.zero_shot import zero_shot
from fastslow_placement.partition.partition import read_workload
from fastslow_placement.programs.compiler_problems import FusionProblem, PlacementProblem, SchedulingProblem
from fastslow_placement.programs.fusion import contract, single_consumer_clusters
from fastslow_placement.programs.joint import JointProblem
from fastslow_placement.programs.program_graph import read_cost_graph
from fastslow_placement.programs.roofline import DEVICES
from fastslow_placement.programs.zoo_graphs import read_zoo_graph
from fastslow_placement.public.decision_space import decision_space, refine
from fastslow_placement.public.public_problems import PartitionProblem, ShardingProblem, contiguous_optimum
from fastslow_placement.settings import ZOO, PlaceSettings
from fastslow_placement.sharding.sharding import read_problem_file, read_sharding

TABLE, DECISION = "comparison.csv", "decision.json"
POLICY, SEARCHED = "GO", "GO, then local search"
UNTRAINED, NOT_DECIDED = "GO without an update", "decoded default (seconds too few for GO)"
"""The policy's row where the time sufficed for no update, or for no decision of the policy at all."""
_COMPARED = 0.1  # of the time that is left goes to random decisions, and the second tenth to annealing
_LEARNED = 0.4  # of the time that is left, where it is limited; the search has the rest


@dataclass(frozen=True)
class Placed:
    """A program and what each method decided.

    Args:
        problem: The problem.
        found: Best decision by method.
        seconds: CPU seconds by method.
    """

    problem: Problem
    found: dict[str, Found]
    seconds: dict[str, float]

    @property
    def best(self) -> str:
        """The method with the lowest cost."""
        return min(self.found, key=lambda name: self.found[name].cost)


def read_problem(settings: PlaceSettings, budget: Budget | None = None) -> Problem:
    """Return the problem that the settings name.

    Args:
        settings: The settings.
        budget: Time of the whole run on an instance of iopddl, ``config.seconds`` from now by default.

    Raises:
        SettingsError: There is no such zoo program, or no valid decision.
        DataError: The file is missing, of no known kind, or holds a graph that is wrong.
    """
    device, path = DEVICES[settings.device], settings.path
    if path is None:
        graph = read_zoo_graph(settings.source.removeprefix(ZOO), device)
    elif path.name.endswith((".json", ".json.gz")):
        return _public(path, settings.objective, budget or Budget(settings.seconds))
    else:
        graph = read_cost_graph(path, device, settings.unroll, settings.allow_unknown)
    if settings.task == "joint":
        return JointProblem(graph, settings.devices, device, settings.memory)
    if settings.task == "fusion":
        return FusionProblem(graph, device)
    graph = contract(graph, single_consumer_clusters(graph), device)
    placement = PlacementProblem(graph, settings.devices, device, settings.memory)
    if settings.task == "placement":
        return placement
    return SchedulingProblem(graph, placement.place(placement.default), settings.devices, device)


def _public(path, objective: str, budget: Budget) -> Problem:
    """Return the problem of a public instance, whose format follows from its fields."""
    data = read_problem_file(path)
    if isinstance(data, dict) and "problem" in data:
        return ShardingProblem(read_sharding(path, data), budget=budget)
    return PartitionProblem(read_workload(path, data), objective)


def compare(settings: PlaceSettings, problem: Problem, budget: Budget | None = None) -> Placed:
    """Run every rule, search and the policy on a problem, all but the rules with the policy's evaluations.

    Args:
        settings: The settings.
        problem: The problem.
        budget: Time of the policy and the search on an instance of iopddl, ``config.seconds`` by default.
    """
    budget = budget or Budget(settings.seconds)
    found: dict[str, Found] = {}
    seconds: dict[str, float] = {}

    def keep(name: str, method: Callable[[], Found]) -> None:
        begin = time.process_time()
        found[name] = method()
        seconds[name] = time.process_time() - begin

    for name, rule in _rules(problem).items():
        keep(name, lambda rule=rule: Found.of(problem, rule(problem)))
    begin = time.process_time()
    policy, learned = _learned(settings, problem, budget)
    found[policy], seconds[policy] = learned, time.process_time() - begin
    evaluations, rng = max(learned.evaluations, 1), np.random.default_rng(settings.seed)

    def share() -> Callable[[], bool]:
        return budget.share(_COMPARED) if isinstance(problem, ShardingProblem) else unlimited

    keep("best random", lambda: best_random(problem, evaluations, rng, share()))
    keep("simulated annealing", lambda: anneal(problem, evaluations, settings.seed, more=share()))
    if settings.search:
        name = SEARCHED.replace(POLICY, policy)
        keep(name, lambda: refine(problem, learned.decision, settings.search, budget, settings.seed))
    return Placed(problem, found, seconds)


def _rules(problem: Problem) -> dict[str, Callable]:
    """Return the rules that apply to a problem; METIS where pymetis is installed."""
    if isinstance(problem, PlacementProblem):
        rules: dict[str, Callable] = dict(PLACEMENT_RULES)
    elif isinstance(problem, PartitionProblem):
        rules = {"one device": one_device, "METIS": metis, "contiguous, one order": contiguous_optimum}
    else:
        rules = {"default": lambda problem: problem.default}
    try:
        import pymetis  # noqa: F401
    except ImportError:
        rules.pop("METIS", None)
    return rules


def _learned(settings: PlaceSettings, problem: Problem, budget: Budget) -> tuple[str, Found]:
    """Return a name for what was done and the best decision that the policy sampled, of the problem."""
    more = unlimited
    if isinstance(problem, ShardingProblem):
        problem.priced()
        more = budget.share(_LEARNED if settings.search else 1.0)
    space = decision_space(problem, more)
    if settings.policy:
        policy = load_policy(resolve(settings.policy))
    else:
        torch.manual_seed(settings.seed)
        policy = Policy(settings.shape)
    with torch_threads(settings.threads):
        if settings.updates:
            name, found = _trained(settings, policy, space, more)
        else:
            name, found = POLICY, zero_shot(policy, space, settings.samples, settings.seed, more)
    return name, replace(found, decision=space.decode(found.decision))


def _trained(
    settings: PlaceSettings, policy: Policy, space: Problem, more: Callable[[], bool]
) -> tuple[str, Found]:
    """Return the best decision of training, or the default where no time is left for one update."""
    trainer = Trainer(policy, [space], settings.schedule, settings.seed)
    with progress(total=settings.updates, desc="GO", unit="update") as bar:

        def report(trainer: Trainer) -> None:
            bar.update()
            ratio = trainer.standings[0].found.cost / space.baseline
            bar.set_postfix(best=f"{ratio:.3f} of baseline", refresh=False)

        found = trainer.run(settings.updates, report, more)[0]
    if trainer.update:
        return POLICY, found
    if found.evaluations:
        return UNTRAINED, found
    return NOT_DECIDED, Found.of(space, space.default)


def tabulate(placed: Placed) -> pd.DataFrame:
    """Return one row per method, best first: cost, cost over the bound and over the default, evaluations."""
    problem = placed.problem
    rows = [
        {
            "method": name,
            "cost": found.cost,
            "of default": found.cost / problem.baseline,
            "over bound": found.cost / problem.bound if problem.bound else np.nan,
            "evaluations": found.evaluations,
            "CPU seconds": round(placed.seconds[name], 2),
        }
        for name, found in placed.found.items()
    ]
    return pd.DataFrame(rows).sort_values("cost", kind="stable", ignore_index=True)


def place(settings: PlaceSettings) -> Placed:
    """Compare all methods on a program and write the table, the best decision and the figures.

    Raises:
        SettingsError: A setting does not fit the program, or no decision is valid.
        DataError: As for :func:`read_problem`, or the checkpoint is none.
    """
    path = settings.path
    inputs = {"source": file_digest(path) if path else settings.source}
    if settings.policy:
        load_policy(resolve(settings.policy))  # refuses a wrong one before anything is computed
        inputs |= {"policy": file_digest(resolve(settings.policy))}
    budget = Budget(settings.seconds)
    problem = read_problem(settings, budget)
    placed = compare(settings, problem, budget)
    if not any(np.isfinite(found.cost) for found in placed.found.values()):
        raise SettingsError(f"no method found a valid decision for {problem.name!r}; {_remedy(problem)}")
    artifact = Artifact(resolve(settings.folder), settings.identity(), inputs)
    with artifact.building():
        artifact.folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(artifact.folder / TABLE) as temporary:
            tabulate(placed).to_csv(temporary, index=False)
        decisions = {
            name: {"cost": found.cost, "evaluations": found.evaluations, "decision": found.decision.tolist()}
            for name, found in placed.found.items()
        }
        write_json(
            artifact.folder / DECISION, {"best": placed.best, "units": units(problem), "methods": decisions}
        )
        for figure, name in (
            (plot_decision, "decision"),
            (plot_memory, "memory"),
            (plot_learning, "learning"),
        ):
            save_figure(figure(placed), artifact.folder / f"{name}.png")
        summary = {"program": problem.name, "task": problem.task, "units": len(problem.choices)}
        artifact.finish(summary={**summary, "best": placed.best, "cost": placed.found[placed.best].cost})
    return placed


def _remedy(problem: Problem) -> str:
    """Return what to do where nothing valid was found."""
    if isinstance(problem, ShardingProblem):
        return f"give more seconds, or raise usage_limit={problem.sharding.limit:g} in the file"
    if isinstance(problem, PartitionProblem):
        return "raise maxSizePerFPGA or maxFPGAs in the file"
    return "raise memory or devices"


def units(problem: Any) -> list[str]:
    """Return a name for each unit of a problem: its first operator or node."""
    if isinstance(problem, PartitionProblem):
        workload = problem.workload
        first = np.unique(workload.units, return_index=True)[1]
        return [workload.labels[first[unit]] for unit in problem.order]
    if isinstance(problem, ShardingProblem):
        return [f"node {node}" for node in range(len(problem.choices))]
    graph = problem.graph
    first = problem.first if hasattr(problem, "first") else np.arange(len(graph))
    names = [f"{graph.opcodes[node]} {node}" for node in first]
    return names * (len(problem.choices) // len(names))
