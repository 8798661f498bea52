"""The benchmark of Graph Segment Training runs through every section."""

import json

import pytest

import gst
from common.segment_quality import named
from helpers.workspace import cut_sample


@pytest.fixture
def result(tmp_path, monkeypatch, capsys):
    """The result of both sections, each variant measured in this process."""
    cut_sample(tmp_path / "data" / "sample")
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    monkeypatch.setattr(gst, "measured", lambda changes: gst.step_cost(gst.parse(["--quick", *changes])))
    assert gst.main(["--quick"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_steps_are_measured_and_trainings_scored(result):
    rows = {(row["variant"], row["border"]): row for row in result["cost"]}
    assert ("none", "halo") in rows and len(rows) >= 3
    assert all(row["seconds"] > 0 and "exit status" not in row for row in rows.values())
    assert {row.get("segments", 9) for row in rows.values()} == {9}, "segments of a graph of 900 nodes"
    assert [row["settings"].get("segment_training") for row in result["quality"]] == [None, "edges", "one"]
    for row in result["quality"]:
        (seed,) = row["seeds"]
        assert -1 <= seed["tau"] <= 1 and 0 <= seed["OPA"] <= 1


def test_settings_are_named():
    settings = {"segment_training": "gst+efd", "segment_partition": "metis", "segment_nodes": 100}
    assert named(settings) == "gst+efd partition=metis" and named({}) == "whole graph"
