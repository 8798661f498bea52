"""The compact store: what was written is read, what was not finished is not."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fastslow.competition.tied_choices import Choices
from fastslow.core.artifacts import write_manifest
from fastslow.core.errors import DataError, SettingsError
from fastslow.features.graph import Graph
from fastslow.runs import features_folder as store
from fastslow.runs.features_folder import Features, graph_files, is_written, read_graph, write_graph
from fastslow.runs.stored_rows import StoredRows
from helpers.good_artifacts import reseal
from helpers.random_graphs import make_graph

STRUCTURE = (
    np.array([[1, 0], [2, 1]]),
    3,
    np.array([2, 1]),
    np.arange(24).reshape(4, 2, 3).astype(np.uint8) % 3,
)


@pytest.fixture
def graph():
    return make_graph(STRUCTURE)


def test_rows_are_expanded_to_the_file_and_taken_alone(graph):
    merged = replace(graph, config_row=np.array([2, 0, 0, 1, 3, 2], np.int32))
    assert merged.expand(np.array([10, 11, 12, 13])).tolist() == [12, 10, 10, 11, 13, 12]
    with pytest.raises(ValueError, match="6 values of .*, which has 4 rows"):
        merged.expand(np.arange(6))
    assert (np.bincount(merged.config_row).tolist(), merged.config_ids.tolist()) == (
        [2, 1, 2, 1],
        [1, 3, 0, 4],
    )
    part = merged.take(np.array([3, 1]))
    np.testing.assert_array_equal(part.choices.layout_codes(), graph.choices.layout_codes([3, 1]))
    assert (part.config_row.tolist(), part.num_configs) == ([0, 1], 2)
    np.testing.assert_array_equal(part.file_runtime, graph.runtime[[3, 1]])


def assert_equal(read: Graph | Choices, written: Graph | Choices):
    for name, value in vars(written).items():
        if name == "choices":
            assert_equal(read.choices, value)
        else:
            np.testing.assert_array_equal(getattr(read, name), value)
        if isinstance(value, np.ndarray):
            assert getattr(read, name).dtype == value.dtype


def test_a_graph_comes_back_with_its_large_arrays_on_disk(tmp_path, graph):
    write_graph(tmp_path, "train", graph, "mark")
    read = read_graph(tmp_path, "train", "random")
    assert_equal(read, graph)
    assert isinstance(read.choices.values, StoredRows) and isinstance(read.config_feat.packed, StoredRows)
    np.testing.assert_array_equal(read.choices.layout_codes([3, 0]), graph.choices.layout_codes([3, 0]))
    assert (read.num_nodes, read.num_configs) == (3, 4)


def test_only_what_has_the_mark_counts_as_written(tmp_path, graph):
    assert not is_written(tmp_path, "train", "random", "mark")
    write_graph(tmp_path, "train", graph, "mark")
    assert is_written(tmp_path, "train", "random", "mark")
    assert not is_written(tmp_path, "train", "random", "other")
    assert not is_written(tmp_path, "valid", "random", "mark")


@pytest.mark.parametrize("file", ["random.npz", "random.choices.npy", "random.config_feat.npy"])
def test_a_lost_file_is_missed(tmp_path, graph, file):
    write_graph(tmp_path, "train", graph, "mark")
    (tmp_path / "train" / file).unlink()
    assert not is_written(tmp_path, "train", "random", "mark")
    with pytest.raises(DataError, match=f"{file}: no such file.*feature notebook"):
        read_graph(tmp_path, "train", "random")


@pytest.mark.parametrize("array", ["choices", "config_feat"])
def test_rows_of_another_graph_are_refused(tmp_path, graph, array):
    write_graph(tmp_path, "train", graph, "mark")
    path = tmp_path / "train" / f"random.{array}.npy"
    np.save(path, np.load(path)[:3])
    with pytest.raises(DataError, match=rf"{array}.npy: 3 rows, the graph has 4 configurations"):
        read_graph(tmp_path, "train", "random")


def test_a_rewrite_cut_short_never_passes_for_the_old_graph(tmp_path, graph, monkeypatch):
    write_graph(tmp_path, "train", graph, "old")

    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(store.np, "savez", fail)  # after the arrays of rows
    with pytest.raises(KeyboardInterrupt):
        write_graph(tmp_path, "train", graph, "new")
    assert not is_written(tmp_path, "train", "random", "old")
    assert not is_written(tmp_path, "train", "random", "new")
    assert not list(tmp_path.rglob("*.tmp*"))


@pytest.fixture
def folder(tmp_path, graph):
    """A finished features folder with two graphs, one of them of an awkward name."""
    rows = []
    for split, name in (("train", "random"), ("valid", "nan"), ("test", "1e5")):
        write_graph(tmp_path, split, Graph(**{**vars(graph), "name": name}), "mark")
        spread = np.nan if split == "test" else 2.0
        rows.append({"split": split, "name": name, "configs": 4, "merged": 0, "spread": spread})
    pd.DataFrame(rows).to_csv(tmp_path / "graphs.csv", index=False)
    manifest = {
        "fingerprint": "f",
        "settings": {"collection": "layout:nlp:random"},
        "inputs": {"data": "d"},
        "config_columns": ["one", "two", "three"],
        "outputs": {},
    }
    write_manifest(tmp_path, manifest)
    reseal(tmp_path, "graphs.csv", *(path.relative_to(tmp_path) for path in graph_files(tmp_path)))
    return tmp_path


def test_a_finished_folder_tells_what_it_holds(folder, graph):
    features = Features(folder)
    assert features.collection.name == "layout:nlp:random"
    assert (features.fingerprint, features.data) == ("f", "d")
    assert features.config_columns == ["one", "two", "three"]
    assert [features.names(split) for split in ("train", "valid", "test")] == [["random"], ["nan"], ["1e5"]]
    assert features.num_configs("valid") == {"nan": 4}
    assert features.index["spread"].isna().tolist() == [False, False, True]
    assert_equal(features.graph("valid", "nan").choices, graph.choices)
    np.testing.assert_array_equal(features.labels("train")["random"], graph.runtime)


def test_a_split_of_an_unknown_name_is_refused(folder):
    written = store.WrittenGraphs(folder, Features(folder).collection, {"train": ["random"]}, [])
    assert written.names("test") == []
    features = Features(folder)
    for ask in (written.names, features.names, features.num_configs, features.labels):
        with pytest.raises(SettingsError, match="split: 'tset' is none of train, valid, test"):
            ask("tset")


def test_test_runtimes_are_no_labels(folder):
    with pytest.raises(DataError, match="test runtimes are not known.*solution.csv"):
        Features(folder).labels("test")


def test_changed_labels_are_refused(folder, graph):
    for split in ("train", "valid"):
        (name,) = Features(folder).names(split)
        slower = {"runtime": 2 * graph.runtime, "file_runtime": 2 * graph.file_runtime}
        write_graph(folder, split, replace(graph, name=name, **slower), "mark")
        with pytest.raises(DataError, match=f"{name}.npz: changed after it was written"):
            Features(folder).labels(split)
