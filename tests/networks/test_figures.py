"""Figures of networks and of deduplicated states: what they show."""

import re

import numpy as np

from fastslow.competition.catalog import ProgramFile, get_collection
from fastslow.features.build import build_graph
from fastslow.features.settings import FeatureSettings
from fastslow.networks.model.convolutions import CONVOLUTIONS
from fastslow.networks.states.config_states import build_states
from fastslow.views.network_figures import list_modules, plot_network
from fastslow.views.states_figure import plot_states
from helpers.cases import cases
from helpers.competition_files import layout_arrays, write_npz
from helpers.networks import make_network


@cases("cross_config", [True, False])
@cases("depth", [0, 1, 3])
def test_the_picture_shows_every_block_width_and_parameter(depth, cross_config):
    network = make_network(depth, cross_config, hidden_channels=8)
    (axes,) = plot_network(network).axes
    texts = [text.get_text() for text in axes.texts]
    assert [text for text in texts if text.startswith("block")] == [f"block {i + 1}" for i in range(depth)]
    assert sum("cross-config" in text for text in texts) == depth * cross_config
    counts = [int(n.replace(",", "")) for t in texts for n in re.findall(r"([\d,]+) parameters", t)]
    total = sum(p.numel() for p in network.parameters())
    assert sum(counts) == total and f"{total:,} parameters" in axes.get_title()
    drawn = "\n".join(texts)
    assert "scaled node features: 4" in drawn and "3 configuration features" in drawn
    assert [text for text in texts if text in ("(N, 8)", "(S, 8)", "(C,)")] == [
        "(N, 8)",
        *["(S, 8)"] * (depth + 1),
        "(C,)",
    ]


@cases("convolution", CONVOLUTIONS)
def test_the_picture_names_the_convolution(convolution):
    network = make_network(1, convolution=convolution)
    drawn = "\n".join(text.get_text() for text in plot_network(network).axes[0].texts)
    name = {"sage": "GraphSAGE", "gcn": "GCN", "mlp": "residual GCN"}
    assert f"\n{name[convolution.partition('_')[0]]}: " in drawn
    assert "+ own state (residual)" in drawn


def test_every_parameter_is_in_the_table():
    network = make_network(2)
    table = list_modules(network)
    assert table["module"].iloc[-1] == "sum"
    assert table["parameters"].iloc[:-1].sum() == table["parameters"].iloc[-1]
    modules = dict(network.named_modules())
    owners = {name.rpartition(".")[0] for name, _ in network.named_parameters()}
    assert {*table["module"].iloc[:-1]} == owners
    for row in table.iloc[:-1].itertuples():
        assert row.type == type(modules[row.module]).__name__


@cases("depth", [0, 1, 2])
def test_a_colour_per_state(features, depth):
    graph = features.graph("train", "a")
    figure = plot_states(graph, depth)
    states = build_states(graph.edge_index, graph.num_nodes, graph.config_index, graph.choices, depth)
    assert len(figure.axes) == depth + 1
    for axes, level in zip(figure.axes, states.levels, strict=True):
        image = axes.images[0].get_array()
        assert image.shape == (graph.num_nodes, graph.num_configs, 3)
        colours = [len(np.unique(row, axis=0)) for row in image]
        wanted = np.bincount(level.node_ids, minlength=graph.num_nodes)
        assert colours == list(wanted) == [int(text.get_text()) for text in axes.texts]
        assert f"{len(level.node_ids):,} states instead of" in axes.get_title()
    labels = figure.axes[0].get_yticklabels()
    bold = [i for i, label in enumerate(labels) if label.get_fontweight() == "bold"]
    assert bold == sorted(graph.config_index)


def test_cells_of_one_colour_in_a_row_are_one_state(features):
    graph = features.graph("train", "b")
    axes = plot_states(graph).axes[1]
    states = build_states(graph.edge_index, graph.num_nodes, graph.config_index, graph.choices, 1)
    image, nodes = axes.images[0].get_array(), np.arange(graph.num_nodes)[:, None]
    tables = [level.state(nodes, np.arange(graph.num_configs)) for level in states.levels]
    order = np.lexsort(tables[0][::-1])
    for row, own in zip(image, tables[1][:, order], strict=True):
        together = (row[:, None] == row[None]).all(-1)
        np.testing.assert_array_equal(together, own[:, None] == own[None])


def test_of_many_nodes_the_configurable_ones_are_named(tmp_path):
    path = write_npz(tmp_path / "a.npz", layout_arrays(dots=30))
    program = ProgramFile(get_collection("layout:xla:random"), "train", path)
    graph, _ = build_graph(program, FeatureSettings(hops=-1))
    axes = plot_states(graph).axes[0]
    assert "named: configurable" in axes.get_ylabel()
    numbers = [int(label.get_text().split("#")[1]) for label in axes.get_yticklabels()]
    assert numbers == sorted(graph.config_index)
