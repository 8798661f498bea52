from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.networks.model.convolutions import CONVOLUTIONS
from fastslow.networks.model.graph_batch import PreparedGraph, message_edges
from fastslow.networks.settings.inputs import POOLS
from helpers.dense_reference import dense_predictions
from helpers.networks import all_configs, close, equals_reference, make_network, program
from helpers.random_graphs import make_graph, make_scalers, structures

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


POOLINGS = [pool + nodes for pool in POOLS for nodes in ("", "@configurable")]
readouts = st.lists(st.sampled_from(POOLINGS), min_size=1, max_size=4, unique=True).map("+".join)
graphs = st.builds(make_graph, structures(min_nodes=2), st.integers(0, 99))


def predict(network, graph, configs, edges):
    """(C,) predictions of the product code."""
    prepared = PreparedGraph(graph, *make_scalers(graph), whole_graph=network.architecture.input_attention)
    return network(prepared.batch(configs, network.num_layers, edges))


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
@given(
    st.builds(dict, num_layers=st.integers(0, 4), cross_config=st.booleans(), readout=readouts),
    graphs,
    st.sampled_from([1, 0.7]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=10)
def test_predictions_and_gradients_equal_those_of_the_dense_network(
    convolution, architecture, graph, kept, random
):
    """Of some configurations, with all edges or some."""
    network = make_network(**architecture, convolution=convolution, seed=random.randrange(100))
    edges = np.array([random.random() < kept for _ in message_edges(graph)], bool)
    configs = np.array(random.sample(range(graph.num_configs), random.randint(1, graph.num_configs)))
    value = predict(network, graph, configs, edges)
    reference = dense_predictions(network, graph, *make_scalers(graph), configs, edges)
    equals_reference(network, value, reference, 1e-5, 1e-4, least_scale=0.01)


def kernel(num_configs=5):
    """A tile kernel: nothing is configurable, its configurations differ in their features."""
    edges = np.array([[1, 0], [2, 1], [2, 0]])
    return make_graph((edges, 4, np.zeros(0, int), np.zeros((num_configs, 0, 3), np.uint8)))


def test_a_pair_joins_its_nodes_by_an_edge():
    """Two configurable nodes with two others between: they see each other's layouts in one layer."""
    chain = np.array([[1, 0], [2, 1], [3, 2]])
    graph = make_graph((chain, 4, np.array([3, 0]), np.zeros((1, 2, 3), np.uint8)))
    apart = replace(graph, pairs=np.zeros((0, 3), np.int32))
    joined = replace(graph, pairs=np.array([[1, 0, 1], [1, 0, 2]], np.int32))
    assert message_edges(apart).tolist() == chain.tolist()
    assert message_edges(joined).tolist() == [[1, 0], [2, 1], [3, 0], [3, 2]]
    for pair_edges, edges in ((True, message_edges(joined)), (False, joined.edge_index)):
        prepared = PreparedGraph(joined, *make_scalers(joined), pair_edges)
        assert prepared.edge_index.tolist() == edges.tolist()


@NEEDS_GPU
@pytest.mark.parametrize("graph", [kernel(), program()], ids=["tile", "layout"])
def test_predictions_and_gradients_on_a_gpu_equal_those_on_the_cpu(graph):
    results = []
    for device in (torch.device("cpu"), torch.device("cuda")):
        network = make_network().to(device)
        batch = (
            PreparedGraph(graph, *make_scalers(graph))
            .batch(all_configs(graph), network.num_layers)
            .to(device)
        )
        prediction = network(batch)
        prediction.square().sum().backward()
        gradients = [p.grad.cpu() for p in network.parameters() if p.grad is not None]
        results.append((prediction.detach().cpu(), gradients))
    (prediction, gradients), (gpu_prediction, gpu_gradients) = results
    close(gpu_prediction, prediction, 1e-4)
    for gradient, expected in zip(gpu_gradients, gradients, strict=True):
        close(gradient, expected, 1e-3)
