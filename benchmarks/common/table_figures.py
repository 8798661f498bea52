"""The figures that are drawn from the tables of the benchmarks, for the pages of ``docs``.

``make figures`` runs it: ``python -m common.table_figures`` in ``benchmarks``. A figure keeps the digest of
its tables, and a test compares them: a figure is never older than its tables.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from common.command_line import run_main
from fastslow.core.figures import (
    CEILING,
    ENSEMBLE,
    FAINT,
    FURTHER,
    KNOWN,
    MODEL_COLOURS,
    NETWORK,
    RULE,
    WIDTH,
    in_style,
    label_ends,
    name_in_colours,
    save_figure,
)
from fastslow.core.files import digest
from fastslow.core.progress import progress
from fastslow.core.settings import PROJECT
from fastslow.evaluation import standing

TABLES = PROJECT / "benchmarks" / "tables"
FOLDER = PROJECT / "docs" / "figures"
_COLOURS = 64
_FAR = 100  # place from which words stand at the left
_NAMES = {"gnn": "networks", "ranker": "trees", "best single feature": "one column", "rule": "trivial rule"}
_SEARCHES = {
    **dict.fromkeys(("random", "order of one column", "order of product of bounds"), RULE),
    **dict.fromkeys(
        ("guided, no run", "guided, no run, in batches of 8", "TPE", "Optuna's process"), FURTHER[0]
    ),
}
"""Colours of searches; the others follow a prediction."""
_THIRDS = {
    "nearest third": FURTHER[0],
    "middle third": "#9c4a7b",
    "farthest third": "#5c1f45",
    "all": ENSEMBLE,
}
_MEDALS = {"gold": "#f7ecc4", "silver": "#ebebeb", "bronze": "#f1dfd0"}
_SLOW, _WORSE = 2.0, 0.02  # times of the base, and tau below it, from which a variant is named
_BEFORE_FIRST = 0.85  # where an axis of places begins
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
_LETTERS = {"fontsize": 8.5, "va": "center", "textcoords": "offset points", "annotation_clip": False}


def read_tables(name: str) -> dict[str, list[pd.DataFrame]]:
    """Return the tables of a benchmark by the heading of their section; cells are texts."""
    sections: dict[str, list[pd.DataFrame]] = {"": []}
    heading = ""
    rows: list[list[str]] = []
    for line in [*(TABLES / f"{name}.md").read_text().splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        if rows:
            sections[heading].append(pd.DataFrame(rows[2:], columns=rows[0]))
            rows = []
        if line.startswith("## "):
            heading = line.removeprefix("## ")
            sections.setdefault(heading, [])
    return sections


def numbers(cells: pd.Series, position: int = 0) -> np.ndarray:
    """Return the number at a position of each cell, NaN where it has fewer."""
    parts = [_NUMBER.findall(cell) for cell in cells]
    return np.array([float(p[position].replace(",", "")) if len(p) > position else np.nan for p in parts])


@in_style
def plot_gains() -> Figure:
    """Plot what more programs to train on bring, a paired difference for each collection and model."""
    (table,) = read_tables("more_programs")["Test"]
    table = table[table["model"].isin([*MODEL_COLOURS, "ridge on config features"])]
    collections = list(dict.fromkeys(table["collection"]))
    figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    axes = figure.subplots()
    models = ["ensemble", "ranker", "gnn", "ridge on config features"]
    named = []
    for place, model in enumerate(models):
        rows = table[table["model"] == model].set_index("collection").loc[collections]
        y = np.arange(len(collections)) + 0.17 * (place - 1.5)
        style = {"fmt": "o", "color": MODEL_COLOURS.get(model, RULE), "markersize": 5, "elinewidth": 1.5}
        name = _NAMES.get(model, model).replace("ridge on config features", "ridge regression (a rule)")
        axes.errorbar(numbers(rows["gain"]), y, xerr=numbers(rows["gain"], 1), **style)
        named.append((name, style["color"]))
    axes.axvline(0, color="black", linewidth=1)
    axes.set_yticks(range(len(collections)), collections)
    axes.set_ylim(len(collections) - 0.5, -0.5)
    axes.set_xlabel("Kendall's tau with them minus without\nlines: ± standard error over programs")
    row = table[(table["collection"] == "layout, all") & (table["model"] == "ensemble")]["gain"].iloc[0]
    figure.suptitle(f"61 more train programs change the ensemble's tau on test by {row}")
    name_in_colours(figure, named)
    return figure


@in_style
def plot_variants() -> Figure:
    """Plot what each variant of the network gains over the base, the best on top, with its time."""
    table = next(t for t in read_tables("models")[""] if "time" in t)
    rules = next(t for t in read_tables("models")[""] if "rule" in t)
    base = numbers(table["tau"])[0]
    rows = table[table["gain"] != ""]
    rows = rows.iloc[np.argsort(numbers(rows["gain"]), kind="stable")].reset_index(drop=True)
    gain = numbers(rows["gain"])
    error = _with_training_noise(numbers(rows["±"]))
    figure = Figure(figsize=(WIDTH, 1.5 + 0.2 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(rows))
    axes.errorbar(gain, places, xerr=2 * error, fmt="o", color=NETWORK, markersize=5, elinewidth=1.5)
    axes.axvline(0, color="black", linewidth=1)
    rule = numbers(rules["tau"]).max() - base
    axes.axvline(rule, color=RULE, linestyle="--")
    for place, time in enumerate(rows["time"]):
        words = {"xycoords": ("axes fraction", "data"), "ha": "left", "color": CEILING, **_LETTERS}
        axes.annotate(f"{float(time):.1f} ×", (1, place), (6, 0), **words)
    axes.set_yticks(places, rows["variant"], fontsize=8.5)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(
        f"Kendall's tau over the base's {base:.3f} (mean of layouts, one seed)\n"
        "lines: ± 2 standard errors, of programs and of a training together"
    )
    figure.suptitle(f"Of {len(rows)} variants, {_are_ahead(rows['variant'][gain > 2 * error])}")
    named = [("variants of the network", NETWORK), ("dashed: strongest trivial rule", RULE)]
    name_in_colours(figure, [*named, ("right: training time over the base's", CEILING)])
    return figure


@in_style
def plot_times() -> Figure:
    """Plot the score of each variant of the network against the time of its training."""
    table = next(t for t in read_tables("models")[""] if "time" in t)
    rules = next(t for t in read_tables("models")[""] if "rule" in t)
    tau, time = numbers(table["tau"]), numbers(table["time"])
    longer = time > time[0]
    error = _with_training_noise(numbers(table["±"].replace("", "0")))
    sure = longer & (tau - tau[0] > 2 * error)
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    axes = figure.subplots()
    axes.axhline(numbers(rules["tau"]).max(), color=RULE, linestyle="--")
    axes.scatter(time, tau, s=26, color=NETWORK, linewidths=0)
    axes.scatter(time[:1], tau[:1], s=60, color=ENSEMBLE, linewidths=0, zorder=3)
    for place in np.flatnonzero((time >= _SLOW) | (tau < tau[0] - _WORSE) | sure):
        words = {"ha": "left", "color": CEILING, **_LETTERS}
        axes.annotate(table["variant"][place], (time[place], tau[place]), (7, 0), **words)
    axes.set_xscale("log")
    axes.set_xlim(0.8, 6)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 5)))
    axes.xaxis.set_major_formatter("{x:g} ×")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("CPU time of a training, over the base's")
    axes.set_ylabel("Kendall's tau, mean of layouts")
    ahead = _are_ahead(table["variant"][sure])
    axes.set_title(f"Of {longer.sum()} variants that train longer (one seed), {ahead}")
    named = [("large dot: base", ENSEMBLE), ("dots: variants", NETWORK), ("dashed: trivial rule", RULE)]
    name_in_colours(figure, named)
    return figure


@in_style
def plot_distance() -> Figure:
    """Plot the score of each program against its distance to the train programs, with the means of thirds."""
    table = _per_program("compiler")
    distance, tau = numbers(table["distance"]), numbers(table["tau, fastslow rank"])
    rule = numbers(table["tau, rule"])
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    axes = figure.subplots()
    axes.scatter(distance, rule, s=22, facecolors="none", edgecolors=RULE)
    axes.scatter(distance, tau, s=22, color=ENSEMBLE, linewidths=0)
    thirds = np.array_split(np.argsort(distance, kind="stable"), 3)
    ahead = []
    for name, part in zip(("nearest", "middle", "farthest"), thirds, strict=True):
        ends = [distance[part].min(), distance[part].max()]
        models, simple = tau[part].mean(), rule[part].mean()
        error = (tau[part] - rule[part]).std(ddof=1) / len(part) ** 0.5
        ahead.append(f"{models - simple:+.3f} ± {error:.3f}")
        axes.axvspan(ends[0] - 0.003, ends[1] + 0.003, color="#f1f1f1", linewidth=0, zorder=0)
        axes.plot(ends, [simple] * 2, color=RULE, linewidth=2.5)
        axes.plot(ends, [models] * 2, color=ENSEMBLE, linewidth=2.5)
        words = {"ha": "center", "xycoords": ("data", "axes fraction"), **_LETTERS}
        said = f"{name} third\n{models:.3f}, rule {simple:.3f}"
        axes.annotate(said, (np.mean(ends), 0.06), (0, 0), **words)
    axes.set_ylim(min(tau.min(), rule.min()) - 0.18, 1.03)
    axes.set(xlabel="distance to the train programs: share of nodes that would need another opcode")
    axes.set_ylabel("Kendall's tau")
    axes.set_title(f"Models minus rule: {ahead[0]} nearest, {ahead[2]} farthest")
    words_below = [(f"dots: models in the package ({len(table)} programs)", ENSEMBLE)]
    name_in_colours(figure, [*words_below, ("rings: trivial rule", RULE), ("lines: means", CEILING)])
    return figure


@in_style
def plot_measured() -> Figure:
    """Plot the measured programs as bullets: rule, ranking, 16 known runtimes, and the noise's ceiling."""
    known = read_tables("few_shot")["Measured programs: mean (minimum to maximum) over draws"][0]
    known = known[(known["known"] == "16") & (known["ceiling"] != "")].reset_index(drop=True)
    zero = _per_program("tpu")
    figure = Figure(figsize=(WIDTH, 0.9 + 0.95 * len(known)), layout="constrained")
    panels = figure.subplots(len(known), 1, sharex=True)
    gains = {}
    for axes, (_, row) in zip(np.atleast_1d(panels), known.iterrows(), strict=True):
        match = zero[zero["program"].str.endswith(row["program"])].iloc[0]
        ceiling = float(row["ceiling"])
        stack, low, high = map(float, _NUMBER.findall(row["stack"]))
        gains[row["program"]] = stack - float(match["tau, fastslow rank"])
        axes.barh(0, ceiling, height=0.9, color="#e9e9e9", zorder=0)
        axes.barh(0, stack, height=0.42, color=KNOWN, zorder=2)
        axes.plot([low, high], [0, 0], color="black", linewidth=1, zorder=3)
        for column, colour, mark in (("tau, rule", RULE, "D"), ("tau, fastslow rank", ENSEMBLE, "o")):
            axes.plot(
                float(match[column]), 0, mark, color=colour, markersize=9, markeredgecolor="white", zorder=4
            )
        axes.annotate(f"ceiling {ceiling:.2f}", (ceiling, 0), (4, 0), color=CEILING, **_LETTERS)
        axes.set_yticks([0], [row["program"]])
        axes.set(ylim=(-0.6, 0.6), xlim=(min(0, low) - 0.02, 1.03))
        axes.grid(axis="y", visible=False)
    axes.set_xlabel("Kendall's tau with TpuGraphs' measured runtimes")
    raised = (
        f"16 known runtimes raise tau on {sum(gain > 0 for gain in gains.values())} of {len(gains)} programs"
    )
    most = max(gains, key=gains.__getitem__)
    figure.suptitle(f"{raised}, most on {most}, by {gains[most]:.2f}")
    words = [("bar: with 16 known (line: draws)", KNOWN), ("dot: nothing known", ENSEMBLE)]
    words += [("diamond: trivial rule", RULE), ("grey: ceiling by the noise of repeated runs", CEILING)]
    name_in_colours(figure, words)
    return figure


@in_style
def plot_known() -> Figure:
    """Plot the score on measured programs against the number of known runtimes."""
    table = read_tables("does_it_help")["Labels: tpu"][1]
    measured = read_tables("few_shot")["Measured programs: mean (minimum to maximum) over draws"][0]
    ceilings = numbers(measured["ceiling"])
    ceiling = np.mean(np.unique(ceilings[~np.isnan(ceilings)]))
    names = {
        "fastslow rank": ("fastslow rank", KNOWN),
        "rule": ("trivial rule", RULE),
        "column": ("one column, fitted", FURTHER[0]),
        "ridge": ("ridge, fitted", FURTHER[1]),
    }
    figure = Figure(figsize=(WIDTH, 3.8), layout="constrained")
    axes = figure.subplots()
    ends = {}
    for order, (name, colour) in names.items():
        rows = table[table["order"] == order]
        x, y = numbers(rows["known"]), numbers(rows["tau"])
        axes.plot(x, y, "o-", color=colour)
        ends[f"{name} {y[-1]:.2f}"] = (x[-1], y[-1], colour)
    axes.axhline(ceiling, color=CEILING, linestyle="--")
    ends[f"ceiling {ceiling:.2f}"] = (x[-1], ceiling, CEILING)
    axes.set(
        xlabel="known runtimes of the program", ylabel="Kendall's tau, mean of 3 programs", ylim=(0, 0.8)
    )
    axes.set_xticks(sorted({*numbers(table["known"]).astype(int).tolist()}))
    ours = table[table["order"] == "fastslow rank"]
    taus = numbers(ours["tau"])
    axes.set_title(f"{ours['known'].iloc[-1]} known runtimes raise tau from {taus[0]:.2f} to {taus[-1]:.2f}")
    label_ends(axes, ends)
    return figure


@in_style
def plot_searches() -> Figure:
    """Plot the evaluations until the best is within 1 % of the best, for every strategy."""
    sections = {"layouts": "Unseen layouts", "tiles": "Unseen kernels, all tiles"}
    tables = {name: read_tables("tune")[section][0] for name, section in sections.items()}
    order = list(dict.fromkeys(tables["tiles"]["search"]))[::-1]
    figure = Figure(figsize=(WIDTH, 1.5 + 0.27 * len(order)), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (name, table) in zip(panels, tables.items(), strict=True):
        rows = table.set_index("search").reindex(order)
        cells = rows["within 1%"].fillna("")
        mean, error = numbers(cells), numbers(cells, 1)
        for place, search in enumerate(order):
            if np.isnan(mean[place]):
                continue
            colour = _SEARCHES.get(search, ENSEMBLE)
            axes.errorbar(mean[place], place, xerr=error[place], fmt="o", color=colour, markersize=5)
            end = mean[place] + error[place]
            axes.annotate(f"{mean[place]:.1f}", (end, place), (7, 0), color=colour, **_LETTERS)
        axes.set(xscale="log", title=f"{name}", xlabel="evaluations (± standard error)")
        axes.set_xlim(0.85 * np.nanmin(mean), 2.2 * np.nanmax(mean))
        _plain_log(axes, (1, 2, 5) if np.nanmax(mean) > _FAR else (1, 2, 3, 5))
        axes.grid(axis="y", visible=False)
    names = {
        "guided": "guided (the default)",
        "TPE": "Optuna: TPE",
        "Optuna's process": "Optuna: Gaussian process",
    }
    panels[0].set_yticks(range(len(order)), [names.get(search, search) for search in order])
    layouts = tables["layouts"].set_index("search")["within 1%"]
    guided, chance = numbers(layouts[["guided", "random"]])
    needed = f"{guided:.0f} evaluations with a prediction, {chance:.0f} by chance"
    figure.suptitle(f"Within 1 % of the best layout: {needed}")
    words = [("with a prediction", ENSEMBLE), ("without one", FURTHER[0]), ("trivial rule or chance", RULE)]
    name_in_colours(figure, words)
    return figure


@in_style
def plot_calibration() -> Figure:
    """Plot how often bands and probabilities hold against the shares that they promise."""
    (table,) = read_tables("trust")[""]
    rows = table[table["collection"] == "layout, all"].set_index("part")
    levels = np.array([50, 80, 90])
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    kinds = {"Bands of a program's tau": "in {}%", "Order of two configurations": "said {}%"}
    for axes, (title, column) in zip(panels, kinds.items(), strict=True):
        axes.plot([45, 100], [45, 100], color=CEILING, linestyle="--", linewidth=1.2)
        for part, colour in _THIRDS.items():
            shares = [100 * float(rows.loc[part, column.format(level)]) for level in levels]
            axes.plot(levels, shares, "o-", color=colour, linewidth=2.4 if part == "all" else 1.2, label=part)
        axes.set(title=title, xlabel="promised, %", xticks=levels, xlim=(45, 95), ylim=(30, 100))
    panels[0].set_ylabel("held in fact, % (dashed: as promised)")
    name_in_colours(figure, [*_THIRDS.items()])
    held = int(100 * float(rows.loc["all", "in 80%"]) + 0.5)  # half up, as pages round
    count = rows.loc["all", "with a band"]
    figure.suptitle(f"Bands that promise 80 % hold {held} % of {count} rankings")
    return figure


@in_style
def plot_programs() -> Figure:
    """Plot the score on programs with many reshapes, with and without such programs to train on."""
    (table,) = read_tables("more_programs")["Unseen"]
    table = table[table["programs"].str.startswith("layout")]
    groups = list(dict.fromkeys(table["programs"]))
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    axes = figure.subplots()
    gains = []
    for place, group in enumerate(groups[::-1]):
        rows = table[table["programs"] == group].set_index("trained on")
        less, more = (float(rows.loc[run, "ensemble"]) for run in ("sample", "half"))
        axes.plot([less, more], [place, place], color=FAINT, linewidth=2, zorder=1)
        axes.plot(less, place, "o", markerfacecolor="white", color=ENSEMBLE)
        axes.plot(more, place, "o", color=ENSEMBLE)
        rival = max(float(rows.loc["half", rule]) for rule in ("rule", "ridge"))
        axes.plot(rival, place, "D", color=RULE, markersize=5)
        gains.append(more - less)
        axes.annotate(f"{gains[-1]:+.3f}", (max(less, more), place), (8, 0), color=ENSEMBLE, **_LETTERS)
    counts = dict(zip(table["programs"], table["number"], strict=True))
    names = [f"{group.removeprefix('layout:')} ({counts[group]})" for group in groups[::-1]]
    axes.set_yticks(range(len(groups)), names)
    axes.set_ylabel("kind (number of programs)")
    axes.set_xlabel("Kendall's tau of the ensemble on programs that no model saw")
    figure.suptitle(f"Train programs like these raise tau by {min(gains):.3f} to {max(gains):.3f}")
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)
    words = [("ring: trained on the sample", ENSEMBLE), ("diamond: stronger trivial rule", RULE)]
    name_in_colours(figure, [*words, ("dot: also trained on programs like these", ENSEMBLE)])
    return figure


@in_style
def plot_board() -> Figure:
    """Plot the private board of the competition at the places that are known, with their medals."""
    places, scores = zip(*standing.PRIVATE, strict=True)
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(places, scores, "--", color=FAINT)
    axes.plot(places, scores, "o", color=CEILING, markersize=5)
    first = _BEFORE_FIRST
    for last, medal in standing.MEDALS[: len(_MEDALS)]:
        axes.axvspan(first, last + 0.5, color=_MEDALS[medal], linewidth=0, zorder=0)
        first = last + 0.5
    for place, score in standing.PRIVATE:
        medal = next(name for last, name in standing.MEDALS if place <= last)
        words = f"place {place}, {medal}: {score:.3f}"
        left = place > _FAR
        axes.annotate(
            words,
            (place, score),
            (-14 if left else 6, 0 if left else 8),
            ha="right" if left else "left",
            color=CEILING,
            **_LETTERS,
        )
    axes.set(xscale="log", xlim=(_BEFORE_FIRST, 900), ylim=(0, 0.82), ylabel="private score, mean of five")
    axes.set_xlabel(f"place of {standing.TEAMS} entries")
    _plain_log(axes, (1, 2, 5))
    gold = max(score for place, score in standing.PRIVATE if place > 1)
    axes.set_title(f"Gold took {gold:.3f} (private score); no CSV of this code was uploaded yet")
    return figure


BOARD = PROJECT / "src" / "fastslow" / "evaluation" / "standing.py"
FIGURES: dict[str, tuple[Callable[[], Figure], tuple[Path, ...]]] = {
    "gains.png": (plot_gains, (TABLES / "more_programs.md",)),
    "times.png": (plot_times, (TABLES / "models.md", TABLES / "scores.md")),
    "variants.png": (plot_variants, (TABLES / "models.md", TABLES / "scores.md")),
    "distance.png": (plot_distance, (TABLES / "does_it_help.md",)),
    "measured.png": (plot_measured, (TABLES / "few_shot.md", TABLES / "does_it_help.md")),
    "known.png": (plot_known, (TABLES / "few_shot.md", TABLES / "does_it_help.md")),
    "searches.png": (plot_searches, (TABLES / "tune.md",)),
    "calibration.png": (plot_calibration, (TABLES / "trust.md",)),
    "programs.png": (plot_programs, (TABLES / "more_programs.md",)),
    "board.png": (plot_board, (BOARD,)),
}
"""By file in ``docs/figures``, the function that draws it and the tables that it reads."""


def source_digest(paths: tuple[Path, ...]) -> str:
    """Return the digest of the numbers that a figure was drawn from."""
    return digest([path.read_text() for path in paths])


def draw_tables() -> list[Path]:
    """Draw every figure, and print their paths."""
    for file, (draw, tables) in progress(FIGURES.items(), desc="figures", unit="figure"):
        save_figure(draw(), FOLDER / file, colours=_COLOURS, source=source_digest(tables))
    paths = [FOLDER / file for file in FIGURES]
    print(*paths, sep="\n")
    return paths


def _are_ahead(variants: pd.Series) -> str:
    """Return how many variants are ahead, and of a single one its name, as the end of a sentence."""
    if len(variants) < 2:
        return f"{f'only {variants.iloc[0]}' if len(variants) else 'none'} is two standard errors ahead"
    return f"{len(variants)} are two standard errors ahead"


def _with_training_noise(error: np.ndarray) -> np.ndarray:
    """Return standard errors over programs, of one seed, together with the noise of two trainings."""
    (table,) = read_tables("scores")["One training against another"]
    noise = numbers(table.loc[table["model"] == "gnn", "of the difference of two"])[0]
    return np.hypot(error, noise)


def _per_program(labels: str) -> pd.DataFrame:
    """Return the rows of single programs of a kind of label."""
    return next(t for t in read_tables("does_it_help")[f"Labels: {labels}"] if "tau, rule" in t)


def _plain_log(axes: Axes, steps: tuple[float, ...]) -> None:
    """Name the places of a logarithmic axis by plain numbers."""
    axes.xaxis.set_major_locator(LogLocator(subs=steps))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def main(arguments: list[str]) -> int:
    """Draw the figures of all tables and return the exit status."""
    draw_tables()
    return 0


if __name__ == "__main__":
    run_main(main)
