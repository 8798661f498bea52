"""Figures: the style that all of them share, and PNG files.

A colour has one meaning everywhere. The palette is Okabe and Ito's, which colour-blind people can read.
A figure is ``WIDTH`` inches wide with letters of ten points, so that a page of 500 or 1,000 pixels shows it
whole and legible. Its background is white on a dark page too.
"""

import functools
import io
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fastslow.core.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from PIL.Image import Image

WIDTH = 7.0
"""Inches of a figure."""
DPI = 144
"""Pixels of an inch: 1,008 of a figure."""

NETWORK, TREES, ENSEMBLE = "#0072b2", "#e69f00", "#222222"
RULE = "#8c8c8c"
"""A trivial rule, which a model has to beat."""
DEFAULT = "#d55e00"
"""The compiler's own choice, or the cost without any decision."""
KNOWN = "#009e73"
"""What was measured, and what learned from it."""
MODEL_COLOURS = {"ensemble": ENSEMBLE, "gnn": NETWORK, "ranker": TREES}
"""Colours of models by the names that runs give them."""
MODEL_WORDS = {"gnn": "network", "ranker": "trees"}
"""Words of tables and pictures for models that runs and settings give a short name."""
FASTER, SLOWER = "#5e3c99", "#999933"
"""The effect of a choice: purple where a program becomes faster, olive where it becomes slower."""
FURTHER = ("#cc79a7", "#56b4e9", "#f0e442")
"""Further series, in this order."""
CEILING = "#555555"
"""The best that the noise of labels leaves possible; drawn dashed."""
FAINT = "#c8c8c8"
"""Single configurations behind a curve."""

STYLE: Mapping[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "figure.titlesize": 10.5,
    "figure.titleweight": "bold",
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "text.parse_math": False,  # a name with a dollar sign is no formula
}

_NARROW, _MIDDLE = 3.0, 8.0  # largest over smallest ratio of an axis

_LEGEND_COLUMNS = 2
_LEGEND_LINE = 60  # characters of a legend that fits on one line

_Arguments = ParamSpec("_Arguments")
_Drawn = TypeVar("_Drawn")


def in_style(draw: Callable[_Arguments, _Drawn]) -> Callable[_Arguments, _Drawn]:
    """Let a function draw in the style; the layout of a figure that it returns is final."""

    @functools.wraps(draw)
    def drawn(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Drawn:
        from matplotlib import rc_context  # half a second
        from matplotlib.figure import Figure

        with rc_context(dict(STYLE)), warnings.catch_warnings():  # type: ignore[arg-type]
            # a name may have letters that the font lacks: they are boxes here, and pages have them as text
            warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
            result = draw(*args, **kwargs)
            if isinstance(result, Figure):
                _lay_out(result)
                _describe_in_notebooks()
        return result

    return drawn


def _lay_out(figure: "Figure") -> None:
    """Give all parts of a figure their final places, which matplotlib else does twice for each drawing."""
    figure.set_dpi(DPI)  # at another one letters have other widths, and a label at the edge would be cut
    _break_titles(figure)
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)
    _keep_titles_inside(figure)


def _titles_of(part: "Figure | Axes", title: str) -> list["Text"]:
    """Return the text that is the title of a figure or of axes, if it has one."""
    from matplotlib.text import Text

    texts = [child for child in part.get_children() if isinstance(child, Text)]
    return [text for text in texts if title and text.get_text() == title]


def _break_titles(figure: "Figure") -> None:
    """Break a title that is wider than the figure, at spaces."""
    parts: list[tuple[Figure | Axes, str]] = [(figure, figure.get_suptitle())]
    parts += [(axes, axes.get_title(loc="left")) for axes in figure.axes]
    for part, title in parts:
        for text in _titles_of(part, title):
            width = text.get_window_extent().width
            if width > figure.bbox.width:
                lines = title.split("\n")
                room = int(0.95 * max(map(len, lines)) * figure.bbox.width / width)
                whole = functools.partial(fill, width=room, break_long_words=False, break_on_hyphens=False)
                text.set_text("\n".join(map(whole, lines)))


def _keep_titles_inside(figure: "Figure") -> None:
    """Let a title that would leave the figure on the right begin further left, at most at the edge."""
    for axes in figure.axes:
        for text in _titles_of(axes, axes.get_title(loc="left")):
            place = text.get_window_extent()
            beyond = min(place.x1 - figure.bbox.x1, place.x0)
            if beyond > 0:
                text.set_x(text.get_position()[0] - beyond / axes.bbox.width)


def _describe_in_notebooks() -> None:
    """Let a notebook, if this is one, keep a figure's titles for a reader who cannot see it."""
    if not sys.modules.get("IPython"):
        return
    from IPython.core.getipython import get_ipython
    from matplotlib.figure import Figure

    if shell := get_ipython():
        pictures = shell.display_formatter.formatters["image/png"]
        pictures.for_type(Figure, lambda figure: (png_bytes(figure), {"alt": in_words(figure)}))


def label_ends(axes: "Axes", ends: Mapping[str, tuple[float, float, str]], gap: float = 0.06) -> None:
    """Write names at the right ends of lines, in their colours, moved apart where they would overlap.

    Args:
        axes: The axes, whose limits are final.
        ends: By name, the place of the last point (x and y of the data) and the colour.
        gap: Least distance of two names, as a share of the height of the axes.
    """
    to_share = axes.transData + axes.transAxes.inverted()
    heights = {name: to_share.transform((x, y))[1] for name, (x, y, _) in ends.items()}
    order = sorted(ends, key=heights.__getitem__)
    for one, following in zip(order, order[1:], strict=False):
        heights[following] = max(heights[following], heights[one] + gap)
    too_high = max(0.0, heights[order[-1]] - 1) if order else 0.0
    for name in order:
        axes.annotate(
            name,
            (1.01, heights[name] - too_high),
            xycoords="axes fraction",
            color=ends[name][2],
            va="center",
            fontsize=9,
            weight="bold",
            annotation_clip=False,
        )


def mark_ratios(axis: "Axis", low: float, high: float) -> None:
    """Set the ticks of a logarithmic axis of ratios, 1 among them; matplotlib has one for each power of ten.

    Args:
        axis: The axis.
        low: Its lower end.
        high: Its upper end.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axis.set_minor_locator(NullLocator())
    if high < _NARROW * low:
        axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    elif high < _MIDDLE * low:
        axis.set_major_locator(LogLocator(base=2, subs=(1, 1.5)))
    else:
        axis.set_major_locator(LogLocator(base=2))


def name_in_colours(figure: "Figure", named: Sequence[tuple[str, str]]) -> None:
    """Write what marks mean below a figure, each in its colour.

    Args:
        figure: The figure, whose layout is constrained.
        named: What a mark means, and its colour.
    """
    from matplotlib.lines import Line2D

    columns = _LEGEND_COLUMNS
    if sum(len(name) for name, _ in named) <= _LEGEND_LINE:
        columns = max(len(named), 1)
    # a legend fills column by column, a reader reads row by row
    rows = [named[start : start + columns] for start in range(0, len(named), columns)]
    named = [row[column] for column in range(columns) for row in rows if column < len(row)]
    handles = [Line2D([], [], linestyle="", label=name) for name, _ in named]
    legend = figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        handlelength=0,
        handletextpad=0,
    )
    for text, (_, colour) in zip(legend.get_texts(), named, strict=True):
        text.set_color(colour)
        text.set_fontweight("bold")


@in_style
def save_figure(figure: "Figure", path: Path, colours: int | None = None, source: str = "") -> None:
    """Write a figure as PNG, atomically; one version of matplotlib always writes the same bytes.

    Args:
        figure: The figure.
        path: The file.
        colours: Number of colours, 256 or fewer, with which the file has a third of the size; None for all.
        source: Text that is kept in the file; :func:`source_of` reads it.
    """
    from PIL.PngImagePlugin import PngInfo

    facts = PngInfo()
    if source:
        facts.add_text(_SOURCE, source)
    image = _raster(figure, colours)
    with atomic_path(path) as temporary:
        # to look for the best compression takes longer than to draw
        image.save(temporary, format="png", optimize=colours is not None, pnginfo=facts)


def source_of(path: Path) -> str:
    """Return the ``source`` that :func:`save_figure` wrote into a PNG; empty if there is none."""
    from PIL import Image

    with Image.open(path) as image:
        return str(image.info.get(_SOURCE, ""))


@in_style
def png_bytes(figure: "Figure") -> bytes:
    """Return a figure as the bytes of a PNG, which 256 colours keep small."""
    buffer = io.BytesIO()
    _raster(figure, 256).save(buffer, format="png")
    return buffer.getvalue()


def shortened(text: str, most: int, left_out: str = "…") -> str:
    """Return a text of at most so many characters, with a mark in place of the middle of a longer one.

    Names of programs differ at both ends: in the network, and in its width, depth and batch.

    Args:
        text: The text.
        most: Characters, more than the mark has.
        left_out: The mark.
    """
    if len(text) <= most:
        return text
    room = most - len(left_out)
    return text[: room - room // 2] + left_out + text[len(text) - room // 2 :]


def shortened_names(names: Sequence[str], most: int) -> list[str]:
    """Return names of at most so many characters; names that differ still differ.

    Args:
        names: The names, in the order in which a figure shows them.
        most: Characters of a name, 12 or more.

    Returns:
        The middle of a long name is …. Where two long names would be the same, it is …N…, with the place of
        the name in the list, from 1.
    """
    texts = [shortened(name, most) for name in names]
    names_of = Counter(shortened(name, most) for name in {*names})
    return [
        shortened(name, most, f"…{place}…") if names_of[text] > 1 and len(name) > most else text
        for place, (name, text) in enumerate(zip(names, texts, strict=True), 1)
    ]


def say_shortened(names: Sequence[str], most: int) -> str:
    """Return an explanation of … as the end of a label, if one of these names is shortened; else ""."""
    return "\n…: the middle of a longer name" if any(len(name) > most for name in names) else ""


def in_words(figure: "Figure") -> str:
    """Return the titles of a figure and of its axes, for a reader who cannot see it."""
    titles = [figure.get_suptitle()]
    for axes in figure.axes:
        titles += [axes.get_title(loc) for loc in ("left", "center", "right")]
    return ". ".join(" ".join(title.split()) for title in titles if title)


_SOURCE = "Source"


def _raster(figure: "Figure", colours: int | None) -> "Image":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]  # savefig would pack the pixels, to be unpacked at once
    size = canvas.get_width_height()
    pixels = canvas.buffer_rgba()  # type: ignore[no-untyped-call]
    image = Image.frombuffer("RGBA", size, pixels, "raw", "RGBA", 0, 1)
    return image.convert("RGB").quantize(colours, dither=Image.Dither.NONE) if colours else image
