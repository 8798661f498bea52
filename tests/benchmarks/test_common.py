"""Rules of every script: help, README, output, parts that are kept."""

import argparse
import re
import runpy
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from common import ceilings, clusters, command_line, options, report
from common.kept import Kept, finite, kept_parts
from fastslow.competition.metrics import kendall_tau
from fastslow.core.errors import DataError
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


def test_every_script_ends_with_one_line_for_an_error_of_the_user(monkeypatch, capsys):
    """No script starts its ``main`` in a way of its own; one that did would print a traceback."""
    started = [path for path in BENCHMARKS.rglob("*.py") if "\nif __name__ ==" in path.read_text()]
    last = 'if __name__ == "__main__":\n    run_main(main)\n'
    assert [path.name for path in started if not path.read_text().endswith(last)] == []
    assert {*BENCHMARKS.glob("*.py")} <= {*started}

    def refuse(arguments):
        raise DataError(arguments[0], "is missing", "Name another one")

    monkeypatch.setattr(sys, "argv", ["script.py", "runs/nope"])
    with pytest.raises(SystemExit, match="^1$"):
        command_line.run_main(refuse)
    assert capsys.readouterr().err == "error: runs/nope: is missing. Name another one\n"
    with pytest.raises(SystemExit, match="^1$"):
        command_line.run_main(lambda arguments: subprocess.run(["false"], check=True).returncode)
    assert capsys.readouterr().err == "error: a command ended with status 1, see above: false\n"
    with pytest.raises(SystemExit, match="^7$"):
        command_line.run_main(lambda arguments: 7)


def test_a_count_of_nothing_is_refused_by_every_script_with_quick_too(monkeypatch, capsys):
    """Each option of a number has a type with a least value; the imports are of the test of ``--help``."""
    numbers = re.compile(r"type=(int|float)\b")
    assert [path.name for path in BENCHMARKS.rglob("*.py") if numbers.search(path.read_text())] == []
    refused = {"verdict": "--searches", "scale": "--steps", "own_space": "--seeds", "gst": "--nodes"}
    refused |= {"inference": "--repeats", "rehearsal": "--distinct", "train_step_operations": "--threads"}
    for script, option in refused.items():
        monkeypatch.setattr(sys, "argv", [f"{script}.py", "--quick", option, "0"])
        with pytest.raises(SystemExit, match="2"):
            runpy.run_path(str(BENCHMARKS / f"{script}.py"), run_name="__main__")
        said = f"argument {option}: '0': give a whole number from 1 on"
        assert said in capsys.readouterr().err, script


def test_the_least_value_of_a_number():
    assert [options.at_least(1)("3"), options.at_least(0, float)("0.5")] == [3, 0.5]
    for least, kind, text in ((1, int, "2.5"), (1, int, "-1"), (0, float, "-1"), (0, float, "nan")):
        with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}': give .* from {least} on"):
            options.at_least(least, kind)(text)


def test_readme_names_every_script_and_every_table():
    readme = (BENCHMARKS / "README.md").read_text()
    scripts = [f"benchmarks/{path.name}" for path in BENCHMARKS.glob("*.py")]
    tables = [f"(tables/{path.name})" for path in (BENCHMARKS / "tables").glob("*.md")]
    assert [name for name in scripts + tables if name not in readme] == []


def test_finished_parts_are_read_again(tmp_path, monkeypatch):
    path = tmp_path / "kept.json"
    assert Kept(path).part("a", lambda: {"x": 1}) == {"x": 1}
    assert Kept(path).part("a", lambda: pytest.fail("made again")) == {"x": 1}
    script, given = str(BENCHMARKS / "few_shot.py"), argparse.Namespace(quick=False, draws=1)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    (tmp_path / "run" / "member").mkdir(parents=True)
    (tmp_path / "run" / "member" / "manifest.json").write_text("1")
    for _ in range(2):
        kept_parts(script, given, tmp_path / "run").part("a", lambda: 1)
    assert len(list((tmp_path / "results").iterdir())) == 1
    (tmp_path / "run" / "member" / "manifest.json").write_text("2")
    kept_parts(script, given, tmp_path / "run").part("a", lambda: 1)
    kept_parts(script, argparse.Namespace(quick=False, draws=2)).part("a", lambda: 1)
    kept_parts(script, argparse.Namespace(quick=True, draws=3)).part("a", lambda: 1)
    assert len(list((tmp_path / "results").iterdir())) == 3
    assert finite({"a": [np.float64("nan"), np.int64(2)]}) == {"a": [None, 2]}


def test_a_mean_over_collections_counts_both_searches_of_a_program_once():
    """With as many programs in each collection it is the mean of the programs' means."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 2)) + 3 * rng.normal(size=(6, 1))
    table = pd.DataFrame(values, columns=["a:x:default", "a:x:random"]).melt(ignore_index=False)
    programs = table["variable"].map(clusters.source_of) + table.index.astype(str)
    mean, error = clusters.collection_mean(table["value"], table["variable"], programs)
    means = values.mean(1)
    assert mean == pytest.approx(means.mean()) and error == pytest.approx(means.std(ddof=1) / 6**0.5)
    alone = [part.iloc[:1] for part in (table["value"], table["variable"], programs)]
    assert np.isnan(clusters.collection_mean(*alone)[1])


def test_a_mean_over_collections_of_other_sizes_weights_them_alike():
    values = pd.Series([1.0, 2.0, 3.0, 0.0, 1.0])
    collections = pd.Series(["a:x:default"] * 3 + ["a:y:default"] * 2)
    mean, error = clusters.collection_mean(values, collections, pd.Series([*"pqrst"]))
    assert mean == pytest.approx((2 + 0.5) / 2)
    assert error == pytest.approx((3 / 2 * 2 / 36 + 2 / 1 * 2 * 0.25 / 16) ** 0.5)


@pytest.mark.parametrize(("noise", "runs"), [(0.1, 1), (0.3, 1), (0.3, 3)])
def test_the_ceiling_of_distinct_configurations_is_the_tau_of_the_truth_with_their_means(noise, runs):
    rng = np.random.default_rng(1)
    true = rng.normal(size=1000)
    group = np.concatenate([*[np.arange(1000)] * runs, rng.integers(0, 1000, 700)])
    values = true[group] + noise * rng.normal(size=len(group))
    means = np.bincount(group, values) / np.bincount(group)
    found = ceilings.distinct_ceiling(np.exp(values), group)
    assert found == pytest.approx(kendall_tau(means, true), abs=0.02)
    assert np.isnan(ceilings.distinct_ceiling(np.exp(true), np.arange(1000))), "nothing is repeated"
