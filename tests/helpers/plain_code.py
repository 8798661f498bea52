"""Counts of what makes code hard to read: two steps in one statement, nested conditions, empty names."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Counts:
    """What a module holds: its lines, its local names, and the lines where code is hard to read.

    Attributes:
        lines: Number of lines.
        folded: Assignments of a tuple to a tuple in which a value is computed: ``a, b = f(x), g(y)``.
        nested: Conditional expressions that hold another one.
        split: Parts ``*("a", "b")`` of a collection or call, which only keep the formatter from its lines.
        names: Every local variable and argument, as often as it is assigned.
    """

    lines: int
    folded: list[int]
    nested: list[int]
    split: list[int]
    names: list[str]


def count(text: str) -> Counts:
    """Return the counts of Python code."""
    nodes = [*ast.walk(ast.parse(text))]
    return Counts(
        lines=len(text.splitlines()),
        folded=[node.lineno for node in nodes if _is_folded(node)],
        nested=[node.lineno for node in nodes if _is_nested(node)],
        split=[node.lineno for node in nodes if _is_split(node)],
        names=[*_assigned_names(nodes)],
    )


@cache
def count_file(path: Path) -> Counts:
    """Return the counts of a module, which is read once."""
    return count(path.read_text())


def modules(folder: Path) -> dict[Path, Counts]:
    """Return the counts of the modules of a folder and its subfolders."""
    return {path: count_file(path) for path in sorted(folder.rglob("*.py"))}


def _is_folded(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)):
        return False
    values = node.value.elts if isinstance(node.value, ast.Tuple) else []
    return not all(map(_is_plain, values))


def _is_plain(value: ast.expr) -> bool:
    """Return whether a value is a name, a constant, a part of one of them, or an empty collection."""
    match value:
        case ast.Name() | ast.Constant():
            return True
        case ast.Attribute() | ast.Subscript() | ast.Starred():
            return _is_plain(value.value)
        case ast.UnaryOp():
            return _is_plain(value.operand)
        case ast.List() | ast.Tuple() | ast.Set():
            return not value.elts
        case ast.Dict():
            return not value.keys
    return False


def _is_nested(node: ast.AST) -> bool:
    inner = (part for part in ast.walk(node) if part is not node)
    return isinstance(node, ast.IfExp) and any(isinstance(part, ast.IfExp) for part in inner)


def _is_split(node: ast.AST) -> bool:
    return isinstance(node, ast.Starred) and isinstance(node.value, (ast.Tuple, ast.List, ast.Set))


def _assigned_names(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
