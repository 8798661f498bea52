"""The regression guard runs, and fails on what is worse than recorded."""

import copy
import json
import math

import numpy as np

import guard
from common.made_competition import write_competition
from fastslow.core.files import file_digest, read_json

RECORDED = {
    "scores": {"layout gnn": [0.50, 0.52, 0.54], "tile gnn": [0.9, 0.9, 0.9], "layout ensemble": [0.6]},
    "ratios": {"step": 4.0},
}


def test_a_worse_score_or_ratio_is_found_and_nothing_else():
    rows = [
        # standard deviation 0.02, of both means together 0.0163, three of them 0.049
        ("scores", "layout gnn", [0.46, 0.47, 0.48], "WORSE"),
        ("scores", "layout gnn", [0.47, 0.48, 0.49], "as recorded"),
        ("scores", "layout gnn", [0.56, 0.57, 0.58], "better"),
        ("scores", "tile gnn", [0.895, 0.895, 0.895], "as recorded"),  # seeds that agree by chance
        ("scores", "tile gnn", [0.885, 0.885, 0.885], "WORSE"),
        ("scores", "layout ensemble", [math.nan], "WORSE"),
        ("scores", "new model", [0.5], "not recorded"),
        ("scores", "tile gnn", None, "MISSING"),
        ("ratios", "step", 2.3, "WORSE"),
        ("ratios", "step", 2.5, "as recorded"),
        ("ratios", "step", 7.0, "better"),
        ("ratios", "step", math.nan, "WORSE"),
        ("ratios", "step", None, "MISSING"),
    ]
    for group, what, value, verdict in rows:
        measured = copy.deepcopy(RECORDED)
        measured[group][what] = value
        found = {row["what"]: row["verdict"] for row in guard.compare(RECORDED, measured)}
        assert found.pop(what) == verdict, (what, value)
        assert set(found.values()) == {"as recorded"}, (what, value)


def test_the_exit_status(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(guard, "RECORD", tmp_path / "guard.json")
    monkeypatch.setattr(guard, "measure_scores", lambda *_: RECORDED["scores"])
    monkeypatch.setattr(guard, "measure_ratios", lambda *_: RECORDED["ratios"])
    assert guard.main(["--record"]) == 0
    assert read_json(tmp_path / "guard.json")["scores"] == RECORDED["scores"]
    assert guard.main([]) == 0
    monkeypatch.setattr(guard, "measure_ratios", lambda *_: {"step": 1.0})
    assert guard.main([]) == 1
    printed = capsys.readouterr()
    assert "worse than recorded: step. Meant so: make guard SET=--record" in printed.err
    assert json.loads(printed.out.splitlines()[-1])["worse"] == ["step"]


def test_the_recorded_run_is_complete():
    recorded = read_json(guard.RECORD)
    for kind, models in (("layout", ("gnn", "ranker")), ("tile", ("gnn", "ranker"))):
        rule = max(np.mean(v) for what, v in recorded["scores"].items() if what.startswith(f"{kind} best"))
        for model in (*models, "ensemble"):
            scores = recorded["scores"][f"{kind} {model}"]
            assert len(scores) == (1 if model == "ensemble" else guard.SEEDS)
            assert np.mean(scores) > rule + guard.FLOOR, "a run that learns nothing guards nothing"
    assert all(ratio > 1.5 for ratio in recorded["ratios"].values())


def test_the_guard_runs(capsys):
    """It trains every model, which takes seconds."""
    assert guard.main(["--quick"]) == 0
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    recorded = read_json(guard.RECORD)
    assert measured["scores"].keys() == recorded["scores"].keys()
    assert measured["ratios"].keys() == recorded["ratios"].keys()


def test_made_up_data_are_the_same_every_time(tmp_path):
    sizes = {"train": 1, "valid": 1, "test": 2}
    roots = [write_competition(tmp_path / name, sizes, configs=7) for name in "ab"]
    digests = [
        {str(path.relative_to(root)): file_digest(path) for path in root.rglob("*.*")} for root in roots
    ]
    assert digests[0] == digests[1]
    assert write_competition(tmp_path / "c", sizes, configs=7, seed=1)
    assert file_digest(tmp_path / "c" / "solution.csv") != digests[0]["solution.csv"]
