"""A result as a terminal, a notebook and a page show it: the verdict, numbers, tables, pictures."""

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastslow.core.figures import in_words, png_bytes
from fastslow.core.tables import table_html

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_ROWS = 10
_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
_STYLE = """\
:root { color-scheme: light dark;
  --text: #1c1e21; --back: #ffffff; --soft: #f2f4f7; --line: #d5d9df; --dim: #555c66; --mark: #0060a0 }
@media (prefers-color-scheme: dark) { :root {
  --text: #e8eaed; --back: #16181c; --soft: #22262c; --line: #3a4048; --dim: #a9b0ba; --mark: #7cc0f4 } }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 0;
  overflow-wrap: anywhere }
main { max-width: 62rem; margin: 0 auto; padding: 1rem }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .6rem }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
a { color: var(--mark) }
.kind { color: var(--dim); margin: 0 }
.verdict { font-size: 1.2rem; line-height: 1.4; border-left: 4px solid var(--mark);
  padding: .1rem 0 .1rem .8rem; margin: 0 0 1rem }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr));
  gap: .7rem; margin: 0 }
.numbers div { background: var(--soft); border-radius: .5rem; padding: .7rem .9rem }
.numbers dt { color: var(--dim); font-size: .9rem }
.numbers dd { margin: 0; font-size: 1.35rem; font-weight: 600; line-height: 1.3 }
.numbers dd small { display: block; font-size: .85rem; font-weight: 400; color: var(--dim) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100% }
td, th { overflow-wrap: break-word; padding: .2rem .5rem !important }
td:last-child { overflow-wrap: anywhere }
@media (max-width: 40rem) { table { font-size: .8rem } .numbers dd { font-size: 1.15rem }
  td, th { padding: .2rem !important }
  .long thead { display: none }
  .long tr { display: block; border-bottom: 1px solid var(--line); padding: .3rem 0 }
  .long td { display: block; border: 0 !important; padding: 0 !important; text-align: left !important }
  .long td::before { content: attr(data-name) ": "; color: var(--dim) } .long td:empty { display: none } }
figure { margin: 1rem 0 }
img { max-width: 100%; height: auto; background: #ffffff; border-radius: .4rem }
details { border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .8rem; margin: .6rem 0 }
summary { cursor: pointer; font-weight: 600 }
li { margin: .25rem 0 }
"""
_BODY = """<main>
<p class="kind">{kind}</p>
<h1>{title}</h1>
<p class="verdict">{verdict}</p>
{numbers}{sections}</main>"""


@dataclass(frozen=True)
class Number:
    """A number at the head of a page.

    Args:
        name: What it is.
        value: The number with its unit, as text.
        note: What a reader needs to judge it.
    """

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Args:
        heading: Its heading, as text.
        body: Its content as HTML, such as :func:`sentences` and :func:`picture` return.
        folded: Whether a reader has to unfold it.
    """

    heading: str
    body: str
    folded: bool = False


class Shown:
    """A result with sentences (:meth:`words`), a table and figures.

    Attributes:
        table: Its main table.
        kind: What it is, above the heading of its page.
    """

    table: "pd.DataFrame"
    kind: str = "Result"

    def words(self) -> list[str]:
        """Return the findings, a sentence each, the most important first."""
        raise NotImplementedError

    def figures(self) -> "list[Figure]":
        """Return its figures."""
        return []

    def first_rows(self) -> "pd.DataFrame":
        """Return the first rows of its table for a reader."""
        return self.table.head(_ROWS)

    def verdict(self) -> str:
        """Return in one line what to do."""
        return self.words()[0]

    def numbers(self) -> list[Number]:
        """Return the numbers at the head of the page, three at most."""
        return []

    def sections(self) -> list[Section]:
        """Return the parts of the page below its head."""
        pictures = [Section(in_words(figure), picture(figure)) for figure in self.figures()]
        table = Section("Table", table_html(self.first_rows()))
        return [table, *pictures, Section("Details", sentences(self.words()), folded=True)]

    def __str__(self) -> str:
        return "\n".join(self.words())

    def _repr_html_(self) -> str:
        """Return sentences, first rows and figures as a notebook shows them."""
        pictures = "".join(picture(figure) for figure in self.figures())
        return f"{sentences(self.words())}{table_html(self.first_rows())}{pictures}"

    def page(self, title: str) -> str:
        """Return the result as a page of HTML that needs no other file."""
        return make_page(title, self.kind, self.verdict(), self.numbers(), self.sections())


def make_page(
    title: str, kind: str, verdict: str, numbers: Sequence[Number], parts: Sequence[Section]
) -> str:
    """Return a page of HTML that needs no other file: a heading, the verdict, numbers, and parts.

    Args:
        title: Heading, such as the name of a program.
        kind: What the page is about, above the heading.
        verdict: What was found and what to do, in one line.
        numbers: The most important numbers.
        parts: Everything else, in order.
    """
    cells = "".join(_number(number) for number in numbers)
    body = _BODY.format(
        title=html.escape(title),
        kind=html.escape(kind),
        verdict=html.escape(verdict),
        numbers=f'<dl class="numbers">{cells}</dl>\n' if cells else "",
        sections="".join(_section(part) for part in parts),
    )
    return make_document(title, _STYLE, body)


def make_document(title: str, style: str, body: str) -> str:
    """Return a whole HTML document that fits narrow screens and asks for no other file.

    Args:
        title: Its title, as text.
        style: CSS.
        body: HTML.
    """
    return _DOCUMENT.format(title=html.escape(title), style=style, body=body)


def sentences(lines: Sequence[str]) -> str:
    """Return a list of sentences as HTML."""
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>\n"


def picture(figure: "Figure") -> str:
    """Return a figure as HTML; its titles are the text for a reader who cannot see it."""
    data = base64.b64encode(png_bytes(figure)).decode()
    alt = html.escape(in_words(figure) or "figure", quote=True)
    return f'<figure><img alt="{alt}" src="data:image/png;base64,{data}"></figure>\n'


def _number(number: Number) -> str:
    note = f"<small>{html.escape(number.note)}</small>" if number.note else ""
    return f"<div><dt>{html.escape(number.name)}</dt><dd>{html.escape(number.value)}{note}</dd></div>"


def _section(part: Section) -> str:
    heading = html.escape(part.heading)
    if part.folded:
        return f"<details><summary>{heading}</summary>\n{part.body}</details>\n"
    return f"<section>\n<h2>{heading}</h2>\n{part.body}</section>\n"
