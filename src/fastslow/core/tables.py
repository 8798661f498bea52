"""The one formatter of tables: for a terminal, for Markdown and for HTML.

Numbers have three significant digits, a value that is not known is an empty cell, and no cell is cut: a long
text goes over several lines. What does not fit is named below the table, with the file that holds it.
"""

import html
import math
import re
import shutil
import statistics
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastslow.core.errors import counted

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 3
"""Significant digits of a number of middle size in its column."""
_NARROWEST = 8  # characters of a column of text that is broken into lines
_NAME_PARTS = re.compile(r"(\s+|\S+?(?:[:_/](?=\S)|[-.](?=[a-zA-Z])))")  # xla:default in two, 1.25 in one
_LONG_WORD = 24  # characters of a word that is broken only where nothing else gives way
_SHORT_CELL = 9  # characters of a cell that HTML does not break, such as a number with its unit
_LONG_TEXT, _MANY_COLUMNS = 40, 4  # a longer text beside as many columns: a narrow page stacks the cells
_BETWEEN = 3  # characters between two columns
_FACT = 26  # characters of the name of a fact
_NEARLY, _NEARLY_WHOLE = 0.995, 0.99  # a probability that would be rounded to 1, and what is said of it
_PLAIN = 10_000  # smaller counts have no comma, as numbers of configurations and nodes have none in files
_HUGE = 1e15  # and more is written with an exponent
_MOST_DECIMALS = 8  # a smaller number is written with an exponent
_NUMBER = re.compile(
    r"[-+−]?[\d.,]+( %)?( ± [\d.,]+)?( (%|\*|ns|µs|ms|s|min|h))?"
)  # with its error, unit or mark
_RANGE = re.compile(r"\[[-\d., ]+\]")  # of numbers, such as [0.48, 0.96]
_QUOTED = re.compile(r"(?<!\S)'[^']+'")  # a path with a space in a command
_NO_SPACE = "\x1f"  # in place of a space at which no line ends
_CELL = "padding:.2em .8em;border-bottom:1px solid #8886;vertical-align:top"


class ShownTable:
    """A table as a terminal and a notebook show it.

    Args:
        frame: The whole table.
        rows: Number of rows that are shown; 0: all.
        file: File that holds the whole table, as a sentence names it; empty if there is none.
    """

    def __init__(self, frame: "pd.DataFrame | pd.Series", rows: int = 0, file: str = ""):
        self.frame = _named_index_shown(_as_frame(frame))
        self.rows = rows or len(self.frame)
        self.file = file

    def __str__(self) -> str:
        cut = self._cut()
        return table_text(self.frame.head(self.rows), file=self.file) + (f"\n{cut}" if cut else "")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cut = self._cut()
        below = f"<p>{html.escape(cut)}</p>" if cut else ""
        return table_html(self.frame.head(self.rows)) + below

    def _cut(self) -> str:
        """Return in words which rows are not shown; an empty text if all are."""
        if self.rows >= len(self.frame):
            return ""
        return f"{self.rows} of {counted(len(self.frame), 'row')}{_rest(self.file)}"


def show(frame: "pd.DataFrame | pd.Series", rows: int = 0, file: str = "") -> ShownTable:
    """Return a table to be the last line of a notebook's cell, or to print.

    Args:
        frame: The table. A series becomes a table of two columns.
        rows: Number of rows to show; 0: all.
        file: File that holds the whole table, for the sentence on what is not shown.
    """
    return ShownTable(frame, rows, file)


def table_text(frame: "pd.DataFrame | pd.Series", width: int | None = None, file: str = "") -> str:
    """Return a table that fits into a terminal. It is Markdown too, where no cell is broken into lines.

    Args:
        frame: The table.
        width: Maximum characters of a line; None: the width of the terminal, 80 where there is none.
        file: File that holds the whole table, for the sentence on columns that do not fit.

    Returns:
        Lines without the last end of line. Texts too long for the width go over several lines. Columns that
        do not fit even so are left out from the right, and named below.
    """
    room = width or shutil.get_terminal_size().columns
    columns = _columns(_as_frame(frame))
    kept = len(columns)
    while kept > 1 and _least_width(columns[:kept]) > room:
        kept -= 1
    shown = columns[:kept]
    text = _layout(shown, _widths(shown, room))
    if kept < len(columns):
        names = ", ".join(column.name for column in columns[kept:])
        text += "\n" + wrapped(f"not shown: {names}{_rest(file)}", max(room, 20))
    return text


def table_markdown(frame: "pd.DataFrame | pd.Series") -> str:
    """Return a table as Markdown: a line for each row, however long."""
    columns = _columns(_as_frame(frame), bar=r"\|")
    return _layout(columns, [column.width for column in columns])


def table_html(frame: "pd.DataFrame | pd.Series") -> str:
    """Return a table as HTML that needs no style of the page; names and texts are escaped."""
    columns = _columns(_as_frame(frame))
    head = "".join(_html_cell("th", column, column.name) for column in columns)
    body = ""
    for cells in zip(*(column.cells for column in columns), strict=True):
        row = (_html_cell("td", column, text) for text, column in zip(cells, columns, strict=True))
        body += f"<tr>{''.join(row)}</tr>\n"
    longest = max((len(text) for column in columns for text in column.cells), default=0)
    kind = ' class="long"' if longest > _LONG_TEXT and len(columns) >= _MANY_COLUMNS else ""
    table = f"<table{kind}><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return f'<div style="overflow-x:auto">{table}</div>'


def facts_text(facts: Mapping[str, Any], width: int | None = None) -> str:
    """Return facts, the values below each other; a long one goes over several lines, but a path does not.

    Args:
        facts: Values by name.
        width: Maximum characters of a line; None: the width of the terminal, 80 where there is none.
    """
    room = width or shutil.get_terminal_size().columns
    texts = []
    for name, value in facts.items():
        text = f"{name:{_FACT}} {value}"
        is_path = isinstance(value, Path)
        texts.append(text if is_path else wrapped(text, max(room, 2 * _FACT), further=" " * (_FACT + 1)))
    return "\n".join(texts)


def sentences_text(sentences: Iterable[str], width: int | None = None) -> str:
    """Return sentences below each other, a long one over several lines; a path or a command is not broken.

    Args:
        sentences: The sentences.
        width: Maximum characters of a line; None: the width of the terminal, 80 where there is none.
    """
    room = max(width or shutil.get_terminal_size().columns, 2 * _FACT)
    return "\n".join(wrapped(sentence, room, further="  ") for sentence in sentences)


def wrapped(text: str, width: int, first: str = "", further: str = "") -> str:
    """Return a text on several lines; names and paths stay whole, in quotes also those with spaces.

    Args:
        text: The text.
        width: Maximum characters of a line, which one long name alone exceeds.
        first: What the first line begins with.
        further: What all further lines begin with.
    """
    wrapper = textwrap.TextWrapper(
        width,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
    joined = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", _NO_SPACE), text)
    return wrapper.fill(joined).replace(_NO_SPACE, " ")


def number_text(value: float, typical: float | None = None) -> str:
    """Return a number with three significant digits, as text.

    Args:
        value: The number. NaN gives an empty text.
        typical: A magnitude, such as the median of its column, which sets the decimals; None: the number
            itself. A number that would become 0 keeps two significant digits.
    """
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    size = abs(value) if typical is None else typical
    if abs(value) >= _HUGE:
        return f"{value:.3g}"
    scores = 0.1 <= size <= 1 or size == 0  # which have three decimals, 1.000 included
    before = 0 if scores else math.floor(math.log10(size)) + 1
    decimals = min(max(DIGITS - before, 0), _MOST_DECIMALS)
    if value and abs(value) < 0.5 * 10**-decimals:
        return f"{value:.2g}"
    return f"{value:,.{decimals}f}"


def percent(share: float, digits: int = 0) -> str:
    """Return a share as text, with the space that pages have before the sign: ``0.65 %``.

    Args:
        share: The share, 1 for all.
        digits: Decimals of the percentage.
    """
    return f"{100 * share:.{digits}f} %"


def probability_text(probability: float) -> str:
    """Return a probability as text; of one that is nearly 0 or 1 what it is below or above."""
    if probability >= _NEARLY:
        return f"over {percent(_NEARLY_WHOLE)}"
    return f"under {percent(1 - _NEARLY_WHOLE)}" if probability < 1 - _NEARLY else percent(probability)


def two_digits(number: float) -> str:
    """Return a number of 0 or more, such as a percentage, with two significant digits; 100 and more whole."""
    return f"{number:.2g}" if number < 99.5 else f"{number:,.0f}"


class _Column:
    """A column as texts: its name, its cells, and whether they stand at the right, as numbers do."""

    def __init__(self, name: str, cells: list[str], right: bool):
        self.name = name
        self.cells = cells
        self.right = right

    @property
    def width(self) -> int:
        """Return the characters of its longest text."""
        return max(map(len, [self.name, *self.cells]))

    @property
    def least(self) -> int:
        """Return the characters that it needs: numbers are never broken, texts are."""
        if self.right:
            return max([*map(len, self.cells), min(len(self.name), _NARROWEST)])
        return min(self.width, _NARROWEST)

    @property
    def comfortable(self) -> int:
        """Return the characters that it needs to break no word of usual length."""
        broken = [self.name] if self.right else [self.name, *self.cells]
        words = [len(word) for text in broken for word in text.split()]
        return max(self.least, min(max(words, default=0), _LONG_WORD))

    @property
    def legible(self) -> int:
        """Return the characters that it needs to break no word of its cells; its name breaks at hyphens."""
        words = [] if self.right else [word for text in self.cells for word in text.split()]
        parts = [*words, *re.split(r"(?<=-)|\s", self.name)]
        return min(self.comfortable, max(self.least, *map(len, parts)))

    @property
    def named(self) -> int:
        """Return the characters that it needs to break its texts behind marks of names only."""
        texts = [self.name] if self.right else [self.name, *self.cells]
        parts = [part.strip() for text in texts for part in _NAME_PARTS.split(text)]
        return min(self.legible, max(self.least, *map(len, parts)))


def _as_frame(table: "pd.DataFrame | pd.Series") -> "pd.DataFrame":
    if table.ndim == 2:
        return table
    return table.to_frame("value" if table.name is None else table.name)


def _named_index_shown(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a table whose index, where it has a name, is shown: pandas makes a range of epochs 2, 4, 6."""
    import pandas as pd

    index = frame.index
    return frame.reset_index() if isinstance(index, pd.RangeIndex) and index.name is not None else frame


def _columns(frame: "pd.DataFrame", bar: str = "|") -> list[_Column]:
    """Return the columns of a table as texts; an index that only counts the rows is left out."""
    import pandas as pd

    if not isinstance(frame.index, pd.RangeIndex):
        names = [str(name) if name is not None else "" for name in frame.index.names]
        levels = [frame.index.get_level_values(level) for level in range(frame.index.nlevels)]
        columns = [_column(name, list(values), bar) for name, values in zip(names, levels, strict=True)]
    else:
        columns = []
    for place, name in enumerate(frame.columns):
        words = " ".join(str(part) for part in name if part != "") if isinstance(name, tuple) else str(name)
        columns.append(_column(words, list(frame.iloc[:, place]), bar))
    return columns


def _column(name: str, values: list[Any], bar: str) -> _Column:
    numbers = [value for value in values if _is_number(value) and math.isfinite(value)]
    sizes = [abs(float(number)) for number in numbers]
    typical = statistics.median([size for size in sizes if size] or [0.0])
    cells = [_cell(value, max(sizes, default=0.0), typical).replace("|", bar) for value in values]
    texts = [value for value in values if isinstance(value, str) and value]
    all_numbers = bool(numbers) if not texts else all(_NUMBER.fullmatch(text) for text in texts)
    return _Column(name.replace("|", bar), cells, right=all_numbers)


def _is_number(value: Any) -> bool:
    import numpy as np

    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _cell(value: Any, largest: float, typical: float) -> str:
    """Return a value as text on one line.

    Args:
        value: A value of any kind.
        largest: The largest magnitude of the numbers of its column.
        typical: Their median magnitude.
    """
    import numpy as np

    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if _is_number(value):
        if abs(value) < _HUGE and isinstance(value, int | np.integer):
            return f"{int(value)}" if largest < _PLAIN else f"{int(value):,}"
        return number_text(float(value), typical)
    if isinstance(value, list | tuple | set):
        return ", ".join(map(str, value))
    text = " ".join(str(value).split())
    return "" if text in ("nan", "NaT", "<NA>") else text


def _least_width(columns: list[_Column]) -> int:
    return sum(column.least + _BETWEEN for column in columns) + 1


def _widths(columns: list[_Column], room: int) -> list[int]:
    """Return the characters of each column; the widest that may be broken gives way first."""
    widths = [column.width for column in columns]
    for kind in ("comfortable", "legible", "named", "least"):
        least = [getattr(column, kind) for column in columns]
        while sum(widths) + _BETWEEN * len(widths) + 1 > room:
            broken = [place for place, width in enumerate(widths) if width > least[place]]
            if not broken:
                break
            widest = max(broken, key=lambda place: widths[place])
            widths[widest] -= 1
    return widths


def _layout(columns: list[_Column], widths: list[int]) -> str:
    """Return the lines of a table in Markdown's form, with cells over several lines where they are longer."""
    lines = _lines([column.name for column in columns], columns, widths)
    if not columns:
        return ""
    rules = ["-" * (width + 1) + (":" if c.right else "-") for c, width in zip(columns, widths, strict=True)]
    lines.append(f"|{'|'.join(rules)}|")
    for cells in zip(*(column.cells for column in columns), strict=True):
        lines += _lines(list(cells), columns, widths)
    return "\n".join(lines)


def _lines(cells: list[str], columns: list[_Column], widths: list[int]) -> list[str]:
    """Return the lines of one row."""
    parts = [_cell_lines(cell, max(width, 1)) or [""] for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for number in range(max(map(len, parts), default=0)):
        texts = [part[number] if number < len(part) else "" for part in parts]
        padded = [
            text.rjust(width) if column.right else text.ljust(width)
            for text, column, width in zip(texts, columns, widths, strict=True)
        ]
        lines.append(f"| {' | '.join(padded)} |")
    return lines


def _cell_lines(cell: str, width: int) -> list[str]:
    """Return the lines of a cell; a long word is broken behind a mark of a name where it has one."""
    wrapper = textwrap.TextWrapper(width)
    wrapper.wordsep_re = _NAME_PARTS
    return wrapper.wrap(cell)


def _html_cell(tag: str, column: _Column, text: str) -> str:
    """Return a cell; one in the body has the name of its column. A short one and a range are not broken."""
    style = f"{_CELL};text-align:{'right' if column.right else 'left'}"
    is_long = max(map(len, text.split()), default=0) > _LONG_WORD
    if is_long:
        style += ";overflow-wrap:anywhere"  # or a long name would push other columns out of the page
    words = _RANGE.sub(lambda found: found[0].replace(" ", "&nbsp;"), html.escape(text))
    if tag == "th" or is_long:
        words = words.replace(":", ":<wbr>").replace("_", "_<wbr>")
    if tag == "th":
        return f'<th style="{style}">{words}</th>'
    if len(text) <= _SHORT_CELL:
        style += ";white-space:nowrap"
    name = html.escape(column.name, quote=True)
    return f'<td data-name="{name}" style="{style}">{words}</td>'


def _rest(file: str) -> str:
    """Return where the rest of a table is, as the end of a sentence."""
    return f"; all in {file}" if file else ""
