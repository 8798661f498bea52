"""Draw the graph of a program: operands before their users, configurable nodes in colour.

Nodes of a small graph are boxes; those of a large one are dots in lines that are read like text, and the
neighbourhood of one node can be drawn as boxes. The arrays of a competition file are all that is needed.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from fastslow.competition import node_columns
from fastslow.competition.opcodes import CONVOLUTION, DOT, OPCODES, RESHAPE, opcode_name
from fastslow.features.nodes.pruning import WHOLE_GRAPH, hop_distance
from fastslow.programs.layered_drawing import assign_layers, place, split_long_edges

MAX_BOXES = 60  # nodes up to which a graph is drawn as boxes: the text is legible at the width of a page
MAX_NEIGHBOURS = 30  # nodes of a drawn neighbourhood
# nodes up to which a called computation without a configurable node (the sum of a reduce) is not drawn
SMALL_COMPUTATION = 16
# colours that remain distinguishable with colour blindness
COLOURS = {CONVOLUTION: "#e69f00", DOT: "#56b4e9", RESHAPE: "#2fb892"}
_CONSTANTS = [OPCODES["constant"], OPCODES["iota"]]
_INPUTS = [OPCODES["parameter"], *_CONSTANTS]
_CHARACTER, _BOX, _LAYER, _GAP, _BEND = 0.066, 0.32, 0.6, 0.12, 0.1  # inches
_MIN_WIDTH, _DOTS_WIDTH, _DOTS_HEIGHT = 5.0, 12.0, 6.0  # inches
_SHORT = 3  # columns that an edge may span before it is drawn fainter
_DOTS_COLUMN = 24  # dots in a column; a layer with more takes several columns


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
    return _draw_dots(arrays, nodes, f"{title}\nread like text: operands before their users")


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


def _layers(arrays: Mapping[str, np.ndarray], nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    constants = np.flatnonzero(np.isin(arrays["node_opcode"][nodes], _CONSTANTS))
    return assign_layers(edges, len(nodes), constants)


def _label(row: np.ndarray, opcode: int, node: int) -> str:
    """Return a label of two lines: opcode and node number, element type and shape."""
    kind = node_columns.ELEMENT_TYPES[np.argmax(row[node_columns.ELEMENT_TYPE])]
    if kind == "tuple":
        kind = f"{row[node_columns.TUPLE_SHAPES]:.0f} tensors"
    elif node_columns.ELEMENT_BYTES[kind]:
        kind += "[{}]".format(",".join(f"{size:.0f}" for size in row[node_columns.SHAPE] if size > 0))
    return f"{opcode_name(opcode)} #{node}\n{kind}"


def _canvas(size: tuple[float, float], title: str) -> tuple[Figure, Axes]:
    """Create a figure with axes of that width and height in inches, with room for title and legend."""
    width, height = size
    margin, head, foot = 0.15, 0.5, 0.4
    whole = (width + 2 * margin, height + head + foot)
    figure = Figure(figsize=whole)
    axes = figure.add_axes(
        (margin / whole[0], foot / whole[1], width / whole[0], height / whole[1]), frameon=False
    )
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=10)
    return figure, axes


def _add_legend(axes: Axes, arrays: Mapping[str, np.ndarray], nodes: np.ndarray, calls: bool) -> None:
    configurable = np.intersect1d(nodes, arrays["node_config_ids"])
    opcode = arrays["node_opcode"][configurable]
    box = {"linestyle": "", "marker": "s", "markersize": 9, "markeredgecolor": "0.4"}
    handles = [
        Line2D(
            [],
            [],
            color=colour,
            label=f"{opcode_name(kind)}, configurable: {(opcode == kind).sum():,}",
            **box,
        )
        for kind, colour in COLOURS.items()
        if (opcode == kind).any()
    ]
    if calls:
        handles.append(Line2D([], [], color="0.55", linestyle="--", label="call"))
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=4, fontsize=8, frameon=False
    )


def _draw_boxes(
    arrays: Mapping[str, np.ndarray], nodes: np.ndarray, title: str, marked: int | None = None
) -> Figure:
    """Draw every node as a box, layers from top to bottom."""
    opcodes = arrays["node_opcode"][nodes].tolist()
    labels = [_label(arrays["node_feat"][n], opcode, n) for n, opcode in zip(nodes, opcodes, strict=True)]
    box = np.array([_CHARACTER * max(map(len, label.split("\n"))) + 0.1 for label in labels])
    edges = _edges_between(arrays, nodes)
    steps, layer, routes = split_long_edges(edges, _layers(arrays, nodes, edges))
    bends = len(layer) - len(nodes)
    width = np.append(box + _GAP, np.full(bends, _BEND))
    x = place(steps, layer, width, np.repeat([1.0, 4.0], [len(nodes), bends]))
    y = -_LAYER * layer
    left, right = (x - width / 2).min(), (x + width / 2).max()
    room = max(0, _MIN_WIDTH - (right - left)) / 2
    figure, axes = _canvas((right - left + 2 * room, _LAYER * (layer.max() + 1)), title)
    axes.set(xlim=(left - room, right + room), ylim=(y.min() - _LAYER / 2, _LAYER / 2))
    calls = _calls(arrays, nodes[edges])
    for route, call in zip(routes, calls, strict=True):
        line = {"edgecolor": "0.55", "linewidth": 0.8, "linestyle": "--" if call else "-"}
        axes.add_patch(PathPatch(_curve(x[route[::-1]], y[route[::-1]]), fill=False, **line))
    configurable = np.isin(nodes, arrays["node_config_ids"])
    for i, opcode in enumerate(opcodes):
        grey = "0.5" if opcode in _INPUTS else "0.0"
        corner = (x[i] - box[i] / 2, y[i] - _BOX / 2)
        colour = COLOURS.get(opcode, "white") if configurable[i] else "white"
        thick = 2.2 if nodes[i] == marked else 0.7
        shape = {"boxstyle": "round,pad=0,rounding_size=0.06", "facecolor": colour, "edgecolor": grey}
        axes.add_patch(FancyBboxPatch(corner, box[i], _BOX, linewidth=thick, zorder=2, **shape))
        text = {"ha": "center", "va": "center", "fontsize": 7, "linespacing": 1.15, "color": grey}
        axes.text(x[i], y[i], labels[i], zorder=3, **text)
    _add_legend(axes, arrays, nodes, calls.any())
    return figure


def _curve(x: np.ndarray, y: np.ndarray) -> Curve:
    """Return a smooth line from an operand through the bends of an edge to its user."""
    half = _BOX / 2
    points, codes = [(x[0], y[0] - half)], [Curve.MOVETO]
    for i in range(1, len(x)):
        top, bottom = y[i - 1] - half, y[i] + half
        points += [(x[i - 1], (top + bottom) / 2), (x[i], (top + bottom) / 2), (x[i], bottom)]
        codes += [Curve.CURVE4] * 3
        if i < len(x) - 1:
            points.append((x[i], y[i] - half))
            codes.append(Curve.LINETO)
    return Curve(points, codes)


def _draw_dots(arrays: Mapping[str, np.ndarray], nodes: np.ndarray, title: str) -> Figure:
    """Draw every node as a dot, layers from left to right, in as many lines as fill the picture."""
    edges = _edges_between(arrays, nodes)
    layer = _layers(arrays, nodes, edges)
    wanted = place(edges, layer, np.ones(len(nodes)), np.ones(len(nodes)))
    at, line = _lines(layer, wanted)
    figure, axes = _canvas((_DOTS_WIDTH, _DOTS_HEIGHT), title)
    shown = at[edges[np.equal(*line[edges].T)]]  # edges between lines are not drawn
    length = np.abs(np.subtract(*shown[..., 0].T))
    faint = np.clip(_SHORT / np.maximum(length, 1), 0.02, 0.7)  # many long edges would hide everything else
    axes.add_collection(LineCollection(shown, colors="0.5", linewidths=0.4, alpha=faint, zorder=1))
    opcode = arrays["node_opcode"][nodes].astype(int)
    opcode[~np.isin(nodes, arrays["node_config_ids"])] = -1
    size = float(np.clip(20_000 / len(nodes), 1.5, 30))
    for kind, colour in {-1: "0.65", **COLOURS}.items():
        dots = at[opcode == kind].T
        axes.scatter(
            *dots, s=size if kind < 0 else 4 * size, color=colour, linewidths=0, zorder=2 + (kind >= 0)
        )
    axes.margins(0.02)
    _add_legend(axes, arrays, nodes, calls=False)
    return figure


def _lines(layer: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions (N, 2) and lines (N,) of dots: layers are one or several columns, broken into lines.

    The number of lines is chosen such that the aspect ratio is closest to that of the picture.
    """
    order = np.lexsort((wanted, layer))
    sizes = np.unique(layer, return_counts=True)[1]
    heights = np.concatenate([np.diff([*range(0, size, _DOTS_COLUMN), size]) for size in sizes])
    column, row = np.empty(len(layer), np.int64), np.empty(len(layer))
    column[order] = np.repeat(np.arange(len(heights)), heights)
    row[order] = np.concatenate([np.arange(height) - (height - 1) / 2 for height in heights])

    def shape(length: int) -> np.ndarray:
        """Return the height of each line for lines of that many columns."""
        return np.maximum.reduceat(heights, np.arange(0, len(heights), length)) + 2

    lengths = {-(-len(heights) // lines) for lines in range(1, min(40, len(heights)) + 1)}
    length = min(
        lengths, key=lambda length: abs(np.log(length / shape(length).sum() * _DOTS_HEIGHT / _DOTS_WIDTH))
    )
    line = column // length
    middle = shape(length) / 2 - np.cumsum(shape(length))
    return np.stack([column % length, middle[line] - row], -1), line
