"""Small networks and programs for the tests of networks."""

import numpy as np
import torch

from fastslow.networks.architecture import Architecture
from fastslow.networks.model import RankingNetwork
from helpers.random_graphs import NUM_LAYOUTS, make_graph


def make_network(num_layers=2, cross_config=True, dropout=0.3, hidden_channels=8, seed=0, **architecture):
    """A network in evaluation mode with every parameter at random, so that none hides behind a 0 or 1."""
    torch.manual_seed(seed)
    layers = Architecture(hidden_channels, num_layers, cross_config, dropout, **architecture)
    network = RankingNetwork(4, 3, layers).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    # 1e-5 would amplify rounding 300 times per norm where nodes or configurations hardly differ
    if layers.block == "attention":
        for norm in (network.head.norm, *(block.norm for block in network.trunk.blocks)):
            norm.eps = 0.05
    return network


def all_configs(graph):
    return np.arange(graph.num_configs)


def close(value, reference, tolerance):
    scale = max(0.1, float(reference.detach().abs().max()))
    torch.testing.assert_close(value.double(), reference.double(), rtol=0, atol=tolerance * scale)


def program(num_configs=6):
    """A layout program of six nodes, one isolated, with two configurable and a repeated configuration."""
    codes = np.random.default_rng(1).integers(0, NUM_LAYOUTS, (num_configs, 2, 3)).astype(np.uint8)
    codes[-1] = codes[0]
    return make_graph((np.array([[1, 0], [2, 1], [3, 2], [3, 0], [0, 3]]), 6, np.array([4, 1]), codes))
