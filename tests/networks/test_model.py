from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fastslow.competition.tied_choices import factorise
from fastslow.networks.model.convolutions import CONVOLUTIONS
from fastslow.networks.model.graph_batch import PreparedGraph, message_edges
from fastslow.networks.settings.terms import POOLS
from helpers.dense_reference import dense_predictions
from helpers.networks import all_configs, close, equals_reference, make_network, program
from helpers.random_graphs import make_graph, make_scalers, structures

torch.set_num_threads(1)

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


networks = st.builds(make_network, st.integers(0, 4), st.booleans(), seed=st.integers(0, 99))
POOLINGS = [pool + nodes for pool in POOLS for nodes in ("", "@configurable")]
readouts = st.lists(st.sampled_from(POOLINGS), min_size=1, max_size=4, unique=True).map("+".join)
other_networks = st.builds(
    make_network,
    st.integers(1, 3),
    st.booleans(),
    seed=st.integers(0, 99),
    convolution=st.sampled_from([*CONVOLUTIONS]),
    readout=readouts,
)
graphs = st.builds(make_graph, structures(min_nodes=2), st.integers(0, 99))


def predict(network, graph, configs=None, edges=None):
    """(C,) predictions of the product code."""
    prepared = PreparedGraph(graph, *make_scalers(graph), whole_graph=network.architecture.whole_graph)
    configs = all_configs(graph) if configs is None else configs
    return network(prepared.batch(configs, network.num_layers, edges))


@given(networks | other_networks, graphs, st.sampled_from([1, 0.7]), st.randoms(use_true_random=False))
@settings(max_examples=80)
def test_predictions_and_gradients_equal_those_of_the_dense_network(network, graph, kept, random):
    """Of some configurations, with all edges or some."""
    edges = np.array([random.random() < kept for _ in message_edges(graph)], bool)
    configs = np.array(random.sample(range(graph.num_configs), random.randint(1, graph.num_configs)))
    value = predict(network, graph, configs, edges)
    reference = dense_predictions(network, graph, *make_scalers(graph), configs, edges)
    equals_reference(network, value, reference, 1e-5, 1e-4, least_scale=0.01)


def kernel(num_configs=5):
    """A tile kernel: nothing is configurable, its configurations differ in their features."""
    edges = np.array([[1, 0], [2, 1], [2, 0]])
    return make_graph((edges, 4, np.zeros(0, int), np.zeros((num_configs, 0, 3), np.uint8)))


def test_a_tile_graph_is_embedded_once_for_all_configurations():
    batch = PreparedGraph(kernel(50), *make_scalers(kernel(50))).batch(np.arange(50), 2)
    assert [len(level.node_ids) for level in batch.levels] == [4, 4, 4]
    assert batch.pooling.shape[0] == 1


def renumbered(graph, order):
    """The same graph with node ``order[i]`` called i."""
    number = np.argsort(order)
    return replace(
        graph,
        node_feat=graph.node_feat[order],
        node_opcode=graph.node_opcode[order],
        edge_index=number[graph.edge_index].astype(np.int32).reshape(-1, 2),
        config_index=number[graph.config_index].astype(np.int32),
    )


@given(networks, graphs, st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_predictions_do_not_depend_on_the_numbering_of_nodes(network, graph, random):
    order = random.sample(range(graph.num_nodes), graph.num_nodes)
    close(predict(network, renumbered(graph, np.array(order))), predict(network, graph), 1e-5)


@given(networks, graphs, st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_predictions_do_not_depend_on_the_order_of_edges_tensors_and_layouts(network, graph, random):
    edges = random.sample(range(len(graph.edge_index)), len(graph.edge_index))
    rows = random.sample(range(len(graph.config_index)), len(graph.config_index))
    number = np.argsort(rows)
    producer, consumer, role = graph.pairs.T
    other = replace(
        graph,
        edge_index=graph.edge_index[edges],
        config_index=graph.config_index[rows],
        pairs=np.column_stack([number[producer], number[consumer], role]).astype(int),
        tensor_sizes=graph.tensor_sizes[rows],
        default_layouts=graph.default_layouts[rows],
        layouts=graph.layouts[[2, 0, 1]],
        choices=factorise(np.argsort([2, 0, 1])[graph.choices.layout_codes()[:, rows]]),
    )
    close(predict(network, other), predict(network, graph), 1e-5)


@given(networks, graphs, st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_predictions_follow_the_order_of_configurations_however_often_all_are_given(
    network, graph, times, random
):
    order = np.array(random.sample(range(graph.num_configs), graph.num_configs) * times)
    close(predict(network, graph, order), predict(network, graph)[order], 1e-5)


@given(networks, graphs)
@settings(max_examples=20)
def test_equal_configurations_are_predicted_alike(network, graph):
    assume(graph.num_configs > 1)
    codes, config_feat = graph.choices.layout_codes(), graph.config_feat.copy()
    codes[-1], config_feat[-1] = codes[0], config_feat[0]
    prediction = predict(network, replace(graph, choices=factorise(codes), config_feat=config_feat))
    close(prediction[-1], prediction[0], 1e-5)


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


def test_dropout_changes_predictions_in_training_alone():
    network, graph = make_network(dropout=0.5), program()
    assert torch.equal(predict(network, graph), predict(network, graph))
    network.train()
    assert not torch.equal(predict(network, graph), predict(network, graph))


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
