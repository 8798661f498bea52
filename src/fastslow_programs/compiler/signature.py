"""What a tuned or placed function takes and returns: paths, shapes and types of arrays, and what is static.

A node of a tree is described by the name of its type and the text of its facts, so that a class of the user's
need not be stored: the arguments of a call have it. A static value is described by its text too. A text has
no addresses of memory, so functions in them are compared by name.
"""

import ast
import inspect
import re
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fastslow.core.errors import FastslowError, SettingsError, with_article
from fastslow_programs.compiler.tracing import Call, Leaves, is_array, static_value

_LEAF = "*"
_BUILT_IN = {kind.__qualname__: kind for kind in (tuple, list, dict, OrderedDict, type(None))}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_SHOWN = 200  # characters of a static value in a message


class CallError(FastslowError, TypeError):
    """A call that is another one than what was tuned or placed, or that it cannot answer."""


@dataclass(frozen=True)
class Signature:
    """What a function takes and returns.

    Args:
        arrays: Type and shape of each array of the arguments by its path, such as ``float32[8, 64]``.
        kinds: Kind of random key of each of them, "" for numbers.
        static: Text of each static value by its path.
        arguments: Tree of positional and keyword arguments.
        results: Tree of the results.
        result_kinds: Kind of random key of each result that is an array.
        result_static: Text of each leaf of the results that is none, by position among all leaves.
        modules: Module of each type of the results' tree that is not built in, by the type's name.
        names: Names of the positional arguments, by which they may be given too.
        defaults: Text of the default that the function itself has for a static argument, by path.
    """

    arrays: dict[str, str]
    kinds: list[str]
    static: dict[str, str]
    arguments: Any
    results: Any
    result_kinds: list[str]
    result_static: dict[str, str]
    modules: dict[str, str]
    names: Sequence[str] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, call: Call, results: Any) -> "Signature":
        """Return the signature of a call.

        Args:
            call: The call.
            results: Tree of the results, with shapes and types, as :func:`trace` gives it.

        Raises:
            SettingsError: The tree of the results cannot be made again from the arguments of a call.
        """
        import jax

        taken = call.leaves()
        leaves, tree = jax.tree.flatten(results)
        signature = cls(
            arrays={path: array_text(leaf) for path, leaf in taken.arrays.items()},
            kinds=key_kinds(taken.arrays.values()),
            static={path: _text(value) for path, value in taken.static.items()},
            arguments=describe(taken.tree),
            results=describe(tree),
            result_kinds=key_kinds([leaf for leaf in leaves if is_array(leaf)]),
            result_static={
                str(n): _text(static_value(leaf)) for n, leaf in enumerate(leaves) if not is_array(leaf)
            },
            modules=_modules_of(tree),
            names=_names(call),
            defaults={path: text for path, text in _defaults(call).items() if path in taken.static},
        )
        try:
            made = signature.results_of([leaf for leaf in leaves if is_array(leaf)], taken, wrap=False)
        except CallError as error:
            remedy = "Return arrays, or give a value of this type as an argument too"
            raise SettingsError(
                "source", f"{error}, so a tuned or placed function could not return it. {remedy}"
            ) from None
        assert jax.tree.structure(made) == tree
        return signature

    @classmethod
    def of_module(cls, parameters: Sequence[Any], results: Sequence[Any]) -> "Signature":
        """Return the signature of an HLO module: a function of its parameters that returns a list."""
        return cls.of(Call(list, tuple(parameters)), list(results))

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    def bind(self, arguments: tuple, keywords: Mapping[str, Any], done: str = "tuned") -> Leaves:
        """Return the leaves of the arguments of a call.

        Static arguments at the end may be left out, as JAX leaves them out of a compiled function. One for
        which the function itself has another default may not: it would compute something else.

        Args:
            arguments: Positional arguments.
            keywords: Keyword arguments.
            done: What was done with the function, for messages.

        Raises:
            CallError: Structure, shape, type or a static value is another one.
        """
        values = list(arguments)
        named = dict(keywords)
        for name in self.names[len(values) :]:
            if name not in named:
                break
            values.append(named.pop(name))
        while (path := f"arguments[{len(values)}]") in self.static:
            values.append(_LeftOut(self.static[path]))
        for path, text in self.static.items():
            if (name := path.removeprefix("keywords['").removesuffix("']")) != path and name.isidentifier():
                named.setdefault(name, _LeftOut(text))
        numbers = [n for n in range(len(values)) if f"arguments[{n}]" in self.static]
        names = [name for name in named if f"keywords['{name}']" in self.static]
        taken = Leaves.of(values, named, numbers, names)
        if taken.static.keys() & self.arrays.keys():  # fields of a module that the user's jax.jit took
            taken = Leaves.of(values, named, numbers, names, filtered=False)
        for path in [*taken.order, *self.arrays, *self.static]:
            kept = self.arrays.get(path) or self.static.get(path) or "nothing"
            given = "missing"
            why = ""
            if path in taken.arrays:
                given = array_text(taken.arrays[path])
            elif isinstance(taken.static.get(path), _LeftOut):
                given = self.defaults.get(path, kept)
                why = " (its default)"
            elif path in taken.static:
                given = _text(taken.static[path])
            if given != kept:
                raise CallError(f"{path} is {given[:_SHOWN]}{why}, but {kept[:_SHOWN]} was {done}")
        if difference := _difference(describe(taken.tree), self.arguments):
            given, kept = difference
            where = f"{given} where the {done} function has {kept}"
            raise CallError(f"the arguments have another structure: {where}")
        return taken

    def results_of(self, outputs: Sequence[Any], taken: Leaves, wrap: bool = True) -> Any:
        """Return the results of a call as the function returns them.

        Args:
            outputs: The arrays.
            taken: The leaves of the call's arguments.
            wrap: Make random keys of numbers.

        Raises:
            CallError: A type or a static value of the results is in no argument.
        """
        import jax

        tree = _tree_of(self.results, _node_types(taken.tree), self.modules)
        values = {_text(value): value for value in taken.static.values()}
        rest = iter(
            jax.random.wrap_key_data(value, impl=kind) if kind and wrap else value
            for value, kind in zip(outputs, self.result_kinds, strict=True)
        )
        leaves = []
        for number in range(tree.num_leaves):
            text = self.result_static.get(str(number))
            leaves.append(next(rest) if text is None else _static_value(text, values))
        return tree.unflatten(leaves)


def _names(call: Call) -> list[str]:
    """Return the names of the positional arguments of a call, as far as they may be given by name."""
    given = list(_parameters(call))[: len(call.arguments)]
    return [one.name if one.kind is one.POSITIONAL_OR_KEYWORD else "" for one in given]


def _defaults(call: Call) -> dict[str, str]:
    """Return the texts of the function's defaults, by the paths that its arguments have in this call."""
    parameters = _parameters(call)
    paths = [f"arguments[{number}]" for number in range(len(call.arguments))]
    by_path = dict(zip(paths, parameters, strict=False))
    by_path |= {f"keywords['{one.name}']": one for one in parameters}
    return {path: _text(one.default) for path, one in by_path.items() if one.default is not one.empty}


def _parameters(call: Call) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(call.function).parameters.values())
    except (TypeError, ValueError):  # of what is built in
        return []


class _LeftOut:
    """A static argument that was left out."""

    def __init__(self, text: str):
        self._said = text

    def __repr__(self) -> str:
        return self._said


def array_text(leaf: Any) -> str:
    """Return type and shape of an array, a number or a ``jax.ShapeDtypeStruct``, as ``float32[8, 64]``."""
    import jax.numpy as jnp

    (kind,) = key_kinds([leaf])
    dtype = f"random key {kind}" if kind else jnp.result_type(leaf).name
    return f"{dtype}{list(jnp.shape(leaf))}"


def _text(value: Any) -> str:
    return _ADDRESS.sub("", repr(value))


def _static_value(text: str, values: Mapping[str, Any]) -> Any:
    if text in values:
        return values[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise CallError(
            f"a result is {text[:_SHOWN]}, a value that is no array and no argument has"
        ) from None


def describe(tree: Any) -> Any:
    """Describe the structure of arguments or results so that JSON can hold it.

    Args:
        tree: A ``jax.tree_util.PyTreeDef``, as ``jax.tree.structure`` gives.

    Returns:
        A text for a leaf; for a node a dict with its ``type``, ``facts`` such as keys, and ``children``.
    """
    if tree.node_data() is None:
        return _LEAF
    kind, facts = tree.node_data()
    children = [describe(child) for child in tree.children()]
    return {"type": kind.__qualname__, "facts": _text(facts), "children": children}


def _difference(given: Any, kept: Any) -> tuple[str, str] | None:
    """Return the first two nodes of two descriptions that differ, each in a few words."""
    if given == kept:
        return None
    heads = [node if node == _LEAF else (node["type"], node["facts"]) for node in (given, kept)]
    if heads[0] == heads[1] and len(given["children"]) == len(kept["children"]):
        pairs = zip(given["children"], kept["children"], strict=True)
        return next(other for one, two in pairs if (other := _difference(one, two)))
    said = [head if head == _LEAF else f"{head[0]} {head[1]}".removesuffix(" None") for head in heads]
    return said[0][:_SHOWN], said[1][:_SHOWN]


def _node_types(tree: Any) -> dict[tuple[str, str], tuple]:
    """Return the type and the facts of each node of a tree, by name and facts as they are described."""
    if tree.node_data() is None:
        return {}
    kind, facts = tree.node_data()
    types = {(kind.__qualname__, _text(facts)): (kind, facts)}
    for child in tree.children():
        types |= _node_types(child)
    return types


def _modules_of(tree: Any) -> dict[str, str]:
    types = {kind for kind, _ in _node_types(tree).values() if kind.__qualname__ not in _BUILT_IN}
    return {kind.__qualname__: kind.__module__ for kind in types}


def _tree_of(described: Any, known: Mapping[tuple[str, str], tuple], modules: Mapping[str, str]) -> Any:
    """Return the tree of a description.

    Args:
        described: As :func:`describe` returned it.
        known: Types of the arguments' nodes, as :func:`_node_types` returns them.
        modules: Module of each type that is not built in; it is used where it was imported before.

    Raises:
        CallError: A type is in no argument, and its module is not imported or its facts are no plain values.
    """
    import jax

    if described == _LEAF:
        return jax.tree.structure(0)
    name, facts = described["type"], described["facts"]
    data = known.get((name, facts))
    if data is None:
        module = modules.get(name)
        result = f"a result is {with_article(name)}"
        kind = _BUILT_IN.get(name) or getattr(sys.modules.get(module or ""), name, None)
        if kind is None:
            raise CallError(f"{result}, which no argument has, and {module} is not imported")
        try:
            data = kind, ast.literal_eval(facts)
        except (ValueError, SyntaxError):
            raise CallError(f"{result} with {facts[:_SHOWN]}, which no argument has") from None
    children = [_tree_of(child, known, modules) for child in described["children"]]
    registry = jax.tree_util.default_registry
    return jax.tree_util.PyTreeDef.from_node_data_and_children(registry, data, children)


def key_kinds(leaves: Any) -> list[str]:
    """Return of each leaf (an array, or its shape and type) the kind of random key, "" for numbers."""
    import jax

    kinds = []
    for leaf in leaves:
        dtype = getattr(leaf, "dtype", None)
        is_key = dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
        kinds.append(dtype._impl.name if is_key else "")
    return kinds


def as_numbers(leaf: Any) -> Any:
    """Return an argument as arrays hold it: the numbers of a random key of JAX, any other leaf as it is."""
    import jax

    return jax.random.key_data(leaf) if key_kinds([leaf])[0] else leaf
