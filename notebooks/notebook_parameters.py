"""Parameters cells of the notebooks, rendered from the settings: a line for each main setting.

``.venv/bin/python notebooks/notebook_parameters.py`` rewrites the parameters cell of every notebook in
place; run it after a change of a field's name, default or sentence.
"""

import ast
import importlib
import json
import re
import textwrap
from pathlib import Path

import nbformat

from fastslow.core.settings import Settings

FOLDER = Path(__file__).parent
FROM_SCRATCH = FOLDER / "01_from_scratch.ipynb"  # it imports nothing of ours and has no settings
OWN_MODEL = FOLDER / "70_your_own_model.ipynb"  # it fits a model in its cells and has no settings
SEARCH = FOLDER / "72_search_settings.ipynb"  # it searches in its cells and has no settings
ON_KAGGLE = FOLDER / "90_on_kaggle.ipynb"  # its first cells make fastslow importable
NOTEBOOKS = sorted({*FOLDER.glob("*.ipynb")} - {FROM_SCRATCH, OWN_MODEL, SEARCH, ON_KAGGLE})
_LABELLED = "data/sample/npz_all/npz/layout/xla/random/valid/squeezenet_train_w48_d2_b8.npz"
EXAMPLES = {
    "50_convert": {"source": "data/placement/transformer_2.pb.xz"},
    "52_rank": {"source": _LABELLED},
    "54_tune": {"source": _LABELLED},
}
"""By notebook, values in place of defaults: a program of the repository, so that it runs untouched."""
WIDTH = 100
LINE = 110


def read(path):
    """The notebook as nbformat's current version."""
    return nbformat.read(path, as_version=4)


def code_cells(path):
    """The code cells of a notebook, in order."""
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def python(source):
    """The source of a cell without IPython's magic lines."""
    return "\n".join(line for line in source.splitlines() if not line.startswith("%"))


def settings_class(path) -> type[Settings]:
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


def _first_clause(sentence: str) -> str:
    """The first clause of three words or more that closes its brackets."""
    sentence = re.sub(r"^[^.]{0,40} only\. ", "", sentence)
    ends = [m.start() for m in re.finditer(r"(?<!e\.g)[.;:](?= |$)", sentence)]
    clauses = (sentence[:end] for end in ends)
    whole = (c for c in clauses if len(c.split()) > 2 and c.count("(") == c.count(")"))
    return next(whole, sentence)


def render(path) -> str:
    """Source of a notebook's parameters cell: each main setting with the first clause of its sentence.

    The clause stands beside the setting, or above where it is too long. A single cell: papermill injects
    values behind the cell with the tag.
    """
    settings = settings_class(path)
    examples = EXAMPLES.get(path.stem, {})
    lines = []
    for setting in settings.describe():
        if setting.group:
            break
        line = _assignment(setting.name, examples.get(setting.name, setting.default))
        clause = _first_clause(setting.sentence)
        if len(line.splitlines()[-1]) + len(clause) + 4 <= LINE:
            lines.append(f"{line}  # {clause}")
        else:
            lines += [*(f"# {part}" for part in textwrap.wrap(clause, LINE - 2)), line]
    if settings.main:
        lines.append(
            f"# {len(settings.model_fields) - len(settings.main)} more, by group: help({settings.__name__})"
        )
    return "\n".join(lines)


def rewrite(path) -> bool:
    """Replace the parameters cell of a notebook by the rendered one; whether it was another."""
    notebook = read(path)
    (cell,) = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    old, cell.source = cell.source, render(path)
    if cell.source != old:
        nbformat.write(notebook, path)
    return cell.source != old


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        print(f"{notebook.name}: {'rewritten' if rewrite(notebook) else 'up to date'}")
