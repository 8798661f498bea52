"""Parameters cells of the notebooks, rendered from the settings: each assignment below its field's sentence.

``.venv/bin/python tests/helpers/notebook_parameters.py`` rewrites the parameters cell of every notebook in
place; run it after a change of a field's name, default or sentence.
"""

import ast
import importlib
import json
import textwrap
from pathlib import Path

import nbformat

from fastslow.core.settings import Settings

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
WIDTH = 100


def read(path):
    """The notebook as nbformat's current version."""
    return nbformat.read(path, as_version=4)


def code_cells(path):
    """The code cells of a notebook, in order."""
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def python(source):
    """The source of a cell without IPython's magic lines."""
    return "\n".join(line for line in source.splitlines() if not line.startswith("%"))


def config_class(path) -> type[Settings]:
    """The settings' class of a notebook, from the line that makes the config."""
    nodes = [node for cell in code_cells(path) for node in ast.walk(ast.parse(python(cell.source)))]
    (name,) = [n.value.id for n in nodes if isinstance(n, ast.Attribute) and n.attr == "from_variables"]
    imports = {a.name: n.module for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
    return getattr(importlib.import_module(imports[name]), name)


def _assignment(name: str, value) -> str:
    if isinstance(value, list):
        line = f"{name} = {json.dumps(value)}"
        if len(line) > WIDTH:
            return "\n".join([f"{name} = [", *(f"    {json.dumps(item)}," for item in value), "]"])
        return line
    return f"{name} = {json.dumps(value) if isinstance(value, str) else repr(value)}"


def _field(setting) -> str:
    wrapped = {"initial_indent": "# ", "subsequent_indent": "# ", "break_on_hyphens": False}
    return (
        f"{textwrap.fill(setting.sentence, WIDTH, **wrapped)}\n{_assignment(setting.name, setting.default)}"
    )


def render(settings: type[Settings]) -> str:
    """Source of the parameters cell: sentence and assignment of each field, main fields above a heading.

    A single cell: papermill injects values behind the cell with the tag, and knows its names alone.
    """
    fields = [_field(setting) for setting in settings.describe()]
    if settings.main:
        fields.insert(len(settings.main), f"\n# {' Seldom changed '.center(WIDTH - 2, '-')}\n")
    return "\n".join(fields)


def sentences(source: str) -> dict[str, str]:
    """The comment lines directly above each assignment of a parameters cell, joined."""
    lines, found = source.splitlines(), {}
    for statement in ast.parse(source).body:
        above, row = [], statement.lineno - 2
        while row >= 0 and lines[row].startswith("# "):
            above.append(lines[row][2:])
            row -= 1
        found[statement.targets[0].id] = " ".join(above[::-1])
    return found


def rewrite(path) -> bool:
    """Replace the parameters cell of a notebook by the rendered one; whether it was another."""
    notebook = read(path)
    (cell,) = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    old, cell.source = cell.source, render(config_class(path))
    if cell.source != old:
        nbformat.write(notebook, path)
    return cell.source != old


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        print(f"{notebook.name}: {'rewritten' if rewrite(notebook) else 'up to date'}")
