"""Plots of trainings, scores and weights for notebooks and reports; each function returns a figure."""

import itertools
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fastslow.competition.catalog import PREDICTED_SPLITS
from fastslow.competition.metrics import ALL_METRICS
from fastslow.ensemble.baselines import BASELINES

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")  # for the colour-blind too
_ENSEMBLE = "0.2"
_BASELINES = ("0.55", "0.72", "0.87")  # greys, in the order of BASELINES
_LEGEND_COLUMNS = 4
_LABEL = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": 9, "weight": "bold"}
_LABEL_HEIGHT = 0.12  # of a bar that has room for its label
_BELOW_BARS = 0.3  # of a panel's axis, below 0 and its lowest bar
_MAX_LABELS = 40  # of graphs; a page has room for these
_MARKS = {"marker": "o", "markersize": 3}  # a curve of one evaluation is a point


def plot_training(history: pd.DataFrame, title: str) -> Figure:
    """Plot loss and valid score over the epochs of a network, or valid score over the rounds of a ranker.

    Args:
        history: Rows of a training's ``metrics.jsonl``; a network's has a column per collection. Columns of
            :data:`ALL_METRICS` are not drawn.
        title: Name of the run.
    """
    ranker = "objective" in history
    figure = Figure(figsize=(7 if ranker else 9, 3.5), layout="constrained")
    if ranker:
        axes = figure.subplots()
        for objective, rows in history.groupby("objective", sort=False):
            axes.plot(rows["round"], rows["valid"], label=objective, **_MARKS)
        axes.set(title=title, xlabel="boosting round", ylabel="valid score")
        axes.legend()
        return figure
    left, right = figure.subplots(1, 2)
    left.plot(history["epoch"], history["loss"], **_MARKS)
    left.set(title=f"{title}: loss", xlabel="epoch", ylabel="train loss")
    right.plot(history["epoch"], history["valid"], color="tab:green", label="mean", **_MARKS)
    for collection in history.columns.drop(["epoch", "loss", "valid", *ALL_METRICS], errors="ignore"):
        dashed = {"linewidth": 1, "linestyle": "--", **_MARKS}
        right.plot(history["epoch"], history[collection], label=collection, **dashed)
    right.legend(fontsize="small")
    right.set(title="score on valid", xlabel="epoch", ylabel="Kendall tau or 1 - slowdown")
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def plot_per_graph(per_graph: Mapping[str, float], title: str) -> Figure:
    """Plot the score of each graph, worst first, and the mean of all.

    Args:
        per_graph: Score by graph. Of many graphs only the worst 40 are shown.
        title: Title of the figure.
    """
    names = sorted(per_graph, key=per_graph.get)
    shown, mean = names[:_MAX_LABELS], np.mean(list(per_graph.values()))
    if len(shown) < len(names):
        title += f": the worst {len(shown)} of {len(names)} graphs"
    figure = Figure(figsize=(8, 1.2 + 0.16 * len(shown)), layout="constrained")
    axes = figure.subplots()
    axes.barh(range(len(shown)), [per_graph[name] for name in shown], color="tab:blue")
    axes.axvline(mean, color="black", linestyle="--", label=f"mean of all {mean:.3f}")
    axes.set_yticks(range(len(shown)), shown, fontsize=7)
    axes.set_ylim(len(shown) - 0.4, -0.6)  # the worst on top
    axes.set(title=title, xlabel="score")
    axes.legend(loc="upper right")
    return figure


def plot_weights(members: Mapping[str, Mapping], baselines: Mapping[str, Mapping] | None = None) -> Figure:
    """Plot the weight of each model in an ensemble and the valid score of each of its runs.

    Args:
        members: ``members`` of an ensemble's manifest: ``model``, ``weight`` and ``valid`` by run.
        baselines: ``baselines`` of that manifest, ``valid`` by name; drawn as grey lines.
    """
    table = pd.DataFrame.from_dict(dict(members), orient="index")
    weights = table.groupby("model", sort=False)["weight"].sum()[::-1]
    figure = Figure(figsize=(8, 1.6 + 0.4 * len(weights)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.bar_label(left.barh(weights.index, weights, color=_COLOURS[0]), fmt="%.2f", padding=3)
    left.set(title="weight of each model", xlabel="weight (sum over seeds)", xlim=(0, 1.15))
    right.plot(table["valid"], table["model"], "o", color=_COLOURS[1], markeredgecolor="0.2", alpha=0.8)
    right.set(title="each run by itself", xlabel="score on valid")
    right.grid(axis="x", alpha=0.3)
    for (name, baseline), dashes in zip((baselines or {}).items(), ("-", "--", ":"), strict=False):
        right.axvline(baseline["valid"], color=_BASELINES[0], linestyle=dashes, label=name)
    if baselines:
        figure.legend(loc="outside lower right", ncols=len(baselines), frameon=False, fontsize=9)
    return figure


def _bar_centre(table: pd.DataFrame, models: list[str], collection: str, model: str, width: float) -> float:
    """Return the position of a model's bar: bars of a collection are side by side around its number."""
    own = set(table.loc[table["collection"] == collection, "model"])
    shown = [name for name in models if name in own]
    number = list(table["collection"].unique()).index(collection)
    return number + (shown.index(model) - (len(shown) - 1) / 2) * width


def _model_colours(models: list[str]) -> dict[str, str]:
    """Return a colour by model: greys for the baselines and the ensemble, the others apart."""
    grey = {**dict(zip(BASELINES, _BASELINES, strict=True)), "ensemble": _ENSEMBLE}
    others = [model for model in models if model not in grey]
    colours = dict(zip(others, itertools.cycle(_COLOURS), strict=False))
    return {model: grey.get(model) or colours[model] for model in models}


def plot_results(table: pd.DataFrame) -> Figure:
    """Plot the score of every model per collection, one panel per split.

    Bars are means over seeds; the thin line runs from the lowest to the highest graph of any seed, and leaves
    the panel where it is far below the bars: 1 - slowdown has no lower limit.

    Args:
        table: As returned by :func:`fastslow.evaluation.score_tables.pool_seeds`.
    """
    splits = [split for split in PREDICTED_SPLITS if split in table]
    collections = list(dict.fromkeys(table["collection"]))
    # baselines first and the ensemble last, also where its first collection lacks a model
    models = sorted(dict.fromkeys(table["model"]), key=lambda m: (m == "ensemble") - (m in BASELINES))
    figure = Figure(figsize=(10, 0.5 + 3.1 * len(splits)), layout="constrained")
    panels = np.atleast_1d(figure.subplots(len(splits), 1, sharex=True))
    for axes, split in zip(panels, splits, strict=True):
        width = 0.84 / len(models)
        for model, colour in _model_colours(models).items():
            rows = table[table["model"] == model]
            x = [_bar_centre(table, models, c, model, width) for c in rows["collection"]]
            axes.bar(x, rows[split], 0.9 * width, color=colour, label=model)
            axes.vlines(x, rows[f"{split}_min"], rows[f"{split}_max"], color="0.55", linewidth=1)
            for place, value in zip(x, rows[split], strict=True):
                inside = "white" if value > _LABEL_HEIGHT and colour not in _BASELINES[1:] else "0.25"
                axes.text(place, 0.02, f"{value:.2f}", color=inside, **_LABEL)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_ylim(max(axes.get_ylim()[0], min(0, table[split].min()) - _BELOW_BARS), 1.05)
        axes.set_xticks(range(len(collections)), collections)
        axes.set_title(f"{split} programs", loc="left", fontsize=11)
        axes.set_ylabel("Kendall's tau\n(tile: 1 - slowdown)")
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    columns = min(len(models), _LEGEND_COLUMNS)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=columns, frameon=False)
    figure.supxlabel("bars: mean over seeds; thin lines: lowest to highest program", fontsize=9, color="0.35")
    return figure
