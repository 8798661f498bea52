"""The hours of a network follow from the steps of files; the benchmark runs on the sample."""

import json
import subprocess
import sys
from argparse import Namespace

import numpy as np
import pytest

import hours
from fastslow.core.settings import PROJECT

OPTIONS = Namespace(preset="kaggle", configs=[64], steps=1)


def row(source, nodes, step, evaluate=0.0):
    return {"source": source, "nodes": nodes, "step": {64: step}, "evaluate": evaluate}


def test_programs_on_a_line_have_its_value_at_the_mean():
    """Against the sum over made-up programs, whose mean number of nodes is the published one."""
    rng = np.random.default_rng(0)
    nodes = rng.integers(100, 11_000, 405)
    nodes = nodes + (hours.MEAN_NODES["nlp"] - nodes.mean())
    rows = [row("nlp", n, 0.05 + 1e-4 * n, 0.01 + 2e-5 * n) for n in nodes[:3]]
    (found,) = hours.estimate(rows, OPTIONS)
    settings = hours.settings_of(OPTIONS)
    epoch = (0.05 + 1e-4 * nodes).sum()
    evaluation = 40 * (0.01 + 2e-5 * hours.MEAN_NODES["nlp"])
    total = settings.epochs * epoch + settings.epochs / settings.evaluate_every * evaluation
    assert found[f"hours of {settings.epochs} epochs"] == pytest.approx(total / 3600 / 2)
    assert found["epochs in 8 hours"] == int(8 * 3600 * 2 * settings.epochs / total)


def test_the_larger_of_two_lines_counts():
    flat = [row("xla", 400, 0.1), row("xla", 3000, 0.1)]
    steep = [row("nlp", 1000, 0.1), row("nlp", 21_000, 4.1)]

    def value(one):
        return one["step"][64]

    assert hours.at_mean(flat, "xla", value) == pytest.approx(0.1)
    assert hours.at_mean(flat + steep, "xla", value) > 2
    assert hours.at_mean(flat + steep, "nlp", value) >= 0.1 + 2e-4 * (5659 - 1000) - 1e-9
    assert hours.at_mean(flat[:1], "xla", value) == 0.1


def test_the_preset_is_meant_to_take_less_than_eight_hours():
    """With the averages that were measured on genuine files (tables/hours.md)."""
    measured = {"xla": 1.89, "nlp": 0.78}
    settings = hours.settings_of(OPTIONS)
    assert settings.configs_per_step == 128, "measure again with benchmarks/hours.py"
    for source, seconds in measured.items():
        train, _ = hours.GRAPHS[source]
        assert settings.epochs * train * seconds / 3600 / hours.CORES < 7.5


def test_it_runs(tmp_path):
    command = [sys.executable, str(PROJECT / "benchmarks" / "hours.py"), "--quick"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    assert {found["source"] for found in result["hours"]} == {"xla", "nlp"}
    assert all(seconds > 0 for file in result["files"] for seconds in file["step"].values())
