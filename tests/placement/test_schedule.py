"""List scheduling and memory against slow forms; bounds hold for every placement of small graphs.

Spectral orders of units, with which placements start.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.core.errors import SettingsError
from fastslow_placement.programs import spectral_order as spectral
from fastslow_placement.programs.problems import PlacementProblem, SchedulingProblem
from fastslow_placement.programs.schedule import Scheduler, peak_memory, refined
from fastslow_placement.programs.spectral_order import spectral_order
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, drawn, random_graph, slow_peak, slow_schedule

CASES = st.tuples(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 3))


@settings(max_examples=80)
@given(CASES, st.booleans())
def test_a_schedule_is_that_of_the_rules(case, eager):
    seed, count, devices = case
    device = replace(DEVICE, eager=eager)
    graph, rng = random_graph(seed, count), np.random.default_rng(seed)
    graph.seconds[:] = np.maximum(
        graph.seconds, 1
    )  # the slow form starts one operator per device and instant
    placement, priority = rng.integers(0, devices, count), rng.integers(0, 3, count)
    timeline = Scheduler(graph, devices, device).run(placement, priority)
    start, finish, sent = slow_schedule(graph, placement, priority, devices, device)
    assert timeline.start.tolist() == start and timeline.finish.tolist() == finish
    assert {(t.producer, t.target): (t.start, t.finish) for t in timeline.transfers} == sent
    slow = slow_peak(graph, placement, start, finish, sent, devices)
    assert peak_memory(timeline).tolist() == pytest.approx(slow)


@cases("seed", range(6))
def test_no_placement_is_below_the_bound_and_one_device_takes_all_the_time(seed):
    problem = PlacementProblem(random_graph(seed, count=5, grouped=True), 2, DEVICE)
    decisions = np.array([*product(range(2), repeat=len(problem.choices))])
    outcome = problem.evaluate(decisions)
    assert outcome.cost.min() >= problem.bound - 1e-9 and outcome.valid.all()
    assert outcome.cost[0] == pytest.approx(problem.graph.seconds.sum())
    placed = problem.place(decisions[-2])
    for group in np.unique(problem.graph.groups):
        assert len(set(placed[problem.graph.groups == group])) == 1


@cases("seed", range(6))
def test_memory_over_the_limit_is_reported_with_its_excess(seed):
    graph = random_graph(seed, count=6)
    limit = 0.6 * (graph.output_bytes + graph.parameter_bytes).sum() + graph.parameter_bytes.max()
    problem = PlacementProblem(graph, 2, DEVICE, memory=limit)
    decisions = np.array([*product(range(2), repeat=6)])
    outcome = problem.evaluate(decisions)
    for decision, excess in zip(decisions, outcome.excess, strict=True):
        peak = peak_memory(problem.timeline(decision))
        assert excess == pytest.approx(np.maximum(peak - limit, 0).sum())
    assert (outcome.order == np.where(outcome.excess > 0, np.inf, outcome.cost)).all()


def test_no_valid_placement_is_an_error_that_names_the_limit():
    graph = random_graph(1)
    with pytest.raises(SettingsError, match="memory: no placement of 'random1' on 2 devices of 1 bytes"):
        PlacementProblem(graph, 2, DEVICE, memory=1.0)
    with pytest.raises(SettingsError, match="devices: 0"):
        Scheduler(graph, 0, DEVICE)


@settings(max_examples=30)
@given(CASES)
def test_levels_come_before_the_longest_path_and_it_is_the_default(case):
    seed, count, devices = case
    graph, rng = random_graph(seed, count), np.random.default_rng(seed)
    problem = SchedulingProblem(graph, rng.integers(0, devices, count), devices, DEVICE, levels=3)
    assert problem.baseline == problem.scheduler.run(problem.placement).seconds
    levels = drawn(problem, 1, rng)[0]
    keys = list(zip(levels, graph.upward_rank, strict=True))
    expected = [sorted(set(keys)).index(key) for key in keys]
    _, found = np.unique(refined(graph, levels), return_inverse=True)
    assert found.tolist() == expected


@cases("count", [60, 400, 2400])
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


def test_a_large_random_graph_is_contracted_before_it_is_sorted(monkeypatch):
    """Its factors would be nearly full: those of 30,000 units took more than ten minutes."""
    count = 5_000
    solved = []
    solve = spectral.eigsh

    def seen(matrix, **options):
        solved.append(matrix.shape[0])
        return solve(matrix, **options)

    monkeypatch.setattr(spectral, "eigsh", seen)
    rng = np.random.default_rng(0)
    edges = np.stack([rng.integers(0, np.arange(1, count)), np.arange(1, count)], 1)
    edges = np.concatenate([edges, np.stack([np.zeros(count - 1, np.int64), np.arange(1, count)], 1)])
    order = spectral_order(np.ones(count), edges, np.ones(len(edges)), 1.0, 0)
    assert sorted(order) == [*range(count)] and max(solved) <= 1000


def test_spectral_order_of_graphs_without_edges_or_work():
    nothing = np.zeros((0, 2), np.int64)
    for count in (1, 2, 5):
        order = spectral_order(np.zeros(count), nothing, np.zeros(0), 1.0, 3)
        assert sorted(order) == [*range(count)]
