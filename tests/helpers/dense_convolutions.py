"""Dense forms of the convolutions: matrices N x N from the edges, one (configuration, node) pair at a time.

Written from the formulas in float64, over ``(C, N, D)``; ``convolutions.py`` must agree with them.
"""

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, linear

Parameters = dict[str, Tensor]


def adjacency(edge_index, num_nodes: int) -> Tensor:
    """``(N, N)`` number of edges from consumer (row) to operand (column)."""
    matrix = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
    for u, v in edge_index:
        matrix[u, v] += 1
    return matrix


def dense_sage(x: Tensor, edge_index, p: Parameters, aggregation: str = "mean") -> Tensor:
    """``(C, N, D)``: W x_n + b + aggregate of W_o x over operands + aggregate of W_u x over users."""
    operands = adjacency(edge_index, x.shape[1])
    y = linear(x, p["own.weight"], p["own.bias"])
    for matrix, name in ((operands, "operands.weight"), (operands.T, "users.weight")):
        z = linear(x, p[name])
        rows = []
        for node in range(x.shape[1]):
            neighbours = z[:, matrix[node] > 0]
            empty = not neighbours.shape[1]
            rows.append(0 * z[:, 0] if empty else getattr(neighbours, aggregation)(1))
        y = y + torch.stack(rows, 1)
    return y


def dense_gcn(x: Tensor, edge_index, p: Parameters) -> Tensor:
    """``(C, N, D)``: D^-1/2 (A + A' + I) D^-1/2 x W' + b."""
    matrix = adjacency(edge_index, x.shape[1])
    matrix = matrix + matrix.T + torch.eye(x.shape[1])
    scale = torch.diag(matrix.sum(1) ** -0.5)
    return linear(scale @ matrix @ scale @ x, p["linear.weight"], p["linear.bias"])


def dense_mlp_gcn(x: Tensor, edge_index, p: Parameters, slope: float) -> Tensor:
    """``(C, N, D)``: MLP(M u + M' u + u), u = leaky(x)."""
    u = leaky_relu(x, slope)
    matrix = adjacency(edge_index, x.shape[1]).T + torch.eye(x.shape[1])
    matrix = matrix / matrix.sum(1, keepdim=True)
    inner = linear(matrix @ u + matrix.T @ u + u, p["mlp.0.weight"], p["mlp.0.bias"])
    return linear(leaky_relu(inner, slope), p["mlp.2.weight"], p["mlp.2.bias"])


def dense_convolution(x: Tensor, edge_index, p: Parameters, architecture) -> Tensor:
    """``(C, N, D)``: the convolution of an architecture."""
    name = architecture.convolution
    if name.startswith("sage"):
        return dense_sage(x, edge_index, p, {"sage": "mean"}.get(name, name.removeprefix("sage_")))
    if name == "mlp_gcn":
        return dense_mlp_gcn(x, edge_index, p, slope=0.2 if architecture.block == "residual" else 0.01)
    return dense_gcn(x, edge_index, p)
