"""Paired comparison of two runs of one collection, per graph."""

import math
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastslow.competition.catalog import TEST, VALID, get_collection
from fastslow.competition.metrics import ALL_METRICS, tile_score
from fastslow.core.errors import SettingsError
from fastslow.core.figures import save_figure
from fastslow.core.settings import Settings, resolve, unkeyed
from fastslow.evaluation.predictions import check_predictions, read_predictions, read_run_manifest
from fastslow.evaluation.scores import SOLUTION, solution_of, truth_of
from fastslow.features.store import Features

_MAX_LABELS = 60  # of graphs; more would overlap


class CompareSettings(Settings):
    """Settings of a comparison of two runs."""

    one: str = ""
    """Run folder of a model or an ensemble."""
    other: str = ""
    """Run folder to compare it with, of the same collection."""
    metric: Literal["competition", *ALL_METRICS] = "competition"
    """Score per graph: the competition's (tau for layout, 1 - slowdown of the top 5 for tile) or another one;
    of a ``top_K_error`` a negative difference is better."""
    split: Literal[VALID, TEST] = VALID
    """Graphs to compare on; ``test`` needs ``solution.csv`` in ``data_root``."""
    features: str = ""
    """Features folder of the collection; empty for the one that belongs to the run ``one`` by its path."""
    data_root: str = "data/sample"
    """Folder that holds ``solution.csv``."""
    plot: str = unkeyed("")
    """PNG file to write; empty for ``runs/comparisons/<one>--<other>.png``."""

    def check(self) -> None:
        """Check that two runs are given."""
        for field in ("one", "other"):
            self.require(bool(getattr(self, field)), field, "a run folder: fastslow compare RUN RUN")
        self.require(not self.plot or self.plot.endswith(".png"), "plot", "a name that ends in .png")


def paired_difference(table: pd.DataFrame) -> dict[str, float]:
    """Return the mean difference of two runs over graphs and its standard error.

    Args:
        table: ``one`` and ``other``, a row per graph.

    Returns:
        ``mean`` of one - other; its ``standard_error``, the standard deviation of the differences (n - 1)
        over the root of the number of graphs, NaN for a single graph; numbers of graphs ``higher``,
        ``equal``, ``lower``. Graphs of one architecture are not independent, so that the true error is
        larger.
    """
    difference = (table["one"] - table["other"]).to_numpy()
    count = len(difference)
    return {
        "mean": float(difference.mean()),
        "standard_error": float(difference.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan,
        "higher": int((difference > 0).sum()),
        "equal": int((difference == 0).sum()),
        "lower": int((difference < 0).sum()),
    }


def compare_table(settings: CompareSettings) -> pd.DataFrame:
    """Score two runs on every graph.

    Returns:
        A row per graph, worst for ``one`` first: ``one``, ``other``, ``difference``.

    Raises:
        SettingsError: The runs are of different collections.
        DataError: A run, its features or the solution is missing or broken.
    """
    folders = [resolve(settings.one), resolve(settings.other)]
    names = [read_run_manifest(folder)["settings"]["collection"] for folder in folders]
    if names[0] != names[1]:
        raise SettingsError(f"other: {settings.other} is of {names[1]}, {settings.one} of {names[0]}")
    collection = get_collection(names[0])
    made = f"features/{folders[0].parent.name}/{collection.slug}"
    features = Features(resolve(settings.features or made))
    truth = truth_of(features, solution_of(resolve(settings.data_root)))
    if settings.split not in truth:
        raise SettingsError(f"split: test needs {SOLUTION} in {settings.data_root}; give data_root=FOLDER")
    own_metric = tile_score if collection.kind == "tile" else ALL_METRICS["tau"]
    metric = own_metric if settings.metric == "competition" else ALL_METRICS[settings.metric]
    scores = {}
    for column, folder in zip(("one", "other"), folders, strict=True):
        own = read_predictions(folder)
        check_predictions(folder, own, features)
        predictions = own[settings.split]
        scores[column] = {g: metric(runtime, predictions[g]) for g, runtime in truth[settings.split].items()}
    table = pd.DataFrame(scores).rename_axis("graph")
    return table.assign(difference=table["one"] - table["other"]).sort_values("difference")


def plot_comparison(table: pd.DataFrame, names: tuple[str, str], title: str) -> Figure:
    """Plot both scores of each graph of :func:`compare_table`, joined by a line."""
    figure = Figure(figsize=(8, 1.8 + 0.22 * min(len(table), _MAX_LABELS)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(table))
    axes.hlines(places, table["one"], table["other"], color="0.7", linewidth=1)
    axes.plot(table["other"], places, "o", color="#e69f00", label=names[1])
    axes.plot(table["one"], places, "o", color="#0072b2", label=names[0])
    if len(table) <= _MAX_LABELS:
        axes.set_yticks(places, table.index, fontsize=7)
    axes.set(title=title, xlabel="score")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower right", ncols=2, frameon=False, fontsize=8)
    return figure


def compare_runs(settings: CompareSettings) -> pd.DataFrame:
    """Print and return :func:`compare_table` with the mean difference, and write a plot of it."""
    table = compare_table(settings)
    names = Path(settings.one).name, Path(settings.other).name
    facts = paired_difference(table)
    difference = f"{facts['mean']:+.4f} ± {facts['standard_error']:.4f}"
    summary = (
        f"{settings.metric}, {settings.split}: {names[0]} {table['one'].mean():.3f}, {names[1]}"
        f" {table['other'].mean():.3f}, difference {difference}"
        f" (standard error over {len(table)} graphs; higher on {facts['higher']}, equal on {facts['equal']},"
        f" lower on {facts['lower']})"
    )
    path = resolve(settings.plot or f"runs/comparisons/{names[0]}--{names[1]}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_figure(plot_comparison(table, names, f"{settings.split}: {difference}"), path)
    print(table.to_markdown(floatfmt=".3f"))
    print(f"\n{summary}\nplot: {path}")
    return table
