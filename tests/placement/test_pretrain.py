"""Lessons from searches: what they hold, and that a policy learns from them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fastslow.core.settings import PROJECT
from fastslow_placement.go.policy import Inputs, Policy, Shape
from fastslow_placement.go.ppo import zero_shot
from fastslow_placement.go.pretrain import lessons, loss
from fastslow_placement.go.proposals import Changes, log_chance, log_first
from fastslow_placement.programs.problem_set import HELD_OUT, machines_of, problems, program_files
from fastslow_placement.programs.problems import PlacementProblem
from helpers.cost_graphs import DEVICE, random_graph

SAMPLE = PROJECT / "data" / "sample"


def test_changes_scored_together_are_scored_as_one_by_one():
    problem = PlacementProblem(random_graph(1, 14), 3, DEVICE)
    torch.manual_seed(0)
    policy, pool = Policy(Shape(hidden=8, heads=2)), Changes(problem)
    logs, generator = policy.passes(Inputs(problem))[-1], torch.Generator().manual_seed(0)
    drawn = [pool.draw(logs, problem.default, generator) for _ in range(80)]
    single = [change for change in drawn if len(change.units) == 1]
    units = np.array([int(change.units[0]) for change in single])
    options = np.array([change.decision[unit] for change, unit in zip(single, units, strict=True)])
    shares, follow = pool.known(problem.default, units, options)
    together = log_first(
        logs, problem.default, torch.tensor(units), torch.tensor(options), shares, follow, pool.movable
    )
    one_by_one = torch.cat([log_chance(logs, change, pool.movable) for change in single])
    assert len(single) > 20 and torch.allclose(together, one_by_one, atol=1e-5)


def test_lessons_hold_changes_that_gain_and_ends_that_are_no_worse():
    problem = PlacementProblem(random_graph(2, 20), 3, DEVICE)
    found = lessons(problem, 200, seed=0)
    assert len(found) > 4
    for lesson in found:
        assert problem.evaluate(lesson.end[None]).order[0] <= problem.evaluate(lesson.state[None]).order[0]
        assert (lesson.weights > 0).all() and lesson.weights.sum() == pytest.approx(1 if len(lesson.units) else 0)
        assert (lesson.options.numpy() != lesson.state[lesson.units.numpy()]).all()
    assert sum(len(lesson.units) for lesson in found) > 20


def test_a_policy_learns_its_lessons_and_improves_the_default():
    problem = PlacementProblem(random_graph(4, 24, density=0.15), 3, DEVICE)
    torch.manual_seed(0)
    policy, inputs, taught = Policy(Shape(hidden=16)), Inputs(problem), lessons(problem, 400, seed=0)
    movable = torch.from_numpy(problem.choices > 1)
    optimizer, losses = torch.optim.Adam(policy.parameters(), 3e-3), []
    for _ in range(12):
        for lesson in taught:
            changes, ends = loss(policy, inputs, lesson, movable)
            optimizer.zero_grad()
            (changes + ends).backward()
            optimizer.step()
            losses.append((changes + ends).item())
    assert np.mean(losses[-len(taught) :]) < 0.9 * np.mean(losses[: len(taught)])
    found = zero_shot(policy, problem, 10, starts=False)
    assert found.cost < problem.baseline and found.evaluations == 11


def test_the_training_set_leaves_out_the_held_out_architectures_and_test():
    names = [path.stem for path in program_files(SAMPLE, ("train", "valid"))]
    assert len(names) == len({*names}) > 100
    assert not [name for name in names if name.startswith(tuple(f"{held}_" for held in HELD_OUT))]
    assert not {*names} & {path.stem for path in program_files(SAMPLE, ("test",))}
    assert all(len({*machines_of(name, 3)}) == 3 for name in names)
    assert len({machine for name in names for machine in machines_of(name, 3)}) > 40


def test_problems_of_the_training_set_have_valid_defaults():
    paths: list[Path] = program_files(SAMPLE, ("train", "valid"))[:2]
    made = [*problems(paths, 3)]
    assert 3 <= len(made) <= 6 and len({problem.name for problem in made}) == len(made)
    assert all(problem.evaluate(problem.default[None]).valid[0] for problem in made)
