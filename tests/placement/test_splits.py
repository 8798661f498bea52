"""Splits of an order and of the policy's order, against enumeration and the definition."""

from itertools import permutations, product

import numpy as np
import pytest

from fastslow_placement.partition.contiguous_split import contiguous_split
from fastslow_placement.partition.problems import PartitionProblem, best_run_split
from fastslow_placement.partition.workload import depth_first_order
from fastslow_placement.programs.spectral_order import spectral_order, spectral_orders
from helpers.cases import cases
from helpers.cost_graphs import random_workload


def runs_of(count, devices):
    """Every split of a sequence into runs, one a device, in any order of the devices."""
    for order in permutations(range(devices)):
        for ranks in product(range(devices), repeat=count):
            if list(ranks) == sorted(ranks):
                yield [order[rank] for rank in ranks]


@cases("seed", range(6))
def test_the_contiguous_split_is_the_best_of_the_contiguous_ones(seed):
    problem = PartitionProblem(random_workload(seed, devices=2, memory=25.0))
    every = np.unique([*runs_of(len(problem.choices), 3)], axis=0)
    best = problem.evaluate(every).order.min()
    assert problem.evaluate(best_run_split(problem)[None]).order[0] == pytest.approx(best)


def topological(workload, order):
    place = np.argsort(order)
    pairs = place[workload.units[workload.edges]]
    return (pairs[:, 0] <= pairs[:, 1]).all()


def test_a_long_order_is_cut_where_little_crosses():
    workload = random_workload(3, count=40, devices=3)
    order = depth_first_order(workload)
    best, bounded = (
        workload.loads(contiguous_split(workload, order, most)[None])[0].max() for most in (600, 8)
    )
    assert best <= bounded < workload.loads(np.zeros((1, len(order)), int))[0].max()


def test_the_depth_first_order_is_topological_where_classes_are_single():
    workload = random_workload(5, count=12)
    workload = workload.__class__(**{**workload.__dict__, "units": np.arange(12)})
    assert topological(workload, depth_first_order(workload))


@cases("count", [60, 400])
def test_spectral_bisection_keeps_together_what_exchanges_much(count):
    """Units numbered in turn over four rings: each ring is contiguous in the order, halved or not."""
    ring = np.arange(count) % 4
    edges = np.stack([np.arange(count), (np.arange(count) + 4) % count], 1)
    bridges = np.array([[0, 1], [1, 2], [2, 3]])
    weight = np.concatenate([np.ones(count), np.full(3, 1e-3)])
    for halvings in (0, 2):
        order = spectral_order(np.ones(count), np.concatenate([edges, bridges]), weight, 1.0, halvings)
        assert sorted(order) == [*range(count)]
        assert (np.diff(ring[order]) != 0).sum() == 3


def test_spectral_order_of_graphs_without_edges_or_work():
    nothing = np.zeros((0, 2), np.int64)
    for count in (1, 2, 5):
        order = spectral_order(np.zeros(count), nothing, np.zeros(0), 1.0, 3)
        assert sorted(order) == [*range(count)]


@cases("seed", range(4))
def test_the_policy_starts_from_the_best_cut_of_the_orders(seed):
    problem = PartitionProblem(random_workload(seed, count=12, devices=3))
    space = problem.space()
    orders = [np.arange(12), *spectral_orders(problem.work, problem.edges, problem.weight)]
    orders = [order[order < len(problem.choices)] for order in orders]
    assert all(sorted(order) == [*range(len(space.choices))] for order in orders)
    cuts = [contiguous_split(problem.workload, order) for order in orders]
    assert space.baseline == problem.evaluate(np.stack(cuts)).order.min()


def test_levels_of_the_order_reach_every_split_and_the_default_is_the_rule():
    problem = PartitionProblem(random_workload(2, devices=2))
    space = problem.space()
    rule = contiguous_split(problem.workload, space.rule)
    assert np.array_equal(space.decode(space.default), rule)
    assert space.baseline <= problem.baseline and space.tried == 13
    for split in product(range(3), repeat=len(problem.choices)):
        found = problem.evaluate(space.decode(np.array(split))[None]).order[0]
        assert found <= problem.evaluate(np.array(split)[None]).order[0] + 1e-9
    drawn = space.draw(20, np.random.default_rng(0))
    assert space.evaluate(drawn).valid.all()
