"""Numbers of documents, and the cells of benchmark tables that they are quoted from.

A line of ``benchmarks/claims.txt`` below ``# DOCUMENT`` repeats words of the document. The source of each
number stands in its place, in braces: ``{TABLE: SECTION; COLUMN=VALUE, ...; COLUMN}`` is the first number of
a cell (``COLUMN#2``: the second one), ``{=NUMBER; SOURCE}`` is a number that no table of ours has.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

NUMBER = re.compile(r"(?<![\w.,/-])-?\d[\d,]*\.\d+(?![\w.]*\w)|(?<![\w.,/])\d+(?= ?%)")
"""A number that a document has to prove: a decimal, or a whole percentage."""
_IN_CELL = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
QUOTED = re.compile(r"\((?:W|C|W, C|C, W|\d+(?:st|nd|rd|th)[^)]*)\)|arXiv|\bkaggle\b|^\| \d+(?:st|nd|rd|th) ")
"""Marks a sentence or a row that quotes a publication: W is a write-up, C is code, with a place before it."""
_PERCENT = re.compile(r"(?:,? (?:and )?[\d.]+)* ?%")  # the next numbers of a list stand before it
_SOURCE = re.compile(r"\{([^}]*)\}")


class ClaimError(Exception):
    """A claim that its source does not hold."""


@dataclass(frozen=True)
class Claim:
    """A line of the list of claims, below the document that makes it."""

    document: str
    line: str

    @property
    def sources(self):
        """The source of each number, in order."""
        return _SOURCE.findall(self.line)

    def pattern(self):
        """The regular expression of its words, a group for each number."""
        words, pattern = _SOURCE.split(self.line)[::2], ""
        for place, text in enumerate(words):
            number = r"(-?\d[\d,]*(?:\.\d+)?)" if place else ""
            pattern += number + re.escape(text)
        return re.compile(pattern)


def read_claims(text):
    """Return the claims of a list."""
    document, claims = "", []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("# "):
            document = line.removeprefix("# ")
        else:
            claims.append(Claim(document, line))
    return claims


def prose(page):
    """Return a document without code, pictures and targets of links: a row is a line, the rest one line."""
    page = re.sub(r"^( *)```.*?^ *```", "", page, flags=re.S | re.M)
    page = re.sub(r"`+[^`]*`+", "CODE", page)
    page = re.sub(r"!\[[^\]]*\]\([^)]*\)|<https?:[^>]*>", "", page)
    page = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page).replace("**", "")
    lines = [f"\n{line}\n" if line.startswith("|") else f"{line} " for line in page.splitlines()]
    return "\n".join(" ".join(line.split()) for line in "".join(lines).split("\n"))


def read_tables(text):
    """Return section and rows of each table of a page; a row is a dictionary by column."""
    section, tables, columns = "", [], None
    for line in text.splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ") if line.startswith("##") else ""
        if not line.startswith("|"):
            columns = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if columns is None:
            columns = cells
            tables.append((section, []))
        elif set(line) - set("|-: "):
            tables[-1][1].append(dict(zip(columns, cells, strict=True)))
    return tables


def number_of(source, tables):
    """Return the number that a source names, as it is written there.

    Args:
        source: What stands in the braces of a claim.
        tables: Text of each table by name.
    """
    if source.startswith("="):
        return source[1:].partition(";")[0].strip()
    name, _, place = source.partition(": ")
    section, selection, column = (part.strip() for part in place.rsplit(";", 2))
    column, _, index = column.partition("#")
    pairs = re.split(r", (?=[^,=]+=)", selection) if selection else []
    wanted = dict(pair.split("=", 1) for pair in pairs)
    rows = [
        row
        for title, table in read_tables(tables[name])
        for row in table
        if title == section and column in row and all(row.get(key) == wanted[key] for key in wanted)
    ]
    if len(rows) != 1:
        raise ClaimError(f"{source}: {len(rows)} rows of table {name} fit")
    return _IN_CELL.findall(rows[0][column])[int(index or 1) - 1]


def agrees(written, percent, source):
    """Return whether a number of a document is one of a table, rounded to its digits."""
    written, source = (Decimal(text.replace(",", "")) for text in (written, source))
    factor = 100 if percent else 1
    last_digit = Decimal(1).scaleb(written.as_tuple().exponent)
    return abs(written - source * factor) <= last_digit / 2


def unproved(document, page, claims, tables):
    """Return what is wrong with the numbers of a page: claims that do not hold, numbers without a claim."""
    text, problems = prose(page), []
    covered = [False] * len(text)
    for claim in (claim for claim in claims if claim.document == document):
        found = [*claim.pattern().finditer(text)]
        if not found:
            problems.append(f"{claim.line}: these words are not in {document}")
        for match in found:
            for group, source in enumerate(claim.sources, start=1):
                literal = source.startswith("=")
                percent = not literal and bool(_PERCENT.match(text, match.end(group)))
                number = number_of(source, tables)
                if not agrees(match[group], percent, number):
                    problems.append(f"{claim.line}: {match[group]} is {number} in its source")
                covered[match.start(group) : match.end(group)] = [True] * len(match[group])
    for match in NUMBER.finditer(text):
        around = [*re.finditer(r"[^\n]*?(?:[.!?] |\n|$)", text)]
        sentence = next(part[0] for part in around if part.start() <= match.start() < part.end())
        if not covered[match.start()] and not QUOTED.search(sentence):
            problems.append(
                f"{match[0]} has no source: ...{text[max(0, match.start() - 60) : match.end() + 20]}..."
            )
    return problems
