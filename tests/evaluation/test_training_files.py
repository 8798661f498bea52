"""What a notebook reads of a training, and the error where that is missing."""

import json
import os
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.competition.metrics import ALL_METRICS
from fastslow.core.artifacts import write_manifest
from fastslow.core.errors import DataError
from fastslow.evaluation.training_files import read_metrics, wall_seconds
from helpers.good_artifacts import reseal


def test_metrics_of_the_evaluations_that_have_them(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    first, second = dict.fromkeys(ALL_METRICS, 0.25), dict.fromkeys(ALL_METRICS, 0.5)
    rows = [
        {"objective": "regression", "round": 5, "valid": 0.1},
        {"objective": "regression", "round": 9, "valid": 0.2, **first},
        {"objective": "pairwise", "round": 7, "valid": 0.3, **second},
    ]
    (run / "metrics.jsonl").write_text("{}")
    write_manifest(run, {"fingerprint": "any", "settings": {}, "inputs": {}, "outputs": {}})
    reseal(run, "metrics.jsonl")
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="metrics.jsonl: changed after it was written"):
        read_metrics("runs/mine")
    reseal(run, "metrics.jsonl")
    table = read_metrics("runs/mine")
    assert table.index.tolist() == [("regression", 9), ("pairwise", 7)]
    assert table.to_dict("records") == [first, second]
    monkeypatch.setitem(ALL_METRICS, "a later metric", lambda runtime, prediction: 0.0)
    assert read_metrics("runs/mine")["a later metric"].isna().all(), "it ended in a KeyError"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=6))
def test_wall_seconds_count_each_second_once(tmp_path_factory, intervals):
    seconds = {second for begin, length in intervals for second in range(begin, begin + length)}
    folders = [tmp_path_factory.mktemp("step") for _ in intervals]
    for folder, (begin, length) in zip(folders, intervals, strict=True):
        start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=begin)
        facts = {"start_time": start.isoformat(), "duration": length}
        (folder / "notebook.ipynb").write_text(json.dumps({"metadata": {"papermill": facts}}))
    assert wall_seconds([*folders, tmp_path_factory.getbasetemp()]) == len(seconds)


def test_a_notebook_that_is_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "notebook.ipynb")
    assert wall_seconds([tmp_path]) == 0.0
