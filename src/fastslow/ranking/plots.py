"""Figures of a ranking: the predictions, the agreement of the models, and the choices that matter."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastslow.competition.metrics import kendall_tau
from fastslow.ranking.result import Ranking

_BARS = 20
_BLUE, _ORANGE, _GREY = "#0072b2", "#e69f00", "0.6"  # for the colour-blind too


def plot_predictions(ranking: Ranking) -> Figure:
    """Plot the prediction of every configuration, fastest first, and how each model agrees with the run.

    Args:
        ranking: A ranking.
    """
    table, default = ranking.table, ranking.default
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    left.plot(table["rank"], table["prediction"], color=_BLUE, drawstyle="steps-mid")
    if default is not None:
        row = table[table["config"] == default].iloc[0]
        left.plot(
            row["rank"], row["prediction"], "o", color=_ORANGE, label=f"default (place {row['rank']:.0f})"
        )
        left.legend()
    left.set(title=f"{ranking.program}, by {ranking.run}", xlabel="place in the ranking", ylabel="prediction")
    taus = {
        name: kendall_tau(table["prediction"].to_numpy(), table[name].to_numpy()) for name in ranking.weights
    }
    labels = [f"{name} ({weight:.2f})" for name, weight in ranking.weights.items()]
    right.barh(labels, list(taus.values()), color=[_BLUE if w else _GREY for w in ranking.weights.values()])
    right.invert_yaxis()
    right.tick_params(axis="y", labelsize=7)
    right.set(title="agreement with the ranking", xlabel="Kendall's tau (weight in brackets)")
    return figure


def plot_effects(effects: pd.DataFrame) -> Figure:
    """Draw the options with the largest effects, those of the choices that explain most first.

    Args:
        effects: What :func:`fastslow.ranking.effects.effects` returned.
    """
    shown = effects.head(_BARS)
    figure = Figure(figsize=(9, 1 + 0.3 * max(len(shown), 2)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(shown))
    colours = np.where(shown["effect"] < 0, _BLUE, _ORANGE)
    errors = 2 * shown["standard_error"].fillna(0)
    axes.barh(places, shown["effect"], xerr=errors, color=colours, error_kw={"elinewidth": 1})
    labels = shown["where"] + " " + shown["option"] + " (not " + shown["default"] + ")"
    axes.set_yticks(places, labels, fontsize=7)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    label = "change of place in percentage points, ± 2 standard errors (left is faster)"
    axes.set(title="effect of a choice on the ranking", xlabel=label)
    return figure
