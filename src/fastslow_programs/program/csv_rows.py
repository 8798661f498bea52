"""Read a small CSV file of a user's: every row has a cell for each column, and no column is there twice."""

import csv
import io
import re
from collections import Counter
from pathlib import Path

from fastslow.core.errors import DataError, counted
from fastslow.core.input_files import read_text

_OTHERS = {";": "a semicolon", "\t": "a tab", "|": "a bar"}
"""Other separators of cells, and their names."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number as people, spreadsheets and pandas write it: 3, 0.5 or 1.00E+06."""


def read_rows(path: Path, remedy: str) -> list[dict[str, str]]:
    """Return the rows below the header as text by column, without blanks around cells and empty lines.

    Args:
        path: The file.
        remedy: What a message advises: the form of the file.

    Raises:
        DataError: The file is missing, no CSV or without a row, another separator than a comma divides its
            cells, a column is there twice or has no name, or a row has another number of cells than the
            header.
    """
    try:
        text = io.StringIO(read_text(path, remedy), newline=None)  # lines end as on any system
        lines = csv.reader(text, skipinitialspace=True)
        numbered = [(number, [cell.strip() for cell in row]) for number, row in enumerate(lines, 1) if row]
    except csv.Error as error:
        raise DataError(path, f"cannot be read ({error})", remedy) from None
    (_, header), *rows = numbered or [(1, [])]
    for separator, name in _OTHERS.items():
        if len(header) == 1 and separator in header[0]:
            raise DataError(path, f"has its cells separated by {name}, a comma is wanted", remedy)
    if rows and "" in header:
        nameless = f"column {header.index('') + 1} has no name, as an index of pandas; leave it out"
        raise DataError(path, nameless, remedy)
    if repeated := sorted(name for name, count in Counter(header).items() if count > 1):
        raise DataError(path, f"has the column {', '.join(repeated)} twice", remedy)
    for number, row in rows:
        if len(row) != len(header):
            raise DataError(
                path, f"line {number} has {counted(len(row), 'cell')}, the header {len(header)}", remedy
            )
    if not rows:
        raise DataError(path, "holds no row below a header", remedy)
    return [dict(zip(header, row, strict=True)) for _, row in rows]
