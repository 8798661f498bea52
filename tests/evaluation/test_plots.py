"""The plots: what they show, on small inputs."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.errors import ConfigError
from fastslow.core.figures import save_figure
from fastslow.evaluation import plots
from fastslow.evaluation.plots import ViolationConfig
from fastslow.features.build import FeatureConfig, build_features
from fastslow.features.store import Features
from helpers.competition_files import write_data_root


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    root = write_data_root(tmp_path_factory.mktemp("data"), "layout:xla:random", train=tuple("abcd"))
    build_features(FeatureConfig(data_root=str(root), folder=str(root / "f"), workers=1))
    return Features(root / "f")


def test_a_figure_is_saved_whole(tmp_path):
    figure = plots.plot_per_graph({"a": 0.5}, "run")
    save_figure(figure, tmp_path / "new" / "plot.png")
    assert (tmp_path / "new" / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_training_of_a_network():
    history = pd.DataFrame({"epoch": [2, 4, 6], "loss": [3.0, 2.0, 1.0], "valid": [0.1, 0.3, 0.2]})
    left, right = plots.plot_training(history, "gnn").axes
    np.testing.assert_array_equal(left.lines[0].get_xydata(), history[["epoch", "loss"]])
    np.testing.assert_array_equal(right.lines[0].get_xydata(), history[["epoch", "valid"]])
    history["layout-xla-random"] = [0.2, 0.4, 0.3]
    _, right = plots.plot_training(history, "gnn").axes
    assert [line.get_label() for line in right.lines] == ["mean", "layout-xla-random"]
    np.testing.assert_array_equal(right.lines[1].get_ydata(), history["layout-xla-random"])
    assert left.get_title() == "gnn: loss" and right.get_xlabel() == "epoch"


def test_training_of_a_ranker():
    objectives = ["regression"] * 3 + ["lambdarank"] * 2
    history = pd.DataFrame({"objective": objectives, "round": [1, 2, 3, 1, 2], "valid": [1.0, 2, 3, 4, 5]})
    (axes,) = plots.plot_training(history, "ranker").axes
    assert [line.get_label() for line in axes.lines] == ["regression", "lambdarank"]
    np.testing.assert_array_equal(axes.lines[1].get_xydata(), [[1, 4], [2, 5]])


@pytest.mark.parametrize("count", [1, 3, 200])
def test_scores_by_graph_worst_first(count):
    scores = {f"g{i}": float((i * 7) % count) for i in range(count)}
    (axes,) = plots.plot_per_graph(scores, "run").axes
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == sorted(scores.values())
    assert axes.lines[0].get_label() == f"mean {np.mean(widths):.3f}"
    if count <= 60:
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert labels == sorted(scores, key=scores.get)


@pytest.mark.parametrize("splits", [("valid",), ("valid", "test")])
def test_results_by_collection(splits):
    rows = []
    for number, c in enumerate(COLLECTIONS):
        for model in ("gnn", "ensemble"):
            row = {"collection": c.name, "model": model, "weight": 1.0}
            for split in splits:
                row |= {split: number / 10, f"{split}_least": -0.1, f"{split}_most": 0.9}
            rows.append(row)
    figure = plots.plot_results(pd.DataFrame(rows))
    assert [axes.get_title() for axes in figure.axes] == list(splits)
    for axes in figure.axes:
        assert [bar.get_height() for bar in axes.patches] == pytest.approx([n / 10 for n in range(5)] * 2)
        assert len({round(bar.get_x(), 6) for bar in axes.patches}) == 10, "no bar hides another"
        assert [label.get_text() for label in axes.get_xticklabels()] == [c.name for c in COLLECTIONS]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["gnn", "ensemble"]


@pytest.mark.parametrize("panels", [1, 2, 4, 12])
def test_a_panel_a_graph(features, panels):
    config = ViolationConfig(features=str(features.folder), panels=panels)
    figure = plots.plot_violation(config)
    shown = [axes for axes in figure.axes if axes.axison]
    names = features.names("train")[:panels]
    assert [axes.get_title().split("\n")[0] for axes in shown] == names
    position = features.config_columns.index("violation_ratio")
    for axes, name in zip(shown, names, strict=True):
        graph = features.graph("train", name)
        wanted = np.stack([graph.config_feat[:, position], graph.runtime / min(graph.runtime)], 1)
        np.testing.assert_allclose(axes.collections[0].get_offsets(), wanted)
        tau = kendalltau(graph.runtime, graph.config_feat[:, position]).statistic
        assert axes.get_title().endswith(f"tau {0 if np.isnan(tau) else tau:+.2f}")
        assert axes.get_xlabel() == "violation ratio"


def test_correlations_of_every_feature(features):
    taus = plots.correlate(ViolationConfig(features=str(features.folder), split="valid"))
    assert list(taus.index) == ["v"] and list(taus.columns) == features.config_columns
    graph = features.graph("valid", "v")
    for position, column in enumerate(taus.columns):
        tau = kendalltau(graph.runtime, graph.config_feat[:, position]).statistic
        assert taus.loc["v", column] == pytest.approx(0 if np.isnan(tau) else tau)


def test_an_unknown_column_is_refused(features):
    with pytest.raises(ConfigError, match="column: 'violations' is not one of violation_ratio"):
        plots.plot_violation(ViolationConfig(features=str(features.folder), column="violations"))


@pytest.mark.parametrize("options", [{"split": "test"}, {"panels": 0}])
def test_wrong_settings_are_refused(options):
    with pytest.raises(ConfigError, match=f"^{next(iter(options))}: "):
        ViolationConfig(**options)


def test_importance_shows_the_most_used():
    importance = pd.DataFrame({"column": [f"c{i}" for i in range(30)], "gain": range(30, 0, -1)})
    (axes,) = plots.plot_importance(importance, "run", top=5).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["c4", "c3", "c2", "c1", "c0"]
    assert [bar.get_width() for bar in axes.patches] == [26, 27, 28, 29, 30]


def test_a_dot_a_file():
    files = pd.DataFrame(
        {"collection": ["a", "b", "a"], "nodes": [10, 20, 30], "configs": [100, 200, 300], "split": "train"}
    )
    (axes,) = plots.plot_survey(files).axes
    assert [dots.get_offsets().tolist() for dots in axes.collections] == [[[10, 100], [30, 300]], [[20, 200]]]
    assert axes.get_xscale() == axes.get_yscale() == "log"
