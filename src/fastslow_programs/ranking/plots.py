"""Figures of a ranking: the predictions, and the choices that matter."""

from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

_BARS = 20
_LABEL_WIDTH, _TITLE_WIDTH = 70, 110  # characters of a line
_BLUE, _ORANGE = "#0072b2", "#e69f00"  # for the colour-blind too


def plot_predictions(table: pd.DataFrame, default: int | None, title: str) -> Figure:
    """Plot the prediction of every configuration, fastest first.

    Args:
        table: Of a :class:`fastslow_programs.ranking.result.Ranking`.
        default: Position of the configuration that is the default, None where it is not known.
        title: Title of the figure.
    """
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.plot(table["rank"], table["prediction"], color=_BLUE, drawstyle="steps-mid")
    if default is not None:
        row = table[table["config"] == default].iloc[0]
        axes.plot(
            row["rank"], row["prediction"], "o", color=_ORANGE, label=f"default (place {row['rank']:.0f})"
        )
        axes.legend()
    figure.suptitle(fill(title, _TITLE_WIDTH), fontsize=10)
    axes.set(title="lower is predicted faster", xlabel="place in the ranking", ylabel="prediction")
    return figure


def plot_effects(effects: pd.DataFrame) -> Figure:
    """Draw the options with the largest effects, the largest first.

    Args:
        effects: What :func:`fastslow_programs.ranking.effects.effects` returned.
    """
    order = (-effects["effect"].abs()).sort_values(kind="stable").index
    shown = effects.loc[order].head(_BARS)
    labels = [
        fill(f"{row.where} {row.option} (not {row.default})", _LABEL_WIDTH) for row in shown.itertuples()
    ]
    lines = sum(label.count("\n") + 1 for label in labels)
    figure = Figure(figsize=(10, 1.2 + 0.15 * max(lines + len(shown), 6)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(shown))
    colours = np.where(shown["effect"] < 0, _BLUE, _ORANGE)
    errors = 2 * shown["standard_error"].fillna(0)
    axes.barh(places, shown["effect"], xerr=errors, color=colours, error_kw={"elinewidth": 1})
    axes.set_yticks(places, labels, fontsize=8)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_ylim(len(shown) - 0.4, -0.6)  # the largest on top
    axes.set_title("effect of a choice on the ranking")
    axes.set_xlabel("change of place in percentage points\n± 2 standard errors; left is faster")
    return figure
