"""The figures of the pages: none is older than its tables, all are small, shown, and drawn from the cells."""

import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from common import table_figures
from common.table_figures import FIGURES, FOLDER, numbers, read_tables, source_digest
from fastslow.core.figures import source_of
from fastslow.core.settings import PROJECT
from helpers.cases import cases

LIMIT = 60_000  # bytes
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", FIGURES)
def test_no_figure_is_older_than_its_tables(name):
    _, tables = FIGURES[name]
    drawn_from = source_of(FOLDER / name)
    assert drawn_from == source_digest(tables), f"{name}: its table changed; `make figures` draws it again"
    assert (FOLDER / name).stat().st_size <= LIMIT
    with Image.open(FOLDER / name) as image:
        assert 990 <= image.width <= 1020


def test_every_figure_of_the_folder_is_shown_with_words_and_no_other():
    shown = {}
    for page in PAGES:
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text()):
            shown[(page.parent / target).resolve()] = words
    assert {path for path in shown if path.parent == FOLDER.resolve()} == {*FOLDER.resolve().iterdir()}
    assert all(len(words.split()) >= 4 for words in shown.values()), "each has an alternative text"


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_a_title_that_fits_and_no_text_leaves_it(name):
    draw, _ = FIGURES[name]
    figure = draw()
    figure.draw_without_rendering()
    titles = [axes.get_title(loc) for axes in figure.axes for loc in ("left", "center")]
    assert figure.get_suptitle() or any(titles)
    width, height = figure.bbox.width, figure.bbox.height
    texts = [text for axes in figure.axes for text in [axes.xaxis.label, axes.yaxis.label, *axes.texts]]
    texts += [axes.title for axes in figure.axes] + [axes._left_title for axes in figure.axes]
    for text in texts:
        if text.get_text():
            box = text.get_window_extent()
            assert box.x0 >= -1 and box.x1 <= width + 1, text.get_text()
            assert box.y0 >= -1 and box.y1 <= height + 1, text.get_text()


@cases(
    "cell, position, number",
    [
        ("0.123", 0, 0.123),
        ("+0.004 ± 0.017", 0, 0.004),
        ("+0.004 ± 0.017", 1, 0.017),
        ("-0.1 (-0.2 to 3)", 1, -0.2),
    ],
)
def test_numbers_of_a_cell(cell, position, number):
    assert numbers(pd.Series([cell]), position)[0] == number
    assert np.isnan(numbers(pd.Series([""]), position)[0])


def test_tables_are_read_by_section(tmp_path, monkeypatch):
    monkeypatch.setattr(table_figures, "TABLES", tmp_path)
    rows = "| a | b |\n|---|---|\n| 1 | x y |\n| 2 |  |\n"
    (tmp_path / "t.md").write_text(f"> stamp\n\n# t\n\n{rows}\n## S\n\n{rows}\ntext\n\n{rows}")
    sections = read_tables("t")
    assert [len(tables) for tables in sections.values()] == [1, 2] and [*sections] == ["", "S"]
    assert sections["S"][1].to_dict("list") == {"a": ["1", "2"], "b": ["x y", ""]}
