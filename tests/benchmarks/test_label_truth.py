"""Estimates against measured runs, on a made-up program whose labels a fake compiler gives."""

import random
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

import label_truth
from common.binding_rules import COMMITTED, BoundProgram
from common.measured_runs import Measured, choose_on_half, disagreements, effects, name_groups, signs
from fastslow.competition.metrics import kendall_tau
from fastslow.core.files import read_json
from fastslow.hlo.graph_arrays import graph_arrays
from fastslow.hlo.messages import Module
from fastslow_programs.compiler.layout_choices import draw_configuration, layouts_of, tie
from fastslow_programs.compiler.layout_constraints import constrain
from fastslow_programs.compiler.layout_space import configurable_nodes, encode
from fastslow_programs.ranking.trust import ESTIMATES, describe_estimates
from helpers.competition_files import npz_program, write_npz
from helpers.dot_module import small_module

CONFIGS = 60


def instructions(serialised):
    module = Module.FromString(serialised)
    return [i for computation in module.computations for i in computation.instructions]


def cycles_of(serialised):
    """What the fake compiler estimates: barriers cost."""
    return 1000 + 100 * sum(i.opcode == "opt-barrier" for i in instructions(serialised))


def label(modules, title):
    return [{"instructions": [["fusion", cycles_of(module), 0, 1]]} for module in modules]


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A program, its drawn configurations, and a file of their runtimes: as the fake compiler estimates."""
    module = small_module(3)
    nodes = configurable_nodes(module)
    choices = tie(nodes)
    rng = random.Random(0)
    drawn = [layouts_of(draw_configuration(choices, rng), choices) for _ in range(CONFIGS)]
    imposed = [constrain(module, layouts, nodes).SerializeToString() for layouts in drawn]
    arrays = graph_arrays(module) | {
        "node_config_ids": np.array([node.node for node in nodes]),
        "node_config_feat": np.stack([encode(layouts, nodes) for layouts in drawn]),
        "config_runtime": np.array([7 * cycles_of(module) for module in imposed]),
    }
    path = write_npz(tmp_path_factory.mktemp("real") / "small.npz", arrays)
    file = npz_program(path, "layout", labelled=True)
    found = file.choices
    program = BoundProgram(module, nodes, file, found.layout_codes())
    decisive = label_truth.bound_groups(program, found)
    measured = Measured(file.runtime, found, name_groups(file, found), decisive)
    return Namespace(module=module, nodes=nodes, drawn=drawn, file=file, program=program, measured=measured)


def score(case, rule, label, programs):
    compiled = label_truth.compile_commonest(case.program, label, programs)
    return label_truth.score_rule(rule, case.program, case.measured, compiled)


def test_the_committed_rule_is_the_products(case):
    codes = case.program.bound()
    for layouts, config_codes in zip(case.drawn, codes, strict=True):
        wanted = constrain(case.module, layouts, case.nodes).SerializeToString(deterministic=True)
        assert case.program.impose(config_codes) == wanted


def test_a_label_that_is_the_runtime_has_its_order_and_its_effects(case):
    found = score(case, COMMITTED, label, 10_000)
    assert found["programs"] == found["distinct"] > 5 and found["covered"] == 1 and not found["failures"]
    assert found["tau"] == pytest.approx(1) and found["bound"] == pytest.approx(1)
    truth = effects(case.measured.choices.varying, case.measured, case.measured.runtime)
    assert found["effects"] and all(pair == pytest.approx(truth[n]) for n, pair in found["effects"].items())
    agree, of = signs(truth, found["effects"])
    assert agree == of > 0 and disagreements(truth, found["effects"]) == []
    wrong = {name: [-10 * change, tau] for name, (change, tau) in found["effects"].items()}
    assert signs(truth, wrong) == (0, of) and len(disagreements(truth, wrong)) == of


def test_the_commonest_programs_are_compiled_and_failures_left_out(case):
    def fails_first(modules, title):
        return [{"failure": "crashed", "message": "abort"}, *label(modules[1:], title)]

    counts = np.unique(case.program.bound(), axis=0, return_counts=True)[1]
    assert len(counts) > 1
    one = score(case, "no copies", label, 1)
    assert one["covered"] == counts.max() / CONFIGS and one["programs"] == 1
    none = score(case, "no copies", fails_first, 1)
    assert (none["programs"], none["failures"], none["tau"]) == (0, 1, None)


def test_a_rule_is_scored_on_programs_that_did_not_choose_it():
    """Of rules that are noise, the one that fits its half best is worth nothing on the other half."""
    rng, draws = np.random.default_rng(0), 20
    classes = np.repeat(np.arange(24), 4)
    runtime = rng.permutation(24)[classes] * 100.0 + rng.permutation(96)
    noise = {f"noise {i}": rng.permutation(24)[classes].astype(float) for i in range(60)}
    of_noise = choose_on_half(noise, classes, runtime, draws)
    best = max(kendall_tau(runtime, estimate) for estimate in noise.values())
    assert best > 0.25 and of_noise["held_out"][0] < best / 2
    found = choose_on_half({**noise, COMMITTED: runtime}, classes, runtime, draws)
    assert found["chosen"] == {COMMITTED: draws} and found["held_out"] == pytest.approx([1] * 3)
    assert found["interval"] == pytest.approx([1, 1])
    partial = np.where(classes < 16, runtime, np.nan)
    found = choose_on_half({"outputs": partial, COMMITTED: -runtime}, classes, runtime, draws)
    assert (found["programs"], found["configurations"]) == (16, 64), "those that every rule knows"
    assert found["chosen"] == {"outputs": draws} and found["interval"][1] < 0


def test_what_rank_says_of_the_estimates_is_in_the_table():
    """The package's file of figures is made with the table."""
    said = read_json(ESTIMATES)
    page = (Path(label_truth.__file__).parent / "tables" / "label_truth.md").read_text()
    assert "Tau {tau:.3f} [{low:.3f}, {high:.3f}]".format(**said) in page
    over = "{tau:.2f} on AlexNet's measured runs (95 % of random halves: {low:.2f} to {high:.2f})"
    assert describe_estimates() == over.format(**said)
