"""A second library of trees: two lines register it, and everything that LightGBM's trees do works with it."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from fastslow.core.errors import DataError, SettingsError
from fastslow.rankers.libraries import LIBRARIES
from fastslow.runs.trained_ranker import read_ranker
from fastslow.steps.finished_run import FinishedRun
from fastslow.steps.ranker import train_ranker
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.steps.unseen import read_unseen
from helpers.runs import NAMES, make_features


class StumpTrees:
    """Gradient boosting of scikit-learn's trees of one split, kept as (column, threshold, low, high)."""

    def __init__(self, columns, stumps, data=None, rate=0.3):
        self.columns, self._stumps, self._data, self._rate = columns, stumps, data, rate

    @classmethod
    def begin(cls, train, bins, options, num_threads=0):
        rows = np.concatenate([part for part in train.rows if len(part)])
        return cls(train.columns, [], (rows, train), options.learning_rate)

    @classmethod
    def read(cls, path):
        return cls(**json.loads(Path(path).read_text()))

    def grow(self):
        rows, sample = self._data
        output = self.predict(rows, 0, len(self._stumps))
        if sample.binary:
            output = 1 / (1 + np.exp(-output))
        tree = DecisionTreeRegressor(max_depth=1, random_state=0)
        tree.fit(rows, sample.labels - output, sample_weight=sample.weights)
        inner = tree.tree_
        if inner.node_count == 1:
            return True
        low, high = (self._rate * float(inner.value[leaf, 0, 0]) for leaf in (1, 2))
        self._stumps.append([int(inner.feature[0]), float(inner.threshold[0]), low, high])
        return False

    def predict(self, rows, start, count):
        total = np.zeros(len(rows))
        for column, threshold, low, high in self._stumps[start : start + count]:
            total += np.where(rows[:, column] <= threshold, low, high)
        return total

    def contributions(self, rows, count):
        values = np.zeros(rows.shape)
        for column, threshold, low, high in self._stumps[:count]:
            values[:, column] += np.where(rows[:, column] <= threshold, low, high)
        return values

    def gain(self, count):
        gain = np.zeros(len(self.columns))
        for column, _, low, high in self._stumps[:count]:
            gain[column] += (high - low) ** 2
        return gain

    def save(self, path, count):
        Path(path).write_text(json.dumps({"columns": self.columns, "stumps": self._stumps[:count]}))


@pytest.mark.parametrize("objective", ["pairwise", "regression"])
def test_it_trains_is_stored_and_ranks_new_files(tmp_path, monkeypatch, undrawn, objective):
    monkeypatch.setitem(LIBRARIES, "stumps", StumpTrees)
    features = make_features(tmp_path, "layout:xla:random", NAMES | {"train": ("a", "b")})
    few = {"num_iterations": 12, "train_on": "collection", "objective": objective}
    folder = tmp_path / "ranker"
    settings = RankerSettings(features=str(features.folder), folder=str(folder), library="stumps", **few)
    manifest = train_ranker(settings)
    assert manifest["settings"]["library"] == "stumps" and 0 < manifest["trees"] <= 12
    fitted = read_ranker(folder)
    stored = fitted.predict_split(features, "test")["t"]
    assert np.ptp(stored) > 0 and "stumps" in (folder / "model.txt").read_text()
    paths = [(tmp_path / "data/npz_all/npz/layout/xla/random/test/t.npz")]
    ranked = FinishedRun(folder).predict(read_unseen(folder, paths))["t"]
    np.testing.assert_array_equal(ranked, stored)
    monkeypatch.delitem(LIBRARIES, "stumps")
    with pytest.raises(DataError, match="'stumps' grew its trees; this code has lightgbm. Register"):
        read_ranker(folder)


def test_a_library_that_is_not_registered_is_refused():
    with pytest.raises(SettingsError, match="'lightgmb' is not one of lightgbm; did you mean 'lightgbm'"):
        RankerSettings(library="lightgmb")
