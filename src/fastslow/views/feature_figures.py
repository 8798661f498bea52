"""Figures of notebooks 10 and 12, of a features folder: pruning, configurations, features against runtime."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fastslow.competition.catalog import TRAIN, VALID
from fastslow.competition.layouts import ROLES, format_layout
from fastslow.competition.metrics import kendall_tau
from fastslow.competition.opcodes import opcode_name
from fastslow.competition.schema import check_schema
from fastslow.core.errors import SettingsError, counted
from fastslow.core.figures import FURTHER, RULE, WIDTH, in_style, say_shortened, shortened, shortened_names
from fastslow.core.npz_io import read_headers
from fastslow.core.settings import Settings, resolve, unkeyed
from fastslow.core.tables import percent
from fastslow.features.graph import Graph
from fastslow.runs.features_folder import Features
from fastslow.steps.features import FeatureSettings

_ROWS = 40  # rows of a heat map that can still be labelled
_COLUMNS = 400  # configurations shown in a heat map
_DEFAULT = "#e6e6e6"  # layouts left to the compiler
_LAYOUTS = ("#88ccee", "#332288", "#ddcc77", "#cc6677", "#44aa99", "#882255", "#117733", "#999933", "#aa4499")
"""Paul Tol's muted colours, which colour-blind people can read."""


def count_nodes(settings: FeatureSettings) -> pd.DataFrame:
    """Return the number of nodes of every graph of finished features before and after pruning.

    Returns:
        One row per graph: ``split``, ``name``, ``in_file``, ``kept`` and ``configurable`` nodes.

    Raises:
        DataError: The features are not finished, or a data file is missing or broken.
    """
    index = Features(resolve(settings.folder)).index
    in_file = {
        (p.split, p.name): check_schema(p.path, settings.kind, read_headers(p.path))["N"]
        for p in settings.programs()
    }
    table = index[["split", "name", "nodes", "configurable"]].rename(columns={"nodes": "kept"})
    table.insert(2, "in_file", [in_file[key] for key in zip(index["split"], index["name"], strict=True)])
    return table


def sizes_by_split(index: pd.DataFrame) -> pd.DataFrame:
    """Return the sizes of the graphs of each split, as texts: ``169 (94 to 397)``, the median and the ends.

    Args:
        index: The index of finished features, a row per graph.

    Returns:
        A row per size, a column per split; empty where it is not known, as the spread of test is.
    """
    sizes = {}
    for split, graphs in index.groupby("split", sort=False):
        columns = graphs[["nodes", "configurable", "configs", "merged", "spread"]]
        sizes[split] = {
            name: f"{_size(values.median())} ({_size(values.min())} to {_size(values.max())})"
            for name, values in columns.items()
            if values.notna().any()
        }
    return pd.DataFrame(sizes).fillna("").rename_axis("median (smallest to largest)")


def _size(value: float) -> str:
    """Return a count as a whole number, and a ratio with two decimals."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


@in_style
def plot_pruning(settings: FeatureSettings) -> Figure:
    """Draw kept and configurable nodes of every graph of finished features against the nodes of its file."""
    table = count_nodes(settings)
    ends = [table["in_file"].min(), table["in_file"].max()]
    figure = Figure(figsize=(WIDTH, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(ends, ends, color=RULE, linewidth=1, label="nothing pruned")
    axes.scatter(table["in_file"], table["kept"], s=14, color=FURTHER[1], label="kept")
    if settings.kind == "layout":
        axes.scatter(table["in_file"], table["configurable"], s=14, color=FURTHER[0], label="configurable")
    share = table["kept"].sum() / table["in_file"].sum()
    axes.set(xscale="log", yscale="log", xlabel="nodes in the file", ylabel="nodes in the features")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:.0f}")
        axis.set_minor_formatter(NullFormatter())
    axes.set_title(f"{settings.collection}: {percent(share)} of all nodes are kept")
    axes.legend()
    return figure


@in_style
def plot_configurations(settings: FeatureSettings, graph: str = "") -> Figure:
    """Draw the configurations of one train graph (without any, of a valid one), fastest left.

    Layout: a row per tensor whose layout varies, coloured by layout. Tile: a row per feature that varies,
    coloured by its value, standardised over the configurations.

    Args:
        settings: Settings of finished features.
        graph: Name of such a graph; empty for the one with the most configurations.

    Raises:
        SettingsError: There is no such graph.
    """
    features, shown = _read(settings, graph)
    order = np.argsort(shown.runtime, kind="stable")
    order = order[np.linspace(0, len(order) - 1, min(_COLUMNS, len(order))).astype(int)]
    figure = Figure(figsize=(WIDTH, 6.5), layout="constrained")
    top, axes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 4))
    axes.grid(visible=False)
    top.plot(shown.runtime[order] / shown.runtime.min(), color="black")
    draw = _draw_layouts if settings.kind == "layout" else _draw_values
    strongest = draw(axes, shown, order, features.config_columns)
    top.set(title=f"{shortened(shown.name, 60)}\n{strongest}", ylabel="runtime / fastest")
    axes.set_xlabel(f"{len(order)} of {counted(shown.num_configs, 'configuration')}, fastest first")
    return figure


def _read(settings: FeatureSettings, name: str) -> tuple[Features, Graph]:
    features = Features(resolve(settings.folder))
    split = TRAIN if features.has_train else VALID
    sizes = features.num_configs(split)
    if name and name not in sizes:
        raise SettingsError("graph", f"{name!r} is none of the {split} graphs {', '.join(sizes)}")
    return features, features.graph(split, name or max(sizes, key=sizes.get))


def _first(varying: np.ndarray) -> np.ndarray:
    """Return the first rows that vary; of all rows where none does."""
    return np.flatnonzero(varying if varying.any() else np.ones_like(varying))[:_ROWS]


def _draw_layouts(axes: Axes, graph: Graph, order: np.ndarray, _: list[str]) -> str:
    """Draw layouts, coloured by how common they are; the rarest share the last colour.

    Returns:
        In words, the tensor whose layout explains most of the variance of the log runtime.
    """
    codes = graph.choices.layout_codes(order).reshape(len(order), -1).T  # (K * 3, C)
    varying = _first((codes != codes[:, :1]).any(1))
    common, place = np.unique(codes[varying], return_inverse=True)
    is_left = (graph.layouts[common] < 0).all(1)
    counts = np.bincount(place.ravel(), minlength=len(common)) * ~is_left
    rank = np.argsort(np.argsort(-counts, kind="stable"), kind="stable")
    rank = np.where(is_left, 0, np.minimum(rank + 1, len(_LAYOUTS)))
    used = np.unique(rank)
    colours = ListedColormap([(_DEFAULT, *_LAYOUTS)[number] for number in used])
    image = axes.imshow(
        np.searchsorted(used, rank)[place].reshape(len(varying), len(order)),
        cmap=colours,
        norm=BoundaryNorm(np.arange(-0.5, colours.N + 0.5), colours.N),
        aspect="auto",
        interpolation="nearest",
    )
    nodes = graph.config_index[varying // len(ROLES)]
    tensors = [
        f"{opcode_name(graph.node_opcode[node])} {node} {ROLES[row % len(ROLES)]}"
        for node, row in zip(nodes, varying, strict=True)
    ]
    axes.set_yticks(range(len(varying)), tensors, fontsize=6)
    named = dict(zip(rank.tolist(), map(format_layout, graph.layouts[common]), strict=True))
    if np.count_nonzero(rank == len(_LAYOUTS)) > 1:
        named[len(_LAYOUTS)] = "others"
    bar = axes.figure.colorbar(image, ax=axes, ticks=range(len(used)), pad=0.01, aspect=40)
    bar.ax.set_yticklabels([named[number] for number in used.tolist()], fontsize=7)
    bar.set_label("layout, minor to major")
    runtime = pd.Series(np.log(graph.runtime[order]))
    between = [runtime.groupby(row).transform("mean").var() for row in codes[varying]]
    strongest = int(np.argmax(between))
    share = between[strongest] / runtime.var() if runtime.var() else 0.0
    return f"the layout of {tensors[strongest]} explains {percent(share)} of the variance"


def _draw_values(axes: Axes, graph: Graph, order: np.ndarray, columns: list[str]) -> str:
    """Draw features, standardised; return in words which one orders the runtimes best."""
    values = np.asarray(graph.config_feat, np.float64)[order].T  # (V, C)
    varying = _first(np.ptp(values, axis=1) > 0)
    values = values[varying]
    values = (values - values.mean(1, keepdims=True)) / np.maximum(values.std(1, keepdims=True), 1e-12)
    image = axes.imshow(values, cmap="RdBu_r", vmin=-3, vmax=3, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(varying)), [columns[i] for i in varying], fontsize=6)
    axes.figure.colorbar(image, ax=axes, pad=0.01, aspect=40, label="standard deviations from the mean")
    taus = [kendall_tau(graph.runtime[order], row) for row in values]
    strongest = int(np.argmax(np.abs(taus)))
    return f"{columns[varying[strongest]]} orders the runtimes best, with tau {taus[strongest]:+.2f}"


_PANELS = 12  # graphs plotted at most
_NAME = 33  # characters of a name above a panel


class ViolationSettings(Settings):
    """Settings of the notebook that shows the violation ratio."""

    features: str = unkeyed("features/sample/layout-xla-random")
    """Features folder of a layout collection."""
    column: str = "violation_ratio"
    """Column of ``config_feat`` to plot against runtime."""

    def read_features(self) -> Features:
        """Return the features.

        Raises:
            SettingsError: They belong to a tile collection, or have no such column.
            DataError: The features folder is missing or not finished.
        """
        features = Features(resolve(self.features))
        self.require(features.collection.kind == "layout", "features", "features of a layout collection")
        names = features.config_columns
        self.require(self.column in names, "column", f"one of {', '.join(names)}")
        return features


def correlate(settings: ViolationSettings) -> pd.DataFrame:
    """Compute Kendall's tau-b between every configuration feature and the runtime, within each graph.

    Returns:
        A row per graph, a column per feature; -1 to 1, and 0 where the feature does not vary in the graph.

    Raises:
        SettingsError, DataError: As :meth:`ViolationSettings.read_features`.
    """
    features = settings.read_features()
    names = features.config_columns
    rows = {}
    for name in features.names(TRAIN):
        graph = features.graph(TRAIN, name)
        values = np.asarray(graph.config_feat)
        rows[name] = {column: kendall_tau(graph.runtime, values[:, i]) for i, column in enumerate(names)}
    return pd.DataFrame(rows).T


@in_style
def plot_violation(settings: ViolationSettings) -> Figure:
    """Plot a configuration feature against runtime, one panel per graph, with Kendall's tau of the two.

    Returns:
        The figure; runtimes are divided by the runtime of the graph's fastest configuration.

    Raises:
        SettingsError, DataError: As :meth:`ViolationSettings.read_features`.
    """
    features = settings.read_features()
    names = features.names(TRAIN)[:_PANELS]
    position = features.config_columns.index(settings.column)
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(WIDTH, 2.1 * rows + 0.4), layout="constrained")
    cells = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in cells[len(names) :]:
        axes.set_axis_off()
    taus = []
    for axes, name, title in zip(cells, names, shortened_names(names, _NAME), strict=False):
        graph = features.graph(TRAIN, name)
        values = np.asarray(graph.config_feat[:, position])
        runtime = graph.runtime
        axes.scatter(values, runtime / runtime.min(), s=14, alpha=0.8, color=RULE, linewidths=0)
        taus.append(kendall_tau(runtime, values))
        axes.set_title(f"{title}\ntau {taus[-1]:+.2f}", fontsize=7)
    shown = settings.column.replace("_", " ")
    figure.supxlabel(shown, fontsize=9.5)
    figure.supylabel("runtime over the fastest's", fontsize=9.5)
    figure.suptitle(
        f"{shown}: mean tau {np.mean(taus):+.2f} on the first {counted(len(taus), 'train program')}"
        + say_shortened(names, _NAME)
    )
    return figure
