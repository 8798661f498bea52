"""Dense forms of states, layers and the ranking network: every (configuration, node) pair on its own.

Written from the formulas, in float64, with a row for each of the C x N pairs and dense N x N matrices;
nothing is shared between pairs. ``config_states.py``, ``layers.py`` and ``network.py`` must agree with it.
"""

from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import gelu, linear

from fastslow.competition import node_columns
from fastslow.features.configs.tpu_tiling import TILING_FEATURES, tiling_features
from fastslow.features.graph import Graph, expand_nodes
from fastslow.features.scaling import Scaler
from fastslow.networks.model.network import RankingNetwork
from fastslow.networks.states.config_states import Level
from helpers.dense_convolutions import dense_convolution

Parameters = dict[str, Tensor]


def brute_force_states(edge_index, num_nodes: int, config_index, codes, num_layers: int) -> np.ndarray:
    """``(C, N)`` state of each pair: equal numbers for equal nested tuples, distinguished one pair at a time.

    Level 0 is (node, its codes); level l is (own state, sorted operand states, sorted user states) of l - 1.
    """
    row = {int(node): k for k, node in enumerate(config_index)}
    operands = [[v for u, v in edge_index.tolist() if u == node] for node in range(num_nodes)]
    users = [[u for u, v in edge_index.tolist() if v == node] for node in range(num_nodes)]
    numbers: dict[tuple, int] = {}

    @cache
    def state(config: int, node: int, level: int) -> int:
        if level == 0:
            key = (node, *codes[config, row[node]].tolist()) if node in row else (node,)
        else:
            sides = (sorted(state(config, m, level - 1) for m in side[node]) for side in (operands, users))
            key = (level, state(config, node, level - 1), *map(tuple, sides))
        return numbers.setdefault(key, len(numbers))

    return np.array([[state(c, n, num_layers) for n in range(num_nodes)] for c in range(len(codes))])


def state_table(levels: list[Level]) -> np.ndarray:
    """``(C, N)`` state of the last level that each pair has."""
    configs = np.arange(levels[-1].classes.index.shape[1])
    return levels[-1].state(np.arange(len(levels[-1].set_index)), configs[:, None])


def mean_matrices(edge_index, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """``(N, N)`` mean over a node's operands, and over its users; zero rows where it has none."""
    operands, users = np.zeros((2, num_nodes, num_nodes))
    for u, v in edge_index:
        operands[u, v] += 1
        users[v, u] += 1
    return tuple(matrix / np.maximum(matrix.sum(1, keepdims=True), 1) for matrix in (operands, users))


def dense_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, live=None, counted=...) -> Tensor:
    """``(C, N, D)``: each channel to mean 0 and variance 1 over all pairs, then scale and shift.

    The moments are those of the ``counted`` nodes, with gradients through the ``live`` ones.
    """
    over = (x if live is None else torch.where(live[:, None], x, x.detach()))[:, counted]
    mean, variance = over.mean((0, 1)), over.var((0, 1), unbiased=False)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


def dense_channel(x: Tensor, p: Parameters) -> Tensor:
    """``(C, N, D)``: x sigmoid(W2 relu(W1 x))."""
    inner = torch.relu(linear(x, p["gate.0.weight"], p["gate.0.bias"]))
    return x * torch.sigmoid(linear(inner, p["gate.2.weight"], p["gate.2.bias"]))


def dense_cross(x: Tensor, temperature: Tensor) -> Tensor:
    """``(C, N, D)``: x C softmax(x / T) over the configurations."""
    return x * len(x) * torch.softmax(x / temperature, 0)


def dense_edges(graph: Graph) -> np.ndarray:
    """``(E', 2)``: the graph's edges and one from consumer to producer of each pair, none twice."""
    edges = {(int(u), int(v)) for u, v in graph.edge_index}
    edges |= {(int(graph.config_index[c]), int(graph.config_index[p])) for p, c, _ in graph.pairs}
    return np.array(sorted(edges), np.int64).reshape(-1, 2)


def dense_block(x: Tensor, layouts: Tensor, edge_index, p: Parameters, eps: float, layers, *over) -> Tensor:
    """``(C, N, D)``: norm, convolution, channel and cross-config attention, projection, residual, layouts."""
    y = dense_norm(x, p["norm.weight"], p["norm.bias"], eps, *over)
    y = dense_channel(dense_convolution(y, edge_index, sub(p, "conv."), layers), sub(p, "channel."))
    if "cross.temperature" in p:
        y = torch.cat([y, dense_cross(y, p["cross.temperature"])], -1)
    y = linear(gelu(y), p["project.2.weight"], p["project.2.bias"])
    return x + y + linear(layouts, p["layout.weight"])


def dense_input(graph: Graph, node_scaler: Scaler, configs, p: Parameters) -> tuple[Tensor, Tensor]:
    """``(C, N, D)`` before any message, and the layouts of each pair; a node without has 18 values of -2."""
    values = np.full((len(configs), graph.num_nodes, 3, 6), -2)
    tiling = np.zeros((len(configs), graph.num_nodes, 3, TILING_FEATURES))
    for c, config in enumerate(configs):
        for k, node in enumerate(graph.config_index):
            for role, code in enumerate(graph.choices.layout_codes()[config, k]):
                values[c, node, role] = graph.layouts[code]
                tensor = graph.tensor_sizes[k, role], graph.layouts[code], graph.default_layouts[k, role]
                tiling[c, node, role] = tiling_features(*tensor)
    embed = p["layout.weight"]
    node_layout = torch.from_numpy(graph.node_feat[:, node_columns.LAYOUT].astype(int) + 2)
    numeric = torch.from_numpy(node_scaler.transform(expand_nodes(graph))).double()
    opcode = p["opcode.weight"][torch.from_numpy(graph.node_opcode.astype(int))]
    node = torch.cat([numeric, embed[node_layout].flatten(-2), opcode], -1)
    layouts = embed[torch.from_numpy(values + 2)].flatten(-3)
    config = torch.cat([layouts, torch.from_numpy(tiling).flatten(-2)], -1)
    config = linear(config, p["configured.weight"])
    x = linear(node, p["node.weight"], p["node.bias"]) + config
    return linear(gelu(x), p["input.1.weight"], p["input.1.bias"]), config


def dense_predictions(
    network: RankingNetwork, graph: Graph, node_scaler: Scaler, config_scaler: Scaler, configs, edges=...
) -> Tensor:
    """``(C,)`` predictions in float64 from the parameters of a network, without dropout of channels.

    Gradients reach the parameters. ``edges`` are positions of those that messages pass along.
    """
    x = dense_states(network, graph, node_scaler, configs, edges)
    pooled = dense_readout(x, graph, network.architecture.readout)
    return dense_head(network, graph, config_scaler, configs, pooled)


def dense_states(network: RankingNetwork, graph: Graph, scaler: Scaler, configs, edges=..., *over) -> Tensor:
    """``(C, N, D)`` states of the last level; ``over`` are the live and the counted nodes of each norm."""
    p = {name: parameter.double() for name, parameter in network.named_parameters()}
    x, config = dense_input(graph, scaler, configs, sub(p, "trunk."))
    layers, edges = network.architecture, dense_edges(graph)[edges]
    for number, block in enumerate(network.trunk.blocks):
        block_parameters = sub(p, f"trunk.blocks.{number}.")
        x = dense_block(x, config, edges, block_parameters, block.norm.eps, layers, *over)
    return x


def dense_head(network: RankingNetwork, graph: Graph, scaler: Scaler, configs, pooled: Tensor) -> Tensor:
    """``(C,)`` predictions from what the readout ``(C, P D)`` gives of each configuration."""
    p = {name: parameter.double() for name, parameter in network.named_parameters()}
    config_feat = torch.from_numpy(scaler.transform(graph.config_feat[configs])).double()
    joined = torch.cat([pooled, config_feat], 1)
    deviation = joined - joined.mean(0)
    standardised = deviation / torch.sqrt(deviation.square().mean(0) + network.head.norm.eps)
    return dense_perceptron(torch.cat([joined, standardised], 1), sub(p, "head.mlp.")).squeeze(1)


def dense_readout(x: Tensor, graph: Graph, text: str) -> Tensor:
    """``(C, P D)``: each pooling over the nodes of each configuration, side by side."""
    parts = []
    for part in text.split("+"):
        pool, _, chosen = part.partition("@")
        nodes = x[:, torch.from_numpy(graph.config_index).long()] if chosen and len(graph.config_index) else x
        total = nodes.amax(1) if pool == "max" else getattr(nodes, pool.removeprefix("unit_"))(1)
        length = total.norm(dim=1, keepdim=True).clamp(min=1e-12) if pool == "unit_sum" else 1
        parts.append(total / length)
    return torch.cat(parts, 1)


def dense_perceptron(x: Tensor, p: Parameters) -> Tensor:
    """``(..., 1)``: three linear layers with GELU between."""
    y = gelu(linear(x, p["0.weight"], p["0.bias"]))
    y = gelu(linear(y, p["3.weight"], p["3.bias"]))
    return linear(y, p["5.weight"], p["5.bias"])


def sub(p: Parameters, prefix: str) -> Parameters:
    """The parameters of one submodule, under its own names."""
    return {name.removeprefix(prefix): value for name, value in p.items() if name.startswith(prefix)}
