"""Weights for left-out programs are chosen on the others only, with one weight for all seeds of a model."""

import json
import shutil

import numpy as np
import pytest

import ensemble
from fastslow.competition.catalog import get_collection
from fastslow.core.errors import DataError
from fastslow.ensemble.baselines import SINGLE
from fastslow.runs.features_folder import Features
from fastslow.steps.ensemble import build_ensemble
from helpers.runs import ensemble_settings, make_features, random_scores, write_run


@pytest.fixture
def members(tmp_path, monkeypatch):
    """A run of three members, two of them seeds of one model, whose valid programs are ``v`` and ``w``."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    made = make_features(tmp_path, "layout:xla:default")
    folder = tmp_path / "features/sample/layout-xla-default"
    shutil.copytree(made.folder, folder)
    features, rng = Features(folder), np.random.default_rng(0)
    runs = [
        write_run(tmp_path / f"runs/sample/{name}", features, random_scores(features, rng, 0.5), **settings)
        for name, settings in (("gnn-s0", {"seed": 0}), ("gnn-s1", {"seed": 1}), ("ranker-s0", {"trees": 9}))
    ]
    place = tmp_path / "runs/sample/ensemble-layout-xla-default"
    build_ensemble(ensemble_settings(features, place, runs))
    return ensemble.Members(tmp_path / "runs/sample", made.collection)


class OfValid:
    """Valid programs in place of the further ones."""

    def __init__(self, run, collection, number):
        self.members = ensemble.Members(run, collection, weak=True)

    def taus(self, normalisation, weights):
        return self.members.tau(["v", "w"], normalisation, weights)


def test_the_table(members, capsys, monkeypatch):
    monkeypatch.setattr(ensemble, "Further", OfValid)
    assert ensemble.main(["--quick"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = {row["weights"].removesuffix(", min_max"): row for row in result["Left-out valid programs"]}
    kinds = ["gnn only", "ranker only"]
    searched = ["a weight for each member", ensemble.SEARCHED]
    assert {*rows} == {*kinds, ensemble.EQUAL, ensemble.PULLED, *searched}
    tau = np.mean([*members.tau(["v", "w"], "min_max", {"gnn-s0": 0.5, "gnn-s1": 0.5}).values()])
    assert rows["gnn only"]["layout:xla:default"] == f"{tau:.3f}" == rows["gnn only"]["mean"]
    default = float(rows[ensemble.PULLED]["mean"])
    gain = float(rows["gnn only"]["minus the default"].split()[0])
    assert gain == pytest.approx(tau - default, abs=0.002) and not rows[ensemble.PULLED]["minus the default"]
    for title in (*ensemble.FURTHER, *ensemble.LEFT_OUT):
        assert {row["weights"] for row in result[title]} >= {f"{kind}, min_max" for kind in kinds}
    (alone,) = (row for row in result["Further programs"] if row["weights"] == "gnn only, min_max")
    assert alone["mean"] == f"{tau:.3f}"


def test_the_members_predict_further_programs_and_a_weak_one_is_there(home, monkeypatch):
    monkeypatch.setattr(ensemble, "MORE", "data/sample")
    collection = get_collection("layout:xla:default")
    further = ensemble.Further(home / "runs/smoke", collection, 3)
    members = ensemble.Members(home / "runs/smoke", collection, weak=True)
    assert {*further.predictions} >= {*members.predictions} > {SINGLE}
    assert 1 <= len(further.labels) <= 3
    for weights in (way([*members.labels], "rank") for way in ensemble.ways(members).values()):
        assert {*further.taus("rank", weights)} == {*further.labels}


def test_the_run_is_a_folder_as_in_other_scripts(members, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ensemble, "Further", OfValid)
    assert ensemble.main(["--quick", "--run", "runs/sample"]) == 0
    assert ensemble.main(["--quick", "--run", str(tmp_path / "runs/sample")]) == 0
    by_name, by_path = (line for line in capsys.readouterr().out.splitlines() if line.startswith("{"))
    assert by_name == by_path
    with pytest.raises(DataError, match=f"^{tmp_path}/runs/nope: no such folder.*make submit"):
        ensemble.main(["--quick", "--run", "runs/nope"])


def test_what_is_left_out_chooses_no_weight(members):
    asked = []
    for way in ensemble.ways(members).values():
        weights = way(["v"], "rank")
        assert sum(weights.values()) == pytest.approx(1)
        members.labels["w"] = members.labels["w"][::-1]
        assert way(["v"], "rank") == weights
        asked.append(weights)
    assert asked[-1]["gnn-s0"] == asked[-1]["gnn-s1"]


def test_one_architecture_is_refused(members):
    members.labels = {"net_a": members.labels["v"], "net_b": members.labels["w"]}
    with pytest.raises(DataError, match="the same architecture"):
        ensemble.left_out(members, "rank")
