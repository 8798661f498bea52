"""Render the executed notebooks of a run to HTML, with one index page; no network is needed to view them."""

import base64
import html
import os
from pathlib import Path
from typing import NamedTuple

import nbformat
import pandas as pd
from nbconvert import HTMLExporter

from fastslow.core.artifacts import MANIFEST, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path
from fastslow.core.input_files import MAX_TEXT_BYTES, is_there
from fastslow.core.progress import progress
from fastslow.core.settings import Settings, resolve
from fastslow.evaluation.ledger import read_submission_record
from fastslow.evaluation.score_tables import DISTANCES, readable_distances, readable_table
from fastslow.evaluation.training_files import NOTEBOOK

INDEX_PAGE = "index.html"
_AGAIN = "Delete its folder and run `make submit` again"
# nbformat's own errors are ValueErrors; it trusts the structure that it reads
_NO_NOTEBOOK = (ValueError, LookupError, TypeError, AttributeError, RecursionError, nbformat.ValidationError)
# JupyterLab's look without the scripts that it would fetch from a CDN; a wide table scrolls, it is not cut
_TEMPLATE = """{% extends 'lab/index.html.j2' %}
{% block html_head_js %}{% endblock %}
{% block jupyter_widgets %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block html_head_css %}<style>.jp-OutputArea-child { display: flex }
.jp-OutputArea-output { display: block; min-width: 0; overflow-x: auto }</style>{% endblock %}
"""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; display: block; overflow-x: auto } th { text-align: left }
th, td { padding: .2em .8em; border-bottom: 1px solid #ddd }
td:nth-child(3), td:nth-child(4) { text-align: right }
ul { columns: 2; list-style: none; padding: 0 } img { width: 100%; max-width: 800px; border: 1px solid #ddd }
"""


class ReportSettings(Settings):
    """Settings of the HTML report of a run."""

    name: str = "sample"
    """Name of the run: the notebooks under ``runs/NAME`` and ``features/NAME`` are rendered."""

    def check(self) -> None:
        """Check the name."""
        plain = self.name and Path(self.name).name == self.name and not self.name.startswith(".")
        self.require(bool(plain), "name", "a plain folder name")

    @property
    def run(self) -> Path:
        """Folder of the run."""
        return resolve(f"runs/{self.name}")


class Page(NamedTuple):
    """One executed notebook and the page that it becomes."""

    stage: str  # features, training, ensemble or submission
    title: str  # name of the folder that the notebook wrote
    notebook: Path
    target: Path  # the HTML file


def render_report(settings: ReportSettings) -> Path:
    """Render every executed notebook of a run to HTML, write an index page and print its path.

    Pages newer than their notebook are kept. Everything is written to ``runs/NAME/report``.

    Returns:
        The index page.

    Raises:
        DataError: The run is missing or has no finished submission.
    """
    made = settings.run / "submission"
    if not (made / MANIFEST).is_file():
        raise DataError(settings.run, "no finished submission there", "Run `make submit` first")
    csv, pages = resolve(read_manifest(made)["settings"]["csv"]), list_pages(settings)
    exporter = HTMLExporter(raw_template=_TEMPLATE)
    for page in progress(pages, desc="report", unit="page"):
        if not page.target.is_file() or page.target.stat().st_mtime_ns <= page.notebook.stat().st_mtime_ns:
            _render(page, exporter)
    index = settings.run / "report" / INDEX_PAGE
    with atomic_path(index) as temporary:
        temporary.write_text(_index(settings.name, csv, pages, index.parent), encoding="utf-8")
    print(index)
    return index


def list_pages(settings: ReportSettings) -> list[Page]:
    """Return the executed notebooks of a run in the order of their stages."""
    report, pages = settings.run / "report", []
    for kind, root in (("features", resolve(f"features/{settings.name}")), ("runs", settings.run)):
        # a search for the whole name passes over links that lead nowhere
        for notebook in sorted(path for path in root.rglob("*.ipynb") if path.name == NOTEBOOK):
            is_there(notebook, MAX_TEXT_BYTES)
            title = notebook.parent.relative_to(root).as_posix()
            stage = "features" if kind == "features" else _stage(notebook.parent)
            pages.append(Page(stage, title, notebook, report / kind / f"{title}.html"))
    order = ("features", "training", "ensemble", "submission")
    return sorted(pages, key=lambda page: order.index(page.stage))


def _stage(folder: Path) -> str:
    """Return the stage that wrote a folder of ``runs/``, from the settings in its manifest."""
    settings = read_manifest(folder)["settings"]
    if settings.get("model") == "ensemble":
        return "ensemble"
    return "submission" if "csv" in settings else "training"


def _render(page: Page, exporter: HTMLExporter) -> None:
    try:
        notebook = nbformat.read(page.notebook, nbformat.NO_CONVERT)  # any mapping becomes one of version 4
        nbformat.validate(notebook)
        notebook.metadata.pop("widgets", None)  # a static page shows none, and nbconvert trusts their form
    except _NO_NOTEBOOK as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(page.notebook, f"not a notebook ({reason})", _AGAIN) from None
    body, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": page.title}})
    with atomic_path(page.target) as temporary:
        temporary.write_text(body, encoding="utf-8", errors="replace")  # an output may hold half a character


def _index(name: str, csv: Path, pages: list[Page], folder: Path) -> str:
    """Return the index page: commit, score table, plot of the scores, links grouped by stage."""
    record = read_submission_record(csv, "table", "distances")
    distances = readable_distances(record["distances"])
    table = readable_table(pd.DataFrame(record["table"])).replace({r"\*\*": ""}, regex=True)
    if not is_there(csv.with_suffix(".png"), MAX_TEXT_BYTES):
        raise DataError(csv.with_suffix(".png"), "no such file", _AGAIN)
    plot = base64.b64encode(csv.with_suffix(".png").read_bytes()).decode()
    links: dict[str, list[str]] = {}
    for page in pages:
        target = html.escape(os.path.relpath(page.target, folder))
        links.setdefault(page.stage, []).append(f'<li><a href="{target}">{html.escape(page.title)}</a></li>')
    groups = "".join(f"<h2>{stage}</h2><ul>{''.join(own)}</ul>" for stage, own in links.items())
    facts = f"commit {html.escape(record['commit'])}, {html.escape(record['created'])}"
    title = f"fastslow: run {html.escape(name)}"
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head><body>
<h1>{title}</h1><p>{facts}, submission {html.escape(csv.name)}</p>
<img alt="score of every model per collection" src="data:image/png;base64,{plot}">
<p>Kendall's tau for layout, 1 - slowdown of the top 5 for tile: mean over seeds ± half their range
[lowest, highest program]. Valid scores are optimistically biased: epochs and weights were
selected on them. The rows without a weight are baselines, rules that a model has to beat.</p>
{table.to_html(index=False, border=0)}
<p>{DISTANCES}.</p>
{distances.to_html(index=False, border=0)}
{groups}
</body></html>
"""
