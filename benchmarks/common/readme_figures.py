"""The three figures of the README, from a finished run: scores, deduplicated states, one feature.

``make figures`` runs it, after ``make submit``: ``python -m common.readme_figures [NAME]`` in ``benchmarks``.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from common.states_figure import plot_states
from fastslow.competition.catalog import TEST, TRAIN, VALID
from fastslow.competition.metrics import kendall_tau
from fastslow.core.figures import save_figure
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.evaluation.plots import plot_results
from fastslow.evaluation.score_tables import pool_seeds
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.features.store import Features, Graph

_COLLECTION = "layout-xla-random"
_WIDTH = 1200  # pixels: sharp where a page shows 800
_COLOURS = 64
_FOLDER = "docs/figures"
_COLUMN = "violation_ratio"  # the configuration feature that is shown against runtime


def make_figures(name: str) -> list[Path]:
    """Write the three figures and print their paths; the same run and matplotlib give the same bytes.

    Args:
        name: Name of a finished run: its submission's record and its features are shown.

    Returns:
        The PNG files.

    Raises:
        DataError: The run has no submission or no features.
    """
    folder = resolve(_FOLDER)
    table = pool_seeds(
        pd.DataFrame(read_submission_record(resolve(f"submissions/{name}.csv"), "table")["table"])
    )
    features = Features(resolve(f"features/{name}/{_COLLECTION}"))
    graph = _smallest_graph(features)
    values = np.asarray(graph.config_feat[:, features.config_columns.index(_COLUMN)])
    drawings = {
        "scores.png": lambda: plot_results(table.drop(columns=VALID) if TEST in table else table),
        "states.png": lambda: plot_states(graph),
        "feature.png": lambda: _plot_feature(graph, values, _COLUMN),
    }
    for file, draw in progress(drawings.items(), desc="figures", unit="figure"):
        figure = draw()
        save_figure(figure, folder / file, round(_WIDTH / figure.get_figwidth()), _COLOURS)
    paths = [folder / file for file in drawings]
    print(*paths, sep="\n")
    return paths


def _smallest_graph(features: Features) -> Graph:
    rows = features.index[features.index["split"] == TRAIN]
    return features.graph(TRAIN, rows.loc[rows["nodes"].idxmin(), "name"])


def _plot_feature(graph: Graph, values: np.ndarray, column: str) -> Figure:
    """Plot a feature ``(C,)`` against the runtime of each configuration, with Kendall's tau of the two."""
    words = column.replace("_", " ")
    relative = graph.runtime / graph.runtime.min()
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.scatter(values, relative, s=40, color="#0072b2", alpha=0.7, linewidths=0)
    levels = np.unique(values)
    medians = [np.median(relative[values == level]) for level in levels]
    if len(levels) < len(values) / 2:
        axes.plot(levels, medians, color="#e69f00", linewidth=2, label="median")
        axes.legend(frameon=False)
    tau = kendall_tau(graph.runtime, values)
    axes.set_title(f"{graph.name}: {words} against runtime, Kendall's tau {tau:+.2f}", fontsize=11)
    axes.set(xlabel=f"{words} of a configuration", ylabel="runtime / fastest")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    make_figures(*sys.argv[1:2] or ["sample"])
