"""The reference model and recipe match their description."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from helpers.random_graphs import make_graph
from reference import winner

pytestmark = pytest.mark.skipif(not find_spec("torch_geometric"), reason="torch_geometric is not installed")
CPU = torch.device("cpu")


def winner_inputs(graph) -> winner.WinnerInputs:
    return winner.WinnerInputs(graph, winner.standardisation([graph]), CPU)


STRUCTURE = (
    np.array([[0, 1], [2, 0], [3, 2], [4, 3], [1, 4]]),  # (consumer, operand)
    6,
    np.array([2, 5]),
    np.array([[[0, 0, 0], [1, 1, 1]], [[0, 0, 1], [1, 1, 1]], [[0, 0, 0], [1, 1, 1]]], np.uint8),
)


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
