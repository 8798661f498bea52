"""The command ``compare``: two runs, two models or two submissions; their files show which."""

import sys
from pathlib import Path

import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, TEST, VALID
from fastslow.competition.submission_csv import read_rows
from fastslow.core.errors import DataError, SettingsError, listed
from fastslow.core.settings import Unread, find_data
from fastslow.core.tables import table_text
from fastslow.evaluation.agreement import agreement, summary, without_counterpart
from fastslow.evaluation.blend import data_of, require_one_release, typed_submission
from fastslow.evaluation.compare import (
    UNRECORDED,
    CompareSettings,
    Comparison,
    compare_models,
    compare_runs,
    comparison_of,
    print_comparison,
)
from fastslow.evaluation.scores import SOLUTION, score_submission, solution_of

_WORDS = {
    "tau": "mean tau",
    "lowest": "lowest tau",
    "highest": "highest tau",
    "top_5": "first five in common",
    "chance": "by chance",
}


def compare(settings: CompareSettings) -> dict:
    """Print which of two is better, and how far two submissions rank alike.

    Returns:
        Names, sentences and numbers, see :meth:`fastslow.evaluation.compare.Comparison.record`.

    Raises:
        SettingsError: The two are not of one sort, or belong to different collections.
        DataError: One of them is missing or broken.
    """
    _warn_of_the_same(settings)
    if not _are_submissions(settings):
        return compare_runs(settings).record()
    comparison = compare_submissions(settings)
    print("How far they rank alike, whatever the true runtimes are:\n")
    alike = summary(agreement(*settings.folders()))
    alike.index = alike.index.str.removeprefix("layout:").rename("collection")
    print(f"{table_text(alike.rename(columns=_WORDS))}\n")
    for table in comparison.programs.values() if settings.all else ():
        print(f"{table_text(table)}\n")
    print_comparison(comparison)
    return comparison.record()


def compare_two(settings: CompareSettings) -> Comparison:
    """Compare two runs, two models or two submissions, and write nothing.

    Raises:
        SettingsError: The two are not of one sort, or belong to different collections.
        DataError: One of them is missing or broken.
    """
    _warn_of_the_same(settings)
    return compare_submissions(settings) if _are_submissions(settings) else compare_models(settings)


def _warn_of_the_same(settings: CompareSettings) -> None:
    """Print a warning where both names lead to the same files."""
    if len({path.resolve() for path in settings.folders()}) == 1:
        words = f"{settings.one} is compared with itself, so no difference is seen; name another one"
        print(f"warning: {words}", file=sys.stderr)


def _are_submissions(settings: CompareSettings) -> bool:
    """Return whether both are CSVs, and refuse two of different sorts and what is not read of theirs.

    Raises:
        SettingsError: One is a folder and the other a CSV, or a setting is not read.
        DataError: One is named as a CSV and is no file.
    """
    for typed in (settings.one, settings.other):
        if typed.endswith(".csv"):
            typed_submission(typed)
    csv = [path.suffix == ".csv" or path.is_file() for path in settings.folders()]
    if csv[0] != csv[1]:
        sorts = ["a submission" if is_csv else "a folder" for is_csv in csv]
        problem = f"{settings.other} is {sorts[1]}, {settings.one} {sorts[0]}; name two of the same sort"
        raise SettingsError("other", problem)
    settings.require_defaults(_unread(settings, csv[0]))
    return csv[0]


def _unread(settings: CompareSettings, submissions: bool) -> Unread:
    """Return the settings that a comparison of two submissions, or of two runs or models, does not read."""
    if submissions:
        scored = "on submissions, of which the competition's score on test is compared", "name two runs"
        return dict.fromkeys(("metric", "split", "features"), scored)
    unread = {}
    if settings.split == VALID:
        unread["data_root"] = "on valid, whose runtimes the features hold", "give split=test"
    if settings.split != VALID or settings.metric == "competition":
        unread["features"] = "but for another metric on valid", "give split=valid and a metric"
    return unread


def compare_submissions(settings: CompareSettings) -> Comparison:
    """Compare the scores of two submissions where the true runtimes are known, row by row.

    Raises:
        DataError: A CSV or the solution is missing or broken, or the two have other row orders.
    """
    one, other = settings.folders()
    require_one_release((one, other))
    lacking = without_counterpart(one, other)
    root = None if settings.data_root else data_of((one, other))
    root = root or find_data(settings.data_root or UNRECORDED)
    solution = solution_of(root)
    named = settings.names()
    reason = ""
    if solution is None:
        reason = f"{root} has no {SOLUTION}"
    elif foreign := {*read_rows(one), *read_rows(other)} - solution.keys():
        reason = f"the solution of {root} scores other programs, without {listed(sorted(foreign))}"
    if reason:
        found = [f"no verdict: {reason}; give data_root=FOLDER", *lacking]
        return Comparison(pd.DataFrame(), found, {}, pd.DataFrame(), named)
    try:
        scores = [_scores(path, solution) for path in (one, other)]
    except DataError as error:
        found = [f"no verdict: {error}", *lacking]
        return Comparison(pd.DataFrame(), found, {}, pd.DataFrame(), named)
    tables, rows = {}, {}
    for collection in COLLECTIONS:
        if collection.name in scores[0]:
            table = pd.DataFrame({"one": scores[0][collection.name], "other": scores[1][collection.name]})
            table = table.assign(difference=table["one"] - table["other"])
            rows[collection.slug] = table.rename_axis("row").sort_values("difference")
            tables[collection.name.removeprefix("layout:")] = table.rename(lambda row: row.rpartition(":")[2])
    return comparison_of(tables, rows, named, "competition", TEST, lacking)


def _scores(path: Path, solution: dict) -> dict[str, dict[str, float]]:
    """Return the score of every row, by collection."""
    return {name: score["per_graph"] for name, score in score_submission(path, solution).items()}
