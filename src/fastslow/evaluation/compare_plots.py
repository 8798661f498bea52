"""Pictures of a comparison: both scores of each program, and the difference on each collection."""

import math
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastslow.core.errors import counted
from fastslow.core.figures import (
    CEILING,
    ENSEMBLE,
    FAINT,
    FURTHER,
    MODEL_COLOURS,
    WIDTH,
    in_style,
    say_shortened,
    shortened_names,
)
from fastslow.evaluation.paired import plus_minus

_MOST_DRAWN = 40  # graphs, those with the largest differences; more do not fit on a page
_NAME, _TITLE = 40, 72  # characters of a name, and of a line of a title


@in_style
def plot_comparison(
    table: pd.DataFrame, names: tuple[str, str], title: str, models: tuple[str, str] = ("", "")
) -> Figure:
    """Plot both scores of each graph that they differ on, joined by a line.

    Of many such graphs those with the largest differences are drawn; the label of the axis counts the others.
    The first one's dots are full and the other one's are rings, each in the colour of its model.

    Args:
        table: As returned by :func:`fastslow.evaluation.compare.compare_table`.
        names: Names of the two.
        title: Title of the figure.
        models: What each of the two is: "ensemble", "gnn" or "ranker", else a model of one's own.
    """
    differing = table[table["difference"] != 0]
    largest = differing["difference"].abs().nlargest(_MOST_DRAWN).index
    drawn = differing[differing.index.isin(largest)]
    figure = Figure(figsize=(WIDTH, 1.9 + 0.2 * len(drawn)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(drawn))
    axes.hlines(places, drawn["one"], drawn["other"], color=FAINT, linewidth=1.5)
    full, ring = (MODEL_COLOURS.get(model, FURTHER[1]) for model in models)
    axes.plot(drawn["one"], places, "o", color=full, label=names[0])
    axes.plot(drawn["other"], places, "o", color=ring, markerfacecolor="white", label=names[1])
    graphs = [str(name) for name in drawn.index]
    axes.set_yticks(places, shortened_names(graphs, _NAME), fontsize=7)
    left_out = []
    if smaller := len(differing) - len(drawn):
        left_out.append(f"{smaller:,} with smaller differences")
    if equal := len(table) - len(differing):
        left_out.append(f"{equal:,} with equal scores")
    not_drawn = f"; not drawn: {', '.join(left_out)}" if left_out else ""
    axes.set_xlabel(f"score of a program{not_drawn}{say_shortened(graphs, _NAME)}")
    figure.suptitle(_lines(title), fontsize=10, weight="bold")
    axes.grid(axis="y", visible=False)
    if not len(drawn):  # axes without a dot would have invented numbers
        axes.set_axis_off()
        words = f"{counted(len(table), 'program')}, and no score differs"
        axes.text(0.5, 0.5, words, ha="center", va="center", transform=axes.transAxes)
    figure.legend(loc="outside lower right", ncols=1 if max(map(len, names)) > _NAME else 2)
    return figure


@in_style
def plot_differences(
    results: pd.DataFrame, named: tuple[str, str], found: str, metric: str = "competition"
) -> Figure:
    """Plot the paired difference of two runs on each collection, and on the mean of several.

    Args:
        results: As :func:`fastslow.evaluation.paired.paired_results` returns them.
        named: Names of the two.
        found: The sentence that names the better one, as the title.
        metric: The metric; of a ``top_K_error`` lower is better.
    """
    lines = results.to_dict("records")
    figure = Figure(figsize=(WIDTH, 1.5 + 0.36 * len(lines)), layout="constrained")
    axes = figure.subplots()
    for place, line in enumerate(lines):
        error = line["standard_error"]
        spread = None if math.isnan(error) else error
        bold = place > 0 and place == len(lines) - 1
        axes.errorbar(
            line["difference"], place, xerr=spread, fmt="D" if bold else "o", color=ENSEMBLE, markersize=6
        )
        axes.annotate(
            plus_minus(line),
            (line["difference"], place),
            (0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            zorder=3,
        )
    axes.axvline(0, color=CEILING, linestyle="--", linewidth=1.2)
    axes.set_yticks(range(len(lines)), [*results.index])
    axes.set_ylim(len(lines) - 0.4, -0.7)
    axes.grid(axis="y", visible=False)
    one, other = shortened_names(named, _NAME)
    left, right = (one, other) if metric.endswith("_error") else (other, one)
    sides = f"← {left} is better     {right} is better →"
    if len(sides) > _TITLE:  # an arrow stays beside its name
        sides = f"← {left} is better\n{right} is better →"
    axes.set_xlabel(f"{sides}\n" + _lines(f"{one} minus {other}; lines: ± standard error over programs"))
    figure.suptitle(_lines(found))
    return figure


def _lines(text: str) -> str:
    """Break a text at spaces, never inside a name."""
    return fill(text, _TITLE, break_on_hyphens=False)
