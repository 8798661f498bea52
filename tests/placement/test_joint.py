"""The three tasks together: the pipeline step by step, and where a search starts."""

import numpy as np

from fastslow_placement.programs.fusion import contract, fuse, ordered_clusters
from fastslow_placement.programs.joint import JointProblem
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.schedule import Scheduler, refined
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, drawn, random_graph


@cases("seed", range(5))
def test_the_cost_is_that_of_the_three_steps(seed):
    graph = random_graph(seed, 9, 0.3)
    problem = JointProblem(graph, 2, DEVICE)
    decision = drawn(problem, 1, np.random.default_rng(seed))[0]
    fusion, placement, priority = decision.reshape(3, -1)
    of = ordered_clusters(graph, np.array(fuse(graph, fusion, DEVICE).of))
    fused = contract(graph, DEVICE, of)
    members = [np.flatnonzero(of == cluster) for cluster in range(len(fused))]
    for cluster, nodes in enumerate(members):
        assert fused.flops[cluster] == graph.flops[nodes].sum()
    place = [placement[nodes[0]] for nodes in members]
    highest = refined(fused, np.array([priority[nodes].max() for nodes in members]))
    assert problem.evaluate(decision[None]).cost[0] == Scheduler(fused, 2, DEVICE).run(place, highest).seconds
    assert problem.bound <= problem.evaluate(drawn(problem, 5, np.random.default_rng(0))).cost.min()


def test_operators_that_share_weights_stay_together():
    graph = random_graph(3, 9, 0.3, grouped=True)
    problem = JointProblem(graph, 3, DEVICE)
    assert problem.evaluate(drawn(problem, 20, np.random.default_rng(0))).valid.all()


def test_it_starts_from_the_placements_of_rules_with_greedy_fusion():
    graph = random_graph(1, 8)
    problem, placement = JointProblem(graph, 2, DEVICE), PlacementProblem(graph, 2, DEVICE)
    fused, placed, priorities = np.split(problem.starts, 3, 1)
    assert (
        (fused == 1).all() and (priorities == 0).all() and np.array_equal(problem.starts[0], problem.default)
    )
    assert np.array_equal(placed, placement.starts[:, placement.units])
