"""The scores file: written by any model, refused where it does not fit the features."""

import numpy as np
import pytest

from fastslow.core.errors import DataError
from fastslow.evaluation.predictions import (
    PREDICTIONS,
    check_predictions,
    read_predictions,
    write_predictions,
)


class Features:
    """Stands for a features folder: what the check asks of it."""

    def num_configs(self, split):
        return {"valid": {"a": 3, "unet_3d.4x4.bf16": 2}, "test": {"t": 4}}[split]


def good():
    return {
        "valid": {"a": np.array([3.0, 1.0, 2.0]), "unet_3d.4x4.bf16": np.array([0.0, 1.0])},
        "test": {"t": np.arange(4.0)},
    }


def test_scores_come_back_as_float64(tmp_path):
    scores = good()
    scores["test"]["t"] = scores["test"]["t"].astype(np.float32)
    write_predictions(tmp_path, {**scores, "train": {"x": np.ones(2)}})  # train is nobody's business
    read = read_predictions(tmp_path)
    assert {split: list(graphs) for split, graphs in read.items()} == {
        "valid": ["a", "unet_3d.4x4.bf16"],
        "test": ["t"],
    }
    for split, graphs in good().items():
        for name, score in graphs.items():
            np.testing.assert_array_equal(read[split][name], score)
            assert read[split][name].dtype == np.float64
    check_predictions(tmp_path, read, Features())


@pytest.mark.parametrize(
    ("split", "name", "score", "message"),
    [
        ("valid", "a", None, "no scores for valid graph a"),
        ("test", "t", None, "no scores for test graph t"),
        ("test", "a", np.ones(3), "scores for a, which is no test graph here"),
        ("valid", "b", np.ones(3), "scores for b, which is no valid graph here"),
        ("valid", "a", np.ones(4), r"valid graph a has scores of shape \(4,\), \(3,\) wanted"),
        ("test", "t", np.ones((4, 1)), r"test graph t has scores of shape \(4, 1\), \(4,\) wanted"),
        ("valid", "a", np.array([1, np.nan, 2]), "valid graph a has a score that is not finite"),
        ("test", "t", np.array([1, 2, 3, -np.inf]), "test graph t has a score that is not finite"),
    ],
)
def test_scores_that_do_not_fit_are_refused_by_name(tmp_path, split, name, score, message):
    scores = good()
    if score is None:
        del scores[split][name]
    else:
        scores[split][name] = score
    write_predictions(tmp_path, scores)
    with pytest.raises(DataError, match=f"{tmp_path}.*: {message}. Train this model again"):
        check_predictions(tmp_path, read_predictions(tmp_path), Features())


def test_a_missing_or_broken_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="predictions.npz: no such file. Train this model again"):
        read_predictions(tmp_path)
    write_predictions(tmp_path, good())
    data = (tmp_path / PREDICTIONS).read_bytes()
    for length in (0, 10, len(data) // 2, len(data) - 1):
        (tmp_path / PREDICTIONS).write_bytes(data[:length])
        with pytest.raises(DataError, match="predictions.npz: cannot be read.*Train this model again"):
            read_predictions(tmp_path)


@pytest.mark.parametrize("key", ["train/a", "a", "valid"])
def test_a_key_that_names_no_split_and_graph_is_refused(tmp_path, key):
    np.savez(tmp_path / PREDICTIONS, **{key: np.ones(3)})
    with pytest.raises(DataError, match=f": {key} names no graph of valid or test"):
        read_predictions(tmp_path)
