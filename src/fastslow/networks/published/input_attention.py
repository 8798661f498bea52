"""Attention over all nodes before the blocks, non-neighbours with a small weight (Harvard report)."""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fastslow.networks.model.graph_batch import LevelTensors

HEADS = 16
HEAD_CHANNELS = 32
OTHERS = 0.1
"""Weight of a node that is no neighbour; a neighbour and the node itself have weight 1."""
_ENTRIES = 1 << 24  # weights that are held at once; the backward pass computes them again


class InputAttention(nn.Module):
    r"""Let every node attend to all nodes of the graph, in 16 heads of 32 channels (arXiv 1706.03762).

    .. math:: x'_n = x_n + W_o \sum_m \frac{a_{nm} e^{q_n \cdot k_m / \sqrt{32}}}
              {\sum_{m'} a_{nm'} e^{q_n \cdot k_{m'} / \sqrt{32}}} v_m, \quad [q, k, v] = W x

    with a = 1 for the operands and users of n and n itself, 0.1 for every other node. The report adds it as
    first layer of TpuGraphs' layout and tile network and calls it "reweigh the adjacency mask ... with 0.1".
    Two points are this project's reading: the mask multiplies weights before they are normalised, and there
    is a residual.

    Deduplication is lost for what follows: each node sees the whole graph, so all blocks run on (node,
    configuration) pairs, N x C of them. Within the layer the sum over the nodes that no configuration changes
    is computed once for all configurations, and weights are held for a bounded number of pairs at a time.

    Args:
        channels: Channels D of x.
    """

    def __init__(self, channels: int):
        super().__init__()
        inner = HEADS * HEAD_CHANNELS
        self.query = nn.Linear(channels, inner)
        self.key = nn.Linear(channels, inner)
        self.value = nn.Linear(channels, inner)
        self.output = nn.Linear(inner, channels)

    def forward(self, x: Tensor, below: LevelTensors, level: LevelTensors) -> Tensor:
        """Return the states ``(S, D)`` of ``level``, where every node has one per distinct configuration."""
        parts = (linear(x).unflatten(1, (HEADS, -1)) for linear in (self.query, self.key, self.value))
        query, key, value = (part.float().transpose(0, 1) for part in parts)  # (H, S, d)
        query = query / math.sqrt(HEAD_CHANNELS)
        node = below.node_ids
        bias = _log_weights(below, level)
        varies = torch.bincount(node, minlength=below.num_nodes) > 1
        fixed = (~varies)[node]
        shared, total = _attend_to_fixed(query, key[:, fixed], value[:, fixed], bias[:, node[fixed]], node)
        pairs = level.itself.view(level.num_nodes, -1)  # states are sorted by node
        if varies.any():
            attend = partial(_attend_to_varying, query, key, value, shared, total, bias[:, varies])
            step = max(1, _ENTRIES // (HEADS * level.num_nodes * int(varies.sum())))
            chunks = [(rows, rows[varies]) for rows in pairs.split(step, 1)]
            attended = torch.cat([_again(attend, *chunk) for chunk in chunks], 2)
        else:
            attended = shared[:, pairs]
        y = self.output(attended.permute(1, 2, 0, 3).flatten(2)).flatten(0, 1)
        return x[level.itself] + y


def _log_weights(below: LevelTensors, level: LevelTensors) -> Tensor:
    """Return the logarithms ``(N, N)`` of the weights a."""
    bias = torch.full((below.num_nodes,) * 2, math.log(OTHERS), device=below.node_ids.device)
    bias.fill_diagonal_(0)
    for side in (level.operands, level.users):
        states, neighbours = side.entries()
        bias[level.node_ids[states], below.node_ids[neighbours]] = 0
    return bias


def _attend_to_fixed(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, node: Tensor
) -> tuple[Tensor, Tensor]:
    """Attend from every state to the nodes that have a single one.

    Returns:
        Mean ``(H, S, d)`` of their values, and the logarithm ``(H, S)`` of the sum of their weights.
    """

    def attend(rows: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        scores = rows @ key.transpose(1, 2) + bias[nodes]
        return scores.softmax(2) @ value, scores.logsumexp(2)

    step = max(1, _ENTRIES // (HEADS * max(1, key.shape[1])))
    parts = [_again(attend, *rows) for rows in zip(query.split(step, 1), node.split(step), strict=True)]
    means, totals = zip(*parts, strict=True)
    return torch.cat(means, 1), torch.cat(totals, 1)


def _attend_to_varying(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    shared: Tensor,
    total: Tensor,
    bias: Tensor,
    rows: Tensor,
    keys: Tensor,
) -> Tensor:
    """Attend from the nodes under some configurations to all nodes; those that never vary count as one.

    Args:
        query: ``(H, S, d)``.
        key: ``(H, S, d)``.
        value: ``(H, S, d)``.
        shared: ``(H, S, d)`` mean over the nodes that never vary.
        total: ``(H, S)`` logarithm of their weight.
        bias: ``(N, M)`` logarithms of the weights of the nodes that vary.
        rows: ``(N, C)`` state of each node under each configuration.
        keys: ``(M, C)`` state of each node that varies.

    Returns:
        ``(H, N, C, d)``.
    """
    scores = torch.einsum("hncd,hmcd->hnmc", query[:, rows], key[:, keys]) + bias[:, :, None]
    weight = torch.cat([total[:, rows][:, :, None], scores], 2).softmax(2)  # (H, N, 1 + M, C)
    varying = torch.einsum("hnmc,hmcd->hncd", weight[:, :, 1:], value[:, keys])
    return weight[:, :, 0, :, None] * shared[:, rows] + varying


def _again(function, *tensors: Tensor):
    """Call a function whose inner results are computed again in the backward pass, not held until then."""
    return (
        checkpoint(function, *tensors, use_reentrant=False) if torch.is_grad_enabled() else function(*tensors)
    )
