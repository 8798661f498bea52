import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.core.errors import SettingsError
from fastslow.networks.model.graph_batch import message_edges
from fastslow.networks.segments.partition import partition
from fastslow.networks.settings.segment_settings import PARTITIONS
from fastslow.networks.settings.train_settings import TrainSettings
from helpers.cases import cases
from helpers.random_graphs import make_graph, structures

IS_ROOT = 0
graphs = st.builds(make_graph, structures(max_nodes=12), st.integers(0, 99))


def divide(graph, how, max_nodes, seed=0):
    if how == "metis":
        pytest.importorskip("pymetis")
    return partition(graph, message_edges(graph), how, max_nodes, seed)


@pytest.mark.parametrize("how", PARTITIONS)
@given(graph=graphs, max_nodes=st.integers(1, 13), seed=st.integers(0, 3))
@settings(max_examples=40)
def test_every_node_has_a_segment_and_none_is_empty_or_too_large(how, graph, max_nodes, seed):
    part = divide(graph, how, max_nodes, seed)
    size = np.bincount(part)
    assert part.shape == (graph.num_nodes,) and size.min() > 0 and size.max() <= max_nodes
    np.testing.assert_array_equal(part, divide(graph, how, max_nodes, seed))


@cases("how", PARTITIONS)
def test_a_graph_that_fits_is_one_segment(how):
    assert divide(chain(9), how, 9).max() == 0


def chain(num_nodes, configurable=(), roots=()):
    """Node n + 1 consumes node n."""
    edges = np.stack([np.arange(1, num_nodes), np.arange(num_nodes - 1)], 1)
    codes = np.zeros((1, len(configurable), 3), np.uint8)
    graph = make_graph((edges, num_nodes, np.array(configurable, np.int64), codes))
    graph.node_feat[:, IS_ROOT] = np.isin(np.arange(num_nodes), roots)
    return replace(graph, pairs=graph.pairs[:0], pair_axes=graph.pair_axes[:0])


def test_ranges_are_of_equal_size():
    assert divide(chain(10), "contiguous", 4).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]


def test_computations_stay_whole_as_far_as_they_fit():
    graph = chain(12, roots=(1, 4, 5, 11))  # computations of 2, 3, 1 and 6 nodes
    assert divide(graph, "computations", 5).tolist() == [0] * 5 + [1] + [2] * 3 + [3] * 3
    assert divide(graph, "computations", 6).tolist() == [0] * 6 + [1] * 6


def test_nodes_go_to_the_nearest_configurable_one():
    graph = chain(10, configurable=(8, 1))
    assert divide(graph, "configurable", 5).tolist() == [0] * 5 + [1] * 5


def test_nodes_that_no_configurable_one_reaches_have_a_segment():
    graph = chain(6, configurable=(0,))
    apart = replace(graph, edge_index=graph.edge_index[[0, 1, 3, 4]])
    assert divide(apart, "configurable", 3).tolist() == [0] * 3 + [1] * 3


def test_metis_cuts_few_edges():
    """Two cliques joined by an edge, whose nodes alternate."""
    clique = np.array([(u, v) for u in range(8) for v in range(u)])
    edges = np.concatenate([2 * clique, 2 * clique + 1, [[1, 0]]])
    graph = make_graph((edges, 16, np.zeros(0, np.int64), np.zeros((1, 0, 3), np.uint8)))
    part = divide(graph, "metis", 9)
    assert {tuple(part[::2]), tuple(part[1::2])} == {(0,) * 8, (1,) * 8}


def test_random_segments_are_those_of_the_seed():
    graph = chain(40)
    one, other = (divide(graph, "random", 10, seed) for seed in (0, 1))
    assert not np.array_equal(one, other)
    assert (np.diff(one) != 0).sum() > 10


def test_metis_without_pymetis_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(SettingsError, match="segment_partition: 'metis' needs the package pymetis"):
        TrainSettings(segment_training="gst", segment_partition="metis")
