"""The three figures of the README, from a finished run: scores, deduplicated states, one feature.

``make figures`` runs it, after ``make submit``: ``python -m common.readme_figures [NAME]`` in ``benchmarks``.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.command_line import run_main
from fastslow.competition.catalog import TEST, TRAIN, VALID
from fastslow.competition.metrics import kendall_tau
from fastslow.competition.opcodes import opcode_name
from fastslow.core.figures import RULE, WIDTH, in_style, save_figure
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.evaluation.plots import plot_results
from fastslow.evaluation.score_tables import pool_seeds
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.features.graph import Graph
from fastslow.networks.states.config_states import Level, Reach
from fastslow.runs.features_folder import Features

_COLLECTION = "layout-xla-random"
_COLOURS = 64
_FOLDER = "docs/figures"
_MAX_LABELS = 60  # of nodes; more would overlap
_SINGLE = (0.93, 0.93, 0.93)
_COMMONEST = (0.78, 0.87, 0.95)
_STRIDE = 7  # along the colour map from one state to the next: neighbours differ in hue
_COLUMN = "violation_ratio"  # the configuration feature that is shown against runtime


@in_style
def plot_states(graph: Graph, depth: int = 1) -> Figure:
    """Plot nodes against configurations, coloured by state, one panel per level of message passing.

    Cells of one colour in a row are one state, which the network computes once. The state that most
    configurations give a node is pale blue; a node with a single state is grey. Configurations are sorted so
    that equal states of level 0 are next to each other; the number of states, of a node that has several, is
    at the right.

    Args:
        graph: A layout graph.
        depth: Last level shown: the number of message-passing layers, 0 or more.
    """
    reach = Reach(graph.edge_index, graph.num_nodes, graph.config_index, graph.choices, depth)
    levels = reach.states(graph.choices.values)
    order = np.lexsort(_table(levels[0])[::-1])
    height = 1.4 + 0.15 * min(graph.num_nodes, _MAX_LABELS)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, depth + 1, sharey=True))
    for number, (axes, level) in enumerate(zip(panels, levels, strict=True)):
        _draw_level(axes, level, order)
        axes.set_title(f"after {number} layer{'s' * (number != 1)}: {len(level):,} states", fontsize=9.5)
        axes.set_xlabel(f"{graph.num_configs} configurations, sorted", fontsize=9)
        axes.set_xticks([])
    _name_nodes(panels[0], graph)
    pairs = graph.num_nodes * graph.num_configs
    title = f"{len(levels[-1]):,} states are computed instead of {pairs:,} pairs of node and configuration"
    meaning = "a colour in a row is a state; grey: a node with a single one; right: their number"
    figure.suptitle(f"{title}\n{meaning}", fontsize=9.5, weight="bold")
    return figure


def _name_nodes(axes: Axes, graph: Graph) -> None:
    """Name all nodes, configurable ones in bold; of many nodes only the configurable ones."""
    nodes, meaning = np.arange(graph.num_nodes), "node (bold: configurable)"
    if len(nodes) > _MAX_LABELS:
        nodes, meaning = graph.config_index, "node (named: configurable)"
    if len(nodes) > _MAX_LABELS:
        nodes, meaning = nodes[:0], "node"
    names = [f"{opcode_name(int(graph.node_opcode[node]))} #{node}" for node in nodes]
    axes.set_yticks(nodes, names, fontsize=7)
    for label, node in zip(axes.get_yticklabels(), nodes, strict=True):
        label.set_fontweight("bold" if node in graph.config_index else "normal")
    axes.set_ylabel(meaning, fontsize=9)


def _table(level: Level) -> np.ndarray:
    """Return the state of each node (row) in each configuration (column)."""
    num_nodes, num_configs = len(level.set_index), level.classes.index.shape[1]
    return level.state(np.arange(num_nodes)[:, None], np.arange(num_configs))


def _draw_level(axes: Axes, level: Level, order: np.ndarray) -> None:
    """Draw the state of each node (row) in each configuration (column), and their count at the right."""
    counts, table = np.diff(level.start), _table(level)[:, order]
    shades = counts.max() + (counts.max() % _STRIDE == 0)  # coprime to the stride: no colour comes twice
    others = colormaps["viridis"](np.arange(shades) * _STRIDE % shades / shades)[:, :3]
    image = np.full((len(counts), len(order), 3), _SINGLE)
    for node in np.flatnonzero(counts > 1):
        _, inverse, shares = np.unique(table[node], return_inverse=True, return_counts=True)
        rank = np.argsort(np.argsort(-shares, kind="stable"))[inverse]
        image[node] = np.where(rank[:, None] > 0, others[rank], _COMMONEST)
    axes.imshow(image, aspect="auto", interpolation="nearest")
    for node in np.flatnonzero(counts > 1):
        axes.text(len(order) + 0.2, node, counts[node], va="center", fontsize=7, color="0.3")
    axes.grid(visible=False)
    axes.tick_params(left=False)
    axes.spines[:].set_visible(False)


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
    drawings = {
        "scores.png": lambda: plot_results(table.drop(columns=VALID) if TEST in table else table),
        "states.png": lambda: plot_states(graph),
        "feature.png": lambda: _plot_feature(features, _COLUMN),
    }
    for file, draw in progress(drawings.items(), desc="figures", unit="figure"):
        figure = draw()
        save_figure(figure, folder / file, colours=_COLOURS)
    paths = [folder / file for file in drawings]
    print(*paths, sep="\n")
    return paths


def _smallest_graph(features: Features) -> Graph:
    rows = features.index[features.index["split"] == TRAIN]
    return features.graph(TRAIN, rows.loc[rows["nodes"].idxmin(), "name"])


@in_style
def _plot_feature(features: Features, column: str) -> Figure:
    """Plot a column against the runtimes of the train program on which its Kendall's tau is the median."""
    place = features.config_columns.index(column)
    ordered = []
    for name in features.index.loc[features.index["split"] == TRAIN, "name"]:
        graph = features.graph(TRAIN, name)
        values = np.asarray(graph.config_feat[:, place])
        ordered.append((kendall_tau(graph.runtime, values), name, values, graph.runtime))
    ordered.sort(key=lambda program: program[:2])
    tau, name, values, runtime = ordered[len(ordered) // 2]
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.scatter(values, runtime / runtime.min(), s=40, color=RULE, alpha=0.8, linewidths=0)
    words = column.replace("_", " ")
    axes.set_title(f"{words}: Kendall's tau {tau:.2f} here, the median of {len(ordered)} train programs")
    axes.set(xlabel=f"{words} of a configuration of {name}", ylabel="runtime over the fastest's")
    return figure


def main(arguments: list[str]) -> int:
    """Draw the figures of the named run, by default ``sample``, and return the exit status."""
    make_figures(*arguments[:1] or ["sample"])
    return 0


if __name__ == "__main__":
    run_main(main)
