"""Repair, recombination and time limits of the search for sharding problems, against slow forms."""

import json
from itertools import product

import numpy as np

from fastslow_placement.base.search import Budget
from fastslow_placement.place import NOT_DECIDED, POLICY, SEARCHED, UNTRAINED, compare, read_problem
from fastslow_placement.settings import PlaceSettings
from fastslow_placement.sharding.compiled import Workspace, extra_cost, use
from fastslow_placement.sharding.forest_search import ForestSearch, search
from fastslow_placement.sharding.problems import ShardingProblem
from fastslow_placement.sharding.sharding import FORBIDDEN, Sharding
from fastslow_placement.sharding.tied_strategies import TiedStrategies
from helpers.cases import cases
from helpers.cost_graphs import random_sharding, slow_cost


class Ticks:
    """A clock that moves on by one second whenever it is read."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def slow_repair(groups: TiedStrategies, chosen: np.ndarray) -> np.ndarray:
    """All groups and options looked at for every change: the cheapest per byte that lowers the excess."""
    problem, chosen = groups.problem, chosen.copy()

    def judged(decision):
        full = groups.expand(decision)[None]
        over = np.maximum(problem.usage(full)[0] - problem.limit, 0)
        return slow_cost(problem, full[0]), over

    while True:
        cost, over = judged(chosen)
        offers = []
        for group, options in enumerate(groups.choices):
            for option in range(options):
                other = chosen.copy()
                other[group] = option
                more = judged(other)
                spans, memory = problem.spans[groups.nodes[group]], groups.memory[group]
                saved = sum(
                    over[a:b].sum() * (own[chosen[group]] - own[option])
                    for (a, b), own in zip(spans, memory, strict=True)
                )
                if saved > 0 and more[1].sum() < over.sum():
                    offers.append((max(more[0] - cost, 1e-9) / saved, group, option))
        if not over.any() or not offers:
            return chosen
        chosen[min(offers)[1]] = min(offers)[2]


def total(problem: Sharding, full: np.ndarray) -> float:
    return float(np.maximum(problem.usage(full[None])[0] - problem.limit, 0).sum())


@cases("seed", range(20))
def test_repair_ends_where_the_slow_form_does(seed):
    problem = random_sharding(seed, count=7)
    state, rng = ForestSearch(problem), np.random.default_rng(seed)
    groups, costs = state.groups, []
    for _ in range(5):
        chosen = (rng.random(len(groups)) * groups.choices).astype(np.int64)
        before = chosen.copy()
        fast, slow = state.repaired(chosen), slow_repair(groups, chosen)
        assert np.array_equal(chosen, before)
        fast, slow = groups.expand(fast), groups.expand(slow)
        assert total(problem, fast) <= total(problem, groups.expand(chosen))
        assert (total(problem, fast) == 0) >= (total(problem, slow) == 0)
        costs.append((slow_cost(problem, fast), slow_cost(problem, slow)))
    assert np.mean([a for a, _ in costs]) <= 1.1 * np.mean([b for _, b in costs])


@cases("seed", range(20))
def test_recombination_is_valid_and_no_dearer_than_either(seed):
    """Than the other one only without memory limit, where every cheaper part fits."""
    rng = np.random.default_rng(seed)
    for limit in ({}, {"limit": np.inf}):
        problem = random_sharding(seed, count=7, **limit)
        state = ForestSearch(problem)
        groups = state.groups
        draws = (rng.random((40, len(groups))) * groups.choices).astype(np.int64)
        full = groups.expand(draws)
        valid = draws[(problem.excess(full) <= 0) & (problem.cost(full) < FORBIDDEN)]
        for base, other in product(valid[:3], draws[:5]):
            found = state.best_of(base, other)
            made = groups.expand(found)
            assert problem.excess(made[None])[0] == 0 and ((found == base) | (found == other)).all()
            assert slow_cost(problem, made) <= slow_cost(problem, groups.expand(base))
            if limit:
                assert slow_cost(problem, made) <= slow_cost(problem, groups.expand(other))


@cases("seed", range(10))
def test_what_a_change_costs_and_uses_is_what_all_groups_cost_and_use(seed):
    problem = random_sharding(seed, count=7)
    state, rng = ForestSearch(problem), np.random.default_rng(seed)
    arrays, groups = state.groups.arrays, state.groups
    work = Workspace.of(len(groups), len(problem.times))
    for _ in range(10):
        before, after = (rng.random((2, len(groups))) * groups.choices).astype(np.int64)
        changed = rng.permutation(len(groups))[: rng.integers(1, len(groups) + 1)]
        made = before.copy()
        made[changed] = after[changed]
        old, new = groups.expand(np.stack([before, made]))
        extra = extra_cost(arrays, work, before, changed, after[changed])
        assert extra == slow_cost(problem, new) - slow_cost(problem, old)
        usage, wanted = problem.usage(np.stack([old, new]))
        low, high, peak = use(arrays, work, usage, before, changed, after[changed])
        usage[low:high] = work.usage[low:high]
        assert np.array_equal(usage, wanted) and (low >= high or peak == wanted[low:high].max())
        assert not work.step.any() and (work.index == -1).all()


def test_parts_far_from_each_other_are_taken_one_by_one():
    """Three nodes without edges: from (1, 0, 1) only what is cheaper is taken into (0, 1, 0)."""
    alone = _nodes([[5, 1], [1, 5], [1, 9]])
    found = ForestSearch(alone).best_of(np.array([0, 1, 0]), np.array([1, 0, 1]))
    assert found.tolist() == [1, 0, 0]


def _nodes(costs, usages=None, limit=np.inf, intervals=None, edges=(), matrices=()) -> Sharding:
    first = np.concatenate([[0], np.cumsum([len(own) for own in costs])])
    flat = np.concatenate([np.asarray(own, float) for own in costs])
    usages = np.ones(len(flat)) if usages is None else np.concatenate(usages).astype(float)
    intervals = [[0, 2]] * len(costs) if intervals is None else intervals
    edges = np.array(edges, np.int64).reshape(-1, 2)
    return Sharding(
        "made", first, flat, usages, np.array(intervals), edges, [np.array(m, float) for m in matrices], limit
    )


UNUSUAL = {
    "no edges": _nodes([[3, 1], [2, 5]]),
    "one strategy each": _nodes([[3], [2]], edges=[[0, 1]], matrices=[[[7]]]),
    "never alive": _nodes([[3, 1], [2, 5]], intervals=[[0, 0], [1, 1]], limit=0.0),
    "forbidden strategies": _nodes([[FORBIDDEN, 4], [2, 2 * FORBIDDEN, 3]]),
    "one node": _nodes([[3, 1]]),
    "an edge twice": _nodes([[3, 1], [2, 5]], edges=[[0, 1], [1, 0]], matrices=[[[0, 4], [4, 0]]] * 2),
    "only one decision fits": _nodes(
        [[1, 5, 9]] * 4, [np.array([9, 5, 2])] * 4, 8.0, edges=[[0, 1], [1, 2]], matrices=[np.eye(3)] * 2
    ),
    "forbidden between groups": _nodes(
        [[1, 5, 9]] * 3, edges=[[0, 1], [1, 2]], matrices=[[[FORBIDDEN, 0, 0], [0, 1, 2], [2, 0, 1]]] * 2
    ),
}


@cases("case", UNUSUAL)
def test_unusual_problems_end_at_their_optimum(case):
    problem = UNUSUAL[case]
    every = np.array([*product(*map(range, problem.choices))])
    valid = (problem.excess(every) <= 0) & (problem.cost(every) < FORBIDDEN)
    optimum = problem.cost(every)[valid].min()
    space = ShardingProblem(problem).space()
    given = space.decode(space.default)
    assert problem.excess(given[None])[0] == 0 and problem.cost(given[None])[0] < FORBIDDEN
    assert np.isfinite(space.options(space.chances(space.default))).all()
    state = search(problem, Budget(60, Ticks()), start=given)
    assert space.bound <= optimum + 1e-6
    assert state.best_cost == optimum == problem.cost(state.best[None])[0]


def test_what_cannot_fit_ends_without_a_valid_decision():
    problem = _nodes([[1, 2]] * 3, limit=2.0)
    space = ShardingProblem(problem, budget=Budget(20, Ticks())).space()
    assert not space.evaluate(space.default[None]).valid[0]
    assert search(problem, Budget(20, Ticks())).best is None


def test_shares_of_a_budget():
    now = [0.0]
    budget = Budget(100, lambda: now[0])
    first = budget.share(0.3)
    assert first() and budget.left == 100
    now[0] = 30.0
    assert not first()
    second, rest = budget.share(0.5), budget.share()
    now[0] = 64.0
    assert second() and rest()
    now[0] = 65.0
    assert not second() and rest()
    now[0] = 100.0
    assert not rest() and budget.left == 0
    assert Budget(np.inf).share(0.3)()
    with budget.stopped():
        now[0] = 130.0
    assert budget.left == 0
    budget = Budget(10, lambda: now[0])
    with budget.stopped():
        now[0] = 150.0
    assert budget.left == 10


@cases("seconds", [0.0, 8.0, 60.0])
def test_every_stage_stops_when_its_time_is_over(seconds):
    """The clock moves on at every look, so that the number of looks bounds what is done."""
    clock = Ticks()
    budget = Budget(seconds, clock)
    problem = ShardingProblem(random_sharding(3, count=8), budget=budget)
    space = problem.space()
    assert space.evaluate(space.default[None]).valid[0]
    state = search(problem.sharding, budget, 0, space.decode(space.default), problem.priced())
    assert problem.sharding.excess(state.best[None])[0] == 0
    assert clock.now <= seconds + 20
    assert state.rounds >= 1


@cases("seconds", [1.0, 30.0, 400.0])
def test_the_limit_of_a_run_counts_all_its_stages(tmp_path, seconds):
    path = tmp_path / "made.json"
    nodes = {"intervals": [[0, 2]] * 4, "costs": [[1, 5, 9]] * 4, "usages": [[9, 5, 2]] * 4}
    edges = {"nodes": [[0, 1], [1, 2], [2, 3], [3, 0]], "costs": [[1, 2, 3, 0, 5, 1, 7, 0, 2]] * 4}
    path.write_text(json.dumps({"problem": {"nodes": nodes, "edges": edges, "usage_limit": 20}}))
    settings, clock = PlaceSettings(source=str(path), updates=10_000), Ticks()
    budget = Budget(seconds, clock)
    placed = compare(settings, read_problem(settings, budget), budget)
    problem = placed.problem
    policy = next(name for name in (POLICY, UNTRAINED, NOT_DECIDED) if name in placed.found)
    searched = SEARCHED.format(policy)
    for method in (policy, searched):
        decision = placed.found[method].decision
        assert problem.evaluate(decision[None]).order[0] == placed.found[method].cost < np.inf
    assert placed.found[searched].cost <= placed.found[policy].cost
    assert clock.now <= seconds + 30  # every stage looks at the clock a few times after its end
    assert (policy == POLICY) == (seconds == 400), "what made no update is not called GO"
    assert placed.found["best random"].evaluations >= min(placed.found[policy].evaluations, 4)


def large_tied(count: int, groups: int = 40) -> Sharding:
    """Nodes whose two strategies must be those of a node before, and free pairs between the groups.

    The groups are large and have many neighbours, so that looking at all of them for each join is quadratic.
    """
    rng = np.random.default_rng(0)
    tie, free = np.array([[0.0, FORBIDDEN], [FORBIDDEN, 0.0]]), np.array([[0.0, 1.0], [2.0, 0.0]])
    edges = [[n - groups, n] for n in range(groups, count)] + [[n, n + count] for n in range(count)]
    edges += rng.integers(0, 2 * count, (count, 2)).tolist()
    edges = [pair for pair in edges if pair[0] != pair[1]]
    matrices = [tie if n < count - groups else free for n in range(len(edges))]
    costs = rng.integers(0, 9, (2 * count, 2)).astype(float)
    intervals = np.stack([np.arange(2 * count), np.arange(2 * count) + 5], 1)
    first, usages = np.arange(0, 4 * count + 1, 2), np.ones(4 * count)
    return Sharding("tied", first, costs.ravel(), usages, intervals, np.array(edges), matrices, float("inf"))


def test_tying_looks_at_each_pair_a_few_times_and_stops_when_its_time_is_over():
    problem, looks = large_tied(8_000), [0]

    def counted():
        looks[0] += 1
        return True

    groups = TiedStrategies(problem, counted)
    assert len(groups) == 40 + 8_000
    assert looks[0] < 4 * len(problem.edges)
    clock = Ticks()
    early = TiedStrategies(problem, Budget(2_000, clock).share())
    assert clock.now < 2_010 and len(groups) < len(early) < len(problem)
    decision = early.expand(np.zeros(len(early), int))
    assert np.array_equal(decision, early.expand(early.compress(decision)))
    full = groups.expand(np.random.default_rng(0).integers(0, 2, len(groups)))
    assert problem.cost(full[None])[0] < FORBIDDEN


def test_a_search_goes_on_from_what_is_known():
    sharding = random_sharding(3, count=8)
    state = ForestSearch(sharding)
    state.begin(5, lambda: True)
    cost, price = state.best_cost, state.price
    again = search(sharding, Budget(0, Ticks()), 1, np.zeros(len(sharding), int), state)
    assert again is state and state.best_cost <= cost and state.price is price
    assert state.rounds == 5 and state.history[0] == (0, cost)
