"""The benchmark of the additive ranker: it runs, repeats no training, and averages as documented."""

import json

import numpy as np
import pytest

import additive_ranker
from common import folds
from fastslow.competition.metrics import kendall_tau
from fastslow.features.store import Features
from helpers.workspace import cut_sample

QUICK = ["--quick", "--threads", "1"]
FEW = {"train": 4, "valid": 2, "test": 1}


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_it_runs_and_repeats_no_training(tmp_path, monkeypatch, capsys):
    options = additive_ranker.parse_arguments(
        [*QUICK, "--gnn", "--data-root", str(cut_sample(tmp_path / "data", FEW))]
    )
    additive_ranker.run(options, tmp_path)
    first = last_line(capsys)
    wanted = ["regression", "additive", "gnn", "ranker", "ranker + additive", "gnn + ranker"]
    assert list(first["tau"]) == [*wanted, "gnn + additive", "gnn + ranker + additive"]
    features = Features(next((tmp_path / "features" / "additive_ranker").iterdir()) / "layout-xla-random")
    every = [name for split in folds.POOLED for name in features.names(split)]
    for model, summary in first["tau"].items():
        graphs = {name: tau for run in first["runs"] for name, tau in run["tau"][model].items()}
        assert sorted(graphs) == sorted(every)
        assert summary["layout-xla-random"] == pytest.approx([np.mean(list(graphs.values()))], rel=1e-3)
    for name in ("train_rankers", "train_additive", "train_network"):
        monkeypatch.setattr(additive_ranker, name, lambda *_: pytest.fail("trained"))
        getattr(additive_ranker, name).__name__ = name
    additive_ranker.run(options, tmp_path)
    assert last_line(capsys)["tau"] == first["tau"]


def test_members_are_normalised_per_graph_and_the_best_objective_is_the_ranker():
    labels = {"a": np.array([1.0, 2.0, 3.0]), "b": np.array([1.0, 2.0, 3.0])}
    predictions = {
        "regression": {"a": [1.0, 2.0, 3.0], "b": [3.0, 2.0, 1.0]},
        "quantile": {"a": [0.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]},
        "additive": {"a": [300.0, 200.0, 100.0], "b": [100.0, 300.0, 200.0]},
    }
    found = additive_ranker.taus(predictions, labels)
    assert found["ranker"] == found["quantile"] == {"a": 1.0, "b": 1.0}
    together = np.array([0, 2 / 3, 1]) + np.array([1, 0.5, 0])
    assert found["ranker + additive"]["a"] == pytest.approx(kendall_tau(labels["a"], together))


def test_a_graph_counts_once_and_a_collection_once():
    runs = [
        {"collection": "x", "seed": 0, "tau": {"m": {"a": 0.1, "b": 0.3}}},
        {"collection": "x", "seed": 0, "tau": {"m": {"c": 0.8}}},
        {"collection": "y", "seed": 0, "tau": {"m": {"d": 0.2}}},
    ]
    assert additive_ranker.summarise(runs) == {
        "m": {"x": [pytest.approx(0.4)], "y": [0.2], "mean": [pytest.approx(0.3)]}
    }
