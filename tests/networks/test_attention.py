"""The attention over configurations that a network is asked for equals the softmax of its formula."""

import numpy as np
import pytest
import torch

from fastslow.networks.model.layers import CrossConfigAttention
from fastslow.networks.predict.attention import config_attention
from helpers.cases import cases
from helpers.networks import close, make_network, program
from networks.test_chunked_prediction import dataset_of


def test_a_map_has_a_share_for_every_node_and_configuration():
    graph, network = program(num_configs=9), make_network(num_layers=2)
    configs = np.array([4, 0, 8, 2])
    maps = config_attention(network, dataset_of(graph, 2), "test", "layout-xla-random/random", configs)
    assert maps.shape == (2, graph.num_nodes, 4) and (maps >= 0).all()
    np.testing.assert_allclose(maps.sum(2), 1, rtol=1e-5)
    assert np.ptp(maps, 2).max() > 0.01, "the configurations differ"
    np.testing.assert_allclose(maps[..., 1], maps[..., 2], rtol=1e-5, err_msg="8 repeats configuration 0")


def test_the_maps_are_the_weights_that_the_network_multiplies_by(monkeypatch):
    """With as many states as pairs: the output of the layer is x times C times the share."""
    graph, network = program(num_configs=9), make_network(num_layers=1, hidden_channels=1)
    dataset, configs = dataset_of(graph, 1), np.arange(9)
    seen = []
    forward = CrossConfigAttention.forward

    def record(self, x, level, complete):
        y = forward(self, x, level, complete)
        seen.append((y / x).squeeze(1) / len(configs))
        return y

    monkeypatch.setattr(CrossConfigAttention, "forward", record)
    (share,) = config_attention(network, dataset, "test", "layout-xla-random/random", configs)
    level = dataset.graph("test", "layout-xla-random/random").states(configs, 1)[1]
    pairs = level.state(np.arange(graph.num_nodes)[:, None], configs)
    close(torch.from_numpy(share), seen[0].detach()[torch.from_numpy(pairs)], 1e-5)


@cases(
    "name, configs, said",
    [
        ("random", [0, 1], "name: 'random' is no test program of the dataset, such as 'layout-xla-random/"),
        ("layout-xla-random/random", [0, 99], "configs: positions of layout-xla-random/random are whole"),
        ("layout-xla-random/random", [-1], "configs: positions of"),
        ("layout-xla-random/random", [], r"at least one; these are float64 of shape \(0,\)"),
        ("layout-xla-random/random", [[0, 1]], r"at least one; these are int64 of shape \(1, 2\)"),
        ("layout-xla-random/random", [0.0, 1.0], r"at least one; these are float64 of shape \(2,\)"),
        ("layout-xla-random/random", [True, False], r"at least one; these are bool of shape \(2,\)"),
    ],
)
def test_another_name_or_configuration_is_refused(name, configs, said):
    graph, network = program(num_configs=9), make_network(num_layers=1)
    with pytest.raises(ValueError, match=said):
        config_attention(network, dataset_of(graph, 1), "test", name, np.array(configs))


def test_a_list_of_positions_is_as_good_as_an_array():
    """It passed the check, and failed later as an index."""
    graph, network = program(num_configs=9), make_network(num_layers=1)
    name = "layout-xla-random/random"
    maps = [
        config_attention(network, dataset_of(graph, 1), "test", name, configs)
        for configs in ([4, 0], np.array([4, 0]))
    ]
    np.testing.assert_array_equal(*maps)


def test_a_network_without_attention_has_no_map():
    graph, network = program(), make_network(num_layers=1, cross_config=False)
    maps = config_attention(network, dataset_of(graph, 1), "test", "layout-xla-random/random", np.arange(3))
    assert maps.shape == (0, graph.num_nodes, 3)
