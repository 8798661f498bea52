"""Figures of features: what they show, on small inputs."""

import numpy as np
import pytest

from fastslow.competition.metrics import kendall_tau
from fastslow.core.errors import ConfigError
from fastslow.features.build import build_features
from fastslow.features.config import FeatureConfig
from fastslow.features.figures import count_nodes, plot_columns, plot_configurations, plot_pruning
from fastslow.features.store import Features
from helpers.competition_files import write_data_root


@pytest.fixture(scope="module", params=["layout:xla:random", "tile:xla"])
def config(request, tmp_path_factory):
    root = write_data_root(tmp_path_factory.mktemp("data"), request.param, train=("a", "b"))
    config = FeatureConfig(
        collection=request.param, data_root=str(root), folder=str(root / "features"), workers=1
    )
    build_features(config)
    return config


def test_nodes_before_and_after_pruning(config):
    table = count_nodes(config)
    for row, program in zip(table.itertuples(), config.programs(), strict=True):
        nodes = np.load(program.path)["node_opcode"].size
        kept = Features(config.folder).graph(row.split, row.name).num_nodes
        assert (row.split, row.name, row.in_file, row.kept) == (program.split, program.name, nodes, kept)
    (axes,) = plot_pruning(config).axes
    dots = axes.collections[0].get_offsets()
    np.testing.assert_array_equal(dots, table[["in_file", "kept"]])
    assert len(axes.collections) == (2 if config.kind == "layout" else 1)
    assert f"{table['kept'].sum() / table['in_file'].sum():.0%}" in axes.get_title()


@pytest.mark.parametrize("name", ["", "a"])
def test_the_configurations_of_a_graph_fastest_first(config, name):
    top, heat, _ = plot_configurations(config, name).axes
    graph = Features(config.folder).graph("train", top.get_title())
    assert not name or graph.name == name
    runtime = top.lines[0].get_ydata()
    np.testing.assert_allclose(runtime, np.sort(graph.runtime) / graph.runtime.min())
    image = heat.images[0].get_array()
    assert image.shape == (len(heat.get_yticklabels()), graph.num_configs)
    if config.kind == "layout":
        order = np.argsort(graph.runtime, kind="stable")
        codes = graph.choices.layout_codes(order).reshape(len(order), -1).T
        varying = codes[(codes != codes[:, :1]).any(1)]
        assert len(image) == len(varying)
        np.testing.assert_array_equal(image == 0, varying == 0)  # grey: left to the compiler
        for row, code in zip(image, varying, strict=True):
            same = code[:, None] == code
            assert (row[:, None] == row)[same].all()


def test_the_columns_that_order_the_runtimes_best(config):
    figure = plot_columns(config, "b", panels=4)
    features = Features(config.folder)
    graph = features.graph("train", "b")
    taus = [kendall_tau(graph.runtime, column) for column in np.asarray(graph.config_feat).T]
    panels = [axes for axes in figure.axes if axes.collections]
    assert len(panels) == 4
    for axes, tau in zip(panels, sorted(taus, key=abs, reverse=True), strict=False):
        column = features.config_columns.index(axes.get_xlabel())
        assert abs(taus[column]) == pytest.approx(abs(tau))
        np.testing.assert_allclose(axes.collections[0].get_offsets()[:, 0], graph.config_feat[:, column])


@pytest.mark.parametrize("plot", [plot_columns, plot_configurations])
def test_an_unknown_graph_is_refused(config, plot):
    with pytest.raises(ConfigError, match="graph: 'c' is none of the train graphs a, b"):
        plot(config, "c")


def test_a_graph_of_one_configuration(tmp_path):
    root = write_data_root(tmp_path, "layout:xla:random", train=("a",))
    path = next(root.rglob("train/a.npz"))
    arrays = dict(np.load(path))
    arrays["node_config_feat"][:] = -1
    np.savez(path, **arrays)
    config = FeatureConfig(data_root=str(root), folder=str(tmp_path / "features"), workers=1)
    build_features(config)
    assert Features(config.folder).graph("train", "a").num_configs == 1
    assert plot_configurations(config).axes[1].images[0].get_array().shape[1] == 1
    assert plot_columns(config).axes
