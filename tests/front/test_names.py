"""Names that docstrings and pages give are there: roles such as :func:`...`, constants of modules, files."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import nbformat
import pytest

from helpers.competition_files import ROOT

SOURCES = ROOT / "src"
ROOTS = {SOURCES: "**/*.py", ROOT / "benchmarks": "**/*.py", ROOT / "data": "make_sample/**/*.py"}
MODULES = {
    ".".join(path.relative_to(root).with_suffix("").parts): path
    for root, pattern in ROOTS.items()
    for path in sorted(root.glob(pattern))
    if path.stem not in ("__init__", "__main__")
}
ROLE = re.compile(r":(?:func|class|data|meth|mod|attr):`~?([\w.]+)`")
CONSTANT = re.compile(r"``([a-z_]+(?:\.[a-z_]+)*)\.([A-Z][A-Z_]+)``")
FIVE = re.compile(r"(?<!first )\bfive\b", re.IGNORECASE)
FILE = re.compile(r"`([\w/]+\.(?:py|ipynb|md))`(?!\])")
PAGES = [*SOURCES.rglob("README.md"), ROOT / "features" / "README.md", *(ROOT / "notebooks").glob("*.[im]*")]


def resolves(name, module):
    """Whether a dotted name stands in a module, in one of its classes, or in another module that it names."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            scope = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return has(scope, parts[length:])
    scope = importlib.import_module(module)
    classes = [value for value in vars(scope).values() if inspect.isclass(value)]
    in_instances = (
        f"self.{name}: " in MODULES[module].read_text() or f"self.{name} = " in MODULES[module].read_text()
    )
    return has(scope, parts) or in_instances or any(has(owner, parts) for owner in classes)


def has(scope, parts):
    for part in parts:
        fields = getattr(scope, "__dataclass_fields__", {}) | getattr(scope, "model_fields", {})
        annotated = getattr(scope, "__annotations__", {})
        if not hasattr(scope, part):
            return part in fields or part in annotated
        scope = getattr(scope, part)
    return True


def docstrings(path):
    tree = ast.parse(path.read_text())
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


@pytest.mark.parametrize("package", sorted({name.split(".")[0] for name in MODULES}))
def test_names_in_docstrings_resolve(package):
    gone = set()
    for module, path in MODULES.items():
        if module.split(".")[0] != package:
            continue
        for text in docstrings(path):
            gone |= {(module, name) for name in ROLE.findall(text) if not resolves(name, module)}
            for owner, constant in CONSTANT.findall(text):
                homes = [home for home in MODULES if f".{home}".endswith(f".{owner}")]
                if not any(hasattr(importlib.import_module(home), constant) for home in homes):
                    gone.add((module, f"{owner}.{constant}"))
    assert gone == set()


def prose(page):
    """The text of a page; of a notebook its Markdown cells."""
    if page.suffix == ".md":
        return page.read_text()
    cells = nbformat.read(page, 4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def test_files_that_pages_name_exist():
    gone = set()
    for page in PAGES:
        roots = [page.parent, ROOT, ROOT / "benchmarks" / "tables", *SOURCES.glob("fastslow*")]
        for name in FILE.findall(prose(page)):
            inside = "/" not in name and any(page.parent.rglob(name))
            if not inside and not any((Path(root) / name).exists() for root in roots):
                gone.add((str(page.relative_to(ROOT)), name))
    assert gone == set()


def test_the_row_of_a_collection_names_every_file_that_says_how_many_there_are():
    """CONTRIBUTING tells who adds a collection where to change the word: in messages and labels."""
    lines = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    (row,) = (line for line in lines if "| a collection |" in line)
    said = set()
    for path in (SOURCES / "fastslow").rglob("*.py"):
        if path.stem == "published_presets":  # of baselines that were published for five
            continue
        source = path.read_text()
        if not FIVE.search(source):
            continue
        nodes = [*ast.walk(ast.parse(source))]
        prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        texts = [
            node.value
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
        ]
        if any(map(FIVE.search, texts)):
            said.add(path.relative_to(SOURCES / "fastslow").as_posix())
    named = {name for name in FILE.findall(row) if name.endswith(".py")}
    assert said <= named
