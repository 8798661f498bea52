"""Fingerprints of code: a result is out of date when the source that made it changed.

From an entry function, every definition of our packages that it reaches is followed through the names that it
uses: functions, classes (whole), constants, across modules. Docstrings, comments, formatting and the strings
of a ``raise`` do not count, nor do the modules of :data:`IGNORED`. Every other module counts, a new one too.
The analysis is static: a name that is looked up from a string at run time is not followed. Notebooks do not
count: they hold no logic, and what their cells assign are settings, which are part of every fingerprint.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

PACKAGE = "fastslow"
_PACKAGES = (PACKAGE, "fastslow_programs", "fastslow_placement")
_ROOT = Path(__file__).resolve().parents[2]
_REPORTS = ("core.errors", "core.progress", "core.figures", "core.shown", "core.tables", "evaluation.plots")
_PLANS = (
    "core.memory",
    "networks.hardware.memory",
    "core.isolated",
    "core.cluster.dask_cluster",
    "core.cluster.worker",
)
_CHECKS = ("competition.rules.program_rules", "hlo.module_checks")  # and with them the rules that they apply
_FILES = ("core.files",)
_KEYS = ("core.settings", "core.artifacts", "core.source")
IGNORED = frozenset(f"{PACKAGE}.{name}" for name in (*_REPORTS, *_PLANS, *_CHECKS, *_FILES, *_KEYS))
"""Modules whose code changes no result. They report; or plan memory, processes and machines; or refuse an
input and return nothing; or put a whole file in its place and identify it; or make the fingerprint itself,
which holds the value of every setting."""


class _Statement:
    """A statement at the top level of a module, other than an import."""

    def __init__(self, node: ast.stmt):
        self._node = _without_words(node)
        self.names = list(_defined(node))  # that it defines; a statement without names runs at import

    @cached_property
    def used(self) -> dict[str, set[str]]:
        """Names that it uses, each with the attributes that it reads of them."""
        used: dict[str, set[str]] = {}
        inside = set()
        for node in ast.walk(self._node):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.setdefault(node.value.id, set()).add(node.attr)
                inside.add(id(node.value))
            elif isinstance(node, ast.Name) and id(node) not in inside:
                used.setdefault(node.id, set())
        return used

    @cached_property
    def text(self) -> str:
        """Its code without comments and formatting."""
        return ast.dump(self._node)


class _Text(NamedTuple):
    """Imports and statements in the text of a module."""

    imports: list[ast.ImportFrom]  # also those inside functions
    statements: list[_Statement]


class _Module(NamedTuple):
    """The top level of one module, parsed."""

    definitions: dict[str, list[_Statement]]  # of each name
    imported: dict[str, tuple[str, str | None]]  # module of each name, and its name there unless a module
    bare: list[_Statement]  # statements that define no name and run at import


@cache
def source_digests(entry: str, folder: Path | None = None) -> dict[str, str]:
    """Return a digest of the reached code per module, for a manifest.

    Args:
        entry: The function that makes the result, as ``package.module:function``.
        folder: A folder of scripts whose modules are followed as well; the entry may be in one of them.

    Returns:
        16 hexadecimal digits by module name; equal as long as no definition changed that the entry reaches.

    Raises:
        LookupError: The entry names no module or definition of this package.
    """
    module, _, name = entry.partition(":")
    if _path(module, folder) is None or name not in _parse(module, folder).definitions:
        raise LookupError(f"{entry} is no definition of {folder or PACKAGE}")
    reached: dict[str, set[str]] = {}
    pending = [(module, name)]
    while pending:
        module, name = pending.pop()
        if module in IGNORED or name in reached.setdefault(module, set()):
            continue
        reached[module].add(name)
        pending += _uses(module, name, folder)
    return {module: _digest(module, names, folder) for module, names in sorted(reached.items()) if names}


def read_ahead(entries: Iterable[str]) -> None:
    """Parse what some entries reach, for the processes that are forked from this one afterwards.

    Each of them reads the files again; a text that is another one by then is parsed there.
    """
    for entry in entries:
        source_digests(entry)
    for looked_up in (source_digests, _parse, _uses):
        looked_up.cache_clear()


def source_digest(entry: str, folder: Path | None = None) -> str:
    """Return one digest of all code that an entry reaches, see :func:`source_digests`."""
    from fastslow.core.files import digest  # not by a process that only reads ahead

    return digest(source_digests(entry, folder))


def _path(module: str, folder: Path | None = None) -> Path | None:
    """Return the file of a module of this package or of the folder, if it is one."""
    first, *rest = module.split(".")
    root = _ROOT / first if first in _PACKAGES else folder and folder / first
    if root is None:
        return None
    path = root.joinpath(*rest)
    return next((f for f in (path.with_suffix(".py"), path / "__init__.py") if f.is_file()), None)


@cache
def _read(text: str) -> _Text:
    """Parse the text of a module. Equal texts are parsed once, by a process or by the one that forked it."""
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    statements = [
        _Statement(node)
        for node in tree.body
        if not (isinstance(node, (ast.Import, ast.ImportFrom)) or _is_text(node))
    ]
    return _Text(imports, statements)


@cache
def _parse(module: str, folder: Path | None = None) -> _Module:
    parsed = _Module({}, {}, [])
    file = _path(module, folder)
    assert file is not None, module
    text = _read(file.read_text())
    for node in text.imports:
        parsed.imported.update(_imports(node, folder))
    for statement in text.statements:
        for name in statement.names:
            parsed.definitions.setdefault(name, []).append(statement)
        if not statement.names:
            parsed.bare.append(statement)
    return parsed


def _imports(statement: ast.ImportFrom, folder: Path | None) -> Iterator[tuple[str, tuple[str, str | None]]]:
    for alias in statement.names:
        inner = f"{statement.module}.{alias.name}"
        if _path(inner, folder):
            yield alias.asname or alias.name, (inner, None)
        elif statement.module and _path(statement.module, folder):
            yield alias.asname or alias.name, (statement.module, alias.name)


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


@cache  # the entries share most of what they reach
def _uses(module: str, name: str, folder: Path | None) -> frozenset[tuple[str, str]]:
    """Return (module, name) of what a definition refers to; every definition of a module used as a value."""
    parsed = _parse(module, folder)
    if name in parsed.imported:
        target, inner = parsed.imported[name]
        return frozenset((target, n) for n in ([inner] if inner else _parse(target, folder).definitions))
    attributes: dict[str, set[str]] = {}
    for statement in [*parsed.definitions.get(name, []), *parsed.bare]:
        for used, names in statement.used.items():
            attributes.setdefault(used, set()).update(names)
    targets = set()
    for used, names in attributes.items():
        source, member = parsed.imported.get(used, (None, None))
        if source and member is None and names:
            targets |= {(source, n) for n in names if n in _parse(source, folder).definitions}
        elif source or used in parsed.definitions:
            targets.add((module, used))
    return frozenset(targets)


def _digest(module: str, names: set[str], folder: Path | None) -> str:
    """Hash definitions and bare statements of a module."""
    parsed = _parse(module, folder)
    statements = [s for name in sorted(names) for s in parsed.definitions.get(name, [])] + parsed.bare
    text = "\n".join(statement.text for statement in statements)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_words(statement: ast.stmt) -> ast.stmt:
    """Remove docstrings, the sentences of fields and the strings of a ``raise``."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            node.body = [s for s in node.body if not _is_text(s)]
        elif isinstance(node, ast.Raise):
            _Blanked().visit(node)
    return statement


class _Blanked(ast.NodeTransformer):
    """Puts None in the place of every string: code decides by an error's class, never by its words."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(None) if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        return ast.Constant(None)


def _is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
