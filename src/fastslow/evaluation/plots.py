"""The plots that the notebooks show; each returns a figure."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure


def plot_training(history: pd.DataFrame, title: str) -> Figure:
    """Loss and valid score over the epochs of a network, or valid score over the rounds of a ranker.

    Args:
        history: Rows of a training's ``metrics.jsonl``; a network's has a column for each collection.
        title: Name of the run.
    """
    if "objective" in history:
        figure = Figure(figsize=(7, 3.5), layout="constrained")
        axes = figure.subplots()
        for objective, rows in history.groupby("objective", sort=False):
            axes.plot(rows["round"], rows["valid"], label=objective)
        axes.set(title=title, xlabel="boosting round", ylabel="valid score")
        axes.legend()
        return figure
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(history["epoch"], history["loss"])
    left.set(title=f"{title}: loss", xlabel="epoch", ylabel="train loss")
    right.plot(history["epoch"], history["valid"], color="tab:green", label="mean")
    for collection in history.columns.drop(["epoch", "loss", "valid"]):
        right.plot(history["epoch"], history[collection], label=collection, linewidth=1, linestyle="--")
    right.legend(fontsize="small")
    right.set(title="score on valid", xlabel="epoch", ylabel="Kendall tau or 1 - slowdown")
    return figure


def plot_per_graph(per_graph: Mapping[str, float], title: str) -> Figure:
    """The score of each graph, worst first, with the mean."""
    names = sorted(per_graph, key=per_graph.get)
    values = [per_graph[name] for name in names]
    figure = Figure(figsize=(8, 1.2 + 0.25 * min(len(names), 60)), layout="constrained")
    axes = figure.subplots()
    axes.barh(range(len(names)), values, color="tab:blue")
    axes.axvline(np.mean(values), color="black", linestyle="--", label=f"mean {np.mean(values):.3f}")
    if len(names) <= 60:
        axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set(title=title, xlabel="score")
    axes.legend(loc="lower right")
    return figure


def plot_results(table: pd.DataFrame) -> Figure:
    """Every model's score by collection; bars are means, whiskers the least and the most of a graph.

    Args:
        table: What ``results.pool_seeds`` gives.
    """
    splits = [split for split in ("valid", "test") if split in table]
    collections = list(dict.fromkeys(table["collection"]))
    # the ensemble last, also where its first collection lacks a model
    models = sorted(dict.fromkeys(table["model"]), key=lambda model: model == "ensemble")
    figure = Figure(figsize=(10, 3.6 * len(splits)), layout="constrained")
    for axes, split in zip(np.atleast_1d(figure.subplots(len(splits), 1)), splits, strict=True):
        width = 0.8 / len(models)
        for position, model in enumerate(models):
            rows = table[table["model"] == model]
            x = [
                collections.index(c) + (position - (len(models) - 1) / 2) * width for c in rows["collection"]
            ]
            whiskers = [rows[split] - rows[f"{split}_least"], rows[f"{split}_most"] - rows[split]]
            axes.bar(
                x, rows[split], width, yerr=np.maximum(whiskers, 0), capsize=2, ecolor="0.4", label=model
            )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(range(len(collections)), collections)
        axes.set(title=split, ylabel="Kendall tau (tile: 1 - slowdown)")
        axes.grid(axis="y", alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return figure


def plot_importance(importance: pd.DataFrame, title: str, top: int = 20) -> Figure:
    """Gain of a ranker's most used columns.

    Args:
        importance: ``column`` and ``gain``, most first.
        title: Name of the run.
        top: How many columns.
    """
    rows = importance.head(top)[::-1]
    figure = Figure(figsize=(8, 1 + 0.25 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.barh(rows["column"], rows["gain"], color="tab:orange")
    axes.tick_params(axis="y", labelsize=8)
    axes.set(title=f"{title}: gain", xlabel="total gain of splits")
    return figure


def plot_survey(files: pd.DataFrame) -> Figure:
    """Nodes against configurations of every file, by collection.

    Args:
        files: What ``survey.survey`` gives.
    """
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for collection, rows in files.groupby("collection", sort=False):
        axes.scatter(rows["nodes"], rows["configs"], s=12, alpha=0.6, label=collection)
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="configurations", title="one dot a file")
    axes.legend()
    return figure
