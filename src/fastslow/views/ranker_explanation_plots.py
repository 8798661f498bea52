"""Plots of the notebook that explains a ranker; each function returns a figure."""

import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from fastslow.views.ranker_explanations import Explanation

_SLOWER, _FASTER = "#b2182b", "#2166ac"


def _bars(axes, names, values, colour, **options) -> None:
    axes.barh(range(len(names)), values, color=colour, height=0.7, **options)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def plot_importances(explanation: Explanation) -> Figure:
    """Plot each column's share of the gain, and the drop of the valid score when a feature is shuffled."""
    top = explanation.settings.columns
    gain, drop = explanation.gain.head(top)[::-1], explanation.permutation().head(top)[::-1]
    figure = Figure(figsize=(12, 1.5 + 0.27 * max(len(gain), len(drop))), layout="constrained")
    left, right = figure.subplots(1, 2)
    _bars(left, gain["column"], 100 * gain["gain"], "#e08214")
    left.set(title="what the trees split on", xlabel="share of the total gain, %")
    _bars(right, drop["column"], drop["drop"], "#35978f", xerr=drop["spread"], ecolor="0.4", capsize=2)
    right.axvline(0, color="black", linewidth=0.8)
    right.set(title="what the valid score needs", xlabel="drop of the valid score when shuffled")
    figure.suptitle(f"{explanation.fitted.objective} ranker of {explanation.features.collection.name}")
    return figure


def plot_contributions(explanation: Explanation) -> Figure:
    """Plot the SHAP values of one graph: a dot per configuration, slower to the right, coloured by value."""
    table = explanation.contributions.iloc[:, : explanation.settings.columns]
    table = table - table.mean()
    rows = dict(zip(explanation.table.columns, explanation.one_graph.rows[0].T, strict=True))
    figure = Figure(figsize=(9, 1.6 + 0.33 * table.shape[1]), layout="constrained")
    axes = figure.subplots()
    rng = np.random.default_rng(0)
    for place, name in enumerate(table.columns[::-1]):
        values = pd.Series(rows.get(name, np.zeros(len(table)))).rank(pct=True)
        height = place + rng.uniform(-0.28, 0.28, len(table))
        axes.scatter(table[name], height, c=values, cmap="viridis", s=9, alpha=0.8, linewidths=0)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(table.shape[1]), table.columns[::-1], fontsize=8)
    axes.set_ylim(-0.6, table.shape[1] - 0.4)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(title=explanation.name, xlabel="← faster     contribution to the prediction     slower →")
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), "viridis"), ax=axes, ticks=[0, 1], pad=0.01)
    bar.ax.set_yticklabels(["low", "high"])
    bar.set_label("value of the feature", labelpad=-12)
    return figure


def plot_layout_effects(explanation: Explanation) -> Figure:
    """Plot the layouts of one graph that the ranker predicts to be the slowest and the fastest."""
    effects = explanation.layout_effects()
    half = min(explanation.settings.columns, len(effects) // 2)
    shown = pd.concat([effects.head(half), effects.tail(half)])[::-1]
    names = [
        f"{row.opcode} {row.node} {row.tensor} [{row.sizes}]  {row.layout}" for row in shown.itertuples()
    ]
    figure = Figure(figsize=(9, 1.6 + 0.25 * len(shown)), layout="constrained")
    axes = figure.subplots()
    _bars(axes, names, shown["effect"], np.where(shown["effect"] > 0, _SLOWER, _FASTER))
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set(
        title=f"{explanation.name}\nlayouts {{minor to major}} predicted slow (red) and fast (blue)",
        xlabel="prediction with minus without the layout, standard deviations",
    )
    return figure
