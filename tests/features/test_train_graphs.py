"""Which train graphs and configurations are learned from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.core.errors import DataError
from fastslow.features.graph import draw_configs, draw_graphs, trainable
from helpers.cases import cases
from helpers.random_graphs import make_graph


class Folder:
    """A features folder of programs that are known by their runtimes."""

    def __init__(self, train, valid=()):
        self.origin, self.train, self.valid = "folder", train, list(valid)

    def names(self, split):
        return list(self.train) if split == "train" else self.valid

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
