"""The benchmark of Graph Segment Training runs through every section."""

import json
import subprocess
import sys

import pytest

from common.segment_quality import named, plot_ages
from fastslow.core.settings import PROJECT


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    script = str(PROJECT / "benchmarks" / "gst.py")
    command = [sys.executable, script, "--quick"]
    place = tmp_path_factory.mktemp("gst")
    run = subprocess.run(command, capture_output=True, text=True, cwd=place, timeout=3600)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_a_step_holds_less_than_that_of_the_whole_graph(result):
    """As far as a graph of 900 nodes shows it: what is counted is how many segments there are."""
    rows = {(row["variant"], row["border"]): row for row in result["cost"]}
    assert ("none", "halo") in rows and len(rows) >= 3
    assert all(row["seconds"] > 0 and "exit status" not in row for row in rows.values())
    assert {row.get("segments", 9) for row in rows.values()} == {9}


def test_every_training_has_its_scores(result):
    assert [row["settings"].get("segment_training") for row in result["quality"]] == [None, "edges", "one"]
    for row in result["quality"]:
        (seed,) = row["seeds"]
        assert -1 <= seed["tau"] <= 1 and 0 <= seed["OPA"] <= 1


def test_settings_are_named_without_what_all_share():
    settings = {"segment_training": "gst+efd", "segment_partition": "metis", "segment_nodes": 100}
    assert named(settings) == "gst+efd partition=metis"
    assert named({}) == "whole graph"


def test_ages_are_plotted_for_those_that_read_the_table(tmp_path):
    age = {"age_median": 4.0, "missing": 0.5}
    rows = [
        {"settings": {}, "seeds": [{"tau": 0.5}]},
        {"settings": {"segment_training": "gst+e", "segment_nodes": 9}, "seeds": [{"tau": 0.4, "age": age}]},
        {
            "settings": {"segment_training": "gst+e", "segment_nodes": 5},
            "seeds": [{"tau": 0.4, "age": {**age, "age_median": None}}],
        },
    ]
    plot_ages(rows, tmp_path / "age.png")
    assert (tmp_path / "age.png").stat().st_size > 1000
