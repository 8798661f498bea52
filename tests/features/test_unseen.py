"""Files that a features folder never saw are built as its own were and stand in for its test split."""

import numpy as np
import pytest

from fastslow.core.errors import DataError
from fastslow.runs.features_folder import Features
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.unseen import UnseenGraphs, read_unseen
from helpers.competition_files import layout_arrays, write_data_root, write_npz


def test_they_are_built_with_the_settings_of_the_folder(tmp_path):
    root = write_data_root(tmp_path / "data", "layout:xla:random")
    settings = FeatureSettings(data_root=str(root), folder=str(tmp_path / "features"), workers=1, hops=0)
    build_features(settings)
    stored = Features(tmp_path / "features")
    path = root / "npz_all/npz/layout/xla/random/test/t.npz"
    unseen = read_unseen(stored.folder, [path, write_npz(tmp_path / "new.npz", layout_arrays(7))])
    assert unseen.names("test") == ["t", "new"] and unseen.names("train") == []
    assert unseen.num_configs("test") == {"t": 8, "new": 8}
    assert (unseen.recipe["fingerprint"], unseen.collection) == (stored.fingerprint, stored.collection)
    stored_graph, again = stored.graph("test", "t"), unseen.graph("test", "t")
    arrays = {field: value for field, value in vars(stored_graph).items() if isinstance(value, np.ndarray)}
    arrays |= {"config_feat": stored_graph.config_feat, "config_row": stored_graph.config_row}
    np.testing.assert_array_equal(stored_graph.choices.layout_codes(), again.choices.layout_codes())
    for field, value in arrays.items():
        np.testing.assert_array_equal(value, getattr(again, field), err_msg=field)
    assert unseen.graph("test", "new").file_runtime.min() > 0


def test_some_configurations_of_a_graph(features):
    graph = features.graph("test", "t").take([2, 0])
    unseen = UnseenGraphs(features.folder, [graph])
    assert unseen.num_configs("test") == {"t": 2} and unseen.graph("test", "t") is graph


def test_a_broken_file_is_named(features, tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"broken\.npz"):
        read_unseen(features.folder, [tmp_path / "broken.npz"])
