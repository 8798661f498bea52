"""Splits of an order, of the policy's order, and annealed ones, against enumeration and the definition."""

from itertools import permutations, product

import numpy as np
import pytest

from fastslow_placement.partition.contiguous_split import ContiguousSplit
from fastslow_placement.partition.partition import latency
from fastslow_placement.partition.partition_loads import depth_first_order
from fastslow_placement.partition.split_state import SplitState
from fastslow_placement.programs.cost_graph import topological_by
from fastslow_placement.programs.spectral_order import spectral_order
from fastslow_placement.public.ordered_split import OrderedSplit, start_orders
from fastslow_placement.public.public_problems import PartitionProblem, contiguous_optimum
from fastslow_placement.public.split_search import anneal_split
from helpers.cases import cases
from helpers.cost_graphs import random_workload, slow_loads


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
    assert problem.evaluate(contiguous_optimum(problem)[None]).order[0] == pytest.approx(best)


def serial(workload, order, split):
    """The sum of the runs' times, infinite where a run is over the limit or a device has two."""
    devices = split[order]
    starts = np.concatenate([[True], np.diff(devices) != 0])
    first = devices[starts]
    if len({*first[first < workload.devices]}) < (first < workload.devices).sum():
        return np.inf
    node = workload.device_of(split)
    sizes = [workload.size[node == d].sum() for d in range(workload.devices)]
    loads = slow_loads(workload, node)
    return np.inf if max(sizes) > workload.memory else sum(loads)


@cases("seed", range(6))
def test_the_serial_split_is_the_best_of_all_and_bounds_the_latency(seed):
    workload = random_workload(seed, devices=2, memory=25.0)
    order = depth_first_order(workload)
    found = ContiguousSplit(workload, "latency").split(order)
    every = [serial(workload, order, np.array(s)) for s in product(range(3), repeat=len(order))]
    assert serial(workload, order, found) == pytest.approx(min(every))
    assert latency(workload, found) <= serial(workload, order, found) + 1e-9 or not topological(
        workload, order
    )


def topological(workload, order):
    place = np.argsort(order)
    pairs = place[workload.units[workload.edges]]
    return (pairs[:, 0] <= pairs[:, 1]).all()


def test_a_long_order_is_cut_where_little_crosses():
    workload = random_workload(3, count=40, devices=3)
    order = depth_first_order(workload)
    coarse, fine = ContiguousSplit(workload, most=8), ContiguousSplit(workload)
    loads = PartitionProblem(workload).loads
    best, bounded = (loads.loads(c.split(order)[None])[0].max() for c in (fine, coarse))
    assert best <= bounded < loads.loads(np.zeros((1, len(order)), int))[0].max()


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


def test_the_topological_order_takes_the_lowest_rank_that_is_ready():
    edges = np.array([[0, 2], [1, 2], [2, 3], [0, 4]])
    assert topological_by(np.array([4, 3, 2, 1, 0]), edges).tolist() == [1, 0, 4, 2, 3]
    circle = np.array([[0, 1], [1, 2], [2, 1]])
    assert topological_by(np.zeros(3), circle).tolist() == [0], "units in a circle are left out"


@cases("seed", range(4))
@cases("objective", ["throughput", "latency"])
def test_the_policy_starts_from_the_best_cut_of_the_orders(objective, seed):
    problem = PartitionProblem(random_workload(seed, count=12, devices=3), objective)
    space, orders = OrderedSplit(problem), start_orders(problem)
    assert all(sorted(order) == [*range(len(space.choices))] for order in orders)
    cuts = [problem.decision(problem.runs.split(problem.order[order])) for order in orders]
    assert space.baseline == problem.evaluate(np.stack(cuts)).order.min()


@cases("objective", ["throughput", "latency"])
def test_levels_of_the_order_reach_every_split_and_the_default_is_the_rule(objective):
    problem = PartitionProblem(random_workload(2, devices=2), objective)
    space = OrderedSplit(problem)
    assert np.array_equal(space.order(space.default), space.rule)
    assert space.baseline <= problem.baseline and space.tried == len(start_orders(problem))
    if objective == "throughput":
        for split in product(range(3), repeat=len(problem.choices)):
            found = problem.evaluate(space.decode(np.array(split))[None]).order[0]
            assert found <= problem.evaluate(np.array(split)[None]).order[0] + 1e-9
    drawn = space.draw(20, np.random.default_rng(0))
    assert space.evaluate(drawn).valid.all(), "runs of one order never wait for each other"


@cases("seed", range(6))
def test_loads_are_kept_up_to_date(seed):
    workload, rng = random_workload(seed, count=9, devices=3), np.random.default_rng(seed)
    count = int(workload.units.max()) + 1
    state = SplitState(workload, rng.integers(0, 4, count))
    for _ in range(40):
        state.move(int(rng.integers(count)), int(rng.integers(4)))
        assert state.load == pytest.approx(slow_loads(workload, workload.device_of(state.device)))


@cases("objective", ["throughput", "latency"])
def test_annealing_finds_the_optimum_of_small_problems(objective):
    problem = PartitionProblem(random_workload(4, devices=2, memory=25.0), objective)
    every = np.array([*product(range(3), repeat=len(problem.choices))])
    found = anneal_split(problem, problem.default, 3000)
    assert found.cost == pytest.approx(problem.evaluate(every).order.min())
    assert found.evaluations == 3000
    assert found.cost == problem.evaluate(found.decision[None]).cost[0]
