"""Rules of every script: help, README, output, parts that are kept."""

import argparse
import runpy
import sys

import numpy as np
import pytest

from common import report
from common.kept import Kept, finite, kept_parts
from fastslow.core.settings import PROJECT

BENCHMARKS = PROJECT / "benchmarks"


def test_help_of_every_script_from_any_folder(tmp_path, monkeypatch, capsys):
    """In this process: the imports of each would take seconds."""
    monkeypatch.chdir(tmp_path)
    for script in sorted(BENCHMARKS.glob("*.py")):
        monkeypatch.setattr(sys, "argv", [script.name, "--help"])
        with pytest.raises(SystemExit, match="0"):
            runpy.run_path(str(script), run_name="__main__")
        assert "--quick" in capsys.readouterr().out, script.name


def test_readme_names_every_script_and_every_table():
    readme = (BENCHMARKS / "README.md").read_text()
    scripts = [f"benchmarks/{path.name}" for path in BENCHMARKS.glob("*.py")]
    tables = [f"(tables/{path.name})" for path in (BENCHMARKS / "tables").glob("*.md")]
    assert [name for name in scripts + tables if name not in readme] == []


def test_finished_parts_are_read_again(tmp_path, monkeypatch):
    path = tmp_path / "kept.json"
    assert Kept(path).part("a", lambda: {"x": 1}) == {"x": 1}
    assert Kept(path).part("a", lambda: pytest.fail("made again")) == {"x": 1}
    script, options = str(BENCHMARKS / "few_shot.py"), argparse.Namespace(quick=False, draws=1)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    (tmp_path / "run" / "member").mkdir(parents=True)
    (tmp_path / "run" / "member" / "manifest.json").write_text("1")
    for _ in range(2):
        kept_parts(script, options, tmp_path / "run").part("a", lambda: 1)
    assert len(list((tmp_path / "results").iterdir())) == 1
    (tmp_path / "run" / "member" / "manifest.json").write_text("2")
    kept_parts(script, options, tmp_path / "run").part("a", lambda: 1)
    kept_parts(script, argparse.Namespace(quick=False, draws=2)).part("a", lambda: 1)
    kept_parts(script, argparse.Namespace(quick=True, draws=3)).part("a", lambda: 1)
    assert len(list((tmp_path / "results").iterdir())) == 3
    assert finite({"a": [np.float64("nan"), np.int64(2)]}) == {"a": [None, 2]}
