"""Predictions by nodes equal those of one batch of all configurations, however small the blocks."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.networks.model.convolutions import CONVOLUTIONS
from fastslow.networks.model.graph_batch import PreparedGraph
from fastslow.networks.predict.node_blocks import computes_by_nodes, predict_by_nodes
from helpers.cases import cases
from helpers.dense_reference import dense_predictions
from helpers.networks import close, make_network, program
from helpers.random_graphs import make_graph, make_scalers, structures

torch.set_num_threads(1)
CPU, BOUND = torch.device("cpu"), 1 << 30


@given(
    st.builds(make_graph, structures(min_nodes=2, max_configs=9), st.integers(0, 99)),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([1, 3, 8, 1000]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=40)
def test_blocks_of_nodes_equal_the_dense_network(graph, num_layers, cross_config, block_states, random):
    network = make_network(num_layers=num_layers, cross_config=cross_config)
    prepared = PreparedGraph(graph, *make_scalers(graph))
    configs = np.array(random.choices(range(graph.num_configs), k=random.randint(1, 9)))
    found = predict_by_nodes(network, prepared, configs, CPU, BOUND, block_states)
    close(found, dense_predictions(network, graph, *make_scalers(graph), configs), 1e-5)


@cases("settings_of_layers", [{"convolution": name} for name in CONVOLUTIONS])
def test_every_local_layer_is_computed_by_nodes(settings_of_layers):
    network, graph = make_network(num_layers=2, **settings_of_layers), program(12)
    prepared = PreparedGraph(graph, *make_scalers(graph))
    assert computes_by_nodes(network)
    found = predict_by_nodes(network, prepared, np.arange(12), CPU, BOUND, 4)
    close(found, network(prepared.batch(np.arange(12), 2)), 1e-5)


def test_what_does_not_fit_is_left_to_chunks_of_configurations():
    graph, network = program(), make_network(num_layers=2)
    prepared = PreparedGraph(graph, *make_scalers(graph))
    assert predict_by_nodes(network, prepared, np.arange(6), CPU, max_bytes=100) is None
    others = {"num_layers": 0}, {"readout": "mean"}, {"node_attention": "linear"}
    assert not any(computes_by_nodes(make_network(**other)) for other in others)
