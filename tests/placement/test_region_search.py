"""Moves of regions, and the search that anneals them, against all placements of small graphs."""

from itertools import product

import numpy as np
import pytest

from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.region_search import Neighbourhood
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, random_graph


def problem_of(seed, count=12, devices=3, memory=0.0):
    return PlacementProblem(random_graph(seed, count), devices, DEVICE, memory)


@cases("seed", range(4))
def test_a_move_gives_a_connected_region_of_one_device_another_device(seed):
    problem = problem_of(seed)
    decision = problem.draw(1, np.random.default_rng(seed))[0]
    around = Neighbourhood(problem)
    moves = around.moves(decision, 60, seed)
    near = {frozenset(pair) for pair in problem.edges.tolist()}
    for after, unit, target in zip(*moves, strict=True):
        region = np.flatnonzero(after != decision).tolist()
        assert unit in region and target != decision[unit]
        assert {*decision[region]} == {decision[unit]} and {*after[region]} == {target}
        reached = {int(unit)}
        for _ in region:
            reached |= {u for u in region if any(frozenset((u, r)) in near for r in reached)}
        assert reached == {*region}
    assert len({*moves.units.tolist()}) > 6 and len({*moves.targets.tolist()}) == 3
    assert np.array_equal(moves.decisions, around.moves(decision, 60, seed).decisions)


@cases("seed", range(4))
def test_a_long_search_finds_the_best_of_all_placements(seed):
    problem = problem_of(seed, count=7)
    best = problem.evaluate(np.array([*product(range(3), repeat=len(problem.choices))])).order.min()
    found, states = Neighbourhood(problem).search(problem.default, 3000, seed, snapshots=5)
    assert found.cost == pytest.approx(best) == problem.evaluate(found.decision[None]).order[0]
    assert found.evaluations == 3000 and states.shape == (5, len(problem.choices))
    assert np.array_equal(states[0], problem.default) or problem.evaluate(states[:1]).valid[0]
    costs = [cost for _, cost in found.history]
    assert costs == sorted(costs, reverse=True) and costs[-1] == found.cost


def test_a_search_keeps_the_memory_limit_and_repeats_by_its_seed():
    graph = random_graph(3, 12)
    limit = 0.6 * float((graph.output_bytes + graph.parameter_bytes).sum())
    problem = PlacementProblem(graph, 3, DEVICE, limit)
    assert problem.evaluate(problem.default[None]).valid[0]
    search = Neighbourhood(problem).search
    found, _ = search(problem.default, 400, 0)
    assert problem.evaluate(found.decision[None]).valid[0] and found.cost <= problem.baseline
    again, _ = search(problem.default, 400, 0)
    assert np.array_equal(found.decision, again.decision)


def test_one_device_leaves_nothing_to_search():
    problem = problem_of(0, devices=1)
    found, states = Neighbourhood(problem).search(problem.default, 50, 0, snapshots=2)
    assert found.cost == problem.baseline and not states.any()
