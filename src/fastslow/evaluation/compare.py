"""Paired comparison of two models or two runs, per graph, with a sentence on which is better."""

import math
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import t as student

from fastslow.competition.catalog import COLLECTIONS, TEST, VALID, get_collection
from fastslow.competition.metrics import ALL_METRICS, tile_score
from fastslow.core.artifacts import MANIFEST, read_manifest
from fastslow.core.errors import SettingsError
from fastslow.core.figures import save_figure
from fastslow.core.settings import Settings, find_data, resolve
from fastslow.evaluation.run_record import PICTURES
from fastslow.evaluation.scores import SOLUTION, solution_of, truth_of
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import check_predictions, read_predictions, read_run_manifest

_MAX_LABELS = 60  # of graphs; more would overlap


class CompareSettings(Settings):
    """Settings of a comparison of two runs, two models or two submissions."""

    one: str = ""
    """Run such as ``runs/mine``, folder of one model or ensemble in it, or a submission (CSV)."""
    other: str = ""
    """The one to compare it with, of the same sort."""
    metric: Literal["competition", *ALL_METRICS] = "competition"
    """Score per graph: the competition's (tau for layout, 1 - slowdown of the top 5 for tile) or another one;
    of a ``top_K_error`` a negative difference is better. Not read for submissions."""
    split: Literal[VALID, TEST] = VALID
    """Graphs to compare on; ``test`` needs ``solution.csv`` in ``data_root``. Not read for submissions."""
    features: str = ""
    """Features folder of a single collection; empty for those that belong to ``one`` by its path."""
    data_root: str = "data/sample"
    """Folder that holds ``solution.csv``."""

    def check(self) -> None:
        """Check that two things are given."""
        for field in ("one", "other"):
            self.require(bool(getattr(self, field)), field, "a run or submission: fastslow compare ONE OTHER")


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


def verdict(facts: dict[str, float], graphs: int, names: tuple[str, str], metric: str) -> str:
    """Return the sentence that names the better of two, by a paired t test at 5 % on their difference.

    Args:
        facts: As returned by :func:`paired_difference`.
        graphs: Number of graphs.
        names: Names of the two.
        metric: The metric; of a ``top_K_error`` lower is better.
    """
    chance = student.ppf(0.975, graphs - 1) * facts["standard_error"] if graphs > 1 else math.inf
    if abs(facts["mean"]) <= chance:
        return "no difference beyond chance"
    return f"{names[(facts['mean'] < 0) != metric.endswith('_error')]} is better"


def pairs_of_models(settings: CompareSettings) -> list[tuple[Path, Path]]:
    """Return the two folders of models, or of two runs the ensembles of each collection that both have.

    Raises:
        SettingsError: One is a run and the other a model, or two runs have no collection in common; or one
            is no model, such as the folder of a training.
    """
    one, other = resolve(settings.one), resolve(settings.other)
    single = [(folder / MANIFEST).is_file() for folder in (one, other)]
    for field, model, folder in zip(("one", "other"), single, (one, other), strict=True):
        if model and "collection" not in read_manifest(folder)["settings"]:
            raise SettingsError(f"{field}: {folder} is no model; name a model's folder (gnn-tile-xla-s0)")
    if all(single):
        return [(one, other)]
    slugs = [f"ensemble-{collection.slug}" for collection in COLLECTIONS]
    runs = [{slug for slug in slugs if (folder / slug / MANIFEST).is_file()} for folder in (one, other)]
    for field, model, run in zip(("one", "other"), single, runs, strict=True):
        settings.require(model or bool(run), field, "a folder of a finished model, or a run with ensembles")
    if any(single):
        raise SettingsError("other: a run and a model do not compare; name the model's folder in the run too")
    if not runs[0] & runs[1]:
        raise SettingsError(f"other: {settings.other} has no collection in common with {settings.one}")
    return [(one / slug, other / slug) for slug in slugs if slug in runs[0] & runs[1]]


def compare_table(settings: CompareSettings, one: Path, other: Path) -> pd.DataFrame:
    """Score two models on every graph.

    Args:
        settings: Metric, split, features and solution.
        one: Folder of a model or an ensemble.
        other: Folder of another one of the same collection.

    Returns:
        A row per graph, worst for ``one`` first: ``one``, ``other``, ``difference``.

    Raises:
        SettingsError: The models belong to different collections.
        DataError: A model, its features or the solution is missing or broken.
    """
    folders = one, other
    names = [read_run_manifest(folder)["settings"]["collection"] for folder in folders]
    if names[0] != names[1]:
        raise SettingsError(f"other: {other} is of {names[1]}, {one} of {names[0]}")
    collection = get_collection(names[0])
    made = f"features/{folders[0].parent.name}/{collection.slug}"
    features = Features(resolve(settings.features or made))
    truth = truth_of(features, solution_of(find_data(settings.data_root)))
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
    """Plot both scores of each graph, joined by a line.

    Args:
        table: As returned by :func:`compare_table`.
        names: Names of the two.
        title: Title of the figure.
    """
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


def compare_runs(settings: CompareSettings) -> dict[str, pd.DataFrame]:
    """Compare two runs or two models on the same graphs, with a table, a sentence and a plot per pair.

    A pair is called by the folders that hold its models: ``mine/ensemble-tile-xla``. Plots are in
    ``runs/comparisons``, named by both, by the metric and by the split.

    Returns:
        :func:`compare_table` of each pair, by the folder name of the first one.

    Raises:
        SettingsError: One is a run and the other a model, or they have no collection in common.
        DataError: A model, its features or the solution is missing or broken.
    """
    tables = {}
    for one, other in pairs_of_models(settings):
        names = (f"{one.parent.name}/{one.name}", f"{other.parent.name}/{other.name}")
        if names[0] == names[1]:
            names = str(one), str(other)
        table = compare_table(settings, one, other)
        facts = paired_difference(table)
        difference = f"{facts['mean']:+.4f} ± {facts['standard_error']:.4f}"
        sentence = verdict(facts, len(table), names, settings.metric)
        file = "--".join(name.strip("/").replace("/", "-") for name in names)
        path = resolve(f"runs/{PICTURES}/{file}--{settings.metric}-{settings.split}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        title = f"{names[0]} - {names[1]}, {settings.metric}, {settings.split}: {difference}"
        save_figure(plot_comparison(table, names, title), path)
        print(table.to_markdown(floatfmt=".3f"))
        print(
            f"\n{settings.metric}, {settings.split}: {names[0]} {table['one'].mean():.3f}, {names[1]}"
            f" {table['other'].mean():.3f}, difference {difference}"
            f" (standard error over {len(table)} graphs; higher on {facts['higher']}, equal on"
            f" {facts['equal']}, lower on {facts['lower']}): {sentence}\nplot: {path}\n"
        )
        tables[one.name] = table
    return tables
