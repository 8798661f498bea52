"""The plots: what they show, on small inputs."""

import numpy as np
import pandas as pd
import pytest

from fastslow.competition.catalog import COLLECTIONS
from fastslow.evaluation import plots
from helpers.cases import cases


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
    objectives = ["regression"] * 3 + ["pairwise"] * 2
    history = pd.DataFrame({"objective": objectives, "round": [1, 2, 3, 1, 2], "valid": [1.0, 2, 3, 4, 5]})
    (axes,) = plots.plot_training(history, "ranker").axes
    assert [line.get_label() for line in axes.lines] == ["regression", "pairwise"]
    np.testing.assert_array_equal(axes.lines[1].get_xydata(), [[1, 4], [2, 5]])


@cases("count", [1, 3, 200])
def test_scores_by_graph_worst_first(count):
    scores = {f"g{i}": float((i * 7) % count) for i in range(count)}
    (axes,) = plots.plot_per_graph(scores, "run").axes
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == sorted(scores.values())[: len(widths)] and len(widths) >= min(count, 40)
    assert axes.lines[0].get_label() == f"mean of all {np.mean(list(scores.values())):.3f}"
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == sorted(scores, key=scores.get)[: len(widths)], "every bar has its name"
    assert (f"worst {len(widths)} of {count}" in axes.get_title()) == (len(widths) < count)


@cases("splits", [("valid",), ("valid", "test")])
def test_results_by_collection(splits):
    rows = []
    for number, c in enumerate(COLLECTIONS):
        for model in ("gnn", "ensemble"):
            row = {"collection": c.name, "model": model, "weight": 1.0}
            for split in splits:
                row |= {split: number / 10, f"{split}_min": -0.1, f"{split}_max": 0.9}
            rows.append(row)
    figure = plots.plot_results(pd.DataFrame(rows))
    assert [axes.get_title("left") for axes in figure.axes] == [f"{split} programs" for split in splits]
    for axes in figure.axes:
        assert [bar.get_height() for bar in axes.patches] == pytest.approx([n / 10 for n in range(5)] * 2)
        assert len({round(bar.get_x(), 6) for bar in axes.patches}) == 10, "no bar hides another"
    labels = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    assert labels == [c.name for c in COLLECTIONS]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["gnn", "ensemble"]


def test_weights_per_model_and_scores_per_run():
    members = {
        name: {"model": name[:1], "weight": weight, "valid": valid}
        for name, weight, valid in (("a0", 0.25, 0.5), ("a1", 0.25, 0.6), ("b", 0.5, 0.4))
    }
    left, right = plots.plot_weights(members).axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["b", "a"]
    assert [bar.get_width() for bar in left.patches] == [0.5, 0.5]
    (runs,) = right.lines
    assert list(runs.get_xdata()) == [0.5, 0.6, 0.4] and list(runs.get_ydata()) == ["a", "a", "b"]
