"""Rules and searches: legal decisions, and optima against enumeration."""

import json
import os
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow_placement import baselines, place
from fastslow_placement.base.search import anneal, best_of
from fastslow_placement.baselines import BEST_START, PLACEMENT_RULES, metis, rules_of
from fastslow_placement.place import ANNEALING, DECISION, LEARNED, REGIONS, compare, write_placed
from fastslow_placement.programs import list_placement
from fastslow_placement.programs.fusion import fuse
from fastslow_placement.programs.joint import JointProblem
from fastslow_placement.programs.list_placement import M_ETF, WEIGHTS, learned_weights, list_placements, m_etf
from fastslow_placement.programs.problems import FusionProblem, PlacementProblem, SchedulingProblem
from fastslow_placement.programs.region_search import anneal_regions
from fastslow_placement.settings import PlaceSettings
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, drawn, random_graph


def every(problem):
    return np.array([*product(*map(range, problem.choices))])


def problems(graph):
    placement = PlacementProblem(graph, 2, DEVICE)
    scheduling = SchedulingProblem(graph, placement.place(placement.default), 2, DEVICE)
    return [placement, scheduling, FusionProblem(graph, DEVICE), JointProblem(graph, 2, DEVICE)]


@cases("task", range(4))
@cases("given, of_placement, of_others", [(1, 1, 1), (1200, 1200, 50)])
def test_the_search_of_each_task_has_its_budget_and_is_not_behind_the_rules(
    task, given, of_placement, of_others
):
    problem = problems(random_graph(0, 8))[task]
    rules = [*rules_of(problem), *[LEARNED] * (task == 0)]
    search, evaluations = (ANNEALING, of_others) if task else (REGIONS, of_placement)
    placed = compare(PlaceSettings(task=problem.task, search=given), problem)
    assert [*placed.found] == [*rules, search] and placed.found[search].evaluations == evaluations
    assert all(placed.found[search].cost <= placed.found[rule].cost for rule in rules)
    assert [*compare(PlaceSettings(task=problem.task, search=0), problem).found] == rules


def test_a_fusion_is_compared_with_the_greedy_one():
    graph = random_graph(2, 12)
    problem = FusionProblem(graph, DEVICE)
    placed = compare(PlaceSettings(task="fusion", search=240), problem)
    greedy = fuse(graph, np.ones(12), DEVICE).total_seconds()
    assert placed.found["default"].cost == greedy < placed.found["no fusion"].cost == graph.seconds.sum()
    assert f", {placed.found[placed.best].cost / greedy:.3f} of the default." in placed.words()[0]


def test_the_words_of_all_tasks_together_name_the_best_placement_by_rules():
    problem = JointProblem(random_graph(2, 12), 2, DEVICE)
    placed = compare(PlaceSettings(task="joint", search=240), problem)
    rule = min(problem.evaluate(problem.starts).order)
    assert placed.found[BEST_START].cost == rule
    share = placed.found[placed.best].cost / rule
    assert f" and {share:.3f} of the best placement by rules." in placed.words()[0]


def test_the_search_of_a_large_program_is_cut_and_the_result_says_so(monkeypatch):
    monkeypatch.setattr(place, "_SIMULATED", 8 * 30)
    placed = compare(PlaceSettings(search=120), PlacementProblem(random_graph(0, 8), 2, DEVICE))
    assert placed.found[REGIONS].evaluations == 30
    assert placed.words()[-1].startswith("The search was cut from 120 to 30 evaluations: each simulates 8 ")


@cases("rule", PLACEMENT_RULES)
@cases("devices", [1, 3])
def test_a_rule_gives_every_group_a_device(rule, devices):
    if rule == "METIS":
        pytest.importorskip("pymetis")
    for seed in range(4):
        problem = PlacementProblem(random_graph(seed, 12, 0.3, grouped=True), devices, DEVICE)
        decision = PLACEMENT_RULES[rule](problem)
        assert decision.shape == problem.choices.shape
        assert decision.min() >= 0 and decision.max() < devices
        assert problem.evaluate(decision[None]).cost[0] >= problem.bound - 1e-9


def slow_list(problem, weights):
    """The list scheduler by looking at every operator that is ready and every device."""
    graph, devices, units = problem.graph, range(problem.devices), problem.units
    memory = np.bincount(units, graph.parameter_bytes + graph.output_bytes)
    transfer = problem.device.transfer_seconds(graph.output_bytes)
    left, free, finish, device = [problem.memory] * len(devices), [0.0] * len(devices), {}, {}
    fair = problem.work.sum() / len(devices)
    bound = max(graph.critical_path, fair)

    def cost(unit, d, start):
        pairs = [(e, x) for e, x in zip(problem.edges.tolist(), problem.weight, strict=True) if unit in e]
        near = sum(x for e, x in pairs if device.get(sum(e) - unit) == d) / max(
            sum(x for _, x in pairs), 1e-300
        )
        load = sum(problem.work[u] for u in device if device[u] == d) / fair
        far = [min((p[unit] * len(devices) - d - 0.5) ** 2, 9) for p in problem.positions]
        used = (problem.memory - left[d]) / problem.memory
        return np.dot(weights[2:], [start / bound, load, -near, *far, used])

    while len(finish) < len(graph):
        entries = []
        for node in set(range(len(graph))) - {*finish}:
            producers, unit = graph.producers[node], units[node]
            if not {*producers} <= {*finish}:
                continue
            start = []
            for d in devices:
                inputs = [finish[p] + transfer[p] * (device[units[p]] != d) for p in producers]
                start.append(max([free[d], *inputs]))
            fits = [d for d in devices if left[d] >= memory[unit]]
            allowed = [device[unit]] if unit in device else fits or [0]
            first = weights[0] * min(start[d] for d in allowed) / bound
            entries.append(
                (first - weights[1] * graph.upward_rank[node] / graph.critical_path, node, start, allowed)
            )
        _, node, start, allowed = min(entries, key=lambda e: (e[0], -graph.upward_rank[e[1]], e[1]))
        unit = units[node]
        chosen = min(allowed, key=lambda d: (cost(unit, d, start[d]), d))
        if unit not in device:
            left[chosen] -= memory[unit]
        device[unit] = chosen
        free[chosen] = finish[node] = start[chosen] + graph.seconds[node]
    return [device[unit] for unit in range(len(memory))]


@cases("seed", range(12))
def test_the_list_scheduler_is_that_of_the_definition(seed):
    graph = random_graph(seed, 14, 0.25, grouped=seed % 2 == 0)
    sizes = float((graph.parameter_bytes + graph.output_bytes).sum())
    problem = PlacementProblem(graph, 3, DEVICE, memory=max(sizes / 2, 1.0))
    assert m_etf(problem).tolist() == slow_list(problem, M_ETF)
    rng = np.random.default_rng(seed)
    weights = rng.random((6, len(WEIGHTS))) * (rng.random((6, len(WEIGHTS))) < 0.6)
    for set_weights, found in zip(weights, list_placements(problem, weights), strict=True):
        assert found.tolist() == slow_list(problem, set_weights)


def test_a_step_of_the_list_scheduler_looks_at_few_operators(monkeypatch):
    """Of 60 that are ready at once; a program of 40,000 has thousands, and a step compared them all."""
    graph = random_graph(0, 60, density=0.0)
    problem = PlacementProblem(graph, 2, DEVICE)
    looked = []
    soonest = list_placement._soonest

    def seen(*arguments):
        looked.append(arguments[1])
        return soonest(*arguments)

    monkeypatch.setattr(list_placement, "_place", list_placement._place.py_func)
    monkeypatch.setattr(list_placement, "_soonest", seen)
    monkeypatch.setattr(list_placement, "LOOKED_AT", 5)
    decision = m_etf(problem)
    assert len(decision) == 60 and set(decision) == {0, 1} and 60 <= len(looked) <= 5 * 60


def test_placements_of_the_learned_weights_are_starts_unless_they_are_not_wanted():
    graph = random_graph(3, 30, 0.2)
    learned, plain = (PlacementProblem(graph, 4, DEVICE, learned=is_learned) for is_learned in (True, False))
    assert learned_weights().shape == (10, len(WEIGHTS)) and (learned_weights() >= 0).all()
    assert np.array_equal(learned.starts[:14], plain.starts)
    assert np.array_equal(learned.starts[14:], list_placements(plain, learned_weights()))
    found = best_of(learned, learned.learned_starts)
    assert found.evaluations == 10 and found.cost == learned.evaluate(learned.starts[14:]).order.min()


@cases("search", [anneal, anneal_regions])
@cases("seed", range(4))
def test_searches_count_keep_the_best_and_find_the_best_of_all(search, seed):
    problem = PlacementProblem(random_graph(seed, 7), 2, DEVICE)
    optimum = problem.evaluate(every(problem)).order.min()
    start = drawn(problem, 1, np.random.default_rng(seed))[0]
    for found in (search(problem, 1000, seed), anneal_regions(problem, 1000, seed, start)):
        assert found.evaluations == 1000 and found.cost == pytest.approx(optimum)
        assert found.cost == problem.evaluate(found.decision[None]).order[0]
        costs = [cost for _, cost in found.history]
        assert costs == sorted(costs, reverse=True) and costs[-1] == found.cost


@cases("search", [anneal, anneal_regions])
@cases("evaluations", [1, 2, 10, 40])
def test_a_search_ends_at_its_budget(search, evaluations):
    problem = PlacementProblem(random_graph(0, 7), 2, DEVICE)
    assert search(problem, evaluations, 0).evaluations == evaluations
    assert anneal_regions(problem, evaluations, 0, problem.default).evaluations == evaluations


def test_a_search_cools_from_a_start_that_does_not_fit_into_memory():
    graph = random_graph(3, 30, 0.2)
    limit = 0.6 * float((graph.output_bytes + graph.parameter_bytes).sum())
    problem = PlacementProblem(graph, 3, DEVICE, limit)
    invalid = problem.default * 0
    assert not problem.evaluate(invalid[None]).valid[0]
    costs = [
        [anneal_regions(problem, 4000, seed, start).cost for seed in range(5)]
        for start in (invalid, problem.default)
    ]
    assert max(costs[0]) <= 1.05 * max(costs[1])


def test_what_does_not_fit_into_memory_has_no_cost_in_the_file(tmp_path, undrawn):
    graph = random_graph(3, 12)
    limit = 0.6 * float((graph.output_bytes + graph.parameter_bytes).sum())
    settings = PlaceSettings(search=120, out=str(tmp_path / "placed"))
    placed = compare(settings, PlacementProblem(graph, 3, DEVICE, limit))
    write_placed(placed, settings)
    text = (Path(settings.folder) / DECISION).read_text()
    methods = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))["methods"]
    costs = {name: method["cost"] for name, method in methods.items()}
    assert None in costs.values()
    assert costs == {
        name: found.cost if np.isfinite(found.cost) else None for name, found in placed.found.items()
    }


def test_regions_move_together_where_single_units_are_for_the_worse():
    # two long chains that exchange much: moving one operator of a chain alone adds a transfer
    problem = PlacementProblem(random_graph(5, 30), 2, DEVICE)
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


def test_what_metis_prints_is_no_output(capfd):
    """Of two vertices it cannot make eight parts, and C code says so."""
    pytest.importorskip("pymetis")
    two = {"edges": np.array([[0, 1]]), "weight": np.ones(1), "work": np.array([1.0, 1000.0])}
    found = metis(SimpleNamespace(choices=[8, 8], devices=8, **two))
    said, aside = capfd.readouterr()
    assert len(found) == 2 and not said and not aside
    with baselines._silent():
        os.write(1, b"dropped")
    os.write(1, b"kept")
    assert capfd.readouterr().out == "kept", "what other code prints later is not lost"
