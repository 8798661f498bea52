"""Paired comparison of two models or two runs, per graph, with a sentence on which is better."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, TEST, VALID, Collection, get_collection
from fastslow.competition.metrics import ALL_METRICS, tile_score
from fastslow.core.artifacts import MANIFEST, read_manifest
from fastslow.core.errors import DataError, SettingsError, counted
from fastslow.core.figures import (
    CEILING,
    ENSEMBLE,
    FAINT,
    FURTHER,
    MODEL_COLOURS,
    WIDTH,
    in_style,
    save_figure,
    say_shortened,
    shortened_names,
)
from fastslow.core.setting_fields import nearest
from fastslow.core.settings import Settings, find_data, resolve
from fastslow.core.shown import Shown
from fastslow.core.tables import table_text
from fastslow.evaluation.run_record import PICTURES
from fastslow.evaluation.scores import SOLUTION, runtimes_of, solution_of
from fastslow.evaluation.submission_record import submission_path
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import read_predictions, read_run_manifest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SAME = "Compare models of the same programs and configurations, against their own solution (data_root)"
_MOST_DRAWN = 40  # graphs, those with the largest differences; more do not fit on a page
_NAME, _TITLE = 40, 72  # characters of a name, and of a line of a title

METRIC_WORDS = {"competition": "mean score"}
"""Words for a metric that its name does not explain."""


class CompareSettings(Settings):
    """Settings of a comparison of two runs, two models or two submissions."""

    one: str = ""
    """Run as the leaderboard names it (``mine``), folder of one model or ensemble in it
    (``mine/gnn-tile-xla-s0``), or a submission (CSV)."""
    other: str = ""
    """The one to compare it with, of the same sort."""
    metric: Literal["competition", *ALL_METRICS] = "competition"
    """Score per graph: the competition's (tau for layout, 1 - slowdown of the top 5 for tile) or another one;
    of a ``top_K_error`` a negative difference is better. Not for submissions."""
    split: Literal[VALID, TEST] = VALID
    """Graphs to compare on; ``test`` needs ``solution.csv`` in ``data_root``. Not for submissions."""
    features: str = ""
    """Features folder of a single collection; empty for those that belong to ``one`` by its path. It is read
    for the runtimes of ``valid`` where ``metric`` is not the competition's, whose scores the runs hold."""
    data_root: str = "data/sample"
    """Folder that holds ``solution.csv``."""
    all: bool = False
    """Print a row for each program too."""

    def folders(self) -> tuple[Path, Path]:
        """Return the two paths.

        A name that is no path is a run under ``runs``. Where one of the two has no run, such as a blend, the
        submissions of both are compared.
        """
        typed = self.one, self.other
        one, other = (resolve(name) if resolve(name).exists() else resolve("runs") / name for name in typed)
        if one.exists() and other.exists():
            return one, other
        submissions = submission_path(self.one), submission_path(self.other)
        return submissions if all(path.is_file() for path in submissions) else (one, other)

    def names(self) -> tuple[str, str]:
        """Return the two names in tables: the last part of each path without ``.csv``, or else all of it."""
        short = Path(self.one).name.removesuffix(".csv"), Path(self.other).name.removesuffix(".csv")
        return (self.one, self.other) if short[0] == short[1] else short

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
    from scipy.stats import t as student  # a second

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
    one, other = settings.folders()
    for field, folder in (("one", one), ("other", other)):
        if not folder.exists():
            typed = getattr(settings, field)
            hint = _a_model(folder) or nearest(typed, [path.name for path in resolve("runs").glob("*/")])
            lists = "`fastslow leaderboard` lists runs and blends"
            raise SettingsError(field, f"{typed!r} is no run, model's folder or submission; {lists}{hint}")
    single = [_is_model(folder) for folder in (one, other)]
    for field, model, folder in zip(("one", "other"), single, (one, other), strict=True):
        if model and "collection" not in read_manifest(folder)["settings"]:
            raise SettingsError(field, f"{folder} is no model; name a model's folder (gnn-tile-xla-s0)")
    if all(single):
        return [(one, other)]
    slugs = [f"ensemble-{collection.slug}" for collection in COLLECTIONS]
    runs = [{slug for slug in slugs if (folder / slug / MANIFEST).is_file()} for folder in (one, other)]
    for field, folder, model, run in zip(("one", "other"), (one, other), single, runs, strict=True):
        if not model and not run:
            is_none = "is no folder of a finished model, and no run with ensembles"
            raise SettingsError(field, f"{getattr(settings, field)!r} {is_none}{_a_model(folder / 'gnn')}")
    if any(single):
        raise SettingsError(
            "other", "a run and a model do not compare; name the model's folder in the run too"
        )
    if not runs[0] & runs[1]:
        raise SettingsError("other", f"{settings.other} has no collection in common with {settings.one}")
    return [(one / slug, other / slug) for slug in slugs if slug in runs[0] & runs[1]]


def _a_model(folder: Path) -> str:
    """Return the advice to name a model of the run around a folder, one of the kind that is its name."""
    models = sorted(path.parent.name for path in folder.parent.glob(f"*-*/{MANIFEST}"))
    models = [name for name in models if not name.startswith("training-")]
    alike = [name for name in models if name.startswith(f"{folder.name}-")] or models
    return f"; name one of its models, such as {folder.parent.name}/{alike[0]}" if alike else ""


def compare_table(settings: CompareSettings, one: Path, other: Path) -> pd.DataFrame:
    """Score two models on every graph.

    Args:
        settings: Metric, split, features and solution.
        one: Folder of a model or an ensemble.
        other: Folder of another one of the same collection.

    Returns:
        A row per graph, worst for ``one`` first: ``one``, ``other``, ``difference``.

    Raises:
        SettingsError: The models belong to different collections, or the features of a metric are not here.
        DataError: A model, its features or the solution is missing or broken, or the models predict different
            programs, or different numbers of their configurations.
    """
    folders = one, other
    names = [read_run_manifest(folder)["settings"]["collection"] for folder in folders]
    if names[0] != names[1]:
        raise SettingsError("other", f"{other} predicts {names[1]}, {one} {names[0]}")
    collection = get_collection(names[0])
    predictions = [read_predictions(folder)[settings.split] for folder in folders]
    _require_same_graphs(other, predictions[1], predictions[0], str(one))
    if settings.split == VALID and settings.metric == "competition":
        scores = [read_run_manifest(folder)["valid"]["per_graph"] for folder in folders]
    else:
        truth = _truth(settings, one, collection)
        _require_same_graphs(
            one,
            predictions[0],
            truth,
            settings.data_root if settings.split == TEST else "its features folder",
        )
        metric = _metric(settings.metric, collection)
        scores = [{g: metric(runtime, made[g]) for g, runtime in truth.items()} for made in predictions]
    table = pd.DataFrame({"one": scores[0], "other": scores[1]}).rename_axis("graph")
    table = table.assign(difference=table["one"] - table["other"])
    return table.sort_values("difference", ascending=not settings.metric.endswith("_error"))


def _doubted_labels(one: Path, other: Path) -> list[str]:
    """Refuse two models that were scored on other runtimes of the valid programs.

    Returns:
        Why this is not known, where they were made from other competition files and the features of one are
        not here.

    Raises:
        DataError: A program has other runtimes in the other's features; it is named.
    """
    manifests = [read_run_manifest(folder) for folder in (one, other)]
    if manifests[0]["inputs"]["data"] == manifests[1]["inputs"]["data"]:
        return []
    slug = get_collection(manifests[0]["settings"]["collection"]).slug
    folders = [_features_of(folder, slug) for folder in (one, other)]
    if missing := [folder for folder in folders if not folder.is_dir()]:
        return [f"not known: whether both were scored on the same runtimes of {slug}, without {missing[0]}"]
    labels, others = (Features(folder).labels(VALID) for folder in folders)
    for graph, runtimes in labels.items():
        if graph in others and not np.array_equal(runtimes, others[graph]):
            problem = f"graph {graph}: scored on other runtimes than {one}"
            raise DataError(other, problem, "Compare models that were made from the same data")
    return []


def _features_of(model: Path, slug: str) -> Path:
    """Return the features folder that a model's run has, by its path."""
    return resolve(f"features/{model.parent.name}/{slug}")


def _truth(settings: CompareSettings, one: Path, collection: Collection) -> dict[str, np.ndarray]:
    """Return the true runtimes of the split, by graph."""
    if settings.split == VALID:
        folder = resolve(settings.features) if settings.features else _features_of(one, collection.slug)
        if not folder.is_dir():  # such as of a run that was fetched from Kaggle
            problem = f"{settings.metric} on valid is computed from {folder}, which is not here"
            make = f"Build it with `make features NAME={one.parent.name}` and the run's DATA and settings"
            remedy = f"{make}, give features=FOLDER, or leave metric out: every run holds the competition's"
            raise SettingsError("metric", f"{problem}. {remedy}")
        return Features(folder).labels(VALID)
    if (solution := solution_of(find_data(settings.data_root))) is None:
        raise SettingsError("split", f"test needs {SOLUTION} in {settings.data_root}; give data_root=FOLDER")
    return runtimes_of(solution, collection)


def _metric(name: str, collection: Collection) -> Callable[[np.ndarray, np.ndarray], float]:
    if name != "competition":
        return ALL_METRICS[name]
    return tile_score if collection.kind == "tile" else ALL_METRICS["tau"]


def _require_same_graphs(folder: Path, values: Mapping, reference: Mapping, of: str) -> None:
    """Refuse values of other graphs, or of another number of configurations, than a reference has."""
    sizes = {graph: len(of_graph) for graph, of_graph in values.items()}
    needed = {graph: len(of_graph) for graph, of_graph in reference.items()}
    for graph in sorted({*sizes, *needed}):
        if sizes.get(graph) != needed.get(graph):
            counts = f"{sizes.get(graph, 'no')} predictions, {of} has {needed.get(graph, 'none')}"
            raise DataError(folder, f"graph {graph}: {counts}", _SAME)


@in_style
def plot_comparison(
    table: pd.DataFrame, names: tuple[str, str], title: str, models: tuple[str, str] = ("", "")
) -> "Figure":
    """Plot both scores of each graph that they differ on, joined by a line.

    Of many such graphs those with the largest differences are drawn; the label of the axis counts the others.
    The first one's dots are full and the other one's are rings, each in the colour of its model.

    Args:
        table: As returned by :func:`compare_table`.
        names: Names of the two.
        title: Title of the figure.
        models: What each of the two is: "ensemble", "gnn" or "ranker", else a model of one's own.
    """
    from matplotlib.figure import Figure  # half a second

    differing = table[table["difference"] != 0]
    largest = differing["difference"].abs().nlargest(_MOST_DRAWN).index
    drawn = differing[differing.index.isin(largest)]
    figure = Figure(figsize=(WIDTH, 1.9 + 0.2 * len(drawn)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(drawn))
    axes.hlines(places, drawn["one"], drawn["other"], color=FAINT, linewidth=1.5)
    full, ring = (MODEL_COLOURS.get(model, FURTHER[1]) for model in models)
    axes.plot(drawn["one"], places, "o", color=full, label=names[0])
    axes.plot(drawn["other"], places, "o", color=ring, markerfacecolor="white", label=names[1])
    graphs = [str(name) for name in drawn.index]
    axes.set_yticks(places, shortened_names(graphs, _NAME), fontsize=7)
    left_out = []
    if smaller := len(differing) - len(drawn):
        left_out.append(f"{smaller:,} with smaller differences")
    if equal := len(table) - len(differing):
        left_out.append(f"{equal:,} with equal scores")
    not_drawn = f"; not drawn: {', '.join(left_out)}" if left_out else ""
    axes.set_xlabel(f"score of a program{not_drawn}{say_shortened(graphs, _NAME)}")
    figure.suptitle(_lines(title), fontsize=10, weight="bold")
    axes.grid(axis="y", visible=False)
    if not len(drawn):  # axes without a dot would have invented numbers
        axes.set_axis_off()
        words = f"{counted(len(table), 'program')}, and no score differs"
        axes.text(0.5, 0.5, words, ha="center", va="center", transform=axes.transAxes)
    figure.legend(loc="outside lower right", ncols=1 if max(map(len, names)) > _NAME else 2)
    return figure


def _lines(text: str) -> str:
    """Break a text at spaces, never inside a name."""
    return fill(text, _TITLE, break_on_hyphens=False)


@in_style
def plot_differences(
    rows: Sequence[Mapping], named: tuple[str, str], found: str, metric: str = "competition"
) -> "Figure":
    """Plot the paired difference of two runs on each collection, and on the mean of several.

    Args:
        rows: :func:`paired_difference` of each collection, with its name as ``collection``.
        named: Names of the two.
        found: The sentence that names the better one, as the title.
        metric: The metric; of a ``top_K_error`` lower is better.
    """
    from matplotlib.figure import Figure  # half a second

    lines = list(rows)
    if len(rows) > 1:
        lines.append({"collection": f"mean of {len(rows)}", **mean_difference(rows)})
    figure = Figure(figsize=(WIDTH, 1.5 + 0.36 * len(lines)), layout="constrained")
    axes = figure.subplots()
    for place, line in enumerate(lines):
        error = line["standard_error"]
        spread = None if math.isnan(error) else error
        bold = place == len(rows)
        axes.errorbar(
            line["mean"], place, xerr=spread, fmt="D" if bold else "o", color=ENSEMBLE, markersize=6
        )
        axes.annotate(
            _plus_minus(line),
            (line["mean"], place),
            (0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            zorder=3,
        )
    axes.axvline(0, color=CEILING, linestyle="--", linewidth=1.2)
    axes.set_yticks(range(len(lines)), [line["collection"] for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.7)
    axes.grid(axis="y", visible=False)
    one, other = shortened_names(named, _NAME)
    left, right = (one, other) if metric.endswith("_error") else (other, one)
    sides = f"← {left} is better     {right} is better →"
    if len(sides) > _TITLE:  # an arrow stays beside its name
        sides = f"← {left} is better\n{right} is better →"
    axes.set_xlabel(f"{sides}\n" + _lines(f"{one} minus {other}; lines: ± standard error over programs"))
    figure.suptitle(_lines(found))
    return figure


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Two runs, two models or two submissions, compared.

    Args:
        table: A row per collection and, of several, their mean, as texts.
        sentences: The verdict first, then what was not compared.
        programs: A row per program, worst for the first of the two first: by the folder name of its model, or
            of two submissions by collection (``layout-xla-random``).
        rows: :func:`paired_row` of each collection.
        named: Names of the two.
        metric: What is compared; of a ``top_K_error`` lower is better.
    """

    table: pd.DataFrame
    sentences: list[str]
    programs: dict[str, pd.DataFrame]
    rows: list[dict]
    named: tuple[str, str]
    metric: str = "competition"

    def words(self) -> list[str]:
        """Return the verdict, and what was not compared."""
        return self.sentences

    def figures(self) -> "list[Figure]":
        """Return the figure of all collections, where there is something to compare."""
        if not self.rows:
            return []
        return [plot_differences(self.rows, self.named, self.sentences[0], self.metric)]


def compare_models(settings: CompareSettings) -> Comparison:
    """Compare two runs or two models on the same graphs; write nothing.

    A pair is called by the folders that hold its models: ``mine/ensemble-tile-xla``.

    Raises:
        SettingsError: One is a run and the other a model, or they have no collection in common.
        DataError: A model, its features or the solution is missing or broken, or the two were scored on other
            runtimes.
    """
    tables: dict[str, pd.DataFrame] = {}
    rows = []
    doubts = []
    for one, other in pairs_of_models(settings):
        table = compare_table(settings, one, other)
        if settings.split == VALID:
            doubts += _doubted_labels(one, other)
        tables[one.name] = table
        collection = read_run_manifest(one)["settings"]["collection"].removeprefix("layout:")
        rows.append(paired_row(collection, table))
    named = settings.names()
    better = which_is_better(rows, named, settings.metric)
    sentences = [f"{METRIC_WORDS.get(settings.metric, settings.metric)} on {settings.split}: {better}"]
    if left_out := collections_of_one(settings):
        sentences.append(f"not compared: {left_out}")
    sentences += doubts
    return Comparison(comparison_table(rows, named), sentences, tables, rows, named, settings.metric)


def compare_runs(settings: CompareSettings) -> dict[str, pd.DataFrame]:
    """Print :func:`compare_models`, and draw each pair.

    Plots are in ``runs/comparisons``, named by both, by the metric and by the split; the one that ends in
    ``differences`` has all collections.

    Returns:
        :func:`compare_table` of each pair, by the folder name of the first one.

    Raises:
        SettingsError: One is a run and the other a model, or they have no collection in common.
        DataError: A model, its features or the solution is missing or broken.
    """
    comparison = compare_models(settings)
    for (one, other), row in zip(pairs_of_models(settings), comparison.rows, strict=True):
        names = _full_names(one, other)
        table = comparison.programs[one.name]
        path = _picture(settings, names)
        metric = METRIC_WORDS.get(settings.metric, settings.metric)
        difference = f"{_plus_minus(row)}, {metric} on {settings.split}"
        title = f"{which_is_better([row], names, settings.metric)}: {difference}"
        models = [str(read_run_manifest(folder)["settings"].get("model")) for folder in (one, other)]
        save_figure(plot_comparison(table, names, title, (models[0], models[1])), path)
        if settings.all:
            print(f"{names[0]} minus {names[1]}: {difference}\n\n{table_text(table)}\n\nplot: {path}\n")
    print_comparison(comparison)
    path = _picture(settings, _full_names(*settings.folders()), "-differences")
    (figure,) = comparison.figures()
    save_figure(figure, path)
    print(f"plot: {path}, with one of each collection beside it; a row for each program: --all")
    return comparison.programs


def _full_names(one: Path, other: Path) -> tuple[str, str]:
    """Return the names of two runs, or of two models with their run's; where both are one, the paths."""
    names = [f"{path.parent.name}/{path.name}" if _is_model(path) else path.name for path in (one, other)]
    return (names[0], names[1]) if names[0] != names[1] else (str(one), str(other))


def _is_model(folder: Path) -> bool:
    """Return whether a folder holds one model, not a run of several."""
    return (folder / MANIFEST).is_file()


def _picture(settings: CompareSettings, names: tuple[str, str], ending: str = "") -> Path:
    """Return the file of a picture of two runs or models."""
    both = "--".join(name.strip("/").replace("/", "-") for name in names)
    return resolve(f"runs/{PICTURES}/{both}--{settings.metric}-{settings.split}{ending}.png")


def print_comparison(comparison: Comparison) -> None:
    """Print the table and the sentences of a comparison, as wide as the terminal."""
    if len(comparison.table):
        print(f"{table_text(comparison.table)}\n")
    print(*comparison.words(), sep="\n")


def paired_row(collection: str, table: pd.DataFrame) -> dict:
    """Return the facts of a collection: its name, number of programs, both means and their difference."""
    means = {"one": table["one"].mean(), "other": table["other"].mean()}
    return {"collection": collection, "programs": len(table), **means, **paired_difference(table)}


def _plus_minus(facts: Mapping[str, float]) -> str:
    error = facts["standard_error"]
    return f"{facts['mean']:+z.4f}" + ("" if math.isnan(error) else f" ± {error:.4f}")


def comparison_table(rows: Sequence[dict], named: tuple[str, str]) -> pd.DataFrame:
    """Return a line for each collection and, of several, for their mean, as texts."""
    lines = list(rows)
    if len(rows) > 1:
        means = {column: float(np.mean([row[column] for row in rows])) for column in ("one", "other")}
        counts = {name: sum(row[name] for row in rows) for name in ("programs", "higher", "equal", "lower")}
        lines.append({"collection": f"mean of {len(rows)}", **means, **counts, **mean_difference(rows)})
    return pd.DataFrame(
        {
            "collection": line["collection"],
            "programs": str(line["programs"]),
            named[0]: f"{line['one']:.3f}",
            named[1]: f"{line['other']:.3f}",
            "first - second": _plus_minus(line),
            "higher, equal, lower": f"{line['higher']}, {line['equal']}, {line['lower']}",
        }
        for line in lines
    )


def mean_difference(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean difference over collections, with its standard error and degrees of freedom.

    Args:
        rows: :func:`paired_difference` of each collection, and its number of ``programs``.

    Returns:
        ``mean``, ``standard_error`` and ``freedom`` (Welch and Satterthwaite: of a sum of variances). NaN
        where a collection has a single program.
    """
    squares = np.array([row["standard_error"] ** 2 for row in rows])
    counts = np.array([row["programs"] for row in rows])
    parts = squares**2 / np.maximum(counts - 1, 1)
    return {
        "mean": float(np.mean([row["mean"] for row in rows])),
        "standard_error": float(np.sqrt(squares.sum()) / len(rows)),
        "freedom": float(squares.sum() ** 2 / parts.sum()) if parts.sum() > 0 else math.nan,
    }


def which_is_better(rows: Sequence[dict], named: tuple[str, str], metric: str) -> str:
    """Return :func:`verdict` on the mean difference over collections.

    Args:
        rows: :func:`paired_row` of each collection.
        named: Names of the two.
        metric: The metric; of a ``top_K_error`` lower is better.
    """
    facts = mean_difference(rows)
    freedom = facts["freedom"]
    graphs = round(freedom) + 1 if math.isfinite(freedom) else min(row["programs"] for row in rows)
    return verdict(facts, graphs, named, metric)


def collections_of_one(settings: CompareSettings) -> str:
    """Return the collections that only one of two runs has an ensemble of, in words; empty for models."""
    one, other = settings.folders()
    if _is_model(one):
        return ""
    only = []
    for collection in COLLECTIONS:
        there = [(run / f"ensemble-{collection.slug}" / MANIFEST).is_file() for run in (one, other)]
        if there[0] != there[1]:
            only.append(f"{collection.name} (only {settings.one if there[0] else settings.other} has it)")
    return ", ".join(only)
