"""The benchmark of Graph Segment Training measures a step of every variant."""

import json

import gst


def test_steps_are_measured(monkeypatch, capsys):
    monkeypatch.setattr(gst, "measured", lambda changes: gst.step_cost(gst.parse(["--quick", *changes])))
    assert gst.main(["--quick"]) == 0
    cost = json.loads(capsys.readouterr().out.splitlines()[-1])["cost"]
    rows = {(row["variant"], row["border"]): row for row in cost}
    assert ("none", "halo") in rows and len(rows) >= 3
    assert all(row["seconds"] > 0 and "exit status" not in row for row in rows.values())
    assert {row.get("segments", 9) for row in rows.values()} == {9}, "segments of a graph of 900 nodes"
