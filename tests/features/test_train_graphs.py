"""Which train graphs and configurations are learned from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.competition.catalog import get_collection, list_programs
from fastslow.core.errors import DataError
from fastslow.features.build import build_graphs
from fastslow.features.graph import draw_configs, draw_graphs, held_out, trainable
from fastslow.runs.features_folder import Features
from fastslow.runs.run_manifest import read_run_manifest
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.network import train_gnn
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker import train_ranker
from fastslow.steps.ranker_settings import RankerSettings
from helpers.cases import cases
from helpers.competition_files import write_data_root
from helpers.random_graphs import make_graph


class Folder:
    """A features folder of programs that are known by their runtimes."""

    def __init__(self, train, valid=(), contents=()):
        self.origin, self.train, self.valid, self.contents = "folder", train, list(valid), dict(contents)

    def names(self, split):
        return {"train": list(self.train), "valid": self.valid}.get(split, [])

    def content(self, split, name):
        return self.contents.get(name, f"{self.origin} {split} {name}")

    def labels(self, split):
        assert split == "train"
        return {name: np.array(runtimes, float) for name, runtimes in self.train.items()}

    def graph(self, split, name):
        codes = np.zeros((len(self.train[name]), 1, 3), np.uint8)
        return make_graph((np.zeros((0, 2), int), 2, np.array([0]), codes))


def test_a_program_that_is_valid_anywhere_is_trained_on_nowhere():
    main_folder = Folder({"a": [1, 2], "b": [1, 2], "both": [1, 2]}, valid=["both", "c"])
    other = Folder({"a": [3, 4], "c": [1, 2], "d": [1, 2]}, valid=["b"])
    assert trainable({"": main_folder, "other": other}) == ["a", "other/a", "other/d"]
    assert trainable({"own": main_folder, "other": other}) == ["own/a", "other/a", "other/d"]
    assert trainable({"": main_folder}) == ["a", "b"]
    assert trainable({"": other}) == ["a", "c", "d"]


def test_a_copy_under_another_name_is_trained_on_nowhere():
    """Its other search has its name."""
    copied = {"copy": "x", "original": "x"}
    main_folder = Folder({"original": [1, 2], "a": [1, 2]}, valid=["v"], contents=copied)
    other = Folder({"original": [3, 4], "b": [1, 2]}, valid=["copy"], contents={"copy": "x"})
    sources = {"own": main_folder, "other": other}
    assert trainable(sources) == ["own/a", "other/b"]
    assert held_out(sources) == {"original": "valid/copy"}
    assert trainable({"": main_folder}) == ["original", "a"]


def test_a_copied_file_is_left_out_of_training(tmp_path):
    """A valid one; a copy of a test file is learned from, and told."""
    root = tmp_path / "data"
    write_data_root(root, "layout:xla:random", train=("a", "b", "c"), valid=("v",), test=("t",))
    folder = get_collection("layout:xla:random").folder(root, "train").parent
    for name, copy in (("a", "valid/renamed_copy"), ("b", f"test/{'0' * 32}")):
        arrays = dict(np.load(folder / "train" / f"{name}.npz"))
        if copy.startswith("test"):
            arrays["config_runtime"] = np.zeros_like(arrays["config_runtime"])
        np.savez(folder / f"{copy}.npz", **arrays)
    folders = {"data_root": str(root), "folder": str(tmp_path / "features"), "workers": 1}
    build_features(FeatureSettings(collection="layout:xla:random", **folders))
    files = [
        p
        for split in ("train", "valid", "test")
        for p in list_programs(root, get_collection("layout:xla:random"), split)
    ]
    for source in (Features(tmp_path / "features"), build_graphs(files)):
        assert trainable({"": source}) == ["b", "c"]
        assert held_out({"": source}) == {"a": "valid/renamed_copy"}
    trees = RankerSettings(features=str(tmp_path / "features"), folder=str(tmp_path / "ranker"))
    ranker = train_ranker(trees.replace(num_iterations=1, train_on="collection", num_threads=1))
    where = {"features": [str(tmp_path / "features")], "runs": [str(tmp_path / "gnn")], "device": "cpu"}
    network = TrainSettings(**where, folder=str(tmp_path / "training"), epochs=1, hidden_channels=8)
    assert (
        ranker["warnings"]
        == train_gnn(network)["warnings"]
        == read_run_manifest(tmp_path / "gnn")["warnings"]
    )
    left_out, learned = ranker["warnings"]
    assert left_out == "trained without 1 program that valid or test hold too: a (as valid/renamed_copy)"
    assert learned.startswith("trained on 1 program that test holds too")
    assert learned.endswith(f": b (as test/{'0' * 32})")


def test_graphs_of_one_runtime_carry_no_ranking_signal():
    folder = Folder({"equal": [2, 2, 2], "single": [1], "different": [2, 2, 3]}, valid=["v"])
    assert trainable({"": folder}) == ["different"]


@cases("folder", [Folder({}), Folder({"a": [1, 1]}), Folder({"v": [1, 2]}, valid=["v"])])
def test_nothing_to_learn_from_is_refused(folder):
    with pytest.raises(DataError, match="folder: no train graph has two configurations of different runtime"):
        trainable({"": folder})


def test_a_collection_without_a_valid_graph_is_refused():
    with pytest.raises(DataError, match="folder: no valid graph to score a model on"):
        trainable({"": Folder({"a": [1, 2]}, valid=["v"]), "other": Folder({"a": [1, 2]})})


def test_graphs_are_found_by_their_prefix():
    sources = {"": Folder({"a": [1] * 5}), "other": Folder({"a": [1] * 9})}
    drawn = list(draw_graphs(sources, "train", ["a", "other/a"], 6, seed=0))
    assert [graph.num_configs for graph, *_ in drawn] == [5, 9]
    assert drawn[0][1] == slice(None) and len(drawn[1][1]) == 6
    for graph, rows, runtime in drawn:
        np.testing.assert_array_equal(runtime, graph.runtime[rows])


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 9))
def test_a_sample_depends_on_name_and_seed_alone(size, max_configs, seed):
    positions = np.arange(size)
    drawn = positions[draw_configs(size, max_configs, seed, "a")]
    assert len(drawn) == min(size, max_configs) and (np.diff(drawn) > 0).all()
    np.testing.assert_array_equal(drawn, positions[draw_configs(size, max_configs, seed, "a")])
    np.testing.assert_array_equal(positions[draw_configs(size, None, seed, "a")], positions)
