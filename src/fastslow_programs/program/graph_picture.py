"""Draw the graph of a program: operands before their users, configurable nodes in colour.

Nodes of a small graph and of the neighbourhood of one node are boxes; nodes of a large graph are dots. The
arrays of a competition file are all that is needed.
"""

from collections.abc import Mapping
from graphlib import TopologicalSorter

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from fastslow.competition import node_columns
from fastslow.competition.opcodes import CONVOLUTION, DOT, OPCODES, RESHAPE, opcode_name
from fastslow.features.nodes.pruning import WHOLE_GRAPH, hop_distance

MAX_BOXES = 60  # nodes up to which a graph is drawn as boxes: the text is legible at the width of a page
MAX_NEIGHBOURS = 30  # nodes of a drawn neighbourhood
# nodes up to which a called computation without a configurable node (the sum of a reduce) is not drawn
SMALL_COMPUTATION = 16
# colours that remain distinguishable with colour blindness
COLOURS = {CONVOLUTION: "#e69f00", DOT: "#56b4e9", RESHAPE: "#2fb892"}
_INPUTS = [OPCODES["parameter"], OPCODES["constant"], OPCODES["iota"]]
_CHARACTER, _GAP, _LAYER = 0.066, 0.25, 0.6  # inches: of a label, between boxes, between layers
_MIN_WIDTH, _DOTS_WIDTH, _DOTS_HEIGHT = 5.0, 12.0, 6.0  # inches
_SWEEPS = 8


def plot_graph(arrays: Mapping[str, np.ndarray], title: str) -> Figure:
    """Draw the whole graph: boxes with opcode, node number, type and shape, or dots for over 60 nodes.

    Args:
        arrays: Arrays of a layout file: ``node_feat`` (N, 140), ``node_opcode`` (N,), ``edge_index`` (E, 2)
            and ``node_config_ids`` (K,).
        title: Name of the program.

    Returns:
        A figure; its legend counts the configurable nodes by opcode.
    """
    nodes = _without_small_computations(arrays)
    left_out = len(arrays["node_opcode"]) - len(nodes)
    title += f": {len(arrays['node_opcode']):,} nodes, {len(arrays['node_config_ids']):,} configurable"
    if left_out:
        title += f"; {left_out:,} of small called computations are not drawn"
    if len(nodes) <= MAX_BOXES:
        return _draw_boxes(arrays, nodes, title)
    return _draw_dots(arrays, nodes, f"{title}\noperands left of their users")


def plot_surroundings(arrays: Mapping[str, np.ndarray], node: int | None = None) -> Figure:
    """Draw the neighbourhood of a node, with as many hops as fit into 30 nodes.

    Args:
        arrays: As for :func:`plot_graph`.
        node: Number of the node; the configurable node with the largest output by default.

    Returns:
        A figure; the node has a thick border.
    """
    if node is None:
        ids = arrays["node_config_ids"]
        node = int(ids[np.argmax(arrays["node_feat"][ids, node_columns.SHAPE_PRODUCT])])
    distance = hop_distance(arrays["edge_index"], len(arrays["node_opcode"]), np.array([node]), WHOLE_GRAPH)
    reached = np.flatnonzero(distance >= 0)
    nearest = reached[np.argsort(distance[reached], kind="stable")]
    hops = distance[nearest[MAX_NEIGHBOURS]] - 1 if len(nearest) > MAX_NEIGHBOURS else distance.max()
    hops = max(1, hops)  # where one hop already has too many nodes, only the first ones are drawn
    shown = nearest[distance[nearest] <= hops][:MAX_NEIGHBOURS]
    title = f"around {opcode_name(int(arrays['node_opcode'][node]))} #{node}, {hops} hops"
    return _draw_boxes(arrays, np.sort(shown), title, node)


def assign_layers(edge_index: np.ndarray, num_nodes: int) -> np.ndarray:
    """Assign nodes to layers: each right before the first of its users, as far as edges allow.

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        num_nodes: N.

    Returns:
        ``(N,)`` int64, 0 the first layer.

    Raises:
        graphlib.CycleError: The graph has a cycle.
    """
    users: list[list[int]] = [[] for _ in range(num_nodes)]
    for user, operand in np.asarray(edge_index).tolist():
        users[operand].append(user)
    layer = np.zeros(num_nodes, np.int64)
    for node in TopologicalSorter(dict(enumerate(users))).static_order():
        layer[node] = min((layer[user] for user in users[node]), default=0) - 1
    return layer - layer.min(initial=0)


def place(edge_index: np.ndarray, layer: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Place nodes within their layers: in the order of the mean of their neighbours, side by side.

    Sweeps over the layers alternate between the two directions (Sugiyama, Tagawa and Toda 1981).

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        layer: ``(N,)`` layer of each node.
        width: ``(N,)`` width that each node needs.

    Returns:
        ``(N,)`` float64 centre of each node.
    """
    size = len(layer)
    one_way = sparse.coo_array((np.ones(len(edge_index)), tuple(edge_index.T)), shape=(size, size))
    both = (one_way + one_way.T + sparse.eye_array(size) * 1e-6).tocsr()  # a node alone stays where it is
    mean = sparse.diags_array(1 / both.sum(1)) @ both
    rows = np.split(np.argsort(layer, kind="stable"), np.cumsum(np.bincount(layer))[:-1])
    blocks = [mean[row] for row in rows]
    x = np.zeros(size)
    for sweep in range(_SWEEPS):
        for row, block in list(zip(rows, blocks, strict=True))[:: 1 if sweep % 2 else -1]:
            wanted = block @ x
            order = np.argsort(wanted, kind="stable")
            centres = np.cumsum(width[row[order]]) - width[row[order]] / 2
            x[row[order]] = centres - centres.mean() + wanted.mean()
    return x


def _without_small_computations(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the nodes of the entry and of every computation that is large or has a configurable node.

    Computations are the connected components of the graph without its call edges.
    """
    num_nodes = len(arrays["node_opcode"])
    calls = _calls(arrays, arrays["edge_index"])
    inside = arrays["edge_index"][~calls].T
    joined = sparse.coo_array((np.ones(inside.shape[1]), tuple(inside)), shape=(num_nodes, num_nodes))
    count, computation = connected_components(joined, directed=False)
    kept = np.ones(count, bool)
    kept[computation[arrays["edge_index"][calls, 1]]] = False
    kept[computation[arrays["node_config_ids"]]] = True
    kept |= np.bincount(computation, minlength=count) > SMALL_COMPUTATION
    return np.flatnonzero(kept[computation])


def _calls(arrays: Mapping[str, np.ndarray], edges: np.ndarray) -> np.ndarray:
    """Return whether edges lead from a caller to the root of the called computation, (E,) bool.

    A root has no other users.
    """
    return arrays["node_feat"][edges[:, 1], node_columns.IS_ROOT] > 0


def _edges_between(arrays: Mapping[str, np.ndarray], nodes: np.ndarray) -> np.ndarray:
    """Return the edges between some nodes, as positions in ``nodes``."""
    position = np.full(len(arrays["node_opcode"]), -1)
    position[nodes] = np.arange(len(nodes))
    edges = position[arrays["edge_index"]]
    return edges[(edges >= 0).all(1)]


def _label(row: np.ndarray, opcode: int, node: int) -> str:
    """Return a label of two lines: opcode and node number, element type and shape."""
    kind = node_columns.ELEMENT_TYPES[np.argmax(row[node_columns.ELEMENT_TYPE])]
    if kind == "tuple":
        kind = f"{row[node_columns.TUPLE_SHAPES]:.0f} tensors"
    elif node_columns.ELEMENT_BYTES[kind]:
        kind += "[{}]".format(",".join(f"{size:.0f}" for size in row[node_columns.SHAPE] if size > 0))
    return f"{opcode_name(opcode)} #{node}\n{kind}"


def _colours(arrays: Mapping[str, np.ndarray], nodes: np.ndarray, other: str) -> np.ndarray:
    """Return the colour of each node, (N,) str; ``other`` where it is not configurable."""
    configurable = np.isin(nodes, arrays["node_config_ids"])
    opcodes = np.where(configurable, arrays["node_opcode"][nodes], -1)
    return np.array([COLOURS.get(int(opcode), other) for opcode in opcodes])


def _canvas(arrays, nodes: np.ndarray, size: tuple[float, float], title: str, calls: bool = False):
    """Return a figure and its axes of that width and height in inches, with title and legend around them."""
    figure = Figure(figsize=(size[0], size[1] + 0.9))
    axes = figure.add_axes((0, 0.4 / (size[1] + 0.9), 1, size[1] / (size[1] + 0.9)), frameon=False)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=10)
    opcode = arrays["node_opcode"][np.intersect1d(nodes, arrays["node_config_ids"])]
    box = {"linestyle": "", "marker": "s", "markersize": 9, "markeredgecolor": "0.4"}
    handles = [
        Line2D([], [], color=colour, label=f"{opcode_name(kind)}, configurable: {count:,}", **box)
        for kind, colour in COLOURS.items()
        if (count := (opcode == kind).sum())
    ]
    if calls:
        handles.append(Line2D([], [], color="0.55", linestyle="--", label="call"))
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=4, fontsize=8, frameon=False
    )
    return figure, axes


def _draw_boxes(
    arrays: Mapping[str, np.ndarray], nodes: np.ndarray, title: str, marked: int | None = None
) -> Figure:
    """Draw every node as a box, layers from top to bottom."""
    opcodes = arrays["node_opcode"][nodes].tolist()
    labels = [_label(arrays["node_feat"][n], opcode, n) for n, opcode in zip(nodes, opcodes, strict=True)]
    width = np.array([_CHARACTER * max(map(len, label.split("\n"))) + _GAP for label in labels])
    edges = _edges_between(arrays, nodes)
    layer = assign_layers(edges, len(nodes))
    x, y = place(edges, layer, width), -_LAYER * layer
    left, right = (x - width / 2).min(), (x + width / 2).max()
    room = max(0.1, (_MIN_WIDTH - (right - left)) / 2)
    calls = _calls(arrays, nodes[edges])
    size = right - left + 2 * room, _LAYER * (layer.max() + 1)
    figure, axes = _canvas(arrays, nodes, size, title, calls.any())
    axes.set(xlim=(left - room, right + room), ylim=(y.min() - _LAYER / 2, _LAYER / 2))
    lines = np.stack([x[edges], y[edges]], -1)
    styles = np.where(calls, "--", "-").tolist()
    axes.add_collection(LineCollection(lines, colors="0.55", linewidths=0.8, linestyles=styles, zorder=1))
    for i, colour in enumerate(_colours(arrays, nodes, "white")):
        grey = "0.5" if opcodes[i] in _INPUTS else "0.0"
        thick = 2.2 if nodes[i] == marked else 0.7
        box = {"boxstyle": "round,pad=0.3", "facecolor": colour, "edgecolor": grey, "linewidth": thick}
        text = {"ha": "center", "va": "center", "fontsize": 7, "linespacing": 1.15, "color": grey}
        axes.text(x[i], y[i], labels[i], bbox=box, zorder=3, **text)
    return figure


def _draw_dots(arrays: Mapping[str, np.ndarray], nodes: np.ndarray, title: str) -> Figure:
    """Draw every node as a dot, layers from left to right."""
    edges = _edges_between(arrays, nodes)
    layer = assign_layers(edges, len(nodes))
    at = np.stack([layer, place(edges, layer, np.ones(len(nodes)))], -1)
    figure, axes = _canvas(arrays, nodes, (_DOTS_WIDTH, _DOTS_HEIGHT), title)
    faint = np.clip(3 / np.ptp(layer[edges], axis=1), 0.02, 0.7)  # many long edges would hide everything else
    axes.add_collection(LineCollection(at[edges], colors="0.5", linewidths=0.4, alpha=faint, zorder=1))
    size = float(np.clip(20_000 / len(nodes), 1.5, 30))
    colours = _colours(arrays, nodes, "0.65")
    for plain in (True, False):
        dots = (colours == "0.65") == plain
        axes.scatter(
            *at[dots].T, s=size if plain else 4 * size, c=colours[dots], linewidths=0, zorder=3 - plain
        )
    axes.margins(0.02)
    return figure
