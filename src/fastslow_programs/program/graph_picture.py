"""Draw the graph of a program, or of a large one a neighbourhood, with its configurable nodes in colour.

The arrays of a competition file are all that is needed.
"""

import math
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from textwrap import fill

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import sparse

from fastslow.competition import node_columns
from fastslow.competition.opcodes import CONVOLUTION, DOT, OPCODES, RESHAPE, opcode_name
from fastslow.core.errors import counted
from fastslow.core.figures import FASTER, SLOWER, WIDTH, in_style, shortened
from fastslow.features.nodes.node_encodings import WHOLE_GRAPH, hop_distance

MAX_BOXES = 60  # nodes up to which a graph is drawn as boxes: the text is legible at the width of a page
MAX_NEIGHBOURS = 30  # nodes of a drawn neighbourhood
MAX_CHOICES = 18  # nodes of a larger graph that are drawn for the effects of their choices
# colours that remain distinguishable with colour blindness
COLOURS = {CONVOLUTION: "#e69f00", DOT: "#56b4e9", RESHAPE: "#2fb892"}
_INPUTS = [OPCODES["parameter"], OPCODES["constant"], OPCODES["iota"]]
_CHARACTER, _GAP, _LAYER = 0.066, 0.25, 0.6  # inches: of a label, between boxes, between layers
_MIN_WIDTH, _LEGEND, _TITLE_LINE = WIDTH, 0.4, 0.18  # inches: of a figure, of a legend, of a line of a title
_SWEEPS = 8
_NAME, _TITLE = 32, 60  # characters of a name in a box and in a title; of a longer one the end is cut
_PALEST, _MOST = 0.12, 0.75  # of the colour: without an effect, and of the largest one, under black letters


@in_style
def plot_graph(arrays: Mapping[str, np.ndarray], title: str, node: int | None = None) -> Figure:
    """Draw a graph: boxes with opcode, node number, type and shape, operands above their users.

    Of a graph of over 60 nodes, or around a node that is named, the neighbourhood of one node is drawn, with
    as many hops as fit into 30 nodes.

    Args:
        arrays: Arrays of a file: ``node_feat`` (N, 140), ``node_opcode`` (N,), ``edge_index`` (E, 2)
            and ``node_config_ids`` (K,), which a tile file has not.
        title: Name of the program.
        node: Number of the node in the middle; by default the configurable node with the largest output.

    Returns:
        A figure; its legend counts the configurable nodes by opcode, and the node has a thick border.
    """
    if arrays.get("node_config_ids") is None:
        arrays = {**arrays, "node_config_ids": np.zeros(0, np.int64)}
    opcodes, ids = arrays["node_opcode"], arrays["node_config_ids"]
    title = f"{shortened(title, _TITLE)}: {counted(len(opcodes), 'node')}, {len(ids):,} configurable"
    if node is None and len(opcodes) <= MAX_BOXES:
        return _draw_boxes(arrays, np.arange(len(opcodes)), title)
    if node is None:
        inside = ids if len(ids) else np.arange(len(opcodes))
        node = int(inside[np.argmax(arrays["node_feat"][inside, node_columns.SHAPE_PRODUCT])])
    both_ways = np.concatenate([arrays["edge_index"], arrays["edge_index"][:, ::-1]])
    distance = hop_distance(both_ways, len(opcodes), np.array([node]), WHOLE_GRAPH)
    reached = np.flatnonzero(distance >= 0)
    nearest = reached[np.argsort(distance[reached], kind="stable")]
    hops = distance[nearest[MAX_NEIGHBOURS]] - 1 if len(nearest) > MAX_NEIGHBOURS else distance.max()
    hops = max(1, hops)  # where one hop already has too many nodes, only the first ones are drawn
    shown = nearest[distance[nearest] <= hops][:MAX_NEIGHBOURS]
    title += f"\naround {opcode_name(int(opcodes[node]))} #{node}, {hops} hops"
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


def broken_layers(layer: np.ndarray, width: np.ndarray, most: float) -> np.ndarray:
    """Break layers that are wider than a page into several, one below the other.

    Args:
        layer: ``(N,)`` layer of each node, 0 the first.
        width: ``(N,)`` width that each node needs.
        most: Width of the page.

    Returns:
        ``(N,)`` layer of each node; edges lead down as before.
    """
    rows: list[np.ndarray] = []
    for number in range(layer.max(initial=-1) + 1):
        nodes = np.flatnonzero(layer == number)
        rows += np.array_split(nodes, max(1, math.ceil(width[nodes].sum() / most)))
    broken = np.zeros_like(layer)
    for number, nodes in enumerate(rows):
        broken[nodes] = number
    return broken


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
            means = block @ x
            order = np.argsort(means, kind="stable")
            centres = np.cumsum(width[row[order]]) - width[row[order]] / 2
            x[row[order]] = centres - centres.mean() + means.mean()
    return x


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


def _legend(arrays: Mapping[str, np.ndarray], nodes: np.ndarray) -> list[tuple[str, str]]:
    """Return the colour of each opcode of configurable nodes, and its words with their number."""
    opcode = arrays["node_opcode"][np.intersect1d(nodes, arrays["node_config_ids"])]
    return [
        (colour, f"{opcode_name(kind)}, configurable: {count:,}")
        for kind, colour in COLOURS.items()
        if (count := (opcode == kind).sum())
    ]


def _draw_boxes(
    arrays: Mapping[str, np.ndarray], nodes: np.ndarray, title: str, marked: int | None = None
) -> Figure:
    """Draw every node as a box, coloured by opcode where it is configurable."""
    opcodes = arrays["node_opcode"][nodes].tolist()
    labels = [_label(arrays["node_feat"][n], opcode, n) for n, opcode in zip(nodes, opcodes, strict=True)]
    configurable = np.isin(nodes, arrays["node_config_ids"]).tolist()
    faces = [
        COLOURS.get(opcode, "white") if chosen else "white"
        for opcode, chosen in zip(opcodes, configurable, strict=True)
    ]
    inks = ["0.5" if opcode in _INPUTS else "0.0" for opcode in opcodes]
    thick = [2.2 if node == marked else 0.7 for node in nodes.tolist()]
    edges = _edges_between(arrays, nodes)
    return _draw(labels, edges, faces, inks, thick, title, _legend(arrays, nodes))


@in_style
def plot_effects_on_graph(
    arrays: Mapping[str, np.ndarray], title: str, effects: Mapping[int, float], names: Mapping[int, str]
) -> Figure:
    """Draw a graph with its configurable nodes coloured by the effect of their choices on a ranking.

    Of a graph of over 60 nodes, the first nodes of the choices with the largest effects are drawn, and the
    title counts them. A line then leads from a node to the next one that is drawn.

    Args:
        arrays: As for :func:`plot_graph`.
        title: Name of the program.
        effects: By node, the effect of the option that moves most, in places of 100; negative where
            that option is predicted faster than the default's.
        names: Name of the first node of each choice.
    """
    count = len(arrays["node_opcode"])
    if count <= MAX_BOXES:
        nodes = np.arange(count)
        edges = _edges_between(arrays, nodes)
        words = f"all {count} nodes of {shortened(title, _NAME)}"
    else:
        largest = sorted(names, key=lambda node: (-abs(effects[node]), node))[:MAX_CHOICES]
        nodes = np.array(sorted(largest), np.int64)
        edges = contracted_edges(arrays["edge_index"], count, nodes)
        words = f"the {len(nodes)} of {count:,} nodes whose choices matter most"
    strongest = max((abs(effect) for effect in effects.values()), default=0.0) or 1.0
    labels = []
    for node in nodes.tolist():
        opcode = int(arrays["node_opcode"][node])
        label = _label(arrays["node_feat"][node], opcode, node)
        if node in effects:
            named = shortened(names.get(node, f"{opcode_name(opcode)} {node}"), _NAME)
            label = f"{named}\n{_whole(effects[node])}"
        labels.append(label)
    faces = [_shade(effects[node], strongest) if node in effects else "white" for node in nodes.tolist()]
    inks = ["0.0" if node in effects else "0.55" for node in nodes.tolist()]
    legend = [(_shade(-1, 1), "faster than the default's"), (_shade(1, 1), "slower than the default's")]
    moves = "no option moves a configuration"
    if names and max(map(abs, effects.values()), default=0) > 0:
        first = max(names, key=lambda node: abs(effects[node]))
        moved = f"{abs(effects[first]):.0f} of 100 places"
        moves = f"{shortened(names[first], _NAME)} matters most, {moved} {_direction(effects[first])}"
    heading = f"{moves[0].upper()}{moves[1:]}\nShown: {words}; numbers: places of 100"
    return _draw(labels, edges, faces, inks, [0.7] * len(nodes), heading, legend)


def _whole(effect: float) -> str:
    """Return an effect without decimals, with its sign unless it is rounded to 0."""
    return f"{effect:+.0f}".replace("-", "−") if round(effect) else "0"


def _direction(effect: float) -> str:
    return "faster" if effect < 0 else "slower"


def contracted_edges(edge_index: np.ndarray, num_nodes: int, kept: np.ndarray) -> np.ndarray:
    """Return edges between some nodes of a graph: each from a node to the next kept ones before it.

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        num_nodes: N.
        kept: ``(M,)`` the nodes that stay, ascending.

    Returns:
        ``(E', 2)`` positions in ``kept``: a path of other nodes, or an edge, leads from one to the other.
    """
    operands: list[list[int]] = [[] for _ in range(num_nodes)]
    for user, operand in np.asarray(edge_index).tolist():
        operands[user].append(operand)
    position = {node: place for place, node in enumerate(kept.tolist())}
    nearest = [0] * num_nodes  # the next kept nodes before each node, a bit each
    edges = []
    for node in TopologicalSorter(dict(enumerate(operands))).static_order():
        before = 0
        for operand in operands[node]:
            before |= 1 << position[operand] if operand in position else nearest[operand]
        nearest[node] = before
        if node in position:
            edges += [(position[node], place) for place in range(len(kept)) if before >> place & 1]
    return np.array(sorted(edges), np.int64).reshape(-1, 2)


def _shade(effect: float, strongest: float) -> tuple[float, float, float]:
    """Return the colour of an effect: the paler, the smaller."""
    red, green, blue = to_rgb(FASTER if effect < 0 else SLOWER)
    share = (_PALEST + (1 - _PALEST) * abs(effect) / strongest) * _MOST
    return 1 - share * (1 - red), 1 - share * (1 - green), 1 - share * (1 - blue)


def _draw(
    labels: Sequence[str],
    edges: np.ndarray,
    faces: Sequence,
    inks: Sequence[str],
    thick: Sequence[float],
    title: str,
    legend: Sequence[tuple],
) -> Figure:
    """Draw boxes, layers from top to bottom.

    Args:
        labels: Of each box.
        edges: ``(E, 2)`` positions of boxes; a user and its operand.
        faces: Colour of each box.
        inks: Colour of its letters.
        thick: Width of its border.
        title: Title of the figure.
        legend: Colours and their words.
    """
    width = np.array([_CHARACTER * max(map(len, label.split("\n"))) + _GAP for label in labels])
    layer = broken_layers(assign_layers(edges, len(labels)), width, _MIN_WIDTH)
    x = place(edges, layer, width)
    y = -_LAYER * layer
    left = (x - width / 2).min()
    right = (x + width / 2).max()
    room = max(0.1, (_MIN_WIDTH - (right - left)) / 2)
    height = _LAYER * (layer.max() + 1)
    whole_width = right - left + 2 * room
    characters = int(whole_width / _CHARACTER / 1.35)  # of the larger, bold letters
    heading = "\n".join(fill(line, characters) for line in title.split("\n"))
    whole_height = _LEGEND + height + 0.2 + _TITLE_LINE * (heading.count("\n") + 1)
    figure = Figure(figsize=(whole_width, whole_height))
    axes = figure.add_axes((0, _LEGEND / whole_height, 1, height / whole_height), frameon=False)
    axes.set(xticks=[], yticks=[])
    axes.set_title(heading, fontsize=10, loc="center")
    box = {"linestyle": "", "marker": "s", "markersize": 9, "markeredgecolor": "0.4"}
    handles = [Line2D([], [], color=colour, label=words, **box) for colour, words in legend]
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=4, fontsize=8, frameon=False
    )
    axes.set(xlim=(left - room, right + room), ylim=(y.min() - _LAYER / 2, _LAYER / 2))
    segments = np.stack([x[edges], y[edges]], -1)
    axes.add_collection(LineCollection(segments, colors="0.55", linewidths=0.8, zorder=1))
    text = {"ha": "center", "va": "center", "fontsize": 7, "linespacing": 1.15}
    for number, label in enumerate(labels):
        style = {"facecolor": faces[number], "edgecolor": inks[number], "linewidth": thick[number]}
        bbox = {"boxstyle": "round,pad=0.3", **style}
        axes.text(x[number], y[number], label, bbox=bbox, zorder=3, color=inks[number], **text)
    return figure
