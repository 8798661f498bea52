"""The benchmark of real size runs through every stage of one made graph."""

import json

import pytest

import scale
from common import report


def test_every_stage_runs_on_the_made_graph(monkeypatch, capsys):
    def in_this_process(script, *arguments, **environment):
        return scale.run_stage(scale.parse(["--quick", *arguments]))

    monkeypatch.setattr(report, "in_process", in_this_process)
    assert scale.main(["--quick"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    made, stages = result["made"], result["stages"]
    assert list(stages) == ["features", "training", "inference", "ranker"]
    features, training = stages["features"], stages["training"]
    assert 0 < features["nodes kept"] < made["nodes"]
    assert 0 < features["groups"] <= made["configurable"]
    # distinct ones are kept, and every one of the file is predicted
    assert features["configs"] <= stages["inference"]["configs"] == made["configs"]
    table_bytes = 4 * features["configs"] * stages["ranker"]["columns"]
    assert stages["ranker"]["table GB"] == pytest.approx(table_bytes / 2**30, rel=1e-3)
    assert all(found["peak GB"] > 0 for found in stages.values())
    held = training["GB held, by twentieths of the steps"]
    assert len(held) == made["steps"] and min(held) > 0
