"""Fusion by priority: legality and cost against brute force."""

import numpy as np
import pytest

from fastslow_placement.programs.fusion import LARGEST, Clusters, contract, fuse
from fastslow_placement.programs.problems import FusionProblem
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, drawn, random_graph


def reaches(graph, of, first, second):
    """Whether a path between two clusters, either way, leads through a third."""
    edges = {(of[u], of[v]) for u, v in graph.edges.tolist() if of[u] != of[v]}
    for source, target in ((first, second), (second, first)):
        stack, seen = [v for u, v in edges if u == source and v != target], set()
        while stack:
            at = stack.pop()
            if at == target:
                return True
            if at not in seen:
                seen.add(at)
                stack += [v for u, v in edges if u == at]
    return False


def slow_fuse(graph, priorities):
    """Clusters by the rule, every quantity computed anew: a list of sets."""
    clusters = [{node} for node in range(len(graph))]

    def seconds(nodes):
        if len(nodes) == 1:
            return graph.seconds[next(iter(nodes))]
        rows = graph.edges.tolist()
        inputs = {u for u, v in rows if v in nodes and u not in nodes}
        outputs = {n for n in nodes if any(u == n and v not in nodes for u, v in rows)}
        outputs |= {n for n in nodes if not any(u == n for u, _ in rows)}
        moved = sum(graph.output_bytes[n] for n in inputs) + sum(graph.output_bytes[n] for n in outputs)
        moved += sum(graph.read_bytes[n] for n in nodes)
        return max(graph.flops[[*nodes]].sum() / 100, moved / 10) + 0.25

    for node in sorted(range(len(graph)), key=lambda n: (-priorities[n], n)):
        if priorities[node] == 0:
            continue
        cluster = next(c for c in clusters if node in c)
        of = {n: i for i, c in enumerate(clusters) for n in c}
        near = [u for u, v in graph.edges.tolist() if v == node] + [
            v for u, v in graph.edges.tolist() if u == node
        ]
        best, most = None, 1e-12
        for other in dict.fromkeys(of[n] for n in near):
            candidate = clusters[other]
            if candidate is cluster:
                continue
            both = cluster | candidate
            heavy = sum(graph.opcodes[n] == "dot" for n in both)
            if heavy > 1 or len(both) > LARGEST or reaches(graph, of, of[node], other):
                continue
            gain = seconds(cluster) + seconds(candidate) - seconds(both)
            if gain > most + 1e-12:
                best, most = candidate, gain
        if best is not None:
            clusters = [c for c in clusters if c is not cluster and c is not best] + [cluster | best]
    return clusters, sum(map(seconds, clusters))


@cases("seed", range(25))
def test_clusters_and_cost_are_those_of_the_rule(seed):
    graph = random_graph(seed, count=9, density=0.3)
    priorities = np.random.default_rng(seed).integers(0, 3, 9)
    clusters = fuse(graph, priorities, DEVICE)
    slow, cost = slow_fuse(graph, priorities)
    assert clusters.total_seconds() == pytest.approx(cost)
    assert {frozenset(c) for c in clusters.members.values()} == {frozenset(c) for c in slow}
    assert contract(graph, DEVICE, np.array(clusters.of)).seconds.sum() == pytest.approx(cost)


def test_priority_0_leaves_the_program_alone_and_fusion_never_costs():
    graph = random_graph(7, count=20, density=0.15)
    problem = FusionProblem(graph, DEVICE)
    (alone,) = problem.evaluate(np.zeros((1, 20), np.int64)).cost
    assert alone == pytest.approx(graph.seconds.sum()) == Clusters(graph, DEVICE).total_seconds()
    costs = problem.evaluate(drawn(problem, 20, np.random.default_rng(0))).cost
    assert max(costs.max(), problem.baseline) <= alone and costs.min() >= problem.bound
