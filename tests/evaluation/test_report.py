"""`fastslow report`: every figure of every executed notebook is in its page, without a network."""

import base64
import json
import re
import shutil
from html.parser import HTMLParser

import nbformat
import pytest

from fastslow.core.errors import DataError
from fastslow.evaluation import report
from fastslow.evaluation.report import ReportSettings, list_pages, render_report

CONFIG = ReportSettings(name="smoke")
# loads, not hyperlinks: what a page fetches by itself
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def home(finished, tmp_path_factory):
    """A copy of the finished home with the report rendered, for all tests of this module."""
    folder = tmp_path_factory.mktemp("report") / "home"
    shutil.copytree(finished[0], folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTSLOW_HOME", str(folder))
        render_report(CONFIG)
        yield folder


class Elements(HTMLParser):
    """What a page loads, by tag, and where its links lead."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag in LOADED and attributes.get(LOADED[tag]):
            self.loaded.append((tag, attributes[LOADED[tag]]))
        if tag == "a":
            self.links.append(attributes["href"])

    @property
    def images(self):
        return [source for tag, source in self.loaded if tag == "img"]


def figures_of(notebook):
    """The PNG outputs of an executed notebook, base64 without line breaks."""
    cells = nbformat.read(notebook, as_version=4).cells
    outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    return ["".join(data["image/png"].split()) for data in outputs if "image/png" in data]


def test_every_figure_is_in_its_page(home):
    index = render_report(CONFIG)
    pages = list_pages(CONFIG)
    assert index == home / "runs" / "smoke" / "report" / "index.html"
    notebooks = {*home.glob("runs/smoke/**/notebook.ipynb"), *home.glob("features/smoke/**/notebook.ipynb")}
    assert {page.notebook for page in pages} == notebooks and len(notebooks) == len(pages)
    assert len({page.target for page in pages}) == len(pages)
    total = 0
    for page in pages:
        elements = Elements(page.target.read_text())
        figures = figures_of(page.notebook)
        assert ["".join(source.split()) for source in elements.images] == [
            f"data:image/png;base64,{figure}" for figure in figures
        ], page.target
        total += len(figures)
    assert total >= 10
    assert len(Elements(index.read_text()).images) == 1


def test_no_page_loads_anything_from_elsewhere(home):
    folder = render_report(CONFIG).parent
    for path in folder.rglob("*.html"):
        text = path.read_text()
        for _, source in Elements(text).loaded:
            assert source.startswith("data:"), f"{path} loads {source[:80]}"
        text = re.sub(r"data:[\w/+;-]+,[\w+/=\s]*", "", text)  # an image's letters spell anything
        assert not re.search(r"@import|url\(\s*['\"]?https?:|import .* from ['\"]https?:|\bcdn", text), path


def test_the_index_shows_the_scores_and_leads_everywhere(home):
    index = render_report(CONFIG)
    text, elements = index.read_text(), Elements(index.read_text())
    record = json.loads((home / "submissions" / "smoke.json").read_text())
    assert "run smoke" in text and record["commit"] in text
    stages = re.findall(r"<h2>(\w+)</h2>", text)
    assert stages == ["features", "training", "ensemble", "submission"]
    targets = [(index.parent / link).resolve() for link in elements.links]
    assert sorted(targets) == sorted(page.target for page in list_pages(CONFIG))
    ensemble = [row for row in record["table"] if row["model"] == "ensemble"]
    for row in ensemble:
        assert f"{row['collection']}</td>" in text and f"{row['valid']:.3f} [" in text
    for row in record["distances"]:
        assert f"<td>{row['score']:.3f} ({row['graphs']}; {row['smallest']:.3f} to" in text
    plot = base64.b64encode((home / "submissions" / "smoke.png").read_bytes()).decode()
    assert elements.images == [f"data:image/png;base64,{plot}"]


def test_pages_that_are_up_to_date_are_kept(home, monkeypatch):
    render_report(CONFIG)
    rendered = []
    monkeypatch.setattr(report, "_render", lambda page, exporter: rendered.append(page.title))
    render_report(CONFIG)
    assert rendered == []
    (home / "runs" / "smoke" / "ensemble-tile-xla" / "notebook.ipynb").touch()
    render_report(CONFIG)
    assert rendered == ["ensemble-tile-xla"]


def test_a_missing_run_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    for folder in ("", "runs/other/training-tile-s0", "runs/other/submission"):  # the last one unfinished
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        with pytest.raises(DataError, match="runs/other: no finished submission .* Run `make submit` first"):
            render_report(ReportSettings(name="other"))


def test_a_broken_notebook_is_refused_by_name(home):
    path = home / "runs" / "smoke" / "ensemble-tile-xla" / "notebook.ipynb"
    content = path.read_text()
    for text in (content[:500], "null", '{"cells": {}}', '{"nbformat": 4, "cells": [{}]}', "[" * 50_000):
        path.write_text(text)
        with pytest.raises(DataError, match=f"^{path}: not a notebook .* run `make submit` again"):
            render_report(CONFIG)
    path.write_text(content)


def test_half_a_character_and_widgets_without_state_are_rendered(tmp_path):
    stream = nbformat.v4.new_output("stream", text="before \ud800 after")
    cell = nbformat.v4.new_code_cell("1", outputs=[stream])
    notebook = tmp_path / "notebook.ipynb"
    notebook.write_text(json.dumps(nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": {"a": 3}})))
    page = report.Page("training", "a", notebook, tmp_path / "a.html")
    report._render(page, report.HTMLExporter(raw_template=report._TEMPLATE))
    assert "before ? after" in page.target.read_text()
