"""Dense form of a step on some segments of a graph: every (configuration, node) pair, in float64.

Written from the formulas: the whole graph is computed, and what a step does not learn from is detached.
"""

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear

from fastslow.features.scaling import Scaler
from fastslow.features.store import Graph
from fastslow.networks.model.network import RankingNetwork
from helpers.dense_convolutions import dense_convolution
from helpers.dense_reference import (
    dense_channel,
    dense_cross,
    dense_edges,
    dense_input,
    dense_perceptron,
    sub,
)


def moments_over(x: Tensor, live: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance ``(D,)`` over the counted nodes of ``(C, N, D)``, with gradients through the live."""
    x = torch.where(live[:, None], x, x.detach())[:, counted]
    return x.mean((0, 1)), x.var((0, 1), unbiased=False)


def dense_states(
    network: RankingNetwork, graph: Graph, scaler: Scaler, configs, edges, live: Tensor, counted: Tensor
) -> Tensor:
    """``(C, N, D)`` states of the last level.

    ``edges`` are positions of those that messages pass along; norms take the moments of ``counted`` nodes.
    """
    p = {name: parameter.double() for name, parameter in network.named_parameters()}
    x, config = dense_input(graph, scaler, configs, sub(p, "trunk."))
    layers, edge_index = network.architecture, dense_edges(graph)[edges]
    for number, block in enumerate(network.trunk.blocks):
        own = sub(p, f"trunk.blocks.{number}.")
        mean, variance = moments_over(x, live, counted)
        y = (x - mean) / torch.sqrt(variance + block.norm.eps) * own["norm.weight"] + own["norm.bias"]
        y = dense_channel(dense_convolution(y, edge_index, sub(own, "conv."), layers), sub(own, "channel."))
        if "cross.temperature" in own:
            y = torch.cat([y, dense_cross(y, own["cross.temperature"])], -1)
        y = linear(gelu(y), own["project.2.weight"], own["project.2.bias"])
        x = x + y + linear(config, own["layout.weight"])
    return x


def dense_head(network: RankingNetwork, graph: Graph, scaler: Scaler, configs, sums: Tensor) -> Tensor:
    """``(C,)`` predictions from the sums ``(C, D)`` of the nodes, of a network whose readout is the sum."""
    p = {name: parameter.double() for name, parameter in network.named_parameters()}
    config_feat = torch.from_numpy(scaler.transform(graph.config_feat[configs])).double()
    joined = torch.cat([sums, config_feat], 1)
    deviation = joined - joined.mean(0)
    standardised = deviation / torch.sqrt(deviation.square().mean(0) + network.head.norm.eps)
    return dense_perceptron(torch.cat([joined, standardised], 1), sub(p, "head.mlp.")).squeeze(1)
