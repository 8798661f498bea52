"""The page of a submission: scores, what changed since the last run, where time went, warnings, notebooks."""

import html
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pandas as pd

from fastslow.core.artifacts import MANIFEST, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path, digest, file_digest
from fastslow.core.settings import PROJECT
from fastslow.core.shown import Number, Section, make_document, make_page, picture, sentences
from fastslow.core.tables import percent, table_html
from fastslow.ensemble.baselines import BASELINES
from fastslow.evaluation.plots import lead, plot_results
from fastslow.evaluation.run_record import read_run_record
from fastslow.evaluation.score_tables import DISTANCES, overview, pool_seeds, readable_distances
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.evaluation.training_files import NOTEBOOK, notebook_seconds, wall_seconds

if TYPE_CHECKING:
    from nbconvert import HTMLExporter

_ENDS = re.compile(r" \[.*\]")  # lowest and highest program, which the record has
_RELATIVE = re.compile(r'(<(?:a|img) [^>]*?(?:href|src)=")(?![a-z]+:|[#/])([^"]+)')  # links, no addresses
_KINDS = {"training": "networks", "ranker": "trees", "ensemble": "ensembles"}  # by the first word of a step
_NOTEBOOK_STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem;
  overflow-wrap: anywhere; background: white; color: #1c1e21 }
img, svg { max-width: 100%; height: auto }
pre { overflow-x: auto; background: #f2f4f7; padding: .5rem; border-radius: .3rem; font-size: 13px }
.prompt, .anchor-link { display: none }
.output_area, .output_html { overflow-x: auto }
"""


def write_submission_page(csv: Path, runs: Path, steps: Mapping[str, Path]) -> Path:
    """Write a submission's page beside it, and each step's executed notebook as HTML beside the notebook.

    A page that was made from the same files is left as it is: its last line has a digest of their content.

    Args:
        csv: The submission; its record is beside it.
        runs: Folder of its run.
        steps: The folder that each step wrote, by the name of the step.

    Returns:
        The page.

    Raises:
        DataError: The record is missing or broken.
    """
    path = csv.with_suffix(".html")
    notebooks = _notebooks(csv, steps)
    sources = {"": csv.with_suffix(".json")} | {name: folder / NOTEBOOK for name, folder in steps.items()}
    made_from = _made_from(sources)
    if _is_current(path, made_from):
        return path
    record = read_submission_record(csv, "table", "valid_mean", "test_mean")
    table = pd.DataFrame(record["table"])
    before = _last_before(csv, record)
    scores = overview(table).map(lambda text: _ENDS.sub("", text))
    parts = [
        Section("Scores", picture(plot_results(pool_seeds(table))) + table_html(scores)),
        _changes(record, before, runs),
        _times(steps),
        _warnings(record, steps),
        notebooks,
    ]
    if record.get("distances"):
        by_distance = table_html(readable_distances(record["distances"]))
        parts.insert(1, Section("Scores by distance", f"<p>{DISTANCES}:</p>\n{by_distance}"))
    text = make_page(csv.stem, "Submission", _verdict(record, table), _numbers(record, steps), parts)
    with atomic_path(path) as temporary:
        temporary.write_text(text + made_from)
    return path


def _made_from(sources: Mapping[str, Path]) -> str:
    """Return the last line of a page: a digest of the sources that are there, which tells no times."""
    content = {name: file_digest(path) for name, path in sources.items() if path.is_file()}
    return f"<!-- made from {digest(content)} -->\n"


def _is_current(page: Path, made_from: str) -> bool:
    """Return whether a page is there and ends in this line."""
    return page.is_file() and page.read_bytes().endswith(made_from.encode())


def _verdict(record: Mapping, table: pd.DataFrame) -> str:
    """Return in a line how good the submission is, and whether it is on Kaggle."""
    score = record["valid_mean"] if record["test_mean"] is None else record["test_mean"]
    split = "valid" if record["test_mean"] is None else "test"
    rules = table[table["model"].isin(BASELINES)].groupby("model")[split]
    means = rules.mean()[rules.size() == table["collection"].nunique()]
    ahead = ""
    if len(means):
        ahead = f", {lead(score - means.max())} the best trivial rule ({means.idxmax()})"
    scored = record.get("kaggle") or {}
    if scored.get("private") is not None:
        return f"Kaggle: {scored['private']:.5f} private. Mean of five on {split}: {score:.3f}{ahead}."
    return f"Mean of five on {split}: {score:.3f}{ahead}. It has no score from Kaggle."


def _numbers(record: Mapping, steps: Mapping[str, Path]) -> list[Number]:
    notebooks = sum((folder / NOTEBOOK).is_file() for folder in steps.values())
    rows = sum(record.get("checked", {}).get("rows", {}).values())
    of_time = f"{notebooks} notebooks, some side by side; of a resumed one the last session"
    test = "no labels" if record["test_mean"] is None else f"{record['test_mean']:.3f}"
    return [
        Number("mean of five on test", test, f"valid {record['valid_mean']:.3f}"),
        Number("rows of the CSV", f"{rows:,}", "read back and checked"),
        Number("time", _minutes(wall_seconds(steps.values())), of_time),
    ]


def _last_before(csv: Path, record: Mapping) -> dict:
    """Return the record of the newest earlier submission of the same data; empty if there is none."""
    earlier = []
    for path in csv.parent.glob("*.json"):
        if path.stem == csv.stem:
            continue
        try:
            other = read_submission_record(path)
        except DataError:
            continue
        if other["created"] < record["created"] and other.get("data_root") == record.get("data_root"):
            earlier.append(other)
    return max(earlier, key=lambda other: other["created"], default={})


def _changes(record: Mapping, before: Mapping, runs: Path) -> Section:
    heading = "What changed against the last run"
    if not before:
        return Section(heading, "<p>There is no earlier submission of these data.</p>\n")
    split, now, then = "valid", record["scores"], before["scores"]
    if record.get("test") and before.get("test"):
        split, now, then = "test", record["test"], before["test"]
    collections = [name for name in now if name in then]
    rows = pd.DataFrame(
        {
            "collection": collections,
            record["name"]: [f"{now[name]:.4f}" for name in collections],
            before["name"]: [f"{then[name]:.4f}" for name in collections],
            "difference": [f"{now[name] - then[name]:+z.4f}" for name in collections],
        }
    )
    mean = sum(now[name] - then[name] for name in collections) / max(len(collections), 1)
    command = f"fastslow compare {record['name']} {before['name']}"
    beyond = f"The mean difference is {mean:+z.4f}. To compare it with chance: {command}"
    settings = read_run_record(runs).get("settings", {})
    earlier = read_run_record(runs.parent / before["name"]).get("settings")
    changed = [] if earlier is None else _changed_settings(settings, earlier)
    if record["commit"] != before["commit"]:
        changed.append(f"commit {_commit(record)}; {before['name']}: {_commit(before)}")
    if earlier is None:
        changed.append(f"its settings are not known: the folder of the run {before['name']} is gone")
    words = sentences(changed) if changed else "<p>The settings are the same.</p>\n"
    said = f"<p>Scores on {split}, compared with the earlier run {html.escape(before['name'])}:</p>\n"
    return Section(heading, f"{said}{table_html(rows)}<p>{html.escape(beyond)}</p>\n{words}")


def _commit(record: Mapping) -> str:
    """Return the commit of a record in words: a ``+`` is a tree with changes."""
    name = record["commit"].removesuffix("+")
    return f"{name} with uncommitted changes" if name != record["commit"] else name


def _changed_settings(settings: Mapping, earlier: Mapping) -> list[str]:
    """Return the settings of a run that an earlier run had otherwise, a sentence each."""
    return [
        f"{name}: {_setting(settings, name)}, before {_setting(earlier, name)}"
        for name in sorted(settings.keys() | earlier.keys())
        if (settings.get(name) or None) != (earlier.get(name) or None)  # one that is empty is not set
    ]


def _setting(settings: Mapping, name: str) -> str:
    """Return the value of a setting as text, which an empty one needs too."""
    if name not in settings:
        return "default"
    return "none" if settings[name] in ("", [], {}, None) else str(settings[name])


def _seconds(steps: Mapping[str, Path]) -> dict[str, float]:
    """Return the seconds of each step whose notebook tells them, the longest first."""
    seconds = {name: notebook_seconds(folder) for name, folder in steps.items()}
    known = {name: value for name, value in seconds.items() if value is not None}
    return dict(sorted(known.items(), key=lambda step: -step[1]))


def _times(steps: Mapping[str, Path]) -> Section:
    """Return how much of the time each kind of step took; the list of the notebooks has every step."""
    of_kind: dict[str, list[float]] = {}
    for name, seconds in _seconds(steps).items():
        kind = re.split("[ -]", name)[0]
        of_kind.setdefault(_KINDS.get(kind, kind), []).append(seconds)
    times = {kind: sum(seconds) for kind, seconds in of_kind.items()}
    order = sorted(times, key=times.__getitem__, reverse=True)
    total = sum(times.values())
    rows = pd.DataFrame(
        {
            "steps": order,
            "number": [len(of_kind[kind]) for kind in order],
            "time": [_minutes(times[kind]) for kind in order],
            "share": [percent(times[kind] / total) if total else "" for kind in order],
        }
    )
    return Section("Where time went", table_html(rows))


def _minutes(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _warnings(record: Mapping, steps: Mapping[str, Path]) -> Section:
    lines = [*record.get("warnings", [])]
    for name, folder in steps.items():
        if (folder / MANIFEST).is_file():
            lines += [f"{name}: {warning}" for warning in read_manifest(folder).get("warnings", [])]
    lines += [f"doubtful labels: {name}: {doubts}" for name, doubts in record.get("doubtful", {}).items()]
    if constant := record.get("checked", {}).get("file_order"):
        lines.append(f"{constant} of the layout rows rank as the file does: a constant prediction")
    heading = f"Warnings ({len(lines)})"
    if not lines:
        return Section(heading, "<p>There are none.</p>\n")
    return Section(heading, sentences(lines), folded=len(lines) > 5)


def _notebooks(csv: Path, steps: Mapping[str, Path]) -> Section:
    """Render the executed notebooks, and link all, the longest first."""
    seconds = _seconds(steps)
    items = []
    for name in (*seconds, *(name for name in steps if name not in seconds)):
        notebook = steps[name] / NOTEBOOK
        if notebook.is_file():
            page = _render(notebook, name)
            link = quote(os.path.relpath(page, csv.parent))
            took = f", {_minutes(seconds[name])}" if name in seconds else ""
            items.append(f'<li><a href="{link}">{html.escape(name)}</a>{took}</li>')
    return Section("Executed notebooks", f"<ul>{''.join(items)}</ul>\n")


def _render(notebook: Path, title: str) -> Path:
    """Write an executed notebook as HTML beside it, unless that was made from it; return the page."""
    page = notebook.with_suffix(".html")
    made_from = _made_from({title: notebook})
    if _is_current(page, made_from):
        return page
    body, _ = _exporter().from_filename(str(notebook))
    body = _links_of(body, page.parent)
    with atomic_path(page) as temporary:
        temporary.write_text(make_document(title, _NOTEBOOK_STYLE, body) + made_from)
    return page


def _links_of(body: str, folder: Path) -> str:
    """Return the HTML of a notebook whose relative links lead from another folder to the same files."""
    home = quote(os.path.relpath(PROJECT / "notebooks", folder))
    return _RELATIVE.sub(lambda link: f"{link[1]}{os.path.normpath(f'{home}/{link[2]}')}", body)


@cache
def _exporter() -> "HTMLExporter":
    """Return what renders every notebook: its templates are compiled once."""
    from nbconvert import HTMLExporter  # seconds

    return HTMLExporter(template_name="basic")
