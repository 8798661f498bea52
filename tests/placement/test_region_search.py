"""Annealing of regions against all placements of small graphs."""

from itertools import product

import numpy as np
import pytest

from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.region_search import anneal_regions
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, random_graph


def problem_of(seed, count=12, devices=3, memory=0.0):
    return PlacementProblem(random_graph(seed, count), devices, DEVICE, memory)


@cases("seed", range(4))
def test_a_long_search_finds_the_best_of_all_placements(seed):
    problem = problem_of(seed, count=7)
    best = problem.evaluate(np.array([*product(range(3), repeat=len(problem.choices))])).order.min()
    found = anneal_regions(problem, 3000, seed)
    assert found.cost == pytest.approx(best)
    assert found.cost == problem.evaluate(found.decision[None]).order[0] and found.evaluations == 3000
    costs = [cost for _, cost in found.history]
    assert costs == sorted(costs, reverse=True) and costs[-1] == found.cost


def test_regions_move_together_where_single_units_are_for_the_worse():
    # two long chains that exchange much: moving one operator of a chain alone adds a transfer
    problem = problem_of(5, count=30, devices=2)
    everywhere = problem.default * 0
    together = anneal_regions(problem, 2000, 0, everywhere, heat=1e-9)
    assert together.cost < problem.evaluate(everywhere[None]).order[0]


def test_a_search_keeps_the_memory_limit_and_repeats_by_its_seed():
    graph = random_graph(3, 12)
    limit = 0.6 * float((graph.output_bytes + graph.parameter_bytes).sum())
    problem = PlacementProblem(graph, 3, DEVICE, limit)
    found, again = (anneal_regions(problem, 400, 0, problem.default) for _ in range(2))
    assert problem.evaluate(found.decision[None]).valid[0] and found.cost <= problem.baseline
    assert np.array_equal(found.decision, again.decision) and found.history == again.history
    assert anneal_regions(problem, 400, 1, problem.default).history != found.history
