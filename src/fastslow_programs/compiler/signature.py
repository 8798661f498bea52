"""What a tuned function takes and returns, as JSON: trees of arguments and results, and random keys.

A node of a tree is described by the name of its type, so that a class of the user's need not be stored: the
arguments of a call have it. ``"*"`` is a leaf, whose shape and type are the program's.
"""

import ast
import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

_LEAF = "*"
_BUILT_IN = {kind.__qualname__: kind for kind in (tuple, list, dict, OrderedDict, type(None))}


def describe(tree: Any) -> Any:
    """Return a tree (``jax.tree_util.PyTreeDef``) as JSON: type, facts such as keys, and children by node."""
    if tree.node_data() is None:
        return _LEAF
    kind, facts = tree.node_data()
    children = [describe(child) for child in tree.children()]
    return {"type": kind.__qualname__, "facts": repr(facts), "children": children}


def tree_text(described: Any) -> str:
    """Return a description in a line, such as ``tuple(dict(['w'], *), *)``."""
    if described == _LEAF:
        return _LEAF
    facts = [described["facts"]] if described["facts"] != "None" else []
    inner = facts + [tree_text(child) for child in described["children"]]
    return f"{described['type']}({', '.join(inner)})"


def node_types(tree: Any) -> dict[tuple[str, str], tuple]:
    """Return the type and the facts of each node of a tree, by name and facts as they are described."""
    if tree.node_data() is None:
        return {}
    kind, facts = tree.node_data()
    types = {(kind.__qualname__, repr(facts)): (kind, facts)}
    for child in tree.children():
        types |= node_types(child)
    return types


def modules_of(tree: Any) -> dict[str, str]:
    """Return the module of each type of a tree that is not built in, by the type's name."""
    types = {kind for kind, _ in node_types(tree).values() if kind.__qualname__ not in _BUILT_IN}
    return {kind.__qualname__: kind.__module__ for kind in types}


def tree_of(described: Any, known: dict[tuple[str, str], tuple], modules: dict[str, str]) -> Any:
    """Return the tree of a description.

    Args:
        described: As :func:`describe` returned it.
        known: Types of the arguments' nodes, as :func:`node_types` returns them.
        modules: Module of each type that is not built in; it is used where it was imported before.

    Raises:
        TypeError: A type is in no argument, and its module was not imported.
    """
    import jax

    if described == _LEAF:
        return jax.tree.structure(0)
    name, facts = described["type"], described["facts"]
    data = known.get((name, facts))
    if data is None:
        kind = _BUILT_IN.get(name) or getattr(sys.modules.get(modules.get(name, "")), name, None)
        if kind is None:
            raise TypeError(f"a result is a {name}, which no argument has: import {modules.get(name)} first")
        data = kind, ast.literal_eval(facts)
    children = [tree_of(child, known, modules) for child in described["children"]]
    registry = jax.tree_util.default_registry
    return jax.tree_util.PyTreeDef.from_node_data_and_children(registry, data, children)


def key_kinds(leaves: Sequence) -> list[str]:
    """Return of each leaf (an array, or its shape and type) the kind of random key, "" for numbers."""
    import jax

    kinds = []
    for leaf in leaves:
        dtype = getattr(leaf, "dtype", None)
        is_key = dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
        kinds.append(dtype._impl.name if is_key else "")
    return kinds


def as_numbers(leaf: Any) -> Any:
    """Return a leaf, or the numbers of a random key."""
    import jax

    return jax.random.key_data(leaf) if key_kinds([leaf])[0] else leaf
