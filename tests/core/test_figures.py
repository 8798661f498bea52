"""The style of figures: it does not leak, names are no formulas, and a file says what it was drawn from."""

import io
import itertools
import re

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from fastslow.core import figures
from fastslow.core.figures import (
    in_style,
    in_words,
    png_bytes,
    save_figure,
    shortened,
    shortened_names,
    source_of,
)
from fastslow.core.settings import PROJECT


@in_style
def draw(title):
    figure = Figure(figsize=(3, 2))
    axes = figure.subplots()
    axes.plot([1, 2], [1, 2])
    axes.set_title(title)
    axes.set_yticks([1, 2], [title, "b"])
    return figure


def test_the_style_is_of_the_function_alone():
    before = dict(matplotlib.rcParams)
    (axes,) = draw("x").axes
    assert not axes.spines["top"].get_visible() and axes.get_title("left") == "x"
    assert dict(matplotlib.rcParams) == before and draw.__name__ == "draw"


def test_a_label_at_the_edge_is_not_cut():
    """Letters are of whole pixels: at 100 dots per inch, six points high, this label is narrower."""

    @in_style
    def labelled():
        figure = Figure(figsize=(7, 2), layout="constrained")
        figure.subplots().set_yticks([0, 1], ["convolution 11 output", "convolution 11 kernel"], fontsize=6)
        return figure

    with Image.open(io.BytesIO(png_bytes(labelled()))) as image:
        assert np.asarray(image.convert("L"))[:, 0].min() > 250


def test_a_title_that_is_wider_than_its_axes_stays_inside_the_figure():
    @in_style
    def titled(title):
        figure = Figure(figsize=(7, 2), layout="constrained")
        axes = figure.subplots()
        axes.set_yticks([0], ["a long name of a program, which takes half of the width"])
        axes.set_title(title)
        return figure

    with Image.open(io.BytesIO(png_bytes(titled("valid: 0.36 to 0.97, here the worst 40 of 64")))) as image:
        assert np.asarray(image.convert("L"))[:40, -1].min() > 250
    (axes,) = titled("short").axes
    assert axes.get_title("left") == "short"


def test_a_title_that_is_wider_than_the_figure_is_broken():
    """The ends of long titles were cut, with the number that was found."""
    words = "Of 12 variants that train longer, only one whose name is long is ahead of the others, by 0.01"

    @in_style
    def titled(whole):
        figure = Figure(figsize=(7, 2), layout="constrained")
        axes = figure.subplots()
        if whole:
            figure.suptitle(words)
        else:
            axes.set_title(words)
        return figure

    for whole in (False, True):
        figure = titled(whole)
        title = figure.get_suptitle() if whole else figure.axes[0].get_title("left")
        assert title.count("\n") == 1 and title.replace("\n", " ") == words
        with Image.open(io.BytesIO(png_bytes(figure))) as image:
            pixels = np.asarray(image.convert("L"))[:40]
            assert min(pixels[:, 0].min(), pixels[:, -1].min()) > 250


def test_every_figure_is_as_wide_as_a_page():
    """Figures of 9 and 12 inches had letters of seven pixels in a notebook."""
    files = [*(PROJECT / "src").rglob("*.py"), *(PROJECT / "benchmarks").rglob("*.py")]
    given = [
        (path.name, width) for path in files for width in re.findall(r"figsize=\((\w+)", path.read_text())
    ]
    assert len(given) > 20
    assert {width for _, width in given} == {"WIDTH", "whole_width"}, "a graph is at least WIDTH wide"


def test_a_figure_is_laid_out_once():
    @in_style
    def draw_long_names(layout):
        figure = Figure(figsize=(3, 2), layout=layout)
        figure.subplots().set_yticks([0, 1], ["a long name of a row"] * 2)
        return figure

    plain, laid_out = draw_long_names(None), draw_long_names("constrained")
    assert laid_out.get_layout_engine() is None
    (before,), (after,) = plain.axes, laid_out.axes
    assert after.get_position().x0 > before.get_position().x0 + 0.1, "the names have room"


@pytest.mark.parametrize("name", ["a$b$c", "$\\frac", "{1,0}$", "_^$x^{2", "流れ"])
@pytest.mark.filterwarnings("error")
def test_a_name_is_no_formula_and_may_have_letters_that_the_font_lacks(name):
    assert png_bytes(draw(name)).startswith(b"\x89PNG")


def test_a_file_keeps_its_source_and_the_same_figure_gives_the_same_bytes(tmp_path):
    first, second = (tmp_path / f"{number}.png" for number in (1, 2))
    save_figure(draw("x"), first, colours=32, source="table 1")
    save_figure(draw("x"), second, colours=32, source="table 1")
    assert first.read_bytes() == second.read_bytes() and source_of(first) == "table 1"
    save_figure(draw("x"), second)
    assert source_of(second) == ""


def test_the_words_of_a_figure_are_its_titles():
    figure = draw("one\nline")
    figure.suptitle("whole")
    assert in_words(figure) == "whole. one line"
    assert shortened("abcdef", 6) == "abcdef" and shortened("abcdefg", 6) == "abc…fg"


def test_short_names_differ_where_names_do():
    same = ["transformer_" + number + "x" * 300 + "_train" for number in "abc"]
    names = ["vgg", *same, same[0]]
    short = shortened_names(names, 30)
    assert short[0] == "vgg" and max(map(len, short)) == 30
    assert len(set(short)) >= len(set(names)) and all(text.endswith("_train") for text in short[1:])
    assert shortened_names(["a" * 20 + str(n) for n in range(3)], 12) == [
        "aaaaaa…aaaa" + str(n) for n in range(3)
    ]
    assert figures.say_shortened(names, 30) and not figures.say_shortened(["vgg"], 30)


@pytest.mark.parametrize("low", [0.01, 0.5, 0.8, 0.97, 1.0])
@pytest.mark.parametrize("high", [1.02, 1.3, 2.1, 3.2, 9, 500])
def test_an_axis_of_ratios_has_ticks_and_1_among_them(low, high):
    axes = Figure().subplots()
    axes.set(yscale="log", ylim=(low, high))
    figures.mark_ratios(axes.yaxis, low, high)
    ticks = [tick for tick in axes.yaxis.get_majorticklocs() if 0.999 * low <= tick <= 1.001 * high]
    assert 3 <= len(ticks) <= 16 and min(abs(tick - 1) for tick in ticks) < 1e-9


def test_words_below_a_figure_have_the_colours_of_the_marks():
    figure = draw("x")
    figures.name_in_colours(figure, [("dot", "#ff0000"), ("line", "#00ff00")])
    texts = figure.legends[0].get_texts()
    assert [(text.get_text(), text.get_color()) for text in texts] == [
        ("dot", "#ff0000"),
        ("line", "#00ff00"),
    ]


def test_words_below_a_figure_are_read_row_by_row():
    """Of four thirds and all, the second stood below the first, and the third beside it."""
    figure = draw("x")
    figures.name_in_colours(figure, [(20 * name, "#000000") for name in "abcde"])
    columns = [text.get_text()[0] for text in figure.legends[0].get_texts()]
    assert columns == ["a", "c", "e", "b", "d"], "matplotlib fills the columns one after the other"
    short = draw("y")
    figures.name_in_colours(short, [(name, "#000000") for name in "abcde"])
    assert short.legends[0]._ncols == 5, "a short legend is one line"


def test_a_colour_has_one_meaning():
    named = [figures.NETWORK, figures.TREES, figures.ENSEMBLE, figures.RULE, figures.DEFAULT, figures.KNOWN]
    named += [figures.FASTER, figures.SLOWER]
    colours = [to_rgb(colour) for colour in (*named, *figures.FURTHER)]
    for one, other in itertools.combinations(colours, 2):
        assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) > 0.25
