"""The benchmark of real size estimates hours by files."""

import json

import pytest

import scale
from common.options import network_settings
from fastslow.steps.network_settings import TrainSettings


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_hours_follow_from_a_line_over_the_nodes(monkeypatch, capsys):
    rows = [
        {"file": "a", "source": "xla", "nodes": 1_000} | {slug: (1.0, 2.0) for slug in scale.GRAPHS},
        {"file": "b", "source": "nlp", "nodes": 3_000} | {slug: (3.0, 6.0) for slug in scale.GRAPHS},
    ]
    assert scale.at_mean(rows, "xla", lambda row: row["layout-xla-random"][0]) == pytest.approx(14.105)
    assert scale.at_mean(rows[:1], "xla", lambda row: row["layout-xla-random"][0]) == 1.0
    monkeypatch.setattr(scale, "seconds_of", lambda path, steps: rows.pop(0))
    assert scale.main(["--quick"]) == 0
    result = last_line(capsys)
    hours = {row["network"]: row["CPU hours"] for row in result["hours"]}
    train, valid = scale.GRAPHS["layout-xla-default"]
    settings = TrainSettings(**network_settings("kaggle", {}, "layout-xla-default")[0])
    epoch = train * 14.105 + valid * 28.21 / settings.evaluate_every
    assert hours["layout-xla-default"] == pytest.approx(settings.epochs * epoch / 3600, rel=1e-3)
    assert result["CPU hours"] == pytest.approx(3 * sum(hours.values()), rel=1e-3)
