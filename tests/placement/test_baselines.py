"""Rules, searches and exact solvers: legal decisions, and optima against enumeration."""

from itertools import product

import numpy as np
import pytest

from common.hierarchical import train_hierarchical
from fastslow_placement.base.search import anneal, best_random
from fastslow_placement.baselines import PLACEMENT_RULES, m_etf
from fastslow_placement.partition.problems import PartitionProblem
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.sharding.problems import ShardingProblem
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, random_graph, random_sharding, random_workload
from helpers.exact_placement import partition_optimum, placement_bound, sharding_optimum


def every(problem):
    return np.array([*product(*map(range, problem.choices))])


@cases("rule", PLACEMENT_RULES)
@cases("devices", [1, 3])
def test_a_rule_gives_every_group_a_device(rule, devices):
    if rule == "METIS":
        pytest.importorskip("pymetis")
    for seed in range(4):
        problem = PlacementProblem(random_graph(seed, 12, 0.3, grouped=True), devices, DEVICE)
        decision = PLACEMENT_RULES[rule](problem)
        assert decision.shape == problem.choices.shape
        assert decision.min() >= 0 and decision.max() < devices
        assert problem.evaluate(decision[None]).cost[0] >= problem.bound - 1e-9


def test_earliest_task_first_uses_free_devices_and_respects_memory():
    graph = random_graph(0, 6, density=0.0)
    assert len(set(m_etf(PlacementProblem(graph, 3, DEVICE)).tolist())) == 3
    sizes = graph.parameter_bytes + graph.output_bytes
    problem = PlacementProblem(graph, 2, DEVICE, memory=0.7 * sizes.sum())
    assert problem.evaluate(m_etf(problem)[None]).valid[0]


def slow_etf(problem):
    """Earliest task first by looking at every operator that is ready and every device."""
    graph, devices = problem.graph, range(problem.devices)
    memory = np.bincount(problem.units, graph.parameter_bytes + graph.output_bytes)
    transfer = problem.device.transfer_seconds(graph.output_bytes)
    left, free, finish, device = [problem.memory] * len(devices), [0.0] * len(devices), {}, {}
    while len(finish) < len(graph):
        entries = []
        for node in set(range(len(graph))) - {*finish}:
            producers, unit = graph.producers[node], problem.units[node]
            if not {*producers} <= {*finish}:
                continue
            start = []
            for d in devices:
                inputs = [finish[p] + transfer[p] * (device[problem.units[p]] != d) for p in producers]
                start.append(max([free[d], *inputs]))
            fits = [d for d in devices if left[d] >= memory[unit]]
            own = [device[unit]] if unit in device else fits or [0]
            chosen = min(own, key=lambda d: (start[d], d))
            entries.append((start[chosen], -graph.upward_rank[node], node, chosen))
        begin, _, node, chosen = min(entries)
        if problem.units[node] not in device:
            device[problem.units[node]] = chosen
            left[chosen] -= memory[problem.units[node]]
        free[chosen] = finish[node] = begin + graph.seconds[node]
    return [device[unit] for unit in range(len(memory))]


@cases("seed", range(8))
def test_earliest_task_first_is_that_of_the_definition(seed):
    graph = random_graph(seed, 14, 0.25, grouped=seed % 2 == 0)
    sizes = float((graph.parameter_bytes + graph.output_bytes).sum())
    problem = PlacementProblem(graph, 3, DEVICE, memory=max(sizes / 2, 1.0))
    assert m_etf(problem).tolist() == slow_etf(problem)


@cases("seed", range(4))
def test_searches_keep_the_best_and_count(seed):
    problem = PlacementProblem(random_graph(seed, 7), 2, DEVICE)
    optimum = problem.evaluate(every(problem)).order.min()
    start = problem.draw(1, np.random.default_rng(seed))[0]
    for found in (anneal(problem, 300, seed), anneal(problem, 300, seed, start)):
        assert found.evaluations == 300
        assert found.cost == problem.evaluate(found.decision[None]).cost[0]
        assert optimum <= found.cost <= found.history[0][1]
        costs = [cost for _, cost in found.history]
        assert costs == sorted(costs, reverse=True) and costs[-1] == found.cost
    assert anneal(problem, 600, seed).cost == optimum
    assert best_random(problem, 5, seed).cost >= optimum


@cases("seed", range(6))
def test_the_exact_partition_is_the_best_of_all(seed):
    problem = PartitionProblem(random_workload(seed, memory=30.0))
    outcome = problem.evaluate(every(problem))
    solution = partition_optimum(problem)
    assert solution.cost == outcome.order.min() and solution.gap == pytest.approx(0, abs=1e-6)
    assert outcome.order.min() >= problem.bound


@cases("seed", range(6))
def test_the_exact_sharding_is_the_best_of_all(seed):
    sharding = random_sharding(seed)
    outcome = ShardingProblem(sharding).evaluate(np.array([*product(*map(range, sharding.choices))]))
    assert sharding_optimum(sharding).cost == pytest.approx(outcome.order.min())


@cases("seed", range(4))
def test_the_placement_programme_bounds_every_placement(seed):
    problem = PlacementProblem(random_graph(seed, 5), 2, DEVICE)
    best = problem.evaluate(every(problem)).order.min()
    solution = placement_bound(problem)
    assert problem.bound - 1e-6 <= solution.bound <= best + 1e-6
    assert solution.cost >= best - 1e-9


def test_without_edges_the_placement_programme_is_exact():
    problem = PlacementProblem(random_graph(2, 6, density=0.0), 2, DEVICE)
    best = problem.evaluate(every(problem)).order.min()
    assert placement_bound(problem).bound == pytest.approx(best, rel=1e-4)


def test_the_hierarchical_placer_learns_from_its_episodes():
    problem = PlacementProblem(random_graph(1, 9), 2, DEVICE)
    found = train_hierarchical(problem, 12, seed=1, hidden=8)
    assert found.evaluations == 12 and found.cost == problem.evaluate(found.decision[None]).cost[0]
    assert train_hierarchical(problem, 12, seed=1, hidden=8).history == found.history
