"""The reference model and recipe match their description."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from common import graph_files
from fastslow.competition.catalog import COLLECTIONS, get_collection
from fastslow.competition.metrics import kendall_tau
from helpers.random_graphs import make_graph

pytest.importorskip("torch_geometric", reason="pip install -r benchmarks/requirements.txt")
from reference import winner, winner_recipe  # noqa: E402 (needs torch_geometric)

CPU = torch.device("cpu")
DEFAULT, RANDOM = get_collection("layout:xla:default"), get_collection("layout:xla:random")


def sample_graph(hops: int = winner.HOPS):
    return graph_files.load_graph(graph_files.program_of(graph_files.default_files(quick=True)[0]), hops)


def winner_inputs(graph) -> winner.WinnerInputs:
    return winner.WinnerInputs(graph, winner.standardisation([graph]), CPU)


STRUCTURE = (
    np.array([[0, 1], [2, 0], [3, 2], [4, 3], [1, 4]]),  # (consumer, operand)
    6,
    np.array([2, 5]),
    np.array([[[0, 0, 0], [1, 1, 1]], [[0, 0, 1], [1, 1, 1]], [[0, 0, 0], [1, 1, 1]]], np.uint8),
)


def test_pruning_keeps_edges_at_configurable_nodes():
    graph = make_graph(STRUCTURE)
    pruned = winner.winner_graph(graph)
    kept = [0, 2, 3, 5]  # 5 has no edge, but is configurable
    assert pruned.edge_index.tolist() == [[1, 0], [2, 1]]
    assert pruned.config_index.tolist() == [1, 3]
    np.testing.assert_array_equal(pruned.node_feat, graph.node_feat[kept])
    np.testing.assert_array_equal(pruned.node_opcode, graph.node_opcode[kept])


def test_batch_holds_layouts_of_configurable_nodes_alone():
    graph = make_graph(STRUCTURE)
    inputs, codes = winner_inputs(graph), graph.choices.layout_codes()
    batch = inputs.batch(np.array([1, 0]))
    assert batch.layout.shape == (2, 6, 18)
    for position, config in enumerate([1, 0]):
        for node in range(6):
            expected = np.full(18, -2)
            if node in graph.config_index:
                row = graph.config_index.tolist().index(node)
                expected = np.concatenate([graph.layouts[code] for code in codes[config, row]])
            np.testing.assert_array_equal(batch.layout[position, node], expected + 2)
    np.testing.assert_allclose(inputs.numeric.mean(0), 0, atol=1e-5)


def test_messages_go_from_consumer_to_operand():
    graph = make_graph(STRUCTURE)
    adjacency = winner_inputs(graph).adjacency(2).to_dense()
    expected = torch.zeros(12, 12)
    for copy in range(2):
        for consumer, operand in graph.edge_index:
            expected[6 * copy + operand, 6 * copy + consumer] = 1
    assert torch.equal(adjacency, expected)


def test_sage_block_equals_its_formula():
    torch.manual_seed(0)
    graph = make_graph(STRUCTURE)
    block = winner.SageBlock(cross_config=False).eval()
    x = torch.randn(2, 6, 256)
    y = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    mean = torch.zeros_like(y)
    for node in range(6):
        consumers = graph.edge_index[graph.edge_index[:, 1] == node, 0]
        if len(consumers):
            mean[:, node] = y[:, consumers].mean(1)
    y = block.conv.lin_l(mean) + block.conv.lin_r(y)
    expected = torch.nn.functional.gelu(x + y * block.attention.gate(y))
    torch.testing.assert_close(block(x, winner_inputs(graph).adjacency(2)), expected, rtol=1e-4, atol=1e-5)


def test_cross_config_attention_is_a_softmax_over_configurations():
    attention = winner.Attention(16, cross_config=True)
    x = torch.randn(3, 4, 16)
    both = attention(x)
    y = x * attention.gate(x)
    weight = (y / 0.5).exp() / (y / 0.5).exp().sum(0)
    torch.testing.assert_close(both, torch.cat([y, y * weight], -1))


def test_only_with_cross_config_attention_a_prediction_depends_on_its_chunk():
    inputs = winner_inputs(winner.winner_graph(sample_graph()))
    for collection, cross in ((DEFAULT, True), (RANDOM, False)):
        network = winner_recipe.WinnerTraining(collection, 0, CPU).network
        assert network.first.linear.in_features == 246
        assert network.first.linear.out_features == (128 if cross else 256)
        together, apart = (winner_recipe.predict(network, inputs, chunk) for chunk in (32, 8))
        assert together.shape == (inputs.graph.num_configs,)
        assert np.allclose(together, apart, atol=1e-5) is not cross, collection.name


def test_hinge():
    prediction, runtime = torch.randn(5), torch.tensor([3, 1, 1, 2, 5])
    pairs = [(i, j) for i in range(5) for j in range(5)]
    expected = (
        sum(max(0, 1 - (prediction[i] - prediction[j])) for i, j in pairs if runtime[i] > runtime[j]) / 25
    )
    torch.testing.assert_close(winner_recipe.hinge(prediction, runtime), expected)


def test_recipe_learns():
    graph = winner.winner_graph(sample_graph())
    # a label that depends on layouts only: the output codes
    graph = replace(graph, runtime=1.0 + graph.choices.layout_codes()[:, :, 0].sum(1))
    inputs = winner_inputs(graph)
    training = winner_recipe.WinnerTraining(RANDOM, 0, CPU)
    for _ in range(10):
        training.step(inputs)
    assert kendall_tau(graph.runtime, winner_recipe.predict(training.network, inputs, 128)) > 0.5


def test_initial_weights_of_the_linear_blocks():
    torch.manual_seed(0)
    network = winner_recipe.WinnerTraining(DEFAULT, 0, CPU).network
    for block in (network.first, network.second):
        weight = block.linear.weight
        assert torch.equal(block.linear.bias, torch.full((128,), 0.01))
        assert weight.std().item() == pytest.approx((2 / sum(weight.shape)) ** 0.5, rel=0.02)


def test_chunks_are_those_of_the_original_and_of_equal_size():
    chunks = {c.name: winner_recipe.inference_chunk(c) for c in COLLECTIONS if c.name.endswith(":default")}
    assert chunks == {"layout:xla:default": 128, "layout:nlp:default": 256}
    inputs, sizes = winner_inputs(winner.winner_graph(sample_graph())), []
    total = inputs.graph.num_configs

    class Network(torch.nn.Module):
        def forward(self, batch):
            sizes.append(len(batch.layout))
            return torch.zeros(len(batch.layout))

    assert winner_recipe.predict(Network(), inputs, total - 1).shape == (total,)
    assert len(sizes) == 2 and max(sizes) - min(sizes) <= 1
