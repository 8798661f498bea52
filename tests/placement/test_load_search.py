"""The search of splits by moves: against all splits of small workloads; its loads against the definition."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from fastslow_placement.partition import load_search
from fastslow_placement.partition.load_search import move_regions
from fastslow_placement.partition.problems import PartitionProblem
from helpers.cases import cases
from helpers.cost_graphs import random_workload


@cases("seed", range(6))
def test_a_long_search_finds_the_best_of_all_splits(seed):
    problem = PartitionProblem(random_workload(seed, memory=25.0))
    every = np.array([*product(range(3), repeat=len(problem.choices))])
    found = move_regions(problem, problem.default, 9000, seed)
    assert found.cost == pytest.approx(problem.evaluate(every).order.min())
    assert found.cost == problem.evaluate(found.decision[None]).order[0]


@cases("seed", range(4))
def test_loads_after_moves_are_those_of_the_split(seed):
    problem, rng = PartitionProblem(random_workload(seed, count=14, devices=3)), np.random.default_rng(seed)
    units, split = load_search._units(problem), problem.default.astype(np.int64)
    state = load_search._state(units, 3, split)
    for _ in range(200):
        unit = rng.integers(len(split))
        other = (split[unit] + rng.integers(1, 4)) % 4
        load_search._shift(units, 3, split, unit, other, *state)
    loads, held = problem.workload.loads(split[None])
    np.testing.assert_allclose(state[0], loads[0], atol=1e-9)
    np.testing.assert_allclose(state[1][:3], held[0], atol=1e-9)


def test_an_unsupported_node_stays_on_the_cpu_and_a_search_repeats_by_its_seed():
    workload = random_workload(3, count=16, devices=3)
    times = workload.accelerator.copy()
    times[5] = np.inf
    problem = PartitionProblem(replace(workload, accelerator=times))
    found, again = (move_regions(problem, problem.default, 3000, 0) for _ in range(2))
    assert np.isfinite(found.cost) and found.cost <= problem.baseline and found.evaluations <= 3001
    assert found.decision[problem.workload.units[np.isinf(problem.workload.accelerator)]].tolist() == [3]
    assert np.array_equal(found.decision, again.decision)


def test_a_start_that_is_not_valid_is_returned():
    problem = PartitionProblem(random_workload(1, memory=12.0))
    start = np.zeros(len(problem.choices), np.int64)
    assert not problem.evaluate(start[None]).valid[0]
    assert np.array_equal(move_regions(problem, start, 100).decision, start)
