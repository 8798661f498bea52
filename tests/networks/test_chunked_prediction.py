"""Predictions in chunks of configurations, and node by node, equal those of one batch of all."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition.catalog import get_collection
from fastslow.networks.model.convolutions import CONVOLUTIONS
from fastslow.networks.model.graph_batch import PreparedGraph
from fastslow.networks.predict import dataset as module
from fastslow.networks.predict import node_blocks
from fastslow.networks.predict.chunked_prediction import predict_chunks
from fastslow.networks.predict.dataset import predict
from fastslow.networks.predict.node_blocks import computes_by_nodes, predict_by_nodes
from fastslow.steps.network import graphs_of
from fastslow.steps.network_settings import TrainSettings
from helpers.dense_reference import dense_predictions
from helpers.networks import all_configs, close, make_network, program
from helpers.random_graphs import make_graph, make_scalers, structures

networks = st.builds(
    make_network,
    st.integers(0, 3),
    st.booleans(),
    seed=st.integers(0, 99),
    convolution=st.sampled_from([*CONVOLUTIONS]),
    readout=st.sampled_from(["sum", "unit_sum+mean@configurable", "max+sum"]),
)
graphs = st.builds(make_graph, structures(min_nodes=2, max_configs=9), st.integers(0, 99))


def chunk_predictions(network, graph, chunks):
    """(C,) predictions in the order of the configurations."""
    whole_graph = network.architecture.input_attention
    prepared = PreparedGraph(graph, *make_scalers(graph), whole_graph=whole_graph)
    prediction = predict_chunks(network, partial(prepared.batch, num_levels=network.num_layers), chunks)
    return prediction[np.argsort(np.concatenate(chunks))]


@given(networks, graphs, st.sampled_from([1, 2, 3, 9]), st.randoms(use_true_random=False))
@settings(max_examples=12)
def test_chunks_equal_the_dense_network_over_the_whole_set_however_it_is_cut(network, graph, size, random):
    """Forty pairs of a graph and a network, each computed densely too, take its seconds."""
    reference = dense_predictions(network, graph, *make_scalers(graph), all_configs(graph))
    order = np.array(random.sample(range(graph.num_configs), graph.num_configs))
    cuts = range(size, graph.num_configs, size)
    close(chunk_predictions(network, graph, np.split(order, cuts)), reference, 1e-5)


def test_a_chunk_alone_would_be_predicted_otherwise():
    """Else the tests above could not fail."""
    network, graph = make_network(num_layers=2), program()
    whole = chunk_predictions(network, graph, [np.arange(6)])
    alone = chunk_predictions(network, graph, [np.array([0])])
    assert not torch.allclose(alone, whole[:1], rtol=1e-3)


def test_chunks_of_a_large_graph_round_alike():
    """Equal configurations in different chunks stay equal although their sum over nodes is large."""
    structure = np.zeros((0, 2), np.int64), 3000, np.arange(3), np.zeros((4, 3, 3), np.uint8)
    structure[3][[1, 3], 0, 0] = 1  # two kinds of configurations, in turn
    structure[3][2, 1, 1] = 1
    graph = make_graph(structure)
    graph.config_feat[:] = graph.config_feat[0]
    network = make_network(num_layers=1)
    whole = chunk_predictions(network, graph, [np.arange(4)])
    apart = chunk_predictions(network, graph, [np.array([0, 1]), np.array([3, 2])])
    assert abs(apart[1] - apart[3]) <= 1e-6 * abs(apart).max()
    assert abs(apart - whole).max() < 0.05 * abs(whole[1] - whole[0])


def dataset_of(graph, num_layers, configs_together=100):
    """A dataset of that graph alone, in every split."""
    scalers = dict(zip(("node", "config"), make_scalers(graph), strict=True))
    source = SimpleNamespace(
        collection=get_collection("layout:xla:random"),
        config_columns=[],
        names=lambda split: [graph.name],
        num_distinct=lambda split: {graph.name: graph.num_configs},
        graph=lambda split, name: graph,
        scaler=scalers.get,
    )
    options = TrainSettings(num_layers=num_layers, device="cpu", configs_together=configs_together)
    return graphs_of(options, [source])


def test_predictions_continue_in_smaller_chunks_when_memory_runs_out(monkeypatch, capsys):
    graph, network = program(num_configs=16), make_network(num_layers=2)
    dataset = dataset_of(graph, 2)
    whole = predict(network, dataset, "layout-xla-random", "test")["random"]
    few = dataset_of(graph, 2, configs_together=12)
    by_nodes = predict(network, few, "layout-xla-random", "test")["random"]
    np.testing.assert_allclose(by_nodes, whole, rtol=1e-4, atol=1e-5)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_PAIRS", 16 * graph.num_nodes)
        large = predict(network, dataset, "layout-xla-random", "test")["random"]
    np.testing.assert_array_equal(large, by_nodes, "a large graph is predicted node by node at once")
    batch, sizes = few.batch, []

    def no_memory(*_):
        raise MemoryError

    def limited_batch(split, name, configs):
        sizes.append(len(configs))
        if len(configs) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return batch(split, name, configs)

    monkeypatch.setattr(few, "batch", limited_batch)
    monkeypatch.setattr(node_blocks, "_predict", no_memory)
    parts = predict(network, few, "layout-xla-random", "test")["random"]
    np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-5)
    assert sizes[:2] == [8, 6] and {*sizes[2:]} == {2, 3}
    assert capsys.readouterr().err.count("memory ran out") == 2


CPU, BOUND = torch.device("cpu"), 1 << 30


@given(
    st.builds(make_graph, structures(min_nodes=2, max_configs=9), st.integers(0, 99)),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([*CONVOLUTIONS]),
    st.sampled_from(["sum", "max@configurable+mean", "unit_sum@configurable+max"]),
    st.sampled_from([1, 3, 8, 1000]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=24)
def test_blocks_of_nodes_equal_the_dense_network(
    graph, num_layers, cross_config, convolution, readout, block_states, random
):
    layers = {"num_layers": num_layers, "cross_config": cross_config, "convolution": convolution}
    network = make_network(**layers, readout=readout)
    assert computes_by_nodes(network)
    prepared = PreparedGraph(graph, *make_scalers(graph))
    configs = np.array(random.choices(range(graph.num_configs), k=random.randint(1, 9)))
    found = predict_by_nodes(network, prepared, configs, CPU, BOUND, block_states)
    close(found, dense_predictions(network, graph, *make_scalers(graph), configs), 1e-5)


def test_what_does_not_fit_is_left_to_chunks_of_configurations():
    graph, network = program(), make_network(num_layers=2)
    prepared = PreparedGraph(graph, *make_scalers(graph))
    assert predict_by_nodes(network, prepared, np.arange(6), CPU, max_bytes=100) is None
    assert not computes_by_nodes(make_network(num_layers=0))
