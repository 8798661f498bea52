"""The formatter of tables: width, digits, units, and no cell that is cut."""

import html
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.core.settings import PROJECT
from fastslow.core.tables import (
    counted,
    facts_text,
    number_text,
    percent,
    sentences_text,
    show,
    table_html,
    table_markdown,
    table_text,
    two_digits,
)

# a text that is "nan" is a missing value; a longer one that has it is printed as it is
TEXTS = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=300).filter(
    lambda text: "nan" not in text or text.strip() == "nan"
)
CELLS = st.one_of(TEXTS, st.floats(), st.integers(-(10**12), 10**12), st.booleans(), st.none())


def squeezed(text):
    return "".join(text.split())


@given(st.lists(st.tuples(CELLS, CELLS, TEXTS), min_size=1, max_size=4), st.integers(40, 120))
def test_a_table_fits_into_its_width_and_loses_no_character(rows, width):
    """Three columns fit into 40 characters; a text is broken into lines, a number never."""
    frame = pd.DataFrame(rows, columns=["first", "second", "third"], dtype=object)
    lines = table_text(frame, width=width).splitlines()
    assert max(map(len, lines)) <= width and not any("nan" in line.split() for line in lines)
    ends = [place for place, character in enumerate(lines[1]) if character == "|"]
    if len(ends) == 4:
        third = "".join(line[ends[2] + 1 : ends[3]] for line in lines[2:])
        assert squeezed(third) == squeezed(
            "".join(re.sub(r"^(nan|NaT|<NA>)$", "", r[2].strip()) for r in rows)
        )


def test_columns_that_do_not_fit_are_named_below():
    frame = pd.DataFrame({f"column {n}": [1.5] for n in range(20)})
    text = table_text(frame, width=60, file="runs/x/table.csv")
    assert max(map(len, text.splitlines())) <= 60
    assert "column 19" in text and " ".join(text.split()).endswith("all in runs/x/table.csv")
    assert "not shown: " in text and "..." not in text


def test_numbers_have_three_digits_and_unknown_values_are_empty():
    frame = pd.DataFrame(
        {
            "score": [0.81649, -0.5, np.nan],
            "cycles": [910912345.0, 1470.2, 3.0],
            "hours": [1.236, 12.3, 0.004],
            "count": [12345, 7, 0],
            "known": [True, False, None],
        }
    )
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table_text(frame).splitlines()]
    assert lines[2] == ["0.816", "910,912,345", "1.24", "12,345", "yes"]
    assert lines[3] == ["-0.500", "1,470", "12.30", "7", "no"]
    assert lines[4] == ["", "3", "0.004", "0", ""]
    assert [number_text(v) for v in (1.0, 0.0123, 0.00001234, 1234.5)] == [
        "1.000",
        "0.0123",
        "0.0000123",
        "1,234",
    ]
    assert number_text(float("inf")) == "infinite"


def test_a_table_without_columns_is_empty():
    assert str(show(pd.DataFrame())) == ""


def test_counts_with_a_missing_one_stay_counts():
    """A frame turns them into floats where one is missing."""
    text = table_text(pd.DataFrame({"configs": pd.array([3, None, 1000], dtype="Int64")}))
    assert [cell.strip("| ") for cell in text.splitlines()[2:]] == ["3", "", "1000"]


@pytest.mark.parametrize("columns, length, stacked", [(4, 41, True), (4, 40, False), (3, 200, False)])
def test_a_narrow_page_stacks_the_cells_of_a_wide_table_with_texts(columns, length, stacked):
    names = [f"a:{number}" for number in range(columns)]
    page = table_html(pd.DataFrame({name: ["word " * (length // 5) + "x" * (length % 5)] for name in names}))
    assert ('class="long"' in page) == stacked and page.count('<td data-name="a:') == columns
    assert page.count("a:<wbr>") == columns and "nowrap" not in page
    assert "nowrap" in table_html(pd.DataFrame({"time": ["1.12 ms"]}))


def test_html_is_escaped_and_cuts_nothing():
    name = "<img src=x onerror=alert(1)>" + "x" * 300
    page = table_html(pd.DataFrame({"<b>": [name], "value": [0.5]}))
    assert "<img" not in page and "<b>" not in page and html.escape(name) in page and "..." not in page


def test_markdown_has_one_line_for_each_row():
    frame = pd.DataFrame({"a": ["x" * 200, "y|z"]}, index=pd.Index(["one", "two"], name="row"))
    lines = table_markdown(frame).splitlines()
    assert len(lines) == 4 and lines[0].startswith("| row") and r"y\|z" in lines[3]


def test_a_table_says_how_many_rows_it_shows_and_where_the_others_are():
    table = show(pd.DataFrame({"a": range(200)}), rows=10, file="index.csv")
    assert str(table).splitlines()[-1] == "10 of 200 rows; all in index.csv"
    assert (
        "10 of 200 rows; all in index.csv" in table._repr_html_() and table._repr_html_().count("<tr>") == 11
    )
    assert "of" not in str(show(pd.Series([1.0, 2.0], index=["x", "y"])))


def test_a_long_fact_goes_over_several_lines_and_a_path_does_not():
    path = Path("/a folder", *["of many"] * 20)
    text = facts_text({"result": "nothing gained: " * 9, "space": "3 of 4", "page": path}, 80)
    *words, last = text.splitlines()
    assert last == f"page{' ' * 23}{path}" and max(map(len, words)) <= 80 and len(words) == 4
    assert words[0].startswith("result" + " " * 21 + "nothing") and words[1].startswith(" " * 27 + "nothing")


def test_columns_of_several_levels_have_one_name():
    frame = pd.DataFrame({("nodes", "mean"): [1.0], ("nodes", ""): [2.0]})
    assert table_text(frame).splitlines()[0] == "| nodes mean | nodes |"


def test_a_number_with_its_error_is_not_broken_into_lines():
    """In 80 columns the differences of a comparison stood on two lines each."""
    text = "+0.0001 ± 0.0002"
    frame = pd.DataFrame({"words that are long": ["some words " * 5], "difference": [text]})
    shown = table_text(frame, 40)
    assert text in shown and max(map(len, shown.splitlines())) <= 40


def test_a_range_in_a_page_is_not_broken_into_lines():
    """A score and its range stood on three lines of a notebook."""
    shown = table_html(pd.DataFrame({"test": ["0.999 ± 0.001 [0.94, 1.00]"], "name": ["[not, a, range]"]}))
    assert "0.999 ± 0.001 [0.94,&nbsp;1.00]" in shown and "[not, a, range]" in shown


def test_no_percentage_is_printed_without_the_space_of_the_pages():
    assert percent(0.0065, 2) == "0.65 %" and percent(1) == "100 %"
    tight = re.compile(r":[.,\d]*%[}\"]")
    for file in sorted((PROJECT / "src").rglob("*.py")):
        lines = enumerate(file.read_text().splitlines(), 1)
        wrong = [number for number, line in lines if tight.search(line) and "{level:.0%}" not in line]
        assert not wrong, (file, "use fastslow.core.tables.percent; a key of ranking.json is no text", wrong)


def test_a_percentage_of_100_and_more_is_written_out():
    numbers = (0.0123, 9.96, 99.4, 99.7, 320.4, 12_345.6)
    assert [*map(two_digits, numbers)] == ["0.012", "10", "99", "100", "320", "12,346"]


def test_one_thing_has_no_plural():
    assert [counted(n, "program") for n in (0, 1, 1965)] == ["0 programs", "1 program", "1,965 programs"]


def test_a_long_name_does_not_push_other_columns_out_of_a_page():
    page = table_html(pd.DataFrame({"a" * 200: [1], "b": ["c" * 25], "d": ["some words " * 9]}))
    assert page.count("overflow-wrap:anywhere") == 2


def test_a_named_index_is_shown_and_a_count_of_rows_is_not():
    """pandas makes a range of the epochs 2, 4, 6."""
    scores = pd.DataFrame({"epoch": [2, 4, 6], "tau": [0.7, 0.8, 0.9]}).set_index("epoch")
    assert str(show(scores)).splitlines()[0].split("|")[1].strip() == "epoch"
    assert "epoch" not in str(show(scores.reset_index(drop=True)))


@given(st.lists(TEXTS, min_size=1, max_size=3), st.integers(52, 120))
def test_sentences_fit_into_their_width_and_lose_no_word(sentences, width):
    text = sentences_text(sentences, width)
    assert text.split() == " ".join(sentences).split()
    words = [re.sub(r"(?<!\S)'[^']+'", "quoted", line).split() for line in text.splitlines()]
    assert all(
        len(line) <= width or len(apart) == 1 for line, apart in zip(text.splitlines(), words, strict=True)
    )


def test_a_path_with_a_space_stands_on_one_line():
    command = "measure some: fastslow measure 'a folder/program.hlo' configs=8"
    assert sentences_text([command], 52).splitlines() == [
        "measure some: fastslow measure",
        "  'a folder/program.hlo' configs=8",
    ]


def test_numbers_with_a_unit_stand_at_the_right():
    """The seconds and minutes of a submission's page stood at the left, beside the numbers of steps."""
    shown = table_text(pd.DataFrame({"time": ["2.2 min", "41 s"], "change": ["1.5 %", "+0.1 ± 0.2 *"]}))
    assert shown.splitlines()[1] == "|--------:|-------------:|"
    assert "-:" not in table_text(pd.DataFrame({"place": ["3 of 24", "1 of 24"]}))


def test_a_long_name_is_broken_at_underscores():
    """A page broke ``albert_train_w64_d1_b4`` before its last digit, as at any other character."""
    name = "002-albert_train_w64_d1_b4"
    cell = table_html(pd.DataFrame({"program": [name], "config": ["a_b"]}))
    assert "002-albert_<wbr>train_<wbr>w64_<wbr>d1_<wbr>b4</td>" in cell and ">a_b</td>" in cell


def test_a_name_is_broken_behind_its_marks_and_a_number_never():
    names = ["layout:xla:default", "layout:nlp:random"]
    frame = pd.DataFrame(
        {"collection": names, "program": ["unet_3d.4x4.bf16", "tf2-bert"], "said": ["1.25 % of it all"] * 2}
    )
    for width in range(36, 80):
        cells = [cell.strip() for line in table_text(frame, width).splitlines() for cell in line.split("|")]
        assert not {"default", "xla:default", "layout:xla:default"}.isdisjoint(cells), width
        assert any("1.25" in cell for cell in cells), width


def test_names_of_columns_give_way_before_words_of_cells():
    """A comparison of two models broke ``xla:random`` before its last letter."""
    rows = {"collection": ["xla:random"], "programs": [21]}
    rows |= {"gnn-layout-xla-random-s0": [0.764], "ranker-layout-xla-random-s0": [0.791]}
    rows |= {"first - second": ["-0.0273 ± 0.0269"], "higher, equal, lower": ["8, 3, 10"]}
    text = table_text(pd.DataFrame(rows), 80)
    assert "xla:random" in text and "collection" in text
    assert max(map(len, text.split("\n"))) <= 80
