"""Labels with noise get nearer to the truth, those without are left as they are."""

from dataclasses import replace

import numpy as np

from fastslow.competition.catalog import TRAIN, VALID
from fastslow.competition.metrics import kendall_tau
from fastslow.networks.training import denoising
from helpers.cases import cases
from helpers.random_graphs import make_graph


def denoised_labels(sources, train, valid=()):
    return denoising.denoised_labels(sources, {TRAIN: train, VALID: valid})


SLOPES = np.array([1.0, -0.5, 0.2])
NO_EDGES = np.zeros((0, 2), int)


class Folder:
    """A features folder of graphs that are held in memory."""

    def __init__(self, graphs):
        self.graphs = graphs

    def graph(self, split, name):
        return self.graphs[name]


def program(seed, noise, runs=3, configs=30, choices=0.0):
    """A graph and the logarithms of its true runtimes: a sum over features and, of its own, over choices."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (configs, 2, 3)).astype(np.uint8)
    graph = make_graph((NO_EDGES, 2, np.array([0, 1]), codes), seed)
    effects = choices * rng.normal(size=(3, 2, 3))
    true = graph.config_feat @ SLOPES + np.take_along_axis(effects[None], codes[:, None], 1).sum((1, 2, 3))
    row = np.repeat(np.arange(configs, dtype=np.int32), runs)
    runtime = np.exp(true[row] + noise * rng.normal(size=len(row)))
    label = np.bincount(row, runtime) / runs
    return replace(graph, runtime=label, config_row=row, file_runtime=runtime), true


def gains(programs):
    """Kendall's tau with the truth that each program's labels gain."""
    folder = Folder({name: graph for name, (graph, _) in programs.items()})
    labels = denoised_labels({"a": folder}, [f"a/{name}" for name in programs])[TRAIN]
    return [
        kendall_tau(true, labels[f"a/{name}"]) - kendall_tau(true, graph.runtime)
        for name, (graph, true) in programs.items()
    ]


def test_other_programs_know_what_noise_hides():
    assert np.mean(gains({str(seed): program(seed, noise=2.0) for seed in range(20)})) > 0.1


def test_other_configurations_of_one_program_know_it_too():
    own = program(0, noise=2.0, configs=400, choices=1.0)
    assert gains({"0": own})[0] > 0.05


def test_small_noise_changes_little_and_none_nothing():
    graphs = {str(seed): program(seed, noise=0.001) for seed in range(6)}
    assert np.abs(gains(graphs)).max() < 0.02
    graphs["exact"] = program(9, noise=0.0)
    folder = Folder({name: graph for name, (graph, _) in graphs.items()})
    labels = denoised_labels({"": folder}, [*graphs])[TRAIN]
    assert {*labels} == {*graphs} - {"exact"}


@cases("runs, configs", [(1, 30), (2, 9)])
def test_too_few_repeats_do_not_tell(runs, configs):
    folder = Folder({str(seed): program(seed, 1.0, runs, configs)[0] for seed in range(4)})
    assert denoised_labels({"a": folder}, ["a/0", "a/1", "a/2", "a/3"])[TRAIN] == {}


def test_no_program_learns_from_itself_in_another_collection():
    graphs = Folder({"0": program(0, noise=5.0)[0]})
    both = denoised_labels({"a": graphs, "b": graphs}, ["a/0", "b/0"])[TRAIN]
    np.testing.assert_allclose(both["a/0"], denoised_labels({"a": graphs}, ["a/0"])[TRAIN]["a/0"])


def test_valid_graphs_learn_from_train_graphs_and_teach_none():
    programs = {str(seed): program(seed, noise=2.0) for seed in range(20)}
    folder = {"a": Folder({name: graph for name, (graph, _) in programs.items()})}
    names = [f"a/{name}" for name in programs]
    both = denoised_labels(folder, names[:15], names[15:])
    gained = [
        kendall_tau(programs[name][1], both[VALID][f"a/{name}"])
        - kendall_tau(programs[name][1], programs[name][0].runtime)
        for name in [*programs][15:]
    ]
    assert np.mean(gained) > 0.1
    for name in names[15:]:
        graph = folder["a"].graphs[name[2:]]
        folder["a"].graphs[name[2:]] = replace(
            graph, file_runtime=np.random.default_rng(0).permutation(graph.file_runtime)
        )
    changed = denoised_labels(folder, names[:15], names[15:])
    for name in names[:15]:
        np.testing.assert_array_equal(changed[TRAIN][name], both[TRAIN][name])
