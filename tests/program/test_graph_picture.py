"""Pictures of graphs of every size: each node once, configurable ones in colour."""

import graphlib
import itertools
import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

from fastslow.competition.opcodes import DOT
from fastslow.features.nodes.node_encodings import hop_distance
from fastslow_programs.program.graph_picture import (
    COLOURS,
    assign_layers,
    broken_layers,
    place,
    plot_graph,
)
from helpers.cases import cases
from helpers.competition_files import graph_arrays, layout_arrays


def boxes(figure):
    return [text.get_bbox_patch() for text in figure.axes[0].texts]


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


@cases("chosen", [slice(None), slice(1, 2)])
def test_every_node_is_a_box_in_colour_if_it_has_a_choice_and_every_edge_a_line(chosen):
    arrays = layout_arrays(dots=4)
    arrays["node_config_ids"] = arrays["node_config_ids"][chosen]
    ids = arrays["node_config_ids"].tolist()
    figure = plot_graph(arrays, "mine")
    (axes,) = figure.axes
    assert axes.get_title() == f"mine: 13 nodes, {len(ids)} configurable"
    coloured = [to_hex(box.get_facecolor()) == COLOURS[DOT] for box in boxes(figure)]
    assert np.flatnonzero(coloured).tolist() == ids
    (lines,) = [part for part in axes.collections if isinstance(part, LineCollection)]
    assert len(lines.get_segments()) == len(arrays["edge_index"])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [f"dot, configurable: {len(ids)}"]
    rows, width = arrays["node_feat"][2, 21:23].astype(int)
    assert texts(figure)[2] == f"dot #2\nf32[{rows},{width}]"


def test_operands_stand_above_their_users_and_boxes_apart():
    arrays = layout_arrays(dots=15)
    figure = plot_graph(arrays, "mine")
    FigureCanvasAgg(figure).draw()
    extents = [box.get_window_extent() for box in boxes(figure)]
    for user, operand in arrays["edge_index"]:
        assert extents[operand].y0 > extents[user].y1
    for i, one in enumerate(extents):
        assert not any(one.overlaps(other) for other in extents[i + 1 :])
    whole = figure.axes[0].get_window_extent().padded(1)
    assert all(whole.x0 <= box.x0 and box.x1 <= whole.x1 for box in extents)


def test_labels_of_scalars_tuples_and_tokens():
    arrays = graph_arrays(
        [("constant", ()), ("tuple", (), None, False, "tuple"), ("after-all", (), None, False, "token")], []
    )
    arrays["node_feat"][1, 29] = 3
    arrays |= {"node_config_ids": np.zeros(0, int)}
    assert texts(plot_graph(arrays, "x")) == [
        "constant #0\nf32[]",
        "tuple #1\n3 tensors",
        "after-all #2\ntoken",
    ]


def random_edges(rng, num_nodes=30, num_edges=60):
    """Return edges from later to earlier nodes, with shuffled node numbers."""
    pairs = np.sort(rng.choice(num_nodes, (num_edges, 2)), axis=1)[:, ::-1]
    edges = np.unique(pairs[pairs[:, 0] > pairs[:, 1]], axis=0)
    return rng.permutation(num_nodes)[edges]


def crossings(edges, layer, x):
    """Return the number of pairs of edges between the same two layers that cross, by definition."""
    return sum(
        (layer[a], layer[b]) == (layer[c], layer[d]) and (x[a] - x[c]) * (x[b] - x[d]) < 0
        for (a, b), (c, d) in itertools.combinations(edges.tolist(), 2)
    )


@cases("seed", range(5))
def test_layers_come_in_order_and_their_nodes_stand_apart_with_fewer_crossings(seed):
    rng = np.random.default_rng(seed)
    edges, width = random_edges(rng), rng.uniform(0.1, 2, 30)
    layer = assign_layers(edges, 30)
    assert (layer[edges[:, 0]] > layer[edges[:, 1]]).all() and layer.min() == 0
    x = place(edges, layer, width)
    for number in range(layer.max() + 1):
        row = np.flatnonzero(layer == number)
        row = row[np.argsort(x[row])]
        assert (np.diff(x[row]) >= (width[row][1:] + width[row][:-1]) / 2 - 1e-9).all()
    assert crossings(edges, layer, x) < crossings(edges, layer, np.arange(30))


def test_a_weight_stands_beside_its_user_and_a_cycle_is_refused():
    chain = [(node, node - 1) for node in range(1, 6)]  # 0 to 5
    weight = [(5, 7), (7, 6)]  # 6 is a weight, 7 made of it, used at the end of the chain
    assert assign_layers(np.array(chain + weight), 8).tolist() == [0, 1, 2, 3, 4, 5, 3, 4]
    with pytest.raises(graphlib.CycleError):
        assign_layers(np.array([(0, 1), (1, 0)]), 2)


def test_surroundings_of_the_largest_configurable_node():
    arrays = layout_arrays(dots=40)
    ids = arrays["node_config_ids"]
    largest = ids[arrays["node_feat"][ids, 28].argmax()]
    figure = plot_graph(arrays, "large")
    assert 5 <= len(boxes(figure)) <= 30
    (marked,) = [i for i, box in enumerate(boxes(figure)) if box.get_linewidth() > 2]
    assert texts(figure)[marked].startswith(f"dot #{largest}\n")
    title = rf"large: \d+ nodes, 40 configurable\naround dot #{largest}, (\d+) hops"
    hops = int(re.fullmatch(title, figure.axes[0].get_title())[1])
    both_ways = np.concatenate([arrays["edge_index"], arrays["edge_index"][:, ::-1]])
    distance = hop_distance(both_ways, len(arrays["node_opcode"]), np.array([largest]), hops)
    shown = [int(re.search(r"#(\d+)", text)[1]) for text in texts(figure)]
    assert shown == np.flatnonzero(distance >= 0).tolist()


def test_surroundings_of_a_chosen_node_and_of_a_hub():
    arrays = layout_arrays(dots=3)
    assert len(boxes(plot_graph(arrays, "x", node=0))) == len(arrays["node_opcode"])
    hub = graph_arrays([("parameter", (2, 2)), *[("dot", (2, 2))] * 50], [(i, 0) for i in range(1, 51)])
    hub |= {"node_config_ids": np.arange(1, 51)}
    figure = plot_graph(hub, "x", node=0)
    assert len(boxes(figure)) == 30 and texts(figure)[0].startswith("parameter #0")


def test_a_layer_that_is_wider_than_a_page_is_several():
    """The picture of a node with eight users was half as wide again, and its letters seven pixels high."""
    edges = np.array([(user, 0) for user in range(1, 9)] + [(9, user) for user in range(1, 9)])
    layer = assign_layers(edges, 10)
    width = np.full(10, 1.2)
    broken = broken_layers(layer, width, 5.0)
    assert (broken[edges[:, 0]] > broken[edges[:, 1]]).all()
    assert np.bincount(broken, width).max() <= 5.0 and broken.max() == layer.max() + 1
    assert broken_layers(layer, width, 10.0).tolist() == layer.tolist()
    assert broken_layers(layer[:0], width[:0], 5.0).tolist() == []
