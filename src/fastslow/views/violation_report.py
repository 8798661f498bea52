"""How configuration features, the violation ratio first of all, relate to runtime: a table and a figure."""

from typing import Annotated, Literal

import numpy as np
import pandas as pd
from annotated_types import Le
from matplotlib.figure import Figure

from fastslow.competition.catalog import TRAIN, VALID
from fastslow.competition.metrics import kendall_tau
from fastslow.core.settings import Positive, Settings, resolve, unkeyed
from fastslow.features.store import Features


class ViolationSettings(Settings):
    """Settings of the notebook that shows the violation ratio."""

    features: str = unkeyed("features/sample/layout-xla-random")
    """Features folder of a layout collection."""
    split: Literal[TRAIN, VALID] = TRAIN
    """``train`` or ``valid``; test has no runtimes."""
    column: str = "violation_ratio"
    """Column of ``config_feat`` to plot against runtime."""
    panels: Annotated[Positive, Le(100)] = 12
    """Maximum number of graphs plotted."""

    def position(self, names: list[str]) -> int:
        """Return the position of the column among those of the features.

        Raises:
            SettingsError: The features have no such column.
        """
        self.require(self.column in names, "column", f"one of {', '.join(names)}")
        return names.index(self.column)


def correlate(settings: ViolationSettings) -> pd.DataFrame:
    """Compute Kendall's tau-b between every configuration feature and the runtime, within each graph.

    Args:
        settings: Settings; ``column`` and ``panels`` are not used.

    Returns:
        A row per graph, a column per feature; -1 to 1, and 0 where the feature does not vary in the graph.

    Raises:
        DataError: The features folder is missing or not finished.
    """
    features = Features(resolve(settings.features))
    names = features.config_columns
    rows = {}
    for name in features.names(settings.split):
        graph = features.graph(settings.split, name)
        values = np.asarray(graph.config_feat)
        rows[name] = {column: kendall_tau(graph.runtime, values[:, i]) for i, column in enumerate(names)}
    return pd.DataFrame(rows).T


def plot_violation(settings: ViolationSettings) -> Figure:
    """Plot a configuration feature against runtime, one panel per graph, with Kendall's tau of the two.

    Args:
        settings: Settings.

    Returns:
        The figure; runtimes are over that of the graph's fastest configuration.

    Raises:
        SettingsError: The features have no such column.
        DataError: The features folder is missing or not finished.
    """
    features = Features(resolve(settings.features))
    names = features.names(settings.split)[: settings.panels]
    position = settings.position(features.config_columns)
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4 * columns, 3 * rows), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for axes, name in zip(panels, names, strict=False):
        graph = features.graph(settings.split, name)
        values, runtime = np.asarray(graph.config_feat[:, position]), graph.runtime
        axes.scatter(values, runtime / runtime.min(), s=8, alpha=0.5)
        axes.set_title(f"{name[:28]}\ntau {kendall_tau(runtime, values):+.2f}", fontsize=9)
        axes.set(xlabel=settings.column.replace("_", " "), ylabel="runtime / fastest")
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    return figure
