"""Stacking: nothing of a fold is trained on, the column is the networks', finished trainings are found."""

import json
import sys

import numpy as np
import pytest

from fastslow.config import PROJECT

sys.path.insert(0, str(PROJECT / "benchmarks"))

import stacking  # noqa: E402
from folds import family_of  # noqa: E402

OPTIONS = stacking.parse_arguments(["--quick", "--threads", "1"])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the features and the trainings of a quick run."""
    folder = tmp_path_factory.mktemp("stacking")
    stacking.run(OPTIONS, folder)
    return folder


def test_held_out_families_are_neither_trained_on_nor_valid(place):
    source = stacking.Source(OPTIONS, "xla", place)
    dealt = []
    for families in source.folds:
        for features in source.features:
            fold = stacking.OutOfFold(features.folder, families)
            held_out = fold.names(stacking.HELD_OUT)
            assert {family_of(name) for name in held_out} <= families
            assert not families & {family_of(name) for name in fold.names("train")}
            assert sorted(held_out + fold.names("train")) == sorted(features.names("train"))
            assert fold.names("valid") == features.names("valid") and fold.names("test") == []
            assert fold.graph(stacking.HELD_OUT, held_out[0]).runtime.min() > 0
            dealt += [(features.folder.name, name) for name in held_out]
    assert sorted(dealt) == sorted((f.folder.name, n) for f in source.features for n in f.names("train"))


def test_a_train_graph_is_scored_by_the_network_of_its_fold(place):
    source = stacking.Source(OPTIONS, "xla", place)
    _, scores = source.networks(0)
    for features in source.features:
        for split in ("train", "valid", "test"):
            assert {
                name: len(scores[f"{features.folder.name}/{split}/{name}"]) for name in features.names(split)
            } == features.num_configs(split)
    for families in source.folds:
        for key, score in source.network(0, families)[1].items():
            if "/" in key:
                slug, split, name = key.split("/")
                assert split == stacking.HELD_OUT and family_of(name) in families
                np.testing.assert_array_equal(scores[f"{slug}/train/{name}"], score)


@pytest.mark.parametrize("scale", stacking.SCALES)
def test_the_column_is_the_scores_drawn_like_the_rows(scale):
    scores = {"own/train/a": np.arange(9.0), "other/train/b": -np.arange(4.0)}
    scaled = {name: stacking.SCALES[scale](score).astype(np.float32) for name, score in scores.items()}
    chosen = stacking.draw_configs(9, 5, 3, "a")
    names, rows = ["a", "other/b"], [np.zeros((5, 2), np.float32), np.ones((4, 2), np.float32)]
    table = stacking.Table(names, rows, [np.ones(5), np.ones(4)], ["x", "y"])
    wide = stacking.widen(table, "own", "train", scores, stacking.SCALES[scale], seed=3)
    assert wide.columns == ["x", "y", stacking.COLUMN]
    np.testing.assert_array_equal(wide.rows[0][:, 2], scaled["own/train/a"][chosen])
    np.testing.assert_array_equal(wide.rows[1][:, 2], scaled["other/train/b"])
    assert wide.rows[0].dtype == np.float32 and (wide.rows[1][:, :2] == 1).all()


def test_finished_trainings_are_found_and_every_model_has_its_row(place, monkeypatch, capsys):
    monkeypatch.setattr(stacking, "_keep", lambda *_: pytest.fail("trained again"))
    stacking.run(OPTIONS, place)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = {(row["collection"], row["model"]): row for row in result["table"]}
    models = ["gnn", "ranker", "stacked", *stacking.ENSEMBLES]
    assert set(rows) == {(f"layout:xla:{s}", model) for s in ("random", "default") for model in models}
    for collection in ("layout:xla:random", "layout:xla:default"):
        tau = {model: rows[collection, model]["valid"][0] for model in models}
        for ensemble, members in stacking.ENSEMBLES.items():
            assert tau[ensemble] >= max(tau[member] for member in members) - 1e-4
    gain = result["above the ensemble"]["ensemble of three"]
    assert len(gain["valid"]) == len(gain["test"]) == 2
