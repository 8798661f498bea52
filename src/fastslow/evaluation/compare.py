"""Paired comparison of two models or two runs, per graph, with a sentence on which is better."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, TEST, VALID, Collection, get_collection
from fastslow.competition.metrics import ALL_METRICS, tile_score
from fastslow.core.artifacts import MANIFEST, read_manifest
from fastslow.core.errors import DataError, SettingsError, counted, listed
from fastslow.core.figures import (
    save_figure,
)
from fastslow.core.files import only_warned
from fastslow.core.setting_fields import nearest
from fastslow.core.settings import Settings, find_data, resolve
from fastslow.core.shown import Shown
from fastslow.core.tables import table_text
from fastslow.evaluation.paired import paired_results, plus_minus, seed_deviation, verdict
from fastslow.evaluation.run_record import PICTURES, read_run_record
from fastslow.evaluation.scores import OPTIMISTIC, SOLUTION, runtimes_of, solution_of
from fastslow.evaluation.submission_record import submission_path
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import read_predictions
from fastslow.runs.run_manifest import models_by_collection, read_run_manifest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SAME = "Compare models of the same programs and configurations, against their own solution (data_root)"
UNRECORDED = "data/sample"  # data of what has no record of it

METRIC_WORDS = {"competition": "mean score"}
"""Words for a metric that its name does not explain."""


class CompareSettings(Settings):
    """Settings of a comparison of two runs, two models or two submissions."""

    one: str = ""
    """Run or model as the leaderboard names it (``mine``, ``mine/gnn``), folder of one model or ensemble in a
    run (``mine/gnn-tile-xla-s0``), or a submission (CSV)."""
    other: str = ""
    """The one to compare it with, of the same sort."""
    metric: Literal["competition", *ALL_METRICS] = "competition"
    """Score per graph: the competition's (tau for layout, 1 - slowdown of the top 5 for tile) or another one;
    of a ``top_K_error`` a negative difference is better. Not for submissions."""
    split: Literal[VALID, TEST] = VALID
    """Graphs to compare on; ``test`` needs ``solution.csv`` in ``data_root``. Epochs and weights were chosen
    on ``valid``, whose scores are optimistic. Equal predictions of a layout program count as in random order,
    on the leaderboard's test as in file order. Not for submissions."""
    features: str = ""
    """Features folder of a single collection; empty for those that belong to ``one`` by its path. It is read
    for the runtimes of ``valid`` where ``metric`` is not the competition's, whose scores the runs hold."""
    data_root: str = ""
    """Folder that holds ``solution.csv``; if empty, the data that one of the two was made from, as its record
    has it, or ``data/sample`` without a record."""
    all: bool = False
    """Print a row for each program too."""

    def folders(self) -> tuple[Path, Path]:
        """Return the two paths.

        A name that is no path is a run under ``runs``. Where one of the two has no run, such as a blend, the
        submissions of both are compared.
        """
        one, other = _path_of(self.one), _path_of(self.other)
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


def _path_of(name: str) -> Path:
    """Return the path of a run, of a folder, or of a model of a run, which is none (``runs/mine/gnn``)."""
    paths = resolve(name), resolve("runs") / name
    there = [path for path in paths if path.exists()] or [p for p in paths if _is_run(p.parent)]
    return there[0] if there else paths[1]


def _is_run(folder: Path) -> bool:
    """Return whether a folder has models or other steps of a run in it."""
    return any(folder.glob(f"*/{MANIFEST}"))


Models = dict[str, list[Path]]
"""By name of a collection, the folder of each seed of a model."""


def pairs_of_models(settings: CompareSettings) -> dict[str, tuple[list[Path], list[Path]]]:
    """Return by collection the folders of both models, one for each seed, where both have the collection.

    The models of a run are its ensembles, or its only model without any.

    Raises:
        SettingsError: One is a run and the other the folder of one model, or they have no collection in
            common; or one is no model, such as the folder of a training.
    """
    one, other = (_models(settings, field, folder) for field, folder in _named(settings))
    folders = settings.folders()
    single = [_is_model(folder) for folder in folders]
    if all(single):  # their collections are compared later, for the message
        (ones,), (others,) = one.values(), other.values()
        return {next(iter(one)): (ones, others)}
    if any(single):
        raise SettingsError("other", _how_to_compare(settings, (one, other), single.index(True)))
    if not one.keys() & other.keys():
        raise SettingsError("other", f"{settings.other} has no collection in common with {settings.one}")
    return {name: (one[name], other[name]) for name in one if name in other}


def _named(settings: CompareSettings) -> list[tuple[str, Path]]:
    """Return the two settings that name what is compared, each with its path."""
    return [*zip(("one", "other"), settings.folders(), strict=True)]


def _models(settings: CompareSettings, field: str, folder: Path) -> Models:
    """Return the folders of what a setting names: of one model, of a run, or of a model of a run."""
    typed = getattr(settings, field)
    if _is_model(folder):
        if "collection" not in read_manifest(folder)["settings"]:
            raise SettingsError(field, f"{folder} is no model; name a model's folder (gnn-tile-xla-s0)")
        return {read_run_manifest(folder)["settings"]["collection"]: [folder]}
    ensembles = {c.name: [folder / f"ensemble-{c.slug}"] for c in COLLECTIONS}
    if finished := {name: folders for name, folders in ensembles.items() if _is_model(folders[0])}:
        return finished
    run = folder if folder.is_dir() else folder.parent
    models = _models_of_run(run)
    if run == folder:
        if len(models) == 1:
            return next(iter(models.values()))
        is_none = "is no folder of a finished model, and no run with ensembles"
        raise SettingsError(field, f"{typed!r} {is_none}{_one_of(run, models)}")
    if folder.name not in models:
        hint = _one_of(run, models) or nearest(typed, [path.name for path in resolve("runs").glob("*/")])
        lists = "`fastslow leaderboard` lists runs and blends"
        raise SettingsError(field, f"{typed!r} is no run, model or submission; {lists}{hint}")
    return models[folder.name]


def _models_of_run(run: Path) -> dict[str, Models]:
    """Return the models of a run by name; the folders of trainings are none."""
    manifests = {path.parent: read_manifest(path.parent) for path in sorted(run.glob(f"*/{MANIFEST}"))}
    return models_by_collection(
        {path: made for path, made in manifests.items() if "collection" in made["settings"]}
    )


def _one_of(run: Path, models: Mapping[str, Models]) -> str:
    """Return the advice to name one of a run's models."""
    return f"; name one of its models, such as {run.name}/{next(iter(models))}" if models else ""


def _how_to_compare(settings: CompareSettings, both: tuple[Models, Models], single: int) -> str:
    """Return how to compare a run with the folder of one model.

    Args:
        settings: What was typed.
        both: The folders of each.
        single: Which one is the folder of one model: 0 or 1.
    """
    typed = settings.one, settings.other
    ((collection, _),) = both[single].items()
    of_run = both[not single]
    kind = "a run" if settings.folders()[not single].is_dir() else "a model of a run"
    problem = f"{typed[not single]} is {kind}, {typed[single]} is one model of {collection}"
    if collection not in of_run:
        return f"{problem}, which {typed[not single]} has not. Compare two runs"
    folder = of_run[collection][0]
    examples = [f"{folder.parent.name}/{folder.name}", typed[single]]
    first, second = examples if single else reversed(examples)
    return f"{problem}. Compare two runs, or give {first} and {second}"


def compare_table(
    settings: CompareSettings, ones: Sequence[Path], others: Sequence[Path]
) -> tuple[pd.DataFrame, tuple[list[float], list[float]], list[str]]:
    """Score two models on every program.

    Args:
        settings: Metric, split, features and solution.
        ones: Folder of each seed of a model or an ensemble.
        others: Folders of another one of the same collection.

    Returns:
        A row per program of which all predict equally many configurations, worst for ``one`` first: ``one``
        and ``other``, the means over seeds, and ``difference``. Then of each model the mean score of each
        seed, and the names of the other programs.

    Raises:
        SettingsError: The models belong to different collections, or the features of a metric are not here.
        DataError: A model, its features or the solution is missing or broken, or there is no program of which
            both predict equally many configurations.
    """
    one, other = ones[0], others[0]
    names = [read_run_manifest(folder)["settings"]["collection"] for folder in (one, other)]
    if names[0] != names[1]:
        raise SettingsError("other", f"{other} predicts {names[1]}, {one} {names[0]}")
    collection = get_collection(names[0])
    folders = [*ones, *others]
    predictions = [read_predictions(folder)[settings.split] for folder in folders]
    compared, left_out = _same_graphs(predictions)
    if not compared:
        problem = f"predicts no program with as many of its configurations as {one}"
        raise DataError(other, problem, _SAME)
    if settings.split == VALID and settings.metric == "competition":
        scores = [read_run_manifest(folder)["valid"]["per_graph"] for folder in folders]
        for folder, scored, predicted in zip(folders, scores, predictions, strict=True):
            if odd := sorted(scored.keys() ^ predicted.keys()):
                problem = f"valid.per_graph lacks a score of {odd[0]}"
                if odd[0] in scored:
                    problem = f"valid.per_graph scores {odd[0]}, which it does not predict"
                raise DataError(folder / MANIFEST, problem, "Train this model again")
    else:
        truth = _truth(settings, one, collection)
        truth = {graph: runtime for graph, runtime in truth.items() if graph not in left_out}
        source = _solution_root(settings, one) if settings.split == TEST else "its features folder"
        _require_same_graphs(one, {graph: predictions[0][graph] for graph in compared}, truth, source)
        metric = _metric(settings.metric, collection)
        scores = [{g: metric(runtime, made[g]) for g, runtime in truth.items()} for made in predictions]
    by_seed = pd.DataFrame(scores).drop(columns=left_out, errors="ignore").rename_axis(columns="graph")
    parts = by_seed.iloc[: len(ones)], by_seed.iloc[len(ones) :]
    table = pd.DataFrame({"one": parts[0].mean(), "other": parts[1].mean()})
    table = table.assign(difference=table["one"] - table["other"])
    table = table.sort_values("difference", ascending=not settings.metric.endswith("_error"))
    seeds = parts[0].mean(axis=1).tolist(), parts[1].mean(axis=1).tolist()
    return table, seeds, left_out


def _same_graphs(predictions: Sequence[Mapping[str, np.ndarray]]) -> tuple[list[str], list[str]]:
    """Return the graphs of which all have equally many predictions, and the other graphs, by name."""
    sizes = [{graph: len(values) for graph, values in predicted.items()} for predicted in predictions]
    every = sorted({graph for of_one in sizes for graph in of_one})
    same = [graph for graph in every if len({of_one.get(graph) for of_one in sizes}) == 1]
    return same, sorted({*every} - {*same})


def _without_counterpart(left_out: Sequence[str], label: str) -> list[str]:
    """Return which programs of a collection are not compared, a sentence where there are any."""
    if not left_out:
        return []
    number = counted(len(left_out), "program")
    why = "of which the two predict other configurations, or one of them none"
    return [f"not compared: {number} of {label}, {why}: {listed(left_out)}"]


def _doubted_labels(one: Path, other: Path, compared: Sequence[str]) -> list[str]:
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
    for graph in compared:
        in_both = graph in labels and graph in others
        if in_both and not np.array_equal(labels[graph], others[graph]):
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
    root = _solution_root(settings, one)
    if (solution := solution_of(find_data(root))) is None:
        raise SettingsError("split", f"test needs {SOLUTION} in {root}; give data_root=FOLDER")
    return runtimes_of(solution, collection)


def _solution_root(settings: CompareSettings, one: Path) -> str:
    """Return the data root whose test runtimes score models: the one given, or the one of ``one``'s run."""
    root: str = settings.data_root or read_run_record(one.parent).get("data", UNRECORDED)
    return root


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


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Two runs, two models or two submissions, compared.

    Args:
        table: A row per collection and, of several, their mean, as texts.
        sentences: The verdict first, then its numbers and what was not compared.
        programs: A row per program, worst for the first of the two first: by the folder name of its model, or
            of two submissions by collection (``layout-xla-random``).
        results: The numbers of the table, see :func:`fastslow.evaluation.paired.paired_results`; with the
            standard deviation over seeds of each of the two where a model has several (``one_seeds`` and
            ``other_seeds``).
        named: Names of the two.
        metric: What is compared; of a ``top_K_error`` lower is better.
    """

    table: pd.DataFrame
    sentences: list[str]
    programs: dict[str, pd.DataFrame]
    results: pd.DataFrame
    named: tuple[str, str]
    metric: str = "competition"

    def words(self) -> list[str]:
        """Return the verdict, its numbers, and what was not compared."""
        return self.sentences

    def record(self) -> dict:
        """Return names, sentences and numbers for JSON; None where a number is not known."""
        rows = json.loads(self.results.reset_index().to_json(orient="records"))
        return {"one": self.named[0], "other": self.named[1], "words": self.sentences, "results": rows}

    def figures(self) -> "list[Figure]":
        """Return the figure of all collections, where there is something to compare."""
        if self.results.empty:
            return []
        from fastslow.evaluation.compare_plots import plot_differences  # half a second

        return [plot_differences(self.results, self.named, self.sentences[0], self.metric)]


def comparison_of(
    tables: Mapping[str, pd.DataFrame],
    programs: dict[str, pd.DataFrame],
    named: tuple[str, str],
    metric: str,
    split: str,
    others: Sequence[str] = (),
    seeds: Mapping[str, tuple[list[float], list[float]]] | None = None,
) -> Comparison:
    """Return the comparison of two by the scores of each program.

    Args:
        tables: By collection ``one`` and ``other``, a row for each program by its name.
        programs: As of :class:`Comparison`.
        named: Names of the two.
        metric: What is compared.
        split: The split of the programs.
        others: Further sentences, such as the collections that were not compared.
        seeds: Of each collection the mean score of each seed of both.
    """
    results = paired_results(tables)
    for place, column in enumerate(("one", "other")):
        by_collection = [means[place] for means in (seeds or {}).values()]
        results[f"{column}_seeds"] = math.nan
        for number, name in enumerate(results.index):
            if by_collection:  # the row of the mean, which is the last one, has all of them
                part = by_collection[number : number + 1] or by_collection
                results.loc[name, f"{column}_seeds"] = seed_deviation(part)
    better = verdict(results.iloc[-1], named, metric)
    found = f"{METRIC_WORDS.get(metric, metric)} on {split}: {better}"
    sentences = [found, *_in_numbers(results, named), *others]
    return Comparison(comparison_table(results, named), sentences, programs, results, named, metric)


def _in_numbers(results: pd.DataFrame, named: tuple[str, str]) -> list[str]:
    """Return the difference with its interval, and what the brackets are, in words."""
    over_all = results.iloc[-1]
    words = []
    if not math.isnan(over_all["low"]):
        interval = f"95 % interval {over_all['low']:+.4f} to {over_all['high']:+.4f}"
        over = f"over {counted(int(over_all['programs']), 'program')}, p = {over_all['p_value']:.2g}"
        words.append(f"{named[0]} - {named[1]}: {over_all['difference']:+.4f}, {interval} {over}")
    if results[["one_seeds", "other_seeds"]].notna().any(axis=None):
        words.append("a score is the mean of the seeds; in brackets: their standard deviation")
    return words


def compare_models(settings: CompareSettings) -> Comparison:
    """Compare two runs or two models on the same programs; write nothing.

    A pair is called by the folder that holds the first one's model: ``ensemble-tile-xla``. Of a model with
    several seeds the means over them are compared.

    Raises:
        SettingsError: One is a run and the other a model, or they have no collection in common.
        DataError: A model, its features or the solution is missing or broken, or the two were scored on other
            runtimes.
    """
    programs, tables, seeds = {}, {}, {}
    doubts = []
    for name, (ones, others) in pairs_of_models(settings).items():
        label = name.removeprefix("layout:")
        table, seeds[label], without = compare_table(settings, ones, others)
        if settings.split == VALID:
            doubts += _doubted_labels(ones[0], others[0], [*table.index])
        doubts += _without_counterpart(without, label)
        programs[_without_seed(ones)] = tables[label] = table
    left_out = collections_of_one(settings)
    words = [f"not compared: {left_out}"] if left_out else []
    words += [OPTIMISTIC] if settings.split == VALID else []
    found = settings.names(), settings.metric, settings.split
    return comparison_of(tables, programs, *found, [*words, *doubts], seeds)


def compare_runs(settings: CompareSettings) -> Comparison:
    """Print :func:`compare_models`, and draw each pair.

    Plots are in ``runs/comparisons``, named by both, by the metric and by the split; the one that ends in
    ``differences`` has all collections. A plot that cannot be written costs a warning.

    Raises:
        SettingsError: One is a run and the other a model, or they have no collection in common.
        DataError: A model, its features or the solution is missing or broken.
    """
    from fastslow.evaluation.compare_plots import plot_comparison  # half a second

    comparison = compare_models(settings)
    pairs = pairs_of_models(settings)
    plots = {}
    for (ones, others), row in zip(pairs.values(), comparison.results.to_dict("records"), strict=False):
        names = _full_names(ones, others)
        table = comparison.programs[_without_seed(ones)]
        path = _picture(settings, names)
        difference = (
            f"{plus_minus(row)}, {METRIC_WORDS.get(settings.metric, settings.metric)} on {settings.split}"
        )
        title = f"{names[0]} minus {names[1]}: {difference}"
        if len(pairs) == 1:  # one test; a verdict on each of several would be a test too many
            title = f"{verdict(row, names, settings.metric)}: {difference}"
        models = [str(read_run_manifest(folders[0])["settings"].get("model")) for folders in (ones, others)]
        plots[path] = plot_comparison(table, names, title, (models[0], models[1]))
        if settings.all:
            print(f"{names[0]} minus {names[1]}: {difference}\n\n{table_text(table)}\n")
    print_comparison(comparison)
    folders = settings.folders()
    path = _picture(settings, _full_names(folders[:1], folders[1:]), "-differences")
    (plots[path],) = comparison.figures()
    with only_warned():
        for picture, figure in plots.items():
            save_figure(figure, picture)
        print(f"plot: {path}, with one of each collection beside it; a row for each program: --all")
    return comparison


def _full_names(ones: Sequence[Path], others: Sequence[Path]) -> tuple[str, str]:
    """Return the names of two runs, or of two models with their run's; where both are one, the paths."""
    names = []
    for folders in (ones, others):
        in_run = _is_model(folders[0]) or not folders[0].is_dir()  # a model, or one of a run: mine/gnn
        names.append(f"{folders[0].parent.name}/{_without_seed(folders)}" if in_run else folders[0].name)
    return (names[0], names[1]) if names[0] != names[1] else (str(ones[0]), str(others[0]))


def _without_seed(folders: Sequence[Path]) -> str:
    """Return the name of a model's folder; of several seeds without the number of the first one."""
    name = folders[0].name
    return name if len(folders) == 1 else re.sub(r"-s\d+$", "", name)


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


def _with_seeds(mean: float, deviation: float) -> str:
    return f"{mean:.3f}" + ("" if math.isnan(deviation) else f" ({deviation:.3f})")


def comparison_table(results: pd.DataFrame, named: tuple[str, str]) -> pd.DataFrame:
    """Return the results as texts, a line for each collection and, of several, for their mean."""
    return pd.DataFrame(
        {
            "collection": name,
            "programs": str(line["programs"]),
            named[0]: _with_seeds(line["one"], line["one_seeds"]),
            named[1]: _with_seeds(line["other"], line["other_seeds"]),
            f"{named[0]} - {named[1]}": plus_minus(line),
            "higher, equal, lower": f"{line['higher']}, {line['equal']}, {line['lower']}",
        }
        for name, line in zip(results.index, results.to_dict("records"), strict=True)
    )


def collections_of_one(settings: CompareSettings) -> str:
    """Return the collections that only one of two models has, in words; empty for folders of one model."""
    both = {getattr(settings, field): _models(settings, field, folder) for field, folder in _named(settings)}
    if any(map(_is_model, settings.folders())):
        return ""
    has = {typed: {*models} for typed, models in both.items()}
    only = []
    for collection in COLLECTIONS:
        owners = [typed for typed, names in has.items() if collection.name in names]
        if 0 < len(owners) < len(has):
            only.append(f"{collection.name} (only {owners[0]} has it)")
    return ", ".join(only)
