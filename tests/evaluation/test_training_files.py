"""What a notebook reads of a training, and the error where that is missing."""

import json

import pandas as pd
import pytest

from fastslow.competition.metrics import ALL_METRICS
from fastslow.core.artifacts import write_manifest
from fastslow.core.errors import DataError
from fastslow.evaluation.training_files import read_history, read_metrics
from helpers.good_artifacts import reseal

ROWS = [{"epoch": 2, "loss": 1.5, "valid": 0.25}, {"epoch": 4, "loss": 1.0, "valid": 0.5}]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    folder = tmp_path / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    write_manifest(folder, {"fingerprint": "any", "settings": {}, "inputs": {}, "outputs": {}})
    reseal(folder, "metrics.jsonl")
    return folder


def test_history_of_a_run(run):
    pd.testing.assert_frame_equal(read_history("runs/mine"), pd.DataFrame(ROWS))


def test_metrics_of_the_evaluations_that_have_them(run):
    first, second = dict.fromkeys(ALL_METRICS, 0.25), dict.fromkeys(ALL_METRICS, 0.5)
    rows = [
        {"objective": "regression", "round": 5, "valid": 0.1},
        {"objective": "regression", "round": 9, "valid": 0.2, **first},
        {"objective": "pairwise", "round": 7, "valid": 0.3, **second},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="metrics.jsonl: changed after it was written"):
        read_metrics("runs/mine")
    reseal(run, "metrics.jsonl")
    table = read_metrics("runs/mine")
    assert table.index.tolist() == [("regression", 9), ("pairwise", 7)]
    assert table.to_dict("records") == [first, second]


def test_what_is_missing_is_named(run):
    (run / "metrics.jsonl").unlink()
    with pytest.raises(DataError, match="metrics.jsonl: lost.*Train this model again"):
        read_history("runs/mine")
    (run / "manifest.json").unlink()
    with pytest.raises(DataError, match="mine: not finished"):
        read_history("runs/mine")
