"""The compiler's benchmark: what it counts, and that it runs where the compiler is installed."""

import importlib.util
import json
import subprocess
import sys

import pytest

import compiler
from common import report
from fastslow.core.settings import PROJECT
from fastslow.xla.layout_space import configurable_nodes
from helpers.dot_module import small_module

BENCHMARKS = PROJECT / "benchmarks"


def small_program(layers):
    module = small_module(layers)
    return module, configurable_nodes(module)


def test_compiles_and_failures_are_counted():
    programs = [small_program(layers) for layers in (2, 4)]

    def label(serialised, title):
        assert title == "v3" and len(set(serialised)) == 4
        failure = {"failure": "timed out", "message": "too long"}
        done = [{"seconds": s, "cycles": 5, "estimated": 3, "without_estimate": 1} for s in (1.0, 2.0, 4.0)]
        return [*done, failure]

    found = compiler.measure_compiles(label, programs, "v3")
    assert (found["programs"], found["compiles"], found["nodes"]) == (2, 4, [10, 18])
    assert found["seconds of a compile"] == 2 and found["without estimate"] == 0.25
    assert found["failures"] == {"timed out": 1} and found["messages"] == ["too long"]
    table = report.table(compiler.rows({"v3": found}))
    assert "10 to 18" in table and "1 timed out" in table and "25%" in table


def test_a_generation_that_always_fails_has_a_row():
    found = compiler.measure_compiles(
        lambda serialised, title: [{"failure": "crashed", "message": "abort"}] * len(serialised),
        [small_program(3)],
        "v9",
    )
    assert found["seconds of a compile"] is found["without estimate"] is None
    assert "2 crashed" in report.table(compiler.rows({"v9": found}))


def test_a_missing_compiler_is_reported(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert compiler.main(["--quick"]) == 1
    assert "pip install -e '.[compiler]'" in capsys.readouterr().err


def test_quick():
    for name in ("jax", "libtpu"):
        pytest.importorskip(name, reason=f"{name}, an optional requirement, is not installed")
    command = [sys.executable, str(BENCHMARKS / "compiler.py"), "--quick", "--processes", "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    assert list(result["generations"]) == ["v3"] and len(result["sizes"]) == 1
    for part in (result["generations"]["v3"], *result["sizes"].values()):
        assert part["compiles per minute"] > 0 and part["failures"] == {} and part["programs"] == 1
