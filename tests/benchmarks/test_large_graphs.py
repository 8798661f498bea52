"""The repeated graphs of ``go.py --sections large`` cost what their copies cost."""

import json

import numpy as np

from common.large_graphs import repeated_graph, repeated_sharding, repeated_workload
from fastslow_placement.partition.workload import read_workload
from fastslow_placement.sharding.sharding import read_sharding
from helpers.cases import cases
from helpers.cost_graphs import random_graph, random_sharding

COPIES = 3


@cases("seed", range(5))
def test_copies_of_a_program_follow_each_other(seed):
    graph = random_graph(seed, grouped=True)
    many = repeated_graph(graph, COPIES)
    assert len(many) == COPIES * len(graph) and (many.edges[:, 0] < many.edges[:, 1]).all()
    np.testing.assert_allclose(many.seconds.sum(), COPIES * graph.seconds.sum())
    inside = many.edges // len(graph)
    assert (inside[:, 0] != inside[:, 1]).sum() == COPIES - 1
    assert len(np.unique(many.groups)) == COPIES * len(np.unique(graph.groups))


@cases("seed", range(5))
def test_copies_of_a_sharding_problem_need_the_memory_of_one(tmp_path, seed):
    one = random_sharding(seed)
    rows = [list(map(float, row)) for row in np.split(one.costs, one.first[1:-1])]
    usages = [list(map(float, row)) for row in np.split(one.usages, one.first[1:-1])]
    nodes = {"intervals": one.intervals.tolist(), "costs": rows, "usages": usages}
    edges = {"nodes": one.edges.tolist(), "costs": [matrix.ravel().tolist() for matrix in one.matrices]}
    problem = {"nodes": nodes, "edges": edges, "usage_limit": one.limit}
    path = tmp_path / "many.json"
    path.write_text(json.dumps(repeated_sharding({"problem": problem}, COPIES)))
    many = read_sharding(path)
    draws = (np.random.default_rng(seed).random((20, len(one))) * one.choices).astype(int)
    repeated = np.tile(draws, COPIES)
    np.testing.assert_allclose(many.cost(repeated), COPIES * one.cost(draws))
    np.testing.assert_allclose(many.usage(repeated).max(1), one.usage(draws).max(1))
    path.write_text(json.dumps(repeated_sharding({"problem": problem}, COPIES, 1)))
    joined = read_sharding(path)
    between = one.cost(draws) - one.costs[one.first[:-1] + draws].sum(1)  # no pair is forbidden
    np.testing.assert_allclose(joined.cost(repeated), COPIES * one.cost(draws) + (COPIES - 1) * between)


def test_copies_of_a_workload(tmp_path):
    node = {"supportedOnFpga": 1, "cpuLatency": 9.0, "fpgaLatency": 1.0, "isBackwardNode": 0, "size": 2.0}
    nodes = [{"id": n + 5, "colorClass": n % 2, **node} for n in range(3)]
    edges = [{"sourceId": n, "destId": n + 1, "cost": 0.5} for n in (5, 6)]
    data = {"maxSizePerFPGA": 10.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": edges}
    path = tmp_path / "many.json"
    path.write_text(json.dumps(repeated_workload(data, COPIES)))
    many = read_workload(path)
    assert (len(many), len(many.edges), many.memory) == (9, 2 * COPIES + COPIES - 1, 10.0 * COPIES)
    assert len(np.unique(many.units)) == 2 * COPIES
    np.testing.assert_allclose(many.transfer, [0.5, 0.5, 0.0] * COPIES)
