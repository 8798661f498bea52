"""The policy: what it depends on, memory, learning."""

import itertools

import numpy as np
import pytest
import torch

from fastslow_placement.base.problem import OPTION_FEATURES, Outcome, Problem, unit_columns
from fastslow_placement.go.policy import Inputs, Policy, Sage, torch_threads
from fastslow_placement.go.ppo import Trainer, zero_shot
from fastslow_placement.go.proposals import Change, Changes, log_chance
from fastslow_placement.go.schedule import Schedule
from fastslow_placement.programs.cost_graph import components
from fastslow_placement.programs.problems import PlacementProblem
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, random_graph


@pytest.fixture(autouse=True)
def one_thread():
    """Two threads on tensors of this size only wait for each other."""
    with torch_threads(1):
        yield


def small_problem(seed=0, count=10):
    return PlacementProblem(random_graph(seed, count), 2, DEVICE)


def seeded(seed=0):
    torch.manual_seed(seed)
    return Policy()


def test_sage_pools_the_maximum_over_neighbours():
    torch.manual_seed(0)
    layer, states = Sage(3), torch.randn(4, 3)
    edges = torch.tensor([[0, 1], [2, 1], [3, 0]])
    sent = torch.relu(layer.pool(states))
    pooled = torch.stack([sent[3], torch.maximum(sent[0], sent[2]), torch.zeros(3), torch.zeros(3)])
    wanted = torch.relu(layer.join(torch.cat([states, pooled], 1)))
    assert torch.allclose(layer(states, edges), wanted)


def test_training_is_the_same_for_the_same_seed_and_goes_on_where_it_stopped():
    plan = Schedule(samples=6, updates=4)
    whole, parts = (Trainer(seeded(), small_problem(), plan) for _ in range(2))
    whole.run(4)
    parts.run(2)
    parts.run(4)
    for name, value in whole.policy.state_dict().items():
        assert torch.equal(value, parts.policy.state_dict()[name]), name
    assert whole.found.cost == parts.found.cost and whole.found.history == parts.found.history
    assert whole.found.evaluations == 24 + 6 + 24  # starts, steps without learning, updates
    assert zero_shot(whole.policy, small_problem()).evaluations == 24 + 10


def test_training_ends_with_nothing_worse_than_its_start():
    problem, plan = small_problem(3, 14), Schedule(updates=1)
    before = zero_shot(seeded(seed=4), problem, plan.samples)
    found = Trainer(seeded(seed=4), problem, plan).run(1)
    assert found.cost <= before.cost <= problem.evaluate(problem.starts).order.min()
    assert np.array_equal(problem.starts[0], problem.default)
    assert found.cost == problem.evaluate(found.decision[None]).order[0]


@cases("seed", range(4))
def test_changes_are_of_single_units_or_of_a_region_that_moves_together(seed):
    problem = small_problem(seed, 30)
    changes, generator = Changes(problem), torch.Generator().manual_seed(seed)
    logs = seeded()(Inputs(problem))
    start = problem.draw(1, np.random.default_rng(seed))[0]
    sizes = []
    for _ in range(60):
        change = changes.draw([one.detach() for one in logs], start, generator)
        decision, changed = change.decision, change.decision != start
        drawn = change.units.tolist()
        assert drawn and changed[drawn].all()
        assert {*np.flatnonzero(changed)} == {*drawn} or len(drawn) == 1, "a region has one drawn unit"
        assert (decision >= 0).all() and (decision < problem.choices).all()
        sizes.append(int(changed.sum()))
        if sizes[-1] > changes.most:
            assert len({*start[changed]}) == len({*decision[changed]}) == 1
            inside = problem.edges[changed[problem.edges].all(1)]
            assert len({*components(inside, len(changed))[changed]}) == 1, "connected"
    assert 1 in sizes and max(sizes) > changes.most


CHOICES = np.array([3, 1, 2, 3])
NEAR = {0: [1, 2, 3], 1: [0, 2], 2: [1, 3, 0], 3: [2, 0]}


RING = np.array([[0, 1], [1, 2], [2, 3], [0, 3], [0, 2]])  # with a chord


class Matching(Problem):
    """Units must choose the option of their own kind; the cost counts the wrong ones."""

    name, task, bound = "matching", "placement", 0.0

    def __init__(self, choices, edges):
        self.choices, self.edges = choices, edges
        self.kinds = np.arange(len(choices)) % choices
        self.features = unit_columns(edges, len(choices))
        self.default = (self.kinds + 1) % choices

    def evaluate(self, decisions):
        return Outcome((decisions != self.kinds).sum(1) + 1.0, np.zeros(len(decisions)))

    def options(self, probabilities):
        features = np.zeros((len(probabilities), OPTION_FEATURES), np.float32)
        features[:, 0] = np.concatenate([np.arange(count) / count for count in self.choices])
        features[:, 4] = probabilities
        return features


def ring_logs(sure, origin):
    torch.manual_seed(0)
    logits = torch.randn(4, 3).masked_fill(torch.arange(3) >= torch.from_numpy(CHOICES)[:, None], -torch.inf)
    return (logits + sure * torch.eye(3)[torch.from_numpy(origin)]).requires_grad_()


def every_change(origin, count):
    """All ordered draws of some units with all new options, and what neighbours have, by definition."""
    for units in itertools.permutations(np.flatnonzero(CHOICES > 1).tolist(), count):
        for targets in itertools.product(*([o for o in range(CHOICES[u]) if o != origin[u]] for u in units)):
            decision, shares, follow = origin.copy(), [], []
            for unit, target in zip(units, targets, strict=True):
                decision[unit] = target
                there = [origin[v] for v in NEAR[unit]]
                there = [option for option in there if option != origin[unit] and option < CHOICES[unit]]
                shares.append(there.count(target) / max(len(there), 1))
                follow.append(0.5 if there else 0.0)
            yield Change(origin, decision, torch.tensor(units), torch.tensor(shares), torch.tensor(follow))


@cases("sure, origin", [(0.0, [2, 0, 1, 0]), (40.0, [0, 0, 0, 1]), (0.0, [0, 0, 0, 0])])
def test_changes_are_scored_with_the_probability_with_which_they_are_drawn(sure, origin):
    """Also of a policy that is sure to keep all; the seconds are those of 3,000 draws a row."""
    origin = np.array(origin)
    logits = ring_logs(sure, origin)
    logs, changes = [logits.log_softmax(1)], Changes(Matching(CHOICES, RING))
    known = {
        (*change.units.tolist(), *change.decision[change.units.numpy()]): log_chance(
            logs, change, changes.movable
        )
        for count in (1, 2, 3)
        for change in every_change(origin, count)
    }
    for count in (1, 2, 3):
        total = sum(float(chance.detach().sum().exp()) for chance in known.values() if len(chance) == count)
        assert total == pytest.approx(1, abs=1e-4)
    generator, seen = torch.Generator().manual_seed(0), {}
    for _ in range(3000):
        change = changes.draw([logs[0].detach()], origin, generator)
        key = (*change.units.tolist(), *change.decision[change.units.numpy()])
        seen[key] = seen.get(key, 0) + 1
    for count, most in ((1, 0.06), (2, 0.095)):  # noise alone: about 0.025 and 0.06
        drawn = sum(times for key, times in seen.items() if len(key) == 2 * count)
        gaps = [
            abs(seen.get(key, 0) / drawn - float(chance.detach().sum().exp()))
            for key, chance in known.items()
            if len(chance) == count
        ]
        assert sum(gaps) / 2 < most and drawn > 360
    sum(chance.sum() for chance in known.values()).backward()
    assert logits.grad.nan_to_num().abs().max() > 0.01, "something is left to learn"


def test_the_policy_learns_what_random_search_does_not_find():
    problem = Matching(np.full(12, 3), np.stack([np.arange(11), np.arange(1, 12)], 1))
    draws = problem.evaluate(problem.draw(240, np.random.default_rng(0))).cost
    found = Trainer(seeded(), problem, Schedule(updates=30)).run(30)
    assert found.evaluations == 249 and found.cost < draws.min()
