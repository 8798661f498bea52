"""Which train graphs and configurations are learned from."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.core.errors import DataError
from fastslow.features.train_graphs import draw_configs, draw_graphs, graph_noise, sound, trainable
from helpers.cases import cases
from helpers.random_graphs import make_graph


class Folder:
    """A features folder of programs that are known by their runtimes."""

    def __init__(self, train, valid=()):
        self.folder, self.train, self.valid = "folder", train, list(valid)

    def names(self, split):
        return list(self.train) if split == "train" else self.valid

    def labels(self, split):
        assert split == "train"
        return {name: np.array(runtimes, float) for name, runtimes in self.train.items()}

    def graph(self, split, name):
        codes = np.zeros((len(self.train[name]), 1, 3), np.uint8)
        return make_graph((np.zeros((0, 2), int), 2, np.array([0]), codes))


def test_a_program_that_is_valid_anywhere_is_trained_on_nowhere():
    own = Folder({"a": [1, 2], "b": [1, 2], "both": [1, 2]}, valid=["both", "c"])
    other = Folder({"a": [3, 4], "c": [1, 2], "d": [1, 2]}, valid=["b"])
    assert trainable({"": own, "other": other}) == ["a", "other/a", "other/d"]
    assert trainable({"own": own, "other": other}) == ["own/a", "other/a", "other/d"]
    assert trainable({"": own}) == ["a", "b"]
    assert trainable({"": other}) == ["a", "c", "d"]


def test_graphs_of_one_runtime_carry_no_ranking_signal():
    folder = Folder({"equal": [2, 2, 2], "single": [1], "different": [2, 2, 3]})
    assert trainable({"": folder}) == ["different"]


@cases("folder", [Folder({}), Folder({"a": [1, 1]}), Folder({"v": [1, 2]}, valid=["v"])])
def test_nothing_to_learn_from_is_refused(folder):
    with pytest.raises(DataError, match="folder: no train graph has two configurations of different runtime"):
        trainable({"": folder})


def measured(rng, noise, runs=4, configs=30):
    """A graph of configurations that were measured several times, with noise; and its true runtimes."""
    true = np.exp(rng.normal(size=configs))
    codes = np.arange(configs, dtype=np.uint8)[:, None, None] % 3 + np.zeros((1, 1, 3), np.uint8)
    graph = make_graph((np.zeros((0, 2), int), 2, np.array([0]), codes))
    row = np.repeat(np.arange(configs, dtype=np.int32), runs)
    runtime = true[row] * np.exp(noise * rng.normal(size=len(row)))
    label = np.bincount(row, runtime) / runs
    return replace(graph, runtime=label, config_row=row, file_runtime=runtime), true


def test_the_noise_of_labels_is_that_of_a_mean_of_runs(rng):
    graph, true = measured(rng, 0.1, runs=4, configs=200)
    noise = graph_noise(graph)
    assert noise == pytest.approx(np.full(200, 0.05), rel=0.1)
    assert np.log(graph.runtime / true).std() == pytest.approx(0.05, rel=0.15)
    assert graph_noise(measured(rng, 0.0)[0]) is None, "exact"
    assert graph_noise(measured(rng, 0.1, runs=1)[0]) is None, "not known"
    often = np.r_[np.zeros(39, np.int32), np.arange(30, dtype=np.int32)]  # one configuration again and again
    single, _ = measured(rng, 0.1)
    runtime = single.runtime[often] * np.exp(0.1 * rng.normal(size=len(often)))
    noise = graph_noise(replace(single, config_row=often, file_runtime=runtime))
    assert noise[1:] == pytest.approx(np.full(29, 0.1), rel=0.4) and noise[0] == pytest.approx(
        noise[1] / 40**0.5
    )


def test_graphs_of_a_low_ceiling_are_left_out(rng):
    graphs = {"clear": measured(rng, 0.05)[0], "noisy": measured(rng, 3.0)[0], "once": measured(rng, 3, 1)[0]}
    folder = Folder({name: graph.runtime for name, graph in graphs.items()})
    folder.graph = lambda split, name: graphs[name]
    assert trainable({"": folder}) == trainable({"": folder}, 0.0) == [*graphs]
    assert trainable({"": folder}, 0.5) == ["clear", "once"], "an unknown ceiling is not below the bound"
    assert sound(folder, "train", ["noisy", "clear"], 0.5) == ["clear"]
    with pytest.raises(DataError, match="no train graph"):
        trainable({"": Noisy(graphs["noisy"])}, 0.5)


class Noisy(Folder):
    """A folder of one graph."""

    def __init__(self, graph):
        super().__init__({"noisy": graph.runtime})
        self.graph = lambda split, name: graph


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
