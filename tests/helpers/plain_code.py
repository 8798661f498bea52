"""Counts of what makes code hard to read: two steps in one statement, nested conditions, empty names."""

import ast
from collections.abc import Iterator
from pathlib import Path


def folded_assignments(tree: ast.AST) -> Iterator[ast.Assign]:
    """Yield assignments of a tuple to a tuple in which a value is computed: ``a, b = f(x), g(y)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else []
            if not all(map(_is_plain, values)):
                yield node


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


def nested_conditions(tree: ast.AST) -> Iterator[ast.IfExp]:
    """Yield conditional expressions that hold another one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            inner = (part for part in ast.walk(node) if part is not node)
            if any(isinstance(part, ast.IfExp) for part in inner):
                yield node


def split_collections(tree: ast.AST) -> Iterator[ast.Starred]:
    """Yield parts ``*("a", "b")`` of a collection or call, which only keep the formatter from its lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Starred) and isinstance(node.value, (ast.Tuple, ast.List, ast.Set)):
            yield node


def assigned_names(tree: ast.AST) -> Iterator[str]:
    """Yield the name of every local variable and argument, as often as it is assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def modules(folder: Path) -> dict[Path, ast.Module]:
    """Return the parsed modules of a folder and its subfolders."""
    return {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}
