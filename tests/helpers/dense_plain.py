"""Dense form of the structures of TpuGraphs' baselines: float64, a row for each (configuration, node) pair.

Written from the formulas; ``plain.py`` and ``input_attention.py`` must agree with it.
"""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, linear

from fastslow.competition import node_columns
from fastslow.features.graph import expand_nodes
from helpers.dense_convolutions import adjacency, dense_convolution
from helpers.dense_reference import dense_cross, dense_edges, dense_readout, sub

SLOPE = 0.2


def dense_plain_predictions(network, graph, node_scaler, config_scaler, configs, edges=...) -> Tensor:
    """``(C,)`` predictions in float64 of a network whose block is not ours, with gradients."""
    p = {name: parameter.double() for name, parameter in network.named_parameters()}
    layers = network.architecture
    config_feat = torch.from_numpy(config_scaler.transform(graph.config_feat[configs])).double()
    joined = config_feat if layers.joins_nodes else None
    x = dense_plain_states(p, layers, graph, node_scaler, configs, dense_edges(graph)[edges], joined)
    y = dense_readout(x, graph, layers.readout)
    y = y if layers.joins_nodes else torch.cat([y, config_feat], 1)
    mlp = sub(p, "head.mlp.")
    *hidden, last = sorted({int(name.split(".")[0]) for name in mlp})
    for number in hidden:
        y = leaky_relu(linear(y, mlp[f"{number}.weight"], mlp[f"{number}.bias"]), SLOPE)
    return linear(y, mlp[f"{last}.weight"], mlp[f"{last}.bias"]).squeeze(1)


def dense_plain_states(p, layers, graph, node_scaler, configs, edge_index, joined=None, nodes=slice(None)):
    """``(C, n, D)`` last states of the nodes, or of the graph that some nodes are with the edges given."""
    trunk = sub(p, "trunk.")
    x, layouts = dense_input(graph, node_scaler, configs, trunk)
    x, layouts = x[:, nodes], layouts[:, nodes]
    if joined is not None:
        x = torch.cat([x, joined[:, None].expand(-1, x.shape[1], -1)], -1)
    if layers.block == "residual":
        for number in (0, 2):
            encoder = trunk[f"encode.{number}.weight"], trunk[f"encode.{number}.bias"]
            x = linear(x, *encoder)
            x = x if number and layers.convolution.startswith("mlp_gcn") else leaky_relu(x, SLOPE)
    if layers.input_attention:
        x = dense_input_attention(x, edge_index, sub(trunk, "attend."))
    for number in range(layers.num_layers):
        x = dense_plain_block(x, layouts, edge_index, sub(trunk, f"blocks.{number}."), layers)
    resgcn = layers.block == "residual" and layers.convolution.startswith("mlp_gcn")
    return leaky_relu(x, SLOPE) if resgcn else x


def dense_input(graph, node_scaler, configs, p) -> tuple[Tensor, Tensor]:
    """``(C, N, F)`` before any layer, and the layouts ``(C, N, 18)``: 0 to 100 for -1 to 5, else 0."""
    layouts = np.zeros((len(configs), graph.num_nodes, 3, 6))
    for c, config in enumerate(configs):
        for k, node in enumerate(graph.config_index):
            for role, code in enumerate(graph.choices.layout_codes()[config, k]):
                layouts[c, node, role] = 100 * (graph.layouts[code].astype(float) + 1) / 6
    layouts = torch.from_numpy(layouts).flatten(2)
    node_layout = torch.from_numpy((graph.node_feat[:, node_columns.LAYOUT] + 1) / 6).double()
    numeric = torch.from_numpy(node_scaler.transform(expand_nodes(graph))).double()
    opcode = p["opcode.weight"][torch.from_numpy(graph.node_opcode.astype(int))]
    node = torch.cat([numeric, node_layout, opcode], -1)
    return torch.cat([layouts, node.expand(len(configs), -1, -1)], -1), layouts


def dense_input_attention(x: Tensor, edge_index, p) -> Tensor:
    """``(C, N, D)``: x + W_o of 16 heads, whose weights count .1 for nodes that are no neighbours."""
    matrix = adjacency(edge_index, x.shape[1])
    near = (matrix + matrix.T + torch.eye(x.shape[1])) > 0
    log_counts = torch.where(near, 0.0, math.log(0.1)).double()
    parts = (linear(x, p[f"{name}.weight"], p[f"{name}.bias"]) for name in ("query", "key", "value"))
    query, key, value = (part.unflatten(-1, (16, 32)) for part in parts)
    heads = []
    for head in range(16):
        scores = query[:, :, head] @ key[:, :, head].transpose(1, 2) / math.sqrt(32)
        heads.append(torch.softmax(scores + log_counts, 2) @ value[:, :, head])
    return x + linear(torch.cat(heads, -1), p["output.weight"], p["output.bias"])


def dense_plain_block(x: Tensor, layouts: Tensor, edge_index, p, layers) -> Tensor:
    """``(C, N, D)`` after one block."""
    z = dense_cross(x, p["cross.temperature"]) if layers.cross_config else x
    if layers.block == "unit":
        y = leaky_relu(dense_convolution(z, edge_index, sub(p, "conv."), layers), SLOPE)
        return y / y.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    if layers.convolution == "gcn":
        y = dense_convolution(torch.cat([layouts, z], -1), edge_index, sub(p, "conv."), layers)
        y = linear(leaky_relu(y, SLOPE), p["linear.weight"], p["linear.bias"])
    else:
        y = dense_convolution(z, edge_index, sub(p, "conv."), layers)
    return x + (y if layers.convolution.startswith("mlp_gcn") else leaky_relu(y, SLOPE))
