"""Figures of a ranking: slowdown against place, what its members say, and the choices that matter."""

from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fastslow.core.errors import counted
from fastslow.core.figures import (
    DEFAULT,
    ENSEMBLE,
    FAINT,
    FASTER,
    KNOWN,
    MODEL_COLOURS,
    MODEL_WORDS,
    RULE,
    SLOWER,
    WIDTH,
    in_style,
    name_in_colours,
    shortened,
)
from fastslow.core.tables import two_digits
from fastslow_programs.ranking.choices import change_in_words

_BARS = 12
_LABEL_WIDTH, _LONGEST = 46, 120  # characters of a line, and of a label
_SHOWN_DOTS = 4000  # configurations; of more, that many are drawn
_USUAL, _LEAST = 5, 1e-3  # percentile of the slowdowns, and percent, from which their axis is logarithmic


@in_style
def plot_slowdown(table: pd.DataFrame, marks: Mapping[str, int], known: Sequence[int] = ()) -> Figure:
    """Plot how much slower than the fastest each configuration is, against its place in the ranking.

    Args:
        table: Of a :class:`fastslow_programs.ranking.result.Ranking`, with a column ``runtime``, of a
            tile also ``over_default``.
        marks: Configurations that are marked, by name: ``default`` and ``first of the trivial rule``.
        known: Configurations whose runtimes were known.
    """
    place = table["rank"].to_numpy()
    runtime = table["over_default" if "over_default" in table else "runtime"]  # as the words are judged
    slower = 100 * (runtime.to_numpy() / runtime.min() - 1)
    best = np.minimum.accumulate(slower)
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    axes = figure.subplots()
    drawn = np.unique(np.linspace(0, len(place) - 1, min(_SHOWN_DOTS, len(place))).astype(int))
    axes.scatter(place[drawn], slower[drawn], s=_dot_size(len(drawn)), color=FAINT, linewidths=0)
    axes.step(place, best, where="post", color=ENSEMBLE)
    if len(known):
        rows = np.flatnonzero(table["config"].isin(known).to_numpy())
        axes.scatter(place[rows], slower[rows], s=34, facecolors="none", edgecolors=KNOWN)
    position = dict(zip(table["config"].tolist(), range(len(table)), strict=True))
    named = [("dots: a configuration each", "#777777"), ("line: the fastest so far", ENSEMBLE)]
    if len(known):
        named.append((f"rings: {counted(len(known), 'known runtime')}", KNOWN))
    for number, (name, config) in enumerate(marks.items()):
        row = position[config]
        colour = RULE if "rule" in name else DEFAULT
        # the first mark is larger: it is seen around another one at the same place
        size = 11 if number == 0 else 6
        style = {"color": colour, "markersize": size, "markeredgecolor": "white", "zorder": 4}
        axes.plot(place[row], slower[row], "D", **style)
        which = "large diamond" if number == 0 and len(marks) > 1 else "diamond"
        named.append((f"{which}: {name}, {two_digits(slower[row])} % slower", colour))
    _log_places(axes, len(place))
    _log_slowdowns(axes, slower)
    axes.set_xlabel("place in the ranking (1 is predicted the fastest)")
    axes.set_ylabel("slower than the fastest, %")
    first = f"The first is {two_digits(slower[0])} % slower than the fastest of {len(table):,}"
    axes.set_title(first if slower[0] else f"The first is the fastest of {len(table):,}")
    name_in_colours(figure, named)
    return figure


@in_style
def plot_members(
    table: pd.DataFrame, members: Sequence[str], default: int | None, what: str = "default"
) -> Figure:
    """Plot at which place each model puts each configuration, against its place in the ranking.

    Args:
        table: Of a :class:`fastslow_programs.ranking.result.Ranking`.
        members: Columns of the models that have a weight.
        default: Configuration that is the default, None where it is not known.
        what: What that configuration is called.
    """
    size = len(table)
    place = table["rank"].to_numpy()
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    axes = figure.subplots()
    places = {member: table[member].rank(method="min").to_numpy() for member in members}
    drawn = np.unique(np.linspace(0, size - 1, min(_SHOWN_DOTS // max(len(members), 1), size)).astype(int))
    named = [("line: where all would agree", ENSEMBLE)]
    for member, values in places.items():
        kind = member.split("-")[0]
        colour = MODEL_COLOURS.get(kind, RULE)
        size_of_dot = _dot_size(len(drawn) * len(members))
        axes.scatter(place[drawn], values[drawn], s=size_of_dot, color=colour, alpha=0.6, linewidths=0)
        entry = (f"dots: {MODEL_WORDS.get(kind, kind)}", colour)
        if entry not in named:
            named.append(entry)
    axes.plot([1, size], [1, size], color=ENSEMBLE, linewidth=1.2)
    if default is not None:
        row = table[table["config"] == default].iloc[0]
        axes.axvline(row["rank"], color=DEFAULT, linewidth=1.5)
        named.append((f"upright line: {what}, place {row['rank']:,.0f}", DEFAULT))
    _log_places(axes, size)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("place in the ranking (1 is predicted the fastest)")
    axes.set_ylabel("place by one model")
    firsts = [values[0] for values in places.values()]
    places_of_first = f"between {min(firsts):,.0f} and {max(firsts):,.0f}"
    if min(firsts) == max(firsts):
        places_of_first = f"at {min(firsts):,.0f}"
    axes.set_title(f"{len(members)} models place the first {places_of_first} of {size:,}")
    name_in_colours(figure, named)
    return figure


@in_style
def plot_effects(effects: pd.DataFrame, base: str = "the default") -> Figure:
    """Draw the options with the largest effects, the largest first.

    Args:
        effects: What :func:`fastslow_programs.ranking.choices.effects` returned.
        base: What options are compared with.
    """
    order = (-effects["effect"].abs()).sort_values(kind="stable").index
    shown = effects.loc[order].head(_BARS)
    labels = [
        fill(shortened(change_in_words(row.where, row.option, row.default), _LONGEST), _LABEL_WIDTH)
        for row in shown.itertuples()
    ]
    lines = sum(label.count("\n") + 1 for label in labels)
    figure = Figure(figsize=(WIDTH, 1.3 + 0.17 * max(lines + len(shown), 6)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(shown))
    colours = np.where(shown["effect"] < 0, FASTER, SLOWER)
    errors = 2 * shown["standard_error"].fillna(0)
    axes.barh(places, shown["effect"], xerr=errors, color=colours, error_kw={"elinewidth": 1})
    axes.set_yticks(places, labels, fontsize=8)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_ylim(len(shown) - 0.4, -0.6)  # the largest on top
    axes.grid(axis="y", visible=False)
    faster = int((effects["effect"] + 2 * effects["standard_error"].fillna(np.inf) < 0).sum())
    many = f"{faster} of {counted(len(effects), 'option')}"
    figure.suptitle(
        f"Surely predicted faster than in {base}: {many}",
        fontsize=10.5,
        weight="bold",
    )
    axes.set_xlabel(
        "← faster     places of 100     slower →\nlines: ± 2 standard errors",
        loc="center",
    )
    return figure


def _dot_size(dots: int) -> int:
    """Return the area of a dot, in square points: few are seen only if they are larger."""
    return 26 if dots < 500 else 10


def _log_slowdowns(axes: Axes, slower: np.ndarray) -> None:
    """Make the axis of slowdowns logarithmic above a small one, and linear from 0 to there."""
    positive = slower[slower > 0]
    if not len(positive):
        axes.set_ylim(-0.05, 1)
        return
    smallest = max(float(np.percentile(positive, _USUAL)), _LEAST)
    start = 10.0 ** np.floor(np.log10(smallest))
    axes.set_yscale("symlog", linthresh=start, linscale=0.5)
    axes.set_ylim(-0.12 * start, 1.6 * max(float(positive.max()), start))
    decades = [start * 10**power for power in range(12) if start * 10**power <= 1.6 * positive.max()]
    axes.set_yticks([0, *decades])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _log_places(axes: Axes, size: int) -> None:
    axes.set_xscale("log")
    axes.set_xlim(0.9, max(size, 2) * 1.1)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_formatter(NullFormatter())
