"""Layered layout of a directed acyclic graph for drawing (Sugiyama, Tagawa and Toda 1981).

Nodes are assigned to layers, ordered within them such that few edges cross, and moved close to their
neighbours.
"""

from graphlib import TopologicalSorter

import numpy as np
from scipy.optimize import isotonic_regression

_LAST = 4  # final sweeps, which use operands and users together


def assign_layers(edge_index: np.ndarray, num_nodes: int, constants: np.ndarray) -> np.ndarray:
    """Assign nodes to layers: every operand before its users, with short edges.

    A node is placed right after the last of its operands, or right before the first of its users where that
    shortens more edges than it lengthens: a weight, for example, and values computed from it alone.

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        num_nodes: N.
        constants: Nodes without operands whose edges may be long, as node numbers.

    Returns:
        ``(N,)`` int64, 0 the first layer.

    Raises:
        graphlib.CycleError: The graph has a cycle.
    """
    operands: list[list[int]] = [[] for _ in range(num_nodes)]
    users: list[list[int]] = [[] for _ in range(num_nodes)]
    for user, operand in np.asarray(edge_index).tolist():
        operands[user].append(operand)
        users[operand].append(user)
    order = list(TopologicalSorter(dict(enumerate(operands))).static_order())
    layer, lengthened, cost = [0] * num_nodes, [0.0] * num_nodes, [0.0] * num_nodes
    constant = np.isin(np.arange(num_nodes), constants).tolist()
    for node in order:
        layer[node] = 1 + max((layer[operand] for operand in operands[node]), default=-1)
        constant[node] |= bool(operands[node]) and all(constant[operand] for operand in operands[node])
        lengthened[node] = sum(cost[operand] for operand in operands[node])
        if not constant[node]:  # an operand moves with its only user where that costs less than one edge
            cost[node] = min(1.0, lengthened[node]) if len(users[node]) == 1 else 1.0
    for node in reversed(order):
        if len(users[node]) > lengthened[node]:
            layer[node] = min(layer[user] for user in users[node]) - 1
    layers = np.array(layer, np.int64).reshape(num_nodes)
    return layers - layers.min(initial=0)


def split_long_edges(edge_index: np.ndarray, layer: np.ndarray) -> tuple[np.ndarray, np.ndarray, list]:
    """Split each edge at a bend in every layer between its ends.

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        layer: ``(N,)`` layers as returned by :func:`assign_layers`.

    Returns:
        Edges between adjacent layers (E', 2) over the N nodes and the bends, which are numbered from N on;
        the layer of nodes and bends; and the nodes and bends of each of the E edges, from user to operand.
    """
    layers, routes = layer.tolist(), []
    for user, operand in np.asarray(edge_index).tolist():
        between = range(layers[user] - 1, layers[operand], -1)
        routes.append([user, *range(len(layers), len(layers) + len(between)), operand])
        layers.extend(between)
    steps = [step for route in routes for step in zip(route, route[1:], strict=False)]
    return np.array(steps, np.int64).reshape(-1, 2), np.array(layers, np.int64), routes


def place(
    edge_index: np.ndarray, layer: np.ndarray, width: np.ndarray, weight: np.ndarray, sweeps: int = 12
) -> np.ndarray:
    """Place nodes within their layers: close to the mean of their neighbours, without overlap.

    Sweeps alternate between the mean of the operands (downwards) and of the users (upwards); the last ones
    use both. In each layer nodes are sorted by their wanted position and separated by isotonic regression.

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        layer: ``(N,)`` layer of each node.
        width: ``(N,)`` width that each node needs.
        weight: ``(N,)`` weight of a node's deviation from its wanted position.
        sweeps: Number of passes over all layers.

    Returns:
        ``(N,)`` float64 centre of each node.
    """
    by_layer = np.argsort(layer, kind="stable")
    sizes = np.unique(layer, return_counts=True)[1]
    ends = np.cumsum(sizes)
    user, operand = np.asarray(edge_index).reshape(-1, 2).T
    operands, users = _neighbours(user, operand, by_layer), _neighbours(operand, user, by_layer)
    both = _neighbours(np.append(user, operand), np.append(operand, user), by_layer)
    x = np.zeros(len(layer))
    for row in np.split(by_layer, ends[:-1]):
        x[row] = _spread(x[row], width[row], weight[row])
    for sweep in range(sweeps):
        first, neighbours = both if sweep >= sweeps - _LAST else (operands, users)[sweep % 2]
        for end, size in list(zip(ends, sizes, strict=True))[:: -1 if sweep % 2 else 1]:
            row, bounds = by_layer[end - size : end], first[end - size : end + 1]
            total = np.append(0, np.cumsum(x[neighbours[bounds[0] : bounds[-1]]]))[bounds - bounds[0]]
            degree = np.diff(bounds)
            wanted = np.where(degree > 0, np.diff(total) / np.maximum(degree, 1), x[row])
            order = np.argsort(wanted, kind="stable")
            row = row[order]
            x[row] = _spread(wanted[order], width[row], weight[row])
    return x


def _neighbours(one: np.ndarray, other: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return neighbour lists in CSR form, nodes in the given order: starts (N + 1,) and neighbours (E,)."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    count = np.bincount(position[one], minlength=len(order))
    return np.append(0, np.cumsum(count)), other[np.argsort(position[one], kind="stable")]


def _spread(wanted: np.ndarray, width: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the centres closest to the wanted ones, in the given order, without overlap."""
    if len(wanted) == 1:
        return wanted
    offset = np.cumsum(width) - width / 2
    return isotonic_regression(wanted - offset, weights=weight).x + offset
