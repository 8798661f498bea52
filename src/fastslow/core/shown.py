"""A result as a terminal and a notebook show it: sentences, a table, figures."""

import base64
import html
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_ROWS = 10
_PAGE = """<!doctype html><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse }} th, td {{ padding: .2em .8em; border-bottom: 1px solid #ddd }}</style>
{body}
"""


class Shown:
    """A result with sentences (:meth:`words`), a table and figures.

    Attributes:
        table: Its main table.
    """

    table: "pd.DataFrame"

    def words(self) -> list[str]:
        """Return what was found, a sentence each, the most important first."""
        raise NotImplementedError

    def figures(self) -> "list[Figure]":
        """Return its figures."""
        return []

    def __str__(self) -> str:
        return "\n".join(self.words())

    def _repr_html_(self) -> str:
        """Return sentences, first rows and figures as a notebook shows them."""
        sentences = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in self.words())
        pictures = "".join(f'<p><img style="max-width:100%" src="{_embed(f)}"></p>' for f in self.figures())
        return f"<ul>{sentences}</ul>{self.table.head(_ROWS).to_html(border=0)}{pictures}"

    def page(self, title: str) -> str:
        """Return the same as a page of HTML that needs no other file."""
        return _PAGE.format(title=html.escape(title), body=self._repr_html_())


def _embed(figure: "Figure") -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
