"""The benchmark of published baselines on a cut sample: every row, and finished trainings are found again."""

import json

import pytest

import baselines
from fastslow.core.errors import SettingsError
from fastslow.workflow.published_presets import PUBLISHED
from helpers.workspace import cut_sample


def measure(capsys, monkeypatch, place, *arguments):
    monkeypatch.setattr("common.report.RESULTS", place / "results")
    assert baselines.main([*arguments, "--data-root", str(place)]) == 0
    printed = capsys.readouterr().out
    return printed, json.loads(printed.splitlines()[-1])


def test_a_baseline_is_scored_beside_the_best_single_feature(capsys, monkeypatch, tmp_path):
    cut_sample(tmp_path)
    presets = ["--presets", "tpugraphs-late-join", "sample"]
    arguments = [*presets, "--set", "gnn.epochs=1", "gnn.layout.hidden_channels=8"]
    with pytest.raises(SettingsError, match="preset tpugraphs-late-join has no such step"):
        measure(capsys, monkeypatch, tmp_path, *arguments)
    printed, found = measure(capsys, monkeypatch, tmp_path, *arguments[:-1])
    rows = {(row["model"], row["collection"], row["split"]): row for row in found["rows"]}
    assert {model for model, _, _ in rows} == {"tpugraphs-late-join", "sample", baselines.SINGLE}
    assert len(rows) == len(found["rows"]) == 2 * (1 + 5 + 5) and found["left"] == 0
    for (_, collection, _), row in rows.items():
        kind = collection.partition(":")[0]
        assert all(row[name] == row[name] for name in baselines.SHOWN[kind])
    assert "| tpugraphs-late-join |" in printed and "layout: means" in printed
    monkeypatch.setattr(baselines, "train", None)  # not trained again
    assert measure(capsys, monkeypatch, tmp_path, *arguments[:-1])[1]["rows"] == found["rows"]


def test_every_baseline_of_one_kind_is_measured():
    assert {*baselines.PRESETS} == {"sample", *PUBLISHED} - {"tpugraphs"}
