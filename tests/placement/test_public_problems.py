"""The public formats and their costs against the definitions; figures of their authors where the files
are.
"""

import gzip
import json
import os
from itertools import product

import numpy as np
import pytest

from common.public_placement import read_split
from fastslow.core.errors import DataError, SettingsError
from fastslow_placement.base.search import Budget
from fastslow_placement.go.policy import load_policy
from fastslow_placement.partition.problems import PartitionProblem
from fastslow_placement.partition.workload import read_workload
from fastslow_placement.sharding.forest_search import ForestSearch, search
from fastslow_placement.sharding.problems import ShardingProblem
from fastslow_placement.sharding.sharding import FORBIDDEN, read_problem_file, read_sharding
from fastslow_placement.sharding.tied_strategies import TiedStrategies
from helpers.cases import cases
from helpers.competition_files import ROOT
from helpers.cost_graphs import random_sharding, random_workload, slow_cost, slow_loads, slow_usage

PUBLIC = ROOT.parent / "shared" / "placement"
needs_public = pytest.mark.skipif(not PUBLIC.is_dir(), reason="no public instances beside the repository")
NODE = {"supportedOnFpga": 1, "cpuLatency": 9.0, "fpgaLatency": 1.0, "isBackwardNode": 0, "size": 2.0}


def instance(nodes=3, edges=((0, 1), (1, 2)), **changed):
    return {
        "maxSizePerFPGA": 10.0,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [{"id": n + 5, **NODE} for n in range(nodes)],
        "edges": [{"sourceId": u + 5, "destId": v + 5, "cost": 0.5} for u, v in edges],
        **changed,
    }


def written(path, value):
    path.write_text(json.dumps(value))
    return path


@cases("seed", range(8))
def test_loads_are_those_of_the_definition(seed):
    workload = random_workload(seed)
    splits = np.random.default_rng(seed).integers(0, 3, (10, int(workload.units.max()) + 1))
    found, memory = workload.loads(splits)
    for split, row, used in zip(splits, found, memory, strict=True):
        device = split[workload.units]
        assert row.tolist() == slow_loads(workload, device)
        assert used.tolist() == [workload.size[device == d].sum() for d in range(2)]


@cases(
    "changed, said",
    [
        ({"nodes": [{"id": 5}]}, "it lacks the key nodes.0.fpgaLatency"),
        ({"edges": [{"sourceId": 5, "destId": 99, "cost": 1}]}, "edge 5 -> 99 names no node"),
        ({"maxFPGAs": 0, "maxCPUs": 0}, "maxFPGAs is 0: Input should be greater than or equal to 1"),
        ({"nodes": [{"id": n + 5, **NODE, "size": -1.0} for n in range(3)]}, "nodes.0.size is -1.0"),
        (
            {
                "edges": [
                    {"sourceId": 5, "destId": 6, "cost": 1},
                    {"sourceId": 6, "destId": 5, "cost": 1},
                ]
            },
            "cycle through '5'",
        ),
    ],
)
def test_a_wrong_instance_is_refused_by_name(tmp_path, changed, said):
    with pytest.raises(DataError, match=said):
        read_workload(written(tmp_path / "x.json", {**instance(), **changed}))


def test_an_instance_without_valid_split_is_refused(tmp_path):
    path = written(tmp_path / "x.json", {**instance(), "maxSizePerFPGA": 1.0, "maxCPUs": 0})
    with pytest.raises(SettingsError, match="no valid split of 'x': '5' does not fit"):
        PartitionProblem(read_workload(path))
    held = read_workload(written(path, {**instance(), "maxSizePerFPGA": 1.0}))
    problem = PartitionProblem(held)  # a CPU holds it
    assert problem.choices[0] == 3 and problem.evaluate(problem.default[None]).valid[0]


SHARDED = {
    "nodes": {"intervals": [[0, 2], [0, 1]], "costs": [[1, 2], [3]], "usages": [[5, 1], [2]]},
    "edges": {"nodes": [[0, 1]], "costs": [[7, 1]]},
    "usage_limit": 9,
}


@cases("value", [[1], True, 10**400, float("nan"), -1.0])
@cases(
    "field", ["fpgaLatency", "size", "id", "supportedOnFpga", "maxFPGAs", "maxCPUs", "maxSizePerFPGA", "cost"]
)
def test_a_wrong_value_of_an_instance_is_refused_with_the_name_of_its_field(tmp_path, field, value):
    data = instance()
    owner = data["edges"][0] if field == "cost" else data["nodes"][0] if field in NODE | {"id": 0} else data
    owner[field] = value
    if field == "supportedOnFpga" and value is True:
        return
    with pytest.raises(DataError, match=field):
        read_workload(written(tmp_path / "x.json", data))


@cases(
    "where, value, said",
    [
        ("usage_limit", [1], "usage_limit"),
        ("usage_limit", "x", "usage_limit"),
        ("usage_limit", True, "usage_limit"),
        ("usage_limit", float("nan"), "usage_limit"),
        ("usage_limit", 10**400, "usage_limit"),
        ("usage_limit", 2, "at least 3 is in use at some time, usage_limit is 2"),
        ("nodes", SHARDED["nodes"] | {"usages": [[5], [2, 3]]}, "disagree in length"),
        ("nodes", SHARDED["nodes"] | {"intervals": [[2, 0], [0, 1]]}, "interval of node 0"),
        ("nodes", SHARDED["nodes"] | {"intervals": [[0, 10**30], [0, 1]]}, "intervals.0"),
        ("nodes", SHARDED["nodes"] | {"costs": [[1, 10**400], [3]]}, "costs.0.1"),
        ("edges", {"nodes": [[0, 1]], "costs": [[7, float("inf")]]}, "costs.0.1"),
    ],
)
def test_a_wrong_value_of_a_sharding_problem_is_refused_by_name(tmp_path, where, value, said):
    with pytest.raises(DataError, match=said):
        read_sharding(written(tmp_path / "x.json", {"problem": SHARDED | {where: value}}))


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.json")
    with pytest.raises(DataError, match="named pipe"):
        read_problem_file(tmp_path / "x.json")
    with pytest.raises(DataError, match="named pipe"):
        load_policy(tmp_path / "x.json")


@cases("nodes", [1, 3])
def test_an_instance_without_edges_has_a_split(tmp_path, nodes):
    workload = read_workload(written(tmp_path / "x.json", instance(nodes, ())))
    problem = PartitionProblem(workload)
    assert problem.evaluate(problem.default[None]).valid[0]


@cases("seed", range(10))
def test_sharding_cost_and_memory_are_those_of_the_definition(seed):
    problem = random_sharding(seed)
    decisions = np.array([*product(*map(range, problem.choices))])[:200]
    assert problem.cost(decisions).tolist() == [slow_cost(problem, d) for d in decisions]
    peaks = np.array([slow_usage(problem, d) for d in decisions])
    assert problem.excess(decisions).tolist() == np.maximum(peaks - problem.limit, 0).tolist()


@cases("seed", range(12))
def test_the_search_finds_the_optimum_of_small_problems_and_its_bound_holds(seed):
    problem = random_sharding(seed)
    decisions = np.array([*product(*map(range, problem.choices))])
    valid = problem.excess(decisions) <= 0
    optimum = problem.cost(decisions)[valid].min()
    state = ForestSearch(problem, seed)
    rounds = iter(range(150))
    state.find_prices(lambda: next(rounds, None) is not None)
    rounds = iter(range(150))
    state.improve(lambda: next(rounds, None) is not None)
    assert state.bound <= optimum + 1e-6
    assert state.best_cost == optimum
    assert problem.cost(state.best[None])[0] == optimum and problem.excess(state.best[None])[0] == 0


@cases("seed", range(5))
def test_a_forest_move_is_the_best_of_all(seed):
    problem = random_sharding(seed, count=5, limit=np.inf)
    state = ForestSearch(problem, seed)
    forest = state.forest(4)
    order, up = (own.tolist() for own in forest)
    assert len(order) == len({*order})
    for place, (group, link) in enumerate(zip(order, up, strict=True)):  # at most one neighbour came before
        parents = [state.groups.arrays.other[link]] if link >= 0 else []
        assert [*({*state.groups.links[group]} & {*order[:place]})] == parents
    result = state.solve(state.decision, forest, np.zeros(len(problem)))
    options = [[one] for one in state.decision]
    for group in order:
        options[group] = range(state.groups.choices[group])
    best = min(slow_cost(problem, state.groups.expand(np.array(changed))) for changed in product(*options))
    assert slow_cost(problem, state.groups.expand(result)) == best


@cases("seed", range(10))
def test_tied_strategies_lose_no_valid_decision(seed):
    problem = random_sharding(seed, count=6)
    rng = np.random.default_rng(seed)
    for matrix in problem.matrices:  # some ties, some forbidden pairs
        matrix[rng.random(matrix.shape) < 0.4] = FORBIDDEN
    decisions = np.array([*product(*map(range, problem.choices))])
    allowed = decisions[problem.cost(decisions) < FORBIDDEN]
    if not len(allowed):
        return
    groups = TiedStrategies(problem)
    assert len(groups) <= len(problem)
    every = groups.expand(np.array([*product(*map(range, groups.choices))]))
    kept = every[problem.cost(every) < FORBIDDEN]
    assert {*map(tuple, kept)} == {*map(tuple, allowed)} and len(kept) == len(allowed)
    for decision in allowed[:5]:
        one = groups.compress(decision)
        assert np.array_equal(groups.expand(one), decision)
        toll = rng.random(len(problem))
        links = sum(
            t[one[g], one[o]] for g, link in enumerate(groups.links) for o, t in link.items() if g < o
        )
        own = groups.priced(toll)[groups.first[:-1] + one].sum()
        paid = (problem.usages[problem.first[:-1] + decision] * toll).sum()
        assert own + links == pytest.approx(slow_cost(problem, decision) + paid)


@cases("seed", range(4))
def test_what_hubs_decide_is_completed_at_the_least_cost_or_not_taken(seed):
    problem = random_sharding(seed, count=6, limit=np.inf)
    space = ShardingProblem(problem).space()
    space._given = space.groups.compress(space.rule)
    space._given[:] = 0  # a poor rule, so that not everything is refused
    every = np.array([*product(*map(range, problem.choices))])
    costs = problem.cost(every)
    chosen = np.stack([space.groups.compress(one) for one in every])
    poor = problem.cost(space.groups.expand(space._given)[None])[0]
    changed = [hub for hub in product(*map(range, space.choices)) if any(hub)]
    for options in changed:
        found = space.decode(np.array(options))
        least = costs[(chosen[:, space.hubs] == options).all(1)].min()
        assert problem.cost(found[None])[0] <= min(poor, least)


def test_a_node_without_allowed_strategy_is_named():
    problem = random_sharding(0)
    problem.costs[problem.first[3] : problem.first[4]] = FORBIDDEN
    with pytest.raises(SettingsError, match="no valid decision: every strategy of node 3"):
        TiedStrategies(problem)


def test_a_sharding_problem_is_read_and_its_faults_named(tmp_path):
    good = {
        "nodes": {"intervals": [[0, 2], []], "costs": [[1, 2], [3]], "usages": [[5, 1], [2]]},
        "edges": {"nodes": [[0, 1]], "costs": [[7, FORBIDDEN]]},
        "usage_limit": 4,
    }
    path = tmp_path / "asplos-2025-iopddl-Z.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"problem": good}).encode()))
    problem = read_sharding(path)
    assert problem.name == "Z" and problem.cost(np.array([[0, 0], [1, 0]])).tolist() == [11, FORBIDDEN]
    assert problem.excess(np.array([[0, 0], [1, 0]])).tolist() == [1, 0]
    outcome = ShardingProblem(problem).evaluate(np.array([[0, 0], [1, 0]]))
    assert not outcome.valid.any()
    for change, said in (
        (
            {"nodes": {**good["nodes"], "usages": [[5, -1], [2]]}},
            "usages.0.1 is -1: Input should be greater than or equal to 0",
        ),
        ({"edges": {"nodes": [[0, 9]], "costs": [[7, 1]]}}, "edge 0 names no node"),
        ({"edges": {"nodes": [[0, 1]], "costs": [[7]]}}, "edge 0 has 1 costs"),
        (
            {"nodes": {**good["nodes"], "costs": [[1, 2], []], "usages": [[5, 1], []]}},
            r"nodes.costs.1 is \[\]: List should have at least 1 item",
        ),
    ):
        with pytest.raises(DataError, match=said):
            read_sharding(written(tmp_path / "x.json", {"problem": {**good, **change}}))


@needs_public
@cases(
    "name, expert, one, human",
    [
        ("bert24_inference", "bert24_inference", 92.41, 20.08),
        ("bert24_training", "bert24_training", 217.8, 49.40),
        ("resnet50_inference", "resnet50_inference", 201.5, 43.92),
        ("resnet50_training", "resnet50_inference", 462.4, 112.1),
        ("inceptionv3_inference", "inceptionv3_inference", 311.0, 102.5),
        ("inceptionv3_training", "inceptionv3_inference", 710.7, 213.7),
    ],
)
def test_loads_of_public_splits_are_what_the_authors_program_prints(name, expert, one, human):
    folder = PUBLIC / "dnn-partitioning"
    workload = read_workload(folder / "throughput-inputs" / "LayerGraphs" / f"{name}.json")
    problem = PartitionProblem(workload)
    split = read_split(folder / "human-experts" / f"{expert}_expert.json", problem.workload)
    both = np.stack([np.zeros_like(problem.default), split])
    assert problem.evaluate(both).cost == pytest.approx([one, human], rel=6e-4)


@needs_public
def test_a_public_sharding_problem_has_a_valid_start():
    problem = read_sharding(PUBLIC / "iopddl" / "asplos-2025-iopddl-B.json.gz")
    assert len(problem) == 816 and len(problem.costs) == 10188
    state = search(problem, Budget(1.0))
    assert state.best is not None and state.bound <= 532_843 <= state.best_cost
