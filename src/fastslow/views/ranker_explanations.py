"""Figures of notebook 24, of a ranker: the columns that it needs, and the contribution of each to a score."""

from functools import cached_property

import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from fastslow.competition.catalog import VALID
from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import MANIFEST
from fastslow.core.errors import SettingsError, counted
from fastslow.core.figures import FURTHER, TREES, WIDTH, in_style, shortened
from fastslow.core.settings import Settings, resolve, unkeyed
from fastslow.rankers.fit import Fitted
from fastslow.rankers.objectives import predict_table
from fastslow.rankers.table import ABOVE_LEAST, CONTEXT, Table, read_table
from fastslow.runs.features_folder import Features
from fastslow.runs.trained_ranker import read_ranker
from fastslow.steps.ranker import importance

_CONFIGS = 300  # of a graph at most; of a larger one that many are sampled
_COLUMNS = 15  # shown, the most important first
_COMPARED = 10  # of these in every ranker
_REPEATS = 5  # permutations of each column


class ExplainSettings(Settings):
    """Settings of the notebook that explains a ranker."""

    run: str = unkeyed("runs/sample/ranker-layout-xla-random-s0")
    """Run folder of a ranker."""
    features: str = unkeyed("features/sample/layout-xla-random")
    """Features folder of the collection that it predicts."""
    graph: str = ""
    """Graph of the valid split to explain; empty for the first one."""
    others: list[str] = []
    """Further folders of runs (``runs/mine``), to whose rankers of the collection this one is compared."""


class Explanation:
    """A ranker with the valid graphs on which it is explained.

    Args:
        settings: Which ranker.
        table: All columns of the valid graphs; None to read them.

    Raises:
        SettingsError: The collection has no valid graph of the name in the settings, or the ranker reads
            columns that the features lack.
    """

    def __init__(self, settings: ExplainSettings, table: Table | None = None):
        self.settings = settings
        self.features = Features(resolve(settings.features))
        self.fitted: Fitted = read_ranker(resolve(settings.run))
        self.all_columns = table or read_table(self.features, VALID, max_configs=_CONFIGS)
        if lost := [name for name in self.fitted.trees.columns if name not in self.all_columns.columns]:
            problem = f"{settings.run} reads columns that {settings.features} lacks: {', '.join(lost[:3])}"
            raise SettingsError("run", f"{problem}. Give features that it was trained on, or another run")
        self.table: Table = self.all_columns.select(self.fitted.trees.columns)
        known = self.features.names(VALID)
        self.name = settings.graph or known[0]
        settings.require(self.name in known, "graph", f"one of {', '.join(known)}")

    @cached_property
    def gain(self) -> pd.DataFrame:
        """Share of each column in the total gain of the splits, largest first: ``column``, ``gain``."""
        table = importance(self.fitted.trees, self.fitted.num_trees)
        return table.assign(gain=table["gain"] / max(table["gain"].sum(), 1e-300))

    @cached_property
    def permutation(self) -> pd.DataFrame:
        """Measure how much the valid score drops when a feature is shuffled within each graph.

        This is permutation importance (Breiman, "Random Forests", 2001). A feature and its min-subtracted
        column are shuffled together. Features without gain, and those that are constant within a graph, are
        left out.

        Returns:
            ``column``, ``drop`` (mean over repeats) and ``spread`` (standard deviation), largest drop first.
        """
        used = self.gain.loc[self.gain["gain"] > 0, "column"]
        used = used.str.removesuffix(ABOVE_LEAST)
        features = [name for name in used.drop_duplicates() if not name.startswith(CONTEXT)]
        rows = []
        for feature in features[: 2 * _COLUMNS]:
            drops = self.drops(feature)
            rows.append({"column": feature, "drop": np.mean(drops), "spread": np.std(drops)})
        table = pd.DataFrame(rows, columns=["column", "drop", "spread"])
        return table.sort_values("drop", ascending=False, ignore_index=True)

    def drops(self, feature: str) -> list[float]:
        """Return by how much the valid score drops each time that a feature is shuffled within each graph."""
        return [self._whole - self._score(self._shuffled(feature, seed)) for seed in range(_REPEATS)]

    @cached_property
    def _whole(self) -> float:
        return self._score(self.table)

    def _score(self, table: Table) -> float:
        """Return the score of a table of the valid graphs."""
        kind = self.features.collection.kind
        return collection_score(kind, self.table.labels(), self.fitted.predict(table))["mean"]

    def spread(self) -> pd.DataFrame:
        """Measure the most important features in every ranker: of each seed of the run, and of other runs.

        A feature is shuffled in the same ways for every ranker, so only the rankers differ. One shuffle moves
        the score by chance as much as rankers differ, so a drop is the mean over as many as of
        :meth:`permutation`.

        Returns:
            A row for each ranker and feature: ``run``, ``ranker`` (its folder), ``column``, ``drop``. The
            features are in the order of :meth:`permutation`.

        Raises:
            SettingsError: A folder of ``others`` has no ranker of the collection.
        """
        run = resolve(self.settings.run)
        stem, _, seed = run.name.rpartition("-s")
        pattern = f"{stem}-s[0-9]*" if seed.isdigit() else run.name
        rows = []
        for folder in [run.parent, *map(resolve, self.settings.others)]:
            rankers = sorted(path.parent for path in folder.glob(f"{pattern}/{MANIFEST}"))
            self.settings.require(bool(rankers), "others", f"folders of runs that hold {pattern}")
            for ranker in rankers:
                other = Explanation(self.settings.replace(run=str(ranker)), self.all_columns)
                for column in self.permutation["column"].head(_COMPARED):
                    facts = {"run": folder.name, "ranker": ranker.name, "column": column}
                    rows.append({**facts, "drop": np.mean(other.drops(column))})
        return pd.DataFrame(rows, columns=["run", "ranker", "column", "drop"])

    def _shuffled(self, feature: str, seed: int) -> Table:
        rng = np.random.default_rng(seed)
        names = (feature, feature + ABOVE_LEAST)
        positions = [i for i, name in enumerate(self.table.columns) if name in names]
        rows = []
        for values in self.table.rows:
            values = values.copy()
            values[:, positions] = values[rng.permutation(len(values))][:, positions]
            rows.append(values)
        return Table(self.table.names, rows, self.table.runtimes, self.table.columns)

    @cached_property
    def one_graph(self) -> Table:
        """The table of the graph that is explained."""
        place = self.table.names.index(self.name)
        parts = [[values[place]] for values in (self.table.names, self.table.rows, self.table.runtimes)]
        return Table(*parts, columns=self.table.columns)

    @cached_property
    def predictions(self) -> np.ndarray:
        """Predictions ``(C,)`` of the graph's configurations; higher is slower."""
        return self.fitted.predict(self.one_graph)[self.name]

    @cached_property
    def contributions(self) -> pd.DataFrame:
        """SHAP values of the graph: one row per configuration, one column per feature, most important first.

        The importances of a feature and of its min-subtracted column are added up; constant features are left
        out.
        """
        values = shap_values(self.fitted, self.one_graph)[self.name]
        names = pd.Index(self.table.columns).str.removesuffix(ABOVE_LEAST)
        table = pd.DataFrame(values.T, index=names).groupby(level=0).sum().T
        table = table.loc[:, ~table.columns.str.startswith(CONTEXT)]
        return table[(table - table.mean()).abs().mean().sort_values(ascending=False, kind="stable").index]


def shap_values(fitted: Fitted, table: Table) -> dict[str, np.ndarray]:
    """Return the contribution of each column to the predictions of a table.

    They are TreeSHAP's of LightGBM (Lundberg et al., arXiv 1802.03888). The values of one configuration
    add up to its prediction minus a constant.

    Returns:
        By graph, ``(C, F)`` of the columns ``fitted.trees.columns``.
    """

    def contributions(rows: np.ndarray) -> np.ndarray:
        return fitted.trees.contributions(rows, fitted.num_trees)

    return predict_table(fitted.objective, table.select(fitted.trees.columns), contributions)


def _bars(axes, names, values, colour, **options) -> None:
    axes.barh(range(len(names)), values, color=colour, height=0.7, **options)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.grid(axis="y", visible=False)


@in_style
def plot_importances(explanation: Explanation) -> Figure:
    """Plot each column's share of the gain, and the drop of the valid score when a feature is shuffled."""
    top = _COLUMNS
    gain = explanation.gain.head(top)[::-1]
    drop = explanation.permutation.head(top)[::-1]
    figure = Figure(figsize=(WIDTH, 1.6 + 0.22 * (len(gain) + len(drop))), layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=(len(gain), len(drop)))
    _bars(upper, gain["column"], 100 * gain["gain"], TREES)
    upper.set(title="what the trees split on", xlabel="share of the total gain, %")
    _bars(lower, drop["column"], drop["drop"], TREES, xerr=drop["spread"], ecolor="0.4", capsize=2)
    lower.axvline(0, color="black", linewidth=0.8)
    lower.set(title="what the valid score needs", xlabel="drop of the valid score when shuffled")
    largest = explanation.permutation.iloc[0]
    needs = f"{explanation.features.collection.name}: the valid score needs {largest['column']} most"
    figure.suptitle(f"{needs}\nand falls by {largest['drop']:.3f} when it is shuffled")
    return figure


@in_style
def plot_spread(table: pd.DataFrame) -> Figure:
    """Plot the drop of the valid score in every ranker: a dot each, a line from a run's least to its most.

    Args:
        table: As returned by :meth:`Explanation.spread`.
    """
    columns = table["column"].unique()
    lowest = table.groupby("column")["drop"].min()
    runs = table["run"].unique()
    rankers = len(table[["run", "ranker"]].drop_duplicates())
    figure = Figure(figsize=(WIDTH, 1.8 + 0.3 * len(columns) * max(1, len(runs) / 2)), layout="constrained")
    axes = figure.subplots()
    colours = (TREES, *FURTHER)
    for number, run in enumerate(runs):
        drops = table[table["run"] == run].groupby("column")["drop"]
        height = np.arange(len(columns)) + 0.7 * ((number + 0.5) / len(runs) - 0.5)
        colour = colours[number % len(colours)]
        least, most = drops.min()[columns], drops.max()[columns]
        axes.hlines(height, least, most, color=colour, linewidth=2, alpha=0.5, label=run)
        for _, of_ranker in table[table["run"] == run].groupby("ranker"):
            values = of_ranker.set_index("column")["drop"][columns]
            axes.plot(values, height, "o", color=colour, markersize=5)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(columns)), columns, fontsize=8)
    axes.set_ylim(len(columns) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    if len(runs) > 1:
        axes.legend(title="run")
    axes.set_xlabel("drop of the valid score when shuffled; a dot is a ranker")
    needed = f"{(lowest > 0).sum()} of {len(columns)} features are needed"
    figure.suptitle(f"{needed} by {'all of ' * (rankers > 1)}{counted(rankers, 'ranker')}")
    return figure


@in_style
def plot_contributions(explanation: Explanation) -> Figure:
    """Plot the SHAP values of one graph: a dot per configuration, slower to the right, coloured by value."""
    table = explanation.contributions.iloc[:, :_COLUMNS]
    table = table - table.mean()
    rows = dict(zip(explanation.table.columns, explanation.one_graph.rows[0].T, strict=True))
    figure = Figure(figsize=(WIDTH, 1.6 + 0.33 * table.shape[1]), layout="constrained")
    axes = figure.subplots()
    rng = np.random.default_rng(0)
    for place, name in enumerate(table.columns[::-1]):
        values = pd.Series(rows.get(name, np.zeros(len(table)))).rank(pct=True)
        height = place + rng.uniform(-0.28, 0.28, len(table))
        axes.scatter(table[name], height, c=values, cmap="viridis", s=9, alpha=0.8, linewidths=0)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(table.shape[1]), table.columns[::-1], fontsize=8)
    axes.set_ylim(-0.6, table.shape[1] - 0.4)
    axes.grid(axis="y", visible=False)
    title = f"{shortened(explanation.name, 40)}: {shortened(table.columns[0], 40)} moves it most"
    figure.suptitle(title)  # wider than the axes
    axes.set(xlabel="← faster     contribution to the prediction     slower →")
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), "viridis"), ax=axes, ticks=[0, 1], pad=0.01)
    bar.ax.set_yticklabels(["low", "high"])
    bar.set_label("value of the feature", labelpad=-12)
    return figure
