"""The page of a submission: what it says, what it links, and that names cannot break it."""

import json
import os
import re
import shutil
from datetime import UTC, datetime
from urllib.parse import unquote

import nbformat
import pytest

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.settings import PROJECT
from fastslow.evaluation.submission_record import write_record
from fastslow.views.submission_page import write_submission_page
from helpers.browser import Structure, check_page, open_page
from helpers.cases import cases

pytestmark = pytest.mark.usefixtures("undrawn")

IMAGE = "<img src=x onerror=alert(1)>"


def record(folder, name, shift=0.0, day=1, settings=None, test=True, **extra):
    """Write a CSV with its record; scores are 0.8 and more, plus ``shift``."""
    csv = folder / "submissions" / f"{name}.csv"
    csv.parent.mkdir(exist_ok=True)
    csv.write_text(f"{name}\n")
    ends = {"valid_min": 0.1, "valid_max": 1.0}
    rows = [
        {"collection": c.name, "model": model, "run": model, "valid": score + shift, **ends}
        | ({"test": score + shift, "test_min": 0.1, "test_max": 1.0} if test else {})
        | ({"weight": 1.0} if model == "ensemble" else {})
        for c in COLLECTIONS
        for model, score in (("ridge on config features", 0.8), ("ensemble", 0.85))
    ]
    scores = {c.name: 0.85 + shift for c in COLLECTIONS}
    facts = {"data_root": "data/sample", "table": rows, "valid_mean": 0.85 + shift}
    facts |= {"test": scores if test else {}, "test_mean": 0.85 + shift if test else None}
    write_record(csv, ["m"], {}, scores, **facts, **extra)
    path = csv.with_suffix(".json")
    created = datetime(2026, 1, day, tzinfo=UTC).isoformat()
    made = json.loads(path.read_text()) | {"created": created, "commit": "abc"}
    path.write_text(json.dumps(made))
    run = folder / "runs" / name
    run.mkdir(parents=True)
    started = {"data": "data/sample", "preset": "sample", "settings": settings or {}}
    (run / "run.json").write_text(json.dumps(started))
    return csv, run


def step(run, name, seconds, text="Hello"):
    """Write the folder of a step with an executed notebook; return it."""
    day = 1 + len([*run.iterdir()])
    folder = run / name
    folder.mkdir()
    facts = {"start_time": f"2026-01-{day:02}T10:00:00+00:00", "duration": seconds}
    notebook = nbformat.v4.new_notebook(metadata={"papermill": facts})
    notebook.cells = [nbformat.v4.new_markdown_cell(text), nbformat.v4.new_code_cell("1 + 1")]
    nbformat.write(notebook, folder / "notebook.ipynb")
    return folder


def test_settings_that_are_not_known_or_not_set_are_no_change(tmp_path):
    _, run = record(tmp_path, "before", day=1, settings={"seeds": 2, "models": "ranker"})
    csv, mine = record(tmp_path, "mine", day=2, settings={"seeds": 0, "models": "ranker", "folds": []})
    text = check_page(write_submission_page(csv, mine, {})).text
    assert "seeds: 0, before 2" in text and not [words for words in text if words.startswith("folds")]
    shutil.rmtree(run)
    csv.with_suffix(".html").unlink()
    text = check_page(write_submission_page(csv, mine, {})).text
    assert "its settings are not known: the folder of the run before is gone" in text
    assert not [words for words in text if words.startswith(("seeds", "models"))]


def test_a_run_of_rules_is_level_with_the_best_rule(tmp_path):
    """With ``models=rules`` it was 0.000 ahead of itself."""
    csv, run = record(tmp_path, "mine", settings={"models": "rules"})
    of_rules = json.loads(csv.with_suffix(".json").read_text()) | {"test_mean": 0.8}
    csv.with_suffix(".json").write_text(json.dumps(of_rules))
    verdict = check_page(write_submission_page(csv, run, {})).text[3]
    assert "level with the best trivial rule (ridge on config features)" in verdict


def test_it_names_scores_changes_times_and_notebooks(tmp_path):
    record(tmp_path, "old", shift=-0.1, day=1, settings={"seeds": 1})
    record(tmp_path, "before", shift=-0.02, day=2, settings={"seeds": 1, "models": "ranker"})
    record(tmp_path, "later", shift=0.5, day=9)
    settings = {"seeds": 3, "models": "ranker"}
    csv, run = record(tmp_path, "mine", day=3, settings=settings, doubtful={"a": "two"}, warnings=["noise"])
    steps = {"training": step(run, "training", 300.0), "ensemble": step(run, "ensemble", 100.0)}
    path = write_submission_page(csv, run, steps)
    page = check_page(path)
    open_page(path)
    said = "Mean of five on test: 0.850, 0.050 ahead of the best trivial rule (ridge on config features)."
    assert page.text[3] == f"{said} It has no score from Kaggle."
    assert "Scores on test, compared with the earlier run before:" in page.text and "+0.0200" in page.text
    assert [t for t in page.text if t.startswith("seeds: ")] == ["seeds: 3, before 1"]
    compared = "The mean difference is +0.0200. To compare it with chance: fastslow compare mine before"
    assert compared in page.text
    assert "networks" in page.text and ", 5.0 min" in page.text, "a kind of steps, and a notebook"
    assert "2 notebooks, some side by side; of a resumed one the last session" in page.text
    assert "5.0 min" in page.text and "75 %" in page.text and "6.7 min" in page.text
    assert "Warnings (2)" in page.text and {"noise", "doubtful labels: a: two"} <= {*page.text}
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert links == ["../runs/mine/training/notebook.html", "../runs/mine/ensemble/notebook.html"]
    for link in links:
        rendered = (csv.parent / link).resolve().read_text()
        assert "Hello" in rendered and "<script" not in rendered and 'lang="en"' in rendered


def test_a_link_of_a_notebook_leads_to_its_file_from_the_page_too(tmp_path):
    csv, run = record(tmp_path, "mine")
    text = "[data](../data/README.md#getting-it), [next](10_features.ipynb), [web](https://a.b/c), [part](#d)"
    folder = step(run, "training", 1.0, text)
    write_submission_page(csv, run, {"training": folder})
    page = Structure((folder / "notebook.html").read_text())
    data, following, *others = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert (folder / unquote(data.removesuffix("#getting-it"))).resolve() == PROJECT / "data" / "README.md"
    assert (folder / unquote(following)).resolve() == PROJECT / "notebooks" / "10_features.ipynb"
    assert others == ["https://a.b/c", "#d"]


def test_pages_are_written_again_where_their_sources_changed_whatever_the_clock_said(tmp_path):
    csv, run = record(tmp_path, "mine")
    steps = {"training": step(run, "training", 1.0)}
    pages = [write_submission_page(csv, run, steps), steps["training"] / "notebook.html"]
    sources = [csv.with_suffix(".json"), steps["training"] / "notebook.ipynb"]
    made = [page.stat().st_ino for page in pages]
    for source in sources:
        os.utime(source, ns=(2**62, 2**62))  # a clock that was ahead changes nothing
    write_submission_page(csv, run, steps)
    assert [page.stat().st_ino for page in pages] == made
    for source, old, new in zip(sources, ("0.85", "Hello"), ("0.95", "Goodbye"), strict=True):
        source.write_text(source.read_text().replace(old, new))
        os.utime(source, ns=(0, 0))
    write_submission_page(csv, run, steps)
    assert "0.950" in pages[0].read_text() and "Goodbye" in pages[1].read_text()


@pytest.mark.parametrize("scored", [True, False])
def test_without_test_labels_valid_is_shown_and_kaggle_is_quoted(tmp_path, scored):
    kaggle = {"kaggle": {"public": 0.7, "private": 0.65}} if scored else {}
    csv, run = record(tmp_path, "mine", test=False, **kaggle)
    text = check_page(write_submission_page(csv, run, {})).text
    assert ("Kaggle: 0.65000 private. Mean of five on valid: 0.850" in text[3]) == scored
    assert "no labels" in text and "There is no earlier submission of these data." in text
    assert "There are none." in text


@cases("name", [IMAGE.replace("/", ""), "x" * 200, "a & b 'c'"])
def test_names_are_escaped_and_linked(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("names")
    csv, run = record(folder, name)
    page = check_page(write_submission_page(csv, run, {name: step(run, "s", 2.0)}))
    assert page.text[2] == name and not [part for part in page.text if "…" in part]
    (link,) = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert re.fullmatch(r"[\w%./-]+", link)
