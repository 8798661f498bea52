"""Dimension tokens against tokens built one by one, and what they must not depend on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition import node_columns
from fastslow.competition.catalog import VALID
from fastslow.core.errors import SettingsError
from fastslow.evaluation.predictions import read_predictions
from fastslow.features.scaling import EXPANDED_NODE_FEATURES, Scaler
from fastslow.features.store import expand_nodes
from fastslow.networks.model.dimension_tokens import TOKEN_COLUMNS, DimensionTokens, dimension_features
from fastslow.networks.model.graph_batch import PreparedGraph
from fastslow.networks.predict.node_blocks import predict_by_nodes
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.networks.training.train import train
from fastslow.networks.training.trained import TrainedNetwork
from fastslow.views.network_figures import plot_network
from helpers.level_case import random_parameters
from helpers.networks import all_configs, close, make_network, program, small_training
from helpers.random_graphs import make_graph, make_scalers, structures

torch.set_num_threads(1)
graphs = st.builds(make_graph, structures(min_nodes=2), st.integers(0, 99))


def prepare(graph):
    """All columns of dimensions but the strides, which are constant in train."""
    std = np.ones(EXPANDED_NODE_FEATURES)
    std[node_columns.WINDOW_STRIDE] = 0
    scaler = Scaler(np.zeros(EXPANDED_NODE_FEATURES), std)
    return PreparedGraph(graph, scaler, make_scalers(graph)[1], dimension_tokens=True)


def token_rows(graph, node, config):
    """The six tokens of one node under one configuration, number by number."""
    expanded = np.clip(expand_nodes(graph)[node], -8, 8)
    row = {int(n): k for k, n in enumerate(graph.config_index)}
    layouts = [graph.node_feat[node, node_columns.LAYOUT].astype(int)]
    if node in row:
        layouts += [graph.layouts[code] for code in graph.choices.layout_codes()[config, row[node]]]
    else:
        layouts += [np.full(6, -2)] * 3
    tokens = []
    for axis in range(6):
        lists = "shape dimensions window_size window_stride window_padding_low window_padding_high"
        lists += " window_dilation base_dilation window_reversal"
        named = [f"{name}_{axis}" for name in lists.split()]
        columns = [node_columns.COLUMN_NAMES.index(name) for name in named]
        token = [0.0 if "stride" in n else expanded[c] for n, c in zip(named, columns, strict=True)]
        token += [expanded[134 + axis], expanded[140 + axis]]
        batch_or_feature = [graph.node_feat[node, c] for c in (105, 106, 93, 94, 99, 100)]
        token += [float(value == axis) for value in batch_or_feature]
        token += [float(layout[place] == axis) for layout in layouts for place in range(6)]
        tokens.append(token)
    return torch.tensor(tokens, dtype=torch.float32)


@given(graphs, st.integers(0, 99))
@settings(max_examples=30)
def test_each_state_is_embedded_as_its_six_tokens_alone(graph, seed):
    for column in (93, 94, 99, 100, 105, 106):
        graph.node_feat[:, column] = np.random.default_rng(seed).integers(-1, 6, graph.num_nodes)
    module = random_parameters(DimensionTokens(8), seed)
    batch = prepare(graph).batch(all_configs(graph), 0)
    level = batch.levels[0]
    dimensions = batch.numeric[:, -TOKEN_COLUMNS:]
    value = module(dimensions, batch.node_layout, batch.state_layouts, level.node_ids)
    states = (batch.pooling @ torch.eye(len(value))).nonzero()[:, 1].view(-1, graph.num_nodes)
    for config, own in enumerate(states):
        rows = [token_rows(graph, node, config) for node in range(graph.num_nodes)]
        alone = torch.cat([module.encoder(module.embed(row[None])).mean(1) for row in rows])
        close(value[own], alone, 2e-5)


def test_the_numbering_of_the_dimensions_does_not_matter():
    generator, order = torch.Generator().manual_seed(0), torch.tensor([3, 0, 5, 1, 4, 2])
    module = random_parameters(DimensionTokens(8), 1)
    dimensions = torch.rand(2, TOKEN_COLUMNS, generator=generator)
    layouts = torch.stack([torch.randperm(6, generator=generator) for _ in range(8)]).view(2, 24)
    node = torch.arange(2)
    value = module(dimensions, layouts[:, :6] + 2, layouts[:, 6:] + 2, node)
    moved = torch.empty_like(dimensions.view(2, 6, -1))
    moved[:, order] = dimensions.view(2, 6, -1)
    renamed = order[layouts]
    again = module(moved.flatten(1), renamed[:, :6] + 2, renamed[:, 6:] + 2, node)
    close(again, value, 1e-5)


def test_columns_that_are_not_read_count_as_zero():
    features = dimension_features(np.ones((3, 2), np.float32), np.array([21, 193]), np.full((3, 140), -1.0))
    assert features.shape == (3, TOKEN_COLUMNS) and features.sum() == 3, "shape_0 of each node"


def test_predictions_node_by_node_are_those_of_one_batch():
    graph, network = program(), make_network(dimension_tokens=True)
    prepared = PreparedGraph(graph, *make_scalers(graph), dimension_tokens=True)
    whole = network(prepared.batch(all_configs(graph), 2))
    parts = predict_by_nodes(network, prepared, all_configs(graph), torch.device("cpu"), 1 << 30, 1)
    close(parts, whole, 1e-5)
    assert "six dimensions" in "".join(text.get_text() for text in plot_network(network).axes[0].texts)


def test_it_trains_beside_depths_and_predicts_from_the_run_folder_alone(features, tmp_path):
    settings = small_training(
        features, tmp_path, epochs=1, dimension_tokens=True, node_inputs="numeric+tiles+depths"
    )
    train(settings)
    predicted = read_predictions(tmp_path / "run")[VALID]
    again = TrainedNetwork(tmp_path / "run")(features, VALID)
    for name, own in predicted.items():
        np.testing.assert_allclose(again[name], own, rtol=1e-5, atol=1e-6)


def test_its_heads_share_the_channels():
    with pytest.raises(SettingsError, match="hidden_channels: 7 is not even, as dimension_tokens needs"):
        TrainSettings(dimension_tokens=True, hidden_channels=7)
