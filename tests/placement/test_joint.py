"""The three tasks together: the pipeline step by step, and the policy over its three parts."""

import numpy as np
import torch

from fastslow_placement.go.policy import Inputs, Policy
from fastslow_placement.programs.fusion import contract, fuse, ordered_clusters
from fastslow_placement.programs.joint import JointProblem
from fastslow_placement.programs.schedule import Scheduler, refined
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, random_graph


@cases("seed", range(5))
def test_the_cost_is_that_of_the_three_steps(seed):
    graph = random_graph(seed, 9, 0.3)
    problem = JointProblem(graph, 2, DEVICE)
    decision = problem.draw(1, np.random.default_rng(seed))[0]
    fusion, placement, priority = decision.reshape(3, -1)
    of = ordered_clusters(graph, np.array(fuse(graph, fusion, DEVICE).of))
    fused = contract(graph, DEVICE, of)
    members = [np.flatnonzero(of == cluster) for cluster in range(len(fused))]
    for cluster, nodes in enumerate(members):
        assert fused.flops[cluster] == graph.flops[nodes].sum()
    place = [placement[nodes[0]] for nodes in members]
    highest = refined(fused, np.array([priority[nodes].max() for nodes in members]))
    assert problem.evaluate(decision[None]).cost[0] == Scheduler(fused, 2, DEVICE).run(place, highest).seconds
    assert problem.bound <= problem.evaluate(problem.draw(5, np.random.default_rng(0))).cost.min()


def test_operators_that_share_weights_stay_together():
    graph = random_graph(3, 9, 0.3, grouped=True)
    problem = JointProblem(graph, 3, DEVICE)
    assert problem.evaluate(problem.draw(20, np.random.default_rng(0))).valid.all()


def test_a_later_task_sees_the_actions_of_the_earlier_ones():
    torch.manual_seed(0)
    problem = JointProblem(random_graph(1, 8), 2, DEVICE)
    policy, inputs = Policy(), Inputs(problem)
    before = policy(inputs)
    with torch.no_grad():
        policy.score["fusion"].weight += 1  # other actions of the first task
    after = policy(inputs)
    assert [len(part) for part in after] == [8, 8, 8] == [len(problem.graph)] * 3
    assert all(not torch.allclose(*pair) for pair in zip(before, after, strict=True))
    with torch.no_grad():
        policy.score["scheduling"].weight += 1  # of the last
    last = policy(inputs)
    assert torch.equal(last[1], after[1]) and not torch.allclose(last[2], after[2])
