"""Figures of features: what they show, on small inputs."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from fastslow.core.errors import SettingsError
from fastslow.runs.features_folder import Features
from fastslow.steps.features import FeatureSettings
from fastslow.views import feature_figures
from fastslow.views.feature_figures import (
    ViolationSettings,
    correlate,
    count_nodes,
    plot_configurations,
    plot_pruning,
    plot_violation,
    sizes_by_split,
)
from helpers.cases import cases
from helpers.runs import make_features


@pytest.fixture(scope="module", params=["layout:xla:random", "tile:xla"])
def settings(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    features = make_features(root, request.param, {"train": ("a", "b")})
    where = {"data_root": str(root / "data"), "folder": str(features.folder)}
    return FeatureSettings(collection=request.param, workers=1, **where)


def test_sizes_by_split_are_medians_with_their_ends(settings):
    features = Features(settings.folder)
    sizes = sizes_by_split(features.index)
    nodes = features.index[features.index["split"] == "train"]["nodes"]
    assert sizes.loc["nodes", "train"].endswith(f" ({nodes.min():,} to {nodes.max():,})")
    assert sizes.loc["configs", "train"].startswith(f"{features.index['configs'].iloc[0]} (")
    assert not sizes.isna().any(axis=None) and "test" in sizes


def test_nodes_before_and_after_pruning(settings):
    table = count_nodes(settings)
    for row, program in zip(table.itertuples(), settings.programs(), strict=True):
        nodes = np.load(program.path)["node_opcode"].size
        kept = Features(settings.folder).graph(row.split, row.name).num_nodes
        assert (row.split, row.name, row.in_file, row.kept) == (program.split, program.name, nodes, kept)
    (axes,) = plot_pruning(settings).axes
    dots = axes.collections[0].get_offsets()
    np.testing.assert_array_equal(dots, table[["in_file", "kept"]])
    assert len(axes.collections) == (2 if settings.kind == "layout" else 1)
    assert f"{100 * table['kept'].sum() / table['in_file'].sum():.0f} %" in axes.get_title("left")


@pytest.mark.parametrize("name", ["", "a"])
def test_the_configurations_of_a_graph_fastest_first(settings, name):
    top, heat, _ = plot_configurations(settings, name).axes
    shown, _, finding = top.get_title("left").partition("\n")
    graph = Features(settings.folder).graph("train", shown)
    assert ("explains" if settings.kind == "layout" else "with tau") in finding
    assert not name or graph.name == name
    runtime = top.lines[0].get_ydata()
    np.testing.assert_allclose(runtime, np.sort(graph.runtime) / graph.runtime.min())
    image = heat.images[0].get_array()
    assert image.shape == (len(heat.get_yticklabels()), graph.num_configs)
    if settings.kind == "layout":
        order = np.argsort(graph.runtime, kind="stable")
        codes = graph.choices.layout_codes(order).reshape(len(order), -1).T
        varying = codes[(codes != codes[:, :1]).any(1)]
        assert len(image) == len(varying)
        grey = image == 0 if (varying == 0).any() else image < 0
        np.testing.assert_array_equal(grey, varying == 0)  # left to the compiler
        legend = top.figure.axes[-1]
        assert len(heat.images[0].cmap.colors) == len(np.unique(image)) == len(legend.get_yticklabels())
        for row, code in zip(image, varying, strict=True):
            same = code[:, None] == code
            assert (row[:, None] == row)[same].all()


def test_an_unknown_graph_is_refused(settings):
    with pytest.raises(SettingsError, match="graph: 'c' is none of the train graphs a, b"):
        plot_configurations(settings, "c")


@cases("panels", [1, 12])
def test_a_panel_a_graph(features, panels, monkeypatch):
    monkeypatch.setattr(feature_figures, "_PANELS", panels)
    settings = ViolationSettings(features=str(features.folder))
    figure = plot_violation(settings)
    shown = [axes for axes in figure.axes if axes.axison]
    names = features.names("train")[:panels]
    assert [axes.get_title("left").split("\n")[0] for axes in shown] == names
    position = features.config_columns.index("violation_ratio")
    for axes, name in zip(shown, names, strict=True):
        graph = features.graph("train", name)
        wanted = np.stack([graph.config_feat[:, position], graph.runtime / min(graph.runtime)], 1)
        np.testing.assert_allclose(axes.collections[0].get_offsets(), wanted)
        tau = kendalltau(graph.runtime, graph.config_feat[:, position]).statistic
        assert axes.get_title("left").endswith(f"tau {0 if np.isnan(tau) else tau:+.2f}")
    assert figure.get_supxlabel() == "violation ratio"


def test_correlations_of_every_feature(features):
    taus = correlate(ViolationSettings(features=str(features.folder)))
    name = features.names("train")[0]
    assert list(taus.index) == features.names("train") and list(taus.columns) == features.config_columns
    graph = features.graph("train", name)
    for position, column in enumerate(taus.columns):
        tau = kendalltau(graph.runtime, graph.config_feat[:, position]).statistic
        assert taus.loc[name, column] == pytest.approx(0 if np.isnan(tau) else tau)


@cases("read", [plot_violation, correlate])
def test_features_of_tiles_and_an_unknown_column_are_refused(settings, read):
    """Of tiles the columns were listed, as if another column would do."""
    violation = ViolationSettings(features=settings.folder)
    if settings.kind == "layout":
        violation, said = violation.replace(column="nosuch"), "column: 'nosuch' is not one of violation_ratio"
    else:
        said = f"features: '{settings.folder}' is not features of a layout collection"
    with pytest.raises(SettingsError, match=said):
        read(violation)
