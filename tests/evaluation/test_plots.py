"""The plots: what they show, on small inputs."""

import importlib

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.figures import NETWORK, RULE, label_ends
from fastslow.ensemble import baselines
from fastslow.evaluation import plots
from helpers.cases import cases


def test_training_of_a_network():
    history = pd.DataFrame({"epoch": [2, 4, 6], "loss": [3.0, 2.0, 1.0], "valid": [0.1, 0.3, 0.2]})
    loss, score = plots.plot_training(history, "gnn").axes
    np.testing.assert_array_equal(loss.lines[0].get_xydata(), history[["epoch", "loss"]])
    np.testing.assert_array_equal(score.lines[0].get_xydata(), history[["epoch", "valid"]])
    history["layout-xla-random"] = [0.2, 0.4, 0.3]
    history["layout-nlp-default"] = [0.5, 0.4, 0.6]
    kept = {
        "layout-xla-random": {"mean": 0.4, "weights": "epoch 4"},
        "layout-nlp-default": {"mean": 0.61, "weights": "average of the last 2 evaluations"},
    }
    references = {slug: {"rule": 0.25, "ceiling": 0.9} for slug in kept}
    figure = plots.plot_training(history, "gnn", kept, references)
    loss, *panels = figure.axes
    assert loss.get_title("left") == "loss 1 on train" and len(panels) == len(kept)
    titles = [axes.get_title("left") for axes in panels]
    assert titles == ["xla:random: 0.400, epoch 4 (ring)", "nlp:default: 0.610, average (ring)"]
    rings = [[4, 0.4], [6, 0.61]]
    for axes, slug, ring in zip(panels, kept, rings, strict=True):
        line, kept_one, rule, ceiling = axes.lines
        np.testing.assert_array_equal(line.get_xydata(), history[["epoch", slug]])
        assert kept_one.get_xydata().tolist() == [ring] and kept_one.get_marker() == "o"
        assert rule.get_ydata()[0] == 0.25 and rule.get_color() == RULE and ceiling.get_ydata()[0] == 0.9
        told = [text.get_text() for text in axes.texts]
        assert told == ["best single feature 0.250", "ceiling by the noise of labels 0.900"]
        assert axes.get_xlabel() == "epoch" and axes.get_legend() is None
    assert {axes.lines[0].get_color() for axes in figure.axes} == {NETWORK}, "as in every picture of models"
    said = "network: 0.505 on valid, mean of 2 collections\n0.255 ahead of the best single feature"
    assert figure.get_suptitle() == said


def test_a_single_evaluation_has_a_single_tick():
    """A tile network of two epochs had an axis from 1.900 to 2.100 epochs, and a loss of one dot."""
    history = pd.DataFrame({"epoch": [2], "loss": [3.0], "tile-xla": [0.9]})
    (axes,) = plots.plot_training(history, "network").axes
    assert axes.get_xticks().tolist() == [2] and axes.get_ylabel() == "1 - slowdown"


def test_training_of_a_ranker_shows_the_score_of_its_own_collection():
    history = pd.DataFrame({"objective": "pairwise", "round": [1, 2, 3], "valid": [0.1, 0.2, 0.3]})
    (axes,) = plots.plot_training(history, "ranker").axes
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), history[["round", "valid"]])
    history["layout-nlp-random"] = [0.5, 0.7, 0.6]
    history["tau"] = [np.nan, 0.7, np.nan]
    figure = plots.plot_training(history, "ranker", references={"layout-nlp-random": {"rule": 0.8}})
    (axes,) = figure.axes
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [0.5, 0.7, 0.6])
    assert axes.get_title("left") == "nlp:random: 0.700, 2 rounds (ring)"
    assert figure.get_suptitle() == "trees: 0.700 on valid\n0.100 behind the best single feature"
    level = plots.plot_training(history, "ranker", references={"layout-nlp-random": {"rule": 0.7004}})
    assert level.get_suptitle() == "trees: 0.700 on valid\nlevel with the best single feature"
    figure = plots.plot_training(history, "ranker", references={"layout-nlp-random": {"ceiling": 0.8}})
    assert figure.get_suptitle() == "trees: 0.700 on valid"


def test_names_at_the_ends_of_lines_do_not_overlap_and_keep_their_order():
    axes = Figure().subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    heights = {f"n{i}": 0.5 + 0.001 * i for i in range(8)}
    label_ends(axes, {name: (1, y, "black") for name, y in heights.items()}, gap=0.06)
    places = [text.xy[1] for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == [*heights]
    assert min(np.diff(places)) >= 0.06 - 1e-9 and max(places) <= 1


@cases("count", [1, 3, 200])
def test_scores_by_graph_worst_first(count):
    scores = {f"g{i}": float((i * 7) % count) for i in range(count)}
    (axes,) = plots.plot_per_graph(scores, "tile:xla").axes
    assert axes.get_xlabel() == "1 - slowdown of the first five"
    assert plots.plot_per_graph(scores, "layout").axes[0].get_xlabel() == "Kendall's tau"
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == sorted(scores.values())[: len(widths)] and len(widths) >= min(count, 40)
    assert axes.lines[0].get_label() == f"mean of all {np.mean(list(scores.values())):.3f}"
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == sorted(scores, key=scores.get)[: len(widths)], "every bar has its name"
    title = axes.get_title("left")
    assert title.startswith(f"tile:xla on valid: {min(scores.values()):.2f} to {max(scores.values()):.2f}")
    assert (f"worst {len(widths)} of {count}" in title) == (len(widths) < count)


def test_the_bars_of_a_model_have_its_colour():
    colours = {
        plots.plot_per_graph({"g": 1.0}, "layout", model).axes[0].patches[0].get_facecolor()
        for model in ("", *plots.MODEL_COLOURS)
    }
    assert len(colours) == 4


@cases("splits", [("valid",), ("valid", "test")])
def test_results_by_collection(splits):
    rows = []
    models = ("best single feature", "gnn", "ensemble")
    for number, c in enumerate(COLLECTIONS):
        for place, model in enumerate(models):
            row = {"collection": c.name, "model": model, "weight": 1.0}
            for split in splits:
                score = 0.6 + number / 50 + place / 100 - (3.0 if number == 0 and place == 0 else 0)
                seeds = (score - 0.04, score + 0.03, score + 0.01)  # whose mean is not in the middle
                row |= {split: score, f"{split}_by_seed": seeds, f"{split}_min": -3.5, f"{split}_max": 0.9}
            rows.append(row)
    figure = plots.plot_results(pd.DataFrame(rows))
    assert [axes.get_title("left").split(": ")[0] for axes in figure.axes] == [c.name for c in COLLECTIONS]
    assert "ahead of the best trivial rule on " + splits[-1] in figure.get_suptitle()
    layouts = figure.axes[1:]
    assert len({axes.get_xlim() for axes in layouts}) == 1, "layouts share their axis"
    for axes, number in zip(layouts, range(1, 5), strict=True):
        names = [label.get_text() for label in axes.get_yticklabels()]
        assert names == ["best single feature", "network", "ensemble"]
        dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() in "osD^"]
        assert dots == pytest.approx([0.6 + number / 50 + place / 100 for place in range(3)])
        low, high = axes.get_xlim()
        assert low < min(dots) and max(dots) < high
        seeds = [line.get_xdata() for line in axes.lines if line.get_marker() == "."]
        assert [len(each) for each in seeds] == [3, 3, 3] and low < np.min(seeds) <= np.max(seeds) < high
        assert seeds[0] == pytest.approx(np.array((-0.04, 0.03, 0.01)) + dots[0]), "where they are"
    arrow = figure.axes[0].texts[0]
    assert arrow.get_text() == "◀ -2.400", "an arrow shows a score below the axis"
    assert figure.axes[0].get_xlim()[0] > 0, "and does not flatten the others"


def test_a_further_rule_needs_no_mark_of_its_own(monkeypatch):
    """A fourth baseline broke the import of this module, and had no line beside the weights."""
    with monkeypatch.context() as patch:
        patch.setattr(baselines, "BASELINES", (*baselines.BASELINES, "a fourth rule"))
        importlib.reload(plots)
        assert plots._MARKERS["a fourth rule"]
    importlib.reload(plots)
    members = {"a0": {"model": "a", "weight": 1.0, "valid": 0.5}}
    rules = {f"rule {number}": {"valid": 0.1 * number} for number in range(4)}
    _, right = plots.plot_weights(members, rules).axes
    assert len(right.lines) == 1 + len(rules)


def test_weights_per_model_and_scores_per_run():
    members = {
        name: {"model": name[:1], "weight": weight, "valid": valid}
        for name, weight, valid in (("a0", 0.25, 0.5), ("a1", 0.25, 0.6), ("b", 0.5, 0.4))
    }
    left, right = plots.plot_weights(members).axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["b", "a"]
    assert [bar.get_width() for bar in left.patches] == [0.5, 0.5]
    assert left.get_title("left") == "Most weight: b, 0.50"
    assert right.get_title("left") == "Runs: 0.400 to 0.600"
    runs = [(list(line.get_xdata()), line.get_ydata()[0], line.get_color()) for line in right.lines]
    colours = [bar.get_facecolor() for bar in left.patches]
    assert [run[:2] for run in runs] == [([0.5, 0.6], "a"), ([0.4], "b")]
    assert [to_rgba(run[2]) for run in runs] == colours[::-1], "a run has the colour of its model"
