"""Plots of trainings, scores and weights for notebooks and reports; each function returns a figure."""

import itertools
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fastslow.competition.catalog import COLLECTIONS, PREDICTED_SPLITS, TEST
from fastslow.competition.metrics import ALL_METRICS
from fastslow.core import figures
from fastslow.core.figures import (
    CEILING,
    FURTHER,
    MODEL_COLOURS,
    MODEL_WORDS,
    NETWORK,
    RULE,
    TREES,
    WIDTH,
    in_style,
)
from fastslow.ensemble.baselines import BASELINES

_MODELS = {**MODEL_COLOURS, **dict.fromkeys(BASELINES, RULE)}
_MARKERS = dict(zip(BASELINES, itertools.cycle("sD^"), strict=False))  # of rules, which share a colour
_MAX_LABELS = 40  # of graphs; a page has room for these
_NAME = 60  # characters of the name of a graph
_MARKS = {"marker": "o", "markersize": 3}  # a curve of one evaluation is a point
_ROW = 0.21  # inches of a model's row
_ROOM = 0.16  # right of the best score, for its number, as a share of the scores' range
_CLOSE = 0.2  # below the best score of a collection, a score is an arrow


@in_style
def plot_training(
    history: pd.DataFrame,
    title: str,
    kept: Mapping[str, Mapping] | None = None,
    references: Mapping[str, Mapping[str, float]] | None = None,
) -> Figure:
    """Plot the valid score of each collection over the epochs of a network, or the rounds of a ranker.

    Each collection has a panel; above them a network of several evaluations has its loss. A ring is the model
    that is kept: of a network's average of several epochs it is at the last one.

    Args:
        history: Rows of a training's ``metrics.jsonl``, with a column per collection, by its slug. Columns of
            :data:`ALL_METRICS` are not drawn; of a ranker they say which row is kept.
        title: Name of the run.
        kept: ``valid`` of the manifest of each run of a network, by slug: ``mean`` and ``weights``.
        references: What :func:`fastslow.ensemble.baselines.score_references` returns, by slug.
    """
    ranker = "objective" in history
    axis = "round" if ranker else "epoch"
    columns = _collections_of(history) or ["valid"]
    rings = {}
    if kept:
        rings = {slug: _kept_epoch(valid, history) for slug, valid in kept.items() if slug in columns}
    elif ranker and "tau" in history:
        row = history[history["tau"].notna()].iloc[-1]
        rings = {slug: (row[axis], row[slug], f"{row[axis]:.0f} rounds") for slug in columns}
    wide = min(len(columns), 2)
    rows = -(-len(columns) // wide)
    has_loss = not ranker and len(history) > 1  # one loss says nothing
    heights = [2.0] * has_loss + [2.5] * rows
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.3), layout="constrained")
    grid = figure.add_gridspec(len(heights), wide, height_ratios=heights)
    if has_loss:
        upper = figure.add_subplot(grid[0, :])
        upper.plot(history[axis], history["loss"], color=NETWORK, **_MARKS)
        upper.set(title=f"loss {history['loss'].iloc[-1]:.3g} on train", ylabel="loss", xlabel=axis)
        _mark_whole(upper, history[axis])
    for number, column in enumerate(columns):
        axes = figure.add_subplot(grid[len(heights) - rows + number // wide, number % wide])
        _draw_score(
            axes,
            history[axis],
            history[column],
            rings.get(column),
            (references or {}).get(column),
            TREES if ranker else NETWORK,
        )
        axes.set_xlabel("boosting round" if ranker else "epoch")
        axes.set_ylabel(name_metric(column).split(" of ")[0])  # a short axis has no room for all of it
    scores = {column: rings[column][1] if column in rings else history[column].iloc[-1] for column in columns}
    figure.suptitle(_learned(title, scores, references or {}))
    return figure


def name_metric(collection: str) -> str:
    """Return the name of the score of a collection, which has a name or slug."""
    return "1 - slowdown of the first five" if collection.startswith("tile") else "Kendall's tau"


def _collections_of(history: pd.DataFrame) -> list[str]:
    """Return the slugs of the collections that a history has scores of."""
    told = ["epoch", "round", "objective", "loss", "valid", *ALL_METRICS]
    return [column for column in history.columns if column not in told]


def _kept_epoch(valid: Mapping, history: pd.DataFrame) -> tuple[float, float, str]:
    """Return where a network's kept weights are in its plot, and which they are."""
    number = valid["weights"].removeprefix("epoch ")
    if number.isdecimal():
        return float(number), valid["mean"], valid["weights"]
    return float(history["epoch"].iloc[-1]), valid["mean"], "average"


def _draw_score(
    axes: Axes,
    places: pd.Series,
    scores: pd.Series,
    ring: tuple[float, float, str] | None,
    references: Mapping[str, float] | None,
    colour: str,
) -> None:
    """Draw the score of a collection over the training, with its references and the model that is kept."""
    name = {collection.slug: collection.name for collection in COLLECTIONS}.get(scores.name, scores.name)
    axes.plot(places, scores, color=colour, **_MARKS)
    told = f"{scores.iloc[-1]:.3f}"
    if ring:
        axes.plot(*ring[:2], "o", markersize=9, markerfacecolor="none", color="black")
        told = f"{ring[1]:.3f}, {ring[2]}"
    axes.set_title(f"{name.removeprefix('layout:')}: {told}" + (" (ring)" if ring else ""), fontsize=10)
    words = {"rule": ("best single feature", RULE), "ceiling": ("ceiling by the noise of labels", CEILING)}
    for kind, score in (references or {}).items():
        text, colour = words[kind]
        axes.axhline(score, color=colour, linestyle="--", linewidth=1.3)
        above = score > scores.iloc[-1]
        axes.annotate(
            f"{text} {score:.3f}",
            (1, score),
            (0, 3 if above else -3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="bottom" if above else "top",
            color=colour,
            fontsize=8.5,
        )
    axes.margins(y=0.14)
    _mark_whole(axes, places)


def _mark_whole(axes: Axes, places: pd.Series) -> None:
    """Set the ticks of epochs or rounds; around a single one, matplotlib would mark parts of it."""
    if places.nunique() == 1:
        axes.set_xticks(places.unique())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def lead(difference: float) -> str:
    """Put a difference of scores into words: ``0.046 ahead of``, ``0.003 behind``, or ``level with``."""
    shown = f"{abs(difference):.3f}"
    if float(shown) == 0:
        return "level with"
    return f"{shown} ahead of" if difference > 0 else f"{shown} behind"


def _learned(title: str, scores: Mapping[str, float], references: Mapping[str, Mapping[str, float]]) -> str:
    """Return what a training reached, as a title."""
    mean = float(np.mean(list(scores.values())))
    many = f", mean of {len(scores)} collections" if len(scores) > 1 else ""
    said = f"{MODEL_WORDS.get(title, title)}: {mean:.3f} on valid{many}"
    rules = [references[slug]["rule"] for slug in scores if "rule" in references.get(slug, {})]
    if len(rules) < len(scores):
        return said
    ahead = mean - float(np.mean(rules))
    return f"{said}\n{lead(ahead)} the best single feature"


@in_style
def plot_per_graph(per_graph: Mapping[str, float], collection: str, model: str = "") -> Figure:
    """Plot the valid score of each graph, worst first, and the mean of all.

    Args:
        per_graph: Score by graph. Of many graphs only the worst 40 are shown.
        collection: Name of the collection, or ``layout`` for all layouts.
        model: Name of the model, whose colour the bars have.
    """
    names = sorted(per_graph, key=per_graph.get)
    shown = names[:_MAX_LABELS]
    mean = np.mean(list(per_graph.values()))
    title = f"{collection} on valid: {per_graph[names[0]]:.2f} to {per_graph[names[-1]]:.2f}"
    if len(shown) < len(names):
        title += f", the worst {len(shown)} of {len(names)} graphs"
    figure = Figure(figsize=(WIDTH, 1.2 + 0.17 * len(shown)), layout="constrained")
    axes = figure.subplots()
    colour = _model_colours([model])[model]
    axes.barh(range(len(shown)), [per_graph[name] for name in shown], color=colour, alpha=0.75)
    axes.axvline(mean, color="black", linestyle="--", label=f"mean of all {mean:.3f}")
    axes.set_yticks(range(len(shown)), figures.shortened_names(shown, _NAME), fontsize=7)
    axes.set_ylim(len(shown) - 0.4, -0.6)  # the worst on top
    axes.grid(axis="y", visible=False)
    axes.set(title=title, xlabel=name_metric(collection) + figures.say_shortened(shown, _NAME))
    figure.legend(loc="outside lower right")
    return figure


@in_style
def plot_weights(members: Mapping[str, Mapping], baselines: Mapping[str, Mapping] | None = None) -> Figure:
    """Plot the weight of each model in an ensemble and the valid score of each of its runs.

    Args:
        members: ``members`` of an ensemble's manifest: ``model``, ``weight`` and ``valid`` by run.
        baselines: ``baselines`` of that manifest, ``valid`` by name; drawn as grey lines.
    """
    table = pd.DataFrame.from_dict(dict(members), orient="index")
    weights = table.groupby("model", sort=False)["weight"].sum()[::-1]
    by_model = _model_colours(list(weights.index))
    colours = [by_model[model] for model in weights.index]
    weights = weights.rename(MODEL_WORDS)
    figure = Figure(figsize=(WIDTH, 1.7 + 0.4 * len(weights)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.bar_label(left.barh(weights.index, weights, color=colours), fmt="%.2f", padding=3)
    largest = weights.idxmax()
    left.set(
        title=f"Most weight: {largest}, {weights[largest]:.2f}",
        xlabel="weight (sum over seeds)",
        xlim=(0, 1.15),
    )
    left.grid(axis="y", visible=False)
    for model, runs in table.groupby("model"):
        named = runs["model"].replace(MODEL_WORDS)
        right.plot(runs["valid"], named, "o", color=by_model[model], markeredgecolor="0.2", alpha=0.8)
    right.set(
        title=f"Runs: {table['valid'].min():.3f} to {table['valid'].max():.3f}", xlabel="score on valid"
    )
    dashes = itertools.cycle(("-", "--", ":"))
    for (name, baseline), dash in zip((baselines or {}).items(), dashes, strict=False):
        right.axvline(baseline["valid"], color=RULE, linestyle=dash, label=f"{name} {baseline['valid']:.3f}")
    if baselines:
        figure.legend(loc="outside lower right", ncols=min(len(baselines), 2))
    return figure


def _model_colours(models: list[str]) -> dict[str, str]:
    """Return a colour by model: its own where it has one, others of the further colours."""
    others = [model for model in models if model not in _MODELS]
    return {m: _MODELS.get(m) or FURTHER[others.index(m) % len(FURTHER)] for m in models}


@in_style
def plot_results(table: pd.DataFrame) -> Figure:
    """Plot the score of every model per collection: a row each, a panel per collection and kind of score.

    A dot is the mean over seeds, and the small dots are the seeds. The rules are grey. The axes of all
    layouts are the same; they start below the worst score that is near the best ones, and a score before
    their start is an arrow with its number.

    Args:
        table: As returned by :func:`fastslow.evaluation.score_tables.pool_seeds`.
    """
    split = TEST if TEST in table else [s for s in PREDICTED_SPLITS if s in table][-1]
    collections = list(dict.fromkeys(table["collection"]))
    # baselines first and the ensemble last, also where its first collection lacks a model
    models = sorted(dict.fromkeys(table["model"]), key=lambda m: (m == "ensemble") - (m in BASELINES))
    height = 0.55 + len(collections) * (0.5 + _ROW * len(models))
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    panels = np.atleast_1d(figure.subplots(len(collections), 1))
    colours = _model_colours(models)
    for axes, collection in zip(panels, collections, strict=True):
        alike = table[table["collection"].str.startswith(collection.split(":")[0])]
        rows = alike[alike["collection"] == collection].set_index("model")
        present = [model for model in models if model in rows.index]
        _draw_models(axes, rows.loc[present], split, colours, _range(alike, split))
        axes.set_title(f"{collection}: {name_metric(collection)}", fontsize=10)
    panels[-1].set_xlabel("large dot: mean over seeds; small dots: each seed")
    figure.suptitle(_found(table, split))
    return figure


def _range(table: pd.DataFrame, split: str) -> tuple[float, float]:
    """Return the ends of the axis of the collections of a kind."""
    best = table.groupby("collection")[split].transform("max")
    near = table[table[split] > best - _CLOSE]
    scores = [*near[split], *itertools.chain(*near.get(f"{split}_by_seed", ()))]
    low, high = min(scores), max(scores)
    width = high - low + 0.01
    return low - 0.1 * width, high + _ROOM * width


def _draw_models(
    axes: Axes, rows: pd.DataFrame, split: str, colours: Mapping[str, str], ends: tuple[float, float]
) -> None:
    """Draw a row for each model of a collection, the best on top."""
    rows = rows.sort_values(split)
    for place, (model, score) in enumerate(rows[split].items()):
        colour = colours[model]
        words = {"color": colour, "va": "center", "fontsize": 9, "weight": "bold"}
        if score < ends[0]:
            axes.annotate(f"◀ {score:.3f}", (ends[0], place), **words)
            continue
        axes.plot([ends[0], score], [place, place], color="#e4e4e4", linewidth=1.5, zorder=1)
        seeds = [score, *rows.get(f"{split}_by_seed", {}).get(model, ())]
        axes.plot(seeds[1:], [place] * (len(seeds) - 1), ".", color=colour, markersize=6, alpha=0.5)
        axes.plot(score, place, _MARKERS.get(model, "o"), color=colour)
        axes.annotate(f"{score:.3f}", (max(seeds), place), (7, 0), textcoords="offset points", **words)
    names = [MODEL_WORDS.get(model, model) for model in rows.index]
    axes.set_yticks(range(len(names)), names)
    for label, model in zip(axes.get_yticklabels(), rows.index, strict=True):
        label.set_color(colours[model])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlim(*ends)
    axes.set_xticks(
        [tick for tick in axes.get_xticks() if ends[0] <= tick <= min(ends[1], 1)]
    )  # 1 is the best
    axes.grid(axis="y", visible=False)


def _found(table: pd.DataFrame, split: str) -> str:
    """Return what the scores of a run say, as a title."""
    means = table.groupby("model")[split].mean()
    rules = [model for model in means.index if model in BASELINES]
    many = table["collection"].nunique()
    if "ensemble" not in means or not rules:
        return f"Scores on {split} programs"
    whole = [m for m in rules if (table["model"] == m).sum() == many] or rules
    rule = means[whole].max()
    ahead = means["ensemble"] - rule
    mean = f"mean of {many} collections" if many > 1 else table["collection"].iloc[0]
    return f"The ensemble is {lead(ahead)} the best trivial rule on {split} ({mean})"
