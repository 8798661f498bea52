"""The call of a user's function as JAX traces it: its arrays, and what is static.

Static are the arguments that the user's ``jax.jit`` calls static, and of a function that ``jax.jit`` did not
make all leaves that are no arrays, such as the activation of an equinox module.
"""

import contextlib
import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from fastslow.core.errors import DataError, SettingsError, with_article

_REMEDY = (
    "Give each argument that the function takes: an array, a jax.ShapeDtypeStruct, or a tree of them, "
    "and return arrays or a tree of them. Make an argument that decides what is computed static: "
    "jax.jit(function, static_argnums=...)"
)
_RETURNED = (
    "What it changes would be lost: take and return it (of flax.nnx: nnx.split before, nnx.merge within)"
)
_OUTERMOST = "Take compiler_options out of the function within, and give them to the outermost jax.jit"
WITHOUT = "Take it out of the function"
"""Remedy where a function ends Python."""
_SHOWN = 300  # characters of JAX's message
_OTHER_KINDS = "OSUMm"  # of NumPy's types: objects, texts and times
_CALLBACKS = {"debug_callback", "debug_print", "io_callback", "pure_callback"}  # JAX's primitives


class Call(NamedTuple):
    """A function and the arguments that it is called with.

    Args:
        function: A function, or one that the user's ``jax.jit`` made.
        arguments: Its positional arguments.
        keywords: Its keyword arguments.
    """

    function: Callable
    arguments: Sequence[Any] = ()
    keywords: Mapping[str, Any] = {}

    @property
    def static_numbers(self) -> list[int]:
        """Positions of the arguments that the user's own ``jax.jit`` calls static.

        Of a method they are counted without its object.
        """
        count = len(self.arguments)
        numbers = getattr(jit_facts(self.function), "static_argnums", ())
        if inspect.ismethod(self.function):
            numbers = [n - 1 if n > 0 else n for n in numbers if n != 0]
        return sorted({n + count if n < 0 else n for n in numbers} & {*range(count)})

    @property
    def static_names(self) -> list[str]:
        """Names of the keyword arguments that it calls static."""
        return sorted({*getattr(jit_facts(self.function), "static_argnames", ())} & self.keywords.keys())

    def leaves(self) -> "Leaves":
        """Return the leaves of its arguments."""
        of_jax = jit_facts(self.function) is not None
        return Leaves.of(
            self.arguments, self.keywords, self.static_numbers, self.static_names, filtered=not of_jax
        )


@dataclass(frozen=True)
class Static:
    """A value that JAX does not look into."""

    value: Any


@dataclass(frozen=True)
class Leaves:
    """The leaves of the arguments of a call.

    Args:
        arrays: Arrays, numbers and ``jax.ShapeDtypeStruct`` by path, such as ``arguments[0]['w']``.
        static: The others by path.
        tree: Structure of ``(arguments, keywords)``, in which a static argument is a leaf.
        order: Path of each leaf of the tree.
    """

    arrays: dict[str, Any]
    static: dict[str, Any]
    tree: Any
    order: list[str]

    @classmethod
    def of(
        cls,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        static_numbers: Sequence[int] = (),
        static_names: Sequence[str] = (),
        filtered: bool = True,
    ) -> "Leaves":
        """Return the leaves of arguments, of which these positions and keywords are static.

        Args:
            arguments: The positional arguments.
            keywords: The keyword arguments.
            static_numbers: Positions of the static ones.
            static_names: Names of the static ones.
            filtered: Take numbers and flags of equinox modules as static.

        Raises:
            SettingsError: JAX cannot read a tree, such as a dict whose keys have no order.
        """
        import jax

        positional = tuple(Static(a) if n in static_numbers else a for n, a in enumerate(arguments))
        named = {name: Static(a) if name in static_names else a for name, a in keywords.items()}
        try:
            given = (positional, named)
            pairs, tree = jax.tree.flatten_with_path(with_static_fields(given) if filtered else given)
        except (TypeError, ValueError) as error:
            problem = f"an argument is no tree that JAX can read ({error})"
            raise SettingsError("source", f"{problem}. Give a dict keys of one type, such as texts") from None
        leaves = {_path(keys): leaf for keys, leaf in pairs}
        arrays = {path: leaf for path, leaf in leaves.items() if is_array(leaf)}
        static = {path: static_value(leaf) for path, leaf in leaves.items() if path not in arrays}
        return cls(arrays, static, tree, [*leaves])

    def with_arrays(self, arrays: Sequence[Any]) -> tuple[tuple, dict[str, Any]]:
        """Return arguments and keywords with other arrays."""
        values = self.static | dict(zip(self.arrays, arrays, strict=True))
        return self.tree.unflatten([values[path] for path in self.order])


def _path(keys: tuple) -> str:
    from jax.tree_util import keystr

    return ("arguments", "keywords")[keys[0].idx] + keystr(keys[1:])


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array, a number or the shape and type of an array, of a type of JAX's."""
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind not in _OTHER_KINDS
    return isinstance(leaf, bool | int | float | complex) or (
        hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    )


def static_value(leaf: Any) -> Any:
    """Return a leaf that is no array, taken out of :class:`Static`."""
    return leaf.value if isinstance(leaf, Static) else leaf


def with_static_fields(tree: Any) -> Any:
    """Return a tree in whose equinox modules numbers and flags are :class:`Static`."""
    equinox = sys.modules.get("equinox")  # without which there is no module
    if equinox is None:
        return tree
    import jax

    def field_of(leaf: Any) -> Any:
        return Static(leaf) if type(leaf) in (bool, int, float, complex) else leaf

    def part_of(node: Any) -> Any:
        return jax.tree.map(field_of, node) if isinstance(node, equinox.Module) else node

    return jax.tree.map(part_of, tree, is_leaf=lambda node: isinstance(node, equinox.Module))


def is_staged(value: Any) -> bool:
    """Return whether a value is what JAX made of a function: a Traced, a Lowered or an Exported."""
    import jax
    import jax.export

    return isinstance(value, (jax.stages.Traced, jax.stages.Lowered, jax.export.Exported))


def jit_facts(function: Callable) -> Any:
    """Return JAX's record of the arguments of ``jax.jit``; None for a function that it did not make.

    ``functools.wraps`` copies this to a function around one that it made, which has no ``trace``.
    """
    return getattr(function, "_jit_info", None) if hasattr(function, "trace") else None


@dataclass(frozen=True)
class TracedCall:
    """A traced call.

    Args:
        traced: The ``jax.stages.Traced``, whose inputs are the arrays of the call in their order.
        results: Tree of the results: shapes and types, and what is no array as it is.
    """

    traced: Any
    results: Any


@dataclass(eq=False)
class _OfArrays:
    """A function of the arrays of a call. It keeps its results' structure and what is static in them."""

    call: Call
    leaves: Leaves
    tree: Any = None
    static: dict[int, Any] = field(default_factory=dict)

    def __call__(self, *arrays: Any) -> list[Any]:
        import jax

        arguments, keywords = self.leaves.with_arrays(arrays)
        made = _Unchanging(self.call.function)(*arguments, **keywords)
        results, self.tree = jax.tree.flatten(with_static_fields(made))
        self.static = {number: leaf for number, leaf in enumerate(results) if not is_array(leaf)}
        return [leaf for number, leaf in enumerate(results) if number not in self.static]

    def results(self, shapes: Sequence[Any]) -> Any:
        """Return the tree of the results."""
        rest = iter(shapes)
        count = self.tree.num_leaves
        return self.tree.unflatten([self.static[n] if n in self.static else next(rest) for n in range(count)])


class _Unchanging:
    """A function that may not change its arguments in place, as a step of ``flax.nnx`` does.

    What it changes is no result, so the program would not compute it.

    Args:
        function: A function that ``jax.jit`` did not make: within one, such a change is lost in any case.
    """

    def __init__(self, function: Callable):
        self._function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call it; :class:`SettingsError` where it leaves an object with other arrays than were given."""
        import jax

        objects = {
            _path(keys): node
            for keys, node in jax.tree.leaves_with_path((arguments, keywords), is_leaf=_is_object)
            if _is_object(node)
        }
        given = {path: jax.tree.flatten(node) for path, node in objects.items()}
        made = self._function(*arguments, **keywords)
        for path, node in objects.items():
            leaves, tree = jax.tree.flatten(node)
            before, tree_before = given[path]
            if tree != tree_before or not all(map(_is_given, before, leaves)):
                problem = f"{self.__name__} changes {path} in place, {with_article(type(node).__name__)}"
                raise SettingsError("source", f"{problem}. {_RETURNED}")
        return made


def _is_object(node: Any) -> bool:
    """Return whether a node of a tree is an object of a class, and no dict, which is often a scratchpad."""
    import jax

    if isinstance(node, dict | list | tuple | NoneType):
        return False
    return not jax.tree_util.all_leaves([node])


def _is_given(given: Any, left: Any) -> bool:
    """Return whether a leaf is the one that was given, also where calls of ``jax.jit`` passed it through.

    JAX has no public way to ask a tracer where it is from: this is as in the version that is pinned.
    """
    while left is not given:
        equation = getattr(left, "parent", None)
        if equation is None or equation.primitive.name != "jit":
            return False
        place = _passed(equation.params["jaxpr"].jaxpr, equation.outvars.index(left.val))
        if place is None:
            return False
        left = equation.in_tracers[place]
    return True


def _passed(jaxpr: Any, number: int) -> int | None:
    """Return the number of the input that an output of a traced function is; None where it is computed."""
    output = jaxpr.outvars[number]
    for equation in reversed(jaxpr.eqns):
        if equation.primitive.name == "jit" and output in equation.outvars:
            place = _passed(equation.params["jaxpr"].jaxpr, equation.outvars.index(output))
            if place is None:
                return None
            output = equation.invars[place]
    return jaxpr.invars.index(output) if output in jaxpr.invars else None


def trace(call: Call, within_jit: bool = False) -> TracedCall:
    """Return a call, traced by ``jax.jit``.

    Args:
        call: The call.
        within_jit: Trace the user's ``jax.jit`` within another one, which keeps what it would donate or leave
            out. Static arguments and options of the compiler allow no such thing.

    Raises:
        SettingsError: JAX cannot trace it with these arguments, it is compiled already, it calls Python
            while it runs, or it uses a value of a program around it.
        DataError: It ends Python.
    """
    import jax

    name = getattr(call.function, "__name__", type(call.function).__name__)
    with without_exit(name, WITHOUT):
        found = _traced(call, within_jit)
    require_no_callbacks(found.traced)
    if any(isinstance(value, jax.core.Tracer) for value in found.traced._consts):
        problem = f"{found.traced.fun_name} uses a value that JAX traces around it"
        raise SettingsError("source", f"{problem} (jax.jit, jax.grad, jax.vmap). Give it as an argument")
    return found


@contextlib.contextmanager
def without_exit(source: object, remedy: str = 'Guard it with if __name__ == "__main__"') -> Iterator[None]:
    """Refuse code of the user's that ends Python; an error keeps its traceback, in which the user finds it.

    Args:
        source: The file or the function, for the message.
        remedy: What to do.
    """
    try:
        yield
    except SystemExit as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)]
        raise DataError(source, f"ends Python (sys.exit, line {lines[-1]})", remedy) from None


def require_no_callbacks(traced: Any) -> None:
    """Raise :class:`SettingsError` where a ``jax.stages.Traced`` calls Python while it runs.

    Its HLO holds the address of the Python function, which no other process has.
    """
    names = {equation.primitive.name for equation in equations(traced.jaxpr.jaxpr)}
    if called := sorted(names & _CALLBACKS):
        problem = f"{traced.fun_name} calls Python while it runs ({', '.join(called)}), which HLO cannot keep"
        raise SettingsError("source", f"{problem}. Leave jax.debug.print and callbacks out of it")


def equations(jaxpr: Any) -> Iterator[Any]:
    """Yield all equations of a traced function, also of the functions within."""
    from jax._src.core import subjaxprs  # JAX has no public way to walk through a traced function

    yield from jaxpr.eqns
    for inner in subjaxprs(jaxpr):
        yield from equations(inner)


def _traced(call: Call, within_jit: bool) -> TracedCall:
    import jax

    function, arguments, keywords = call
    name = getattr(function, "__name__", type(function).__name__)
    if isinstance(function, jax.stages.Compiled):
        raise SettingsError("source", f"{name} is compiled already; give the function, or its .trace(...)")
    if is_staged(function):
        problem = f"{with_article(name)} has no arguments to be called with"
        raise SettingsError("source", f"{problem}; give the function and its arguments")
    facts = jit_facts(function)
    try:
        leaves = call.leaves()
        if once := [path for path, value in leaves.static.items() if isinstance(value, Iterator)]:
            raise SettingsError("source", f"{once[0]} is an iterator, which can be read once: give a list")
        if leaves.static and not facts:
            of_arrays = _OfArrays(call, leaves)
            traced = jax.jit(of_arrays).trace(*leaves.arrays.values())
            return TracedCall(traced, of_arrays.results(traced.out_info))
        options = getattr(facts, "compiler_options_kvs", ())
        within_jit = within_jit and not leaves.static and not options
        if facts and inspect.ismethod(function):  # its own trace wants the object, too
            if options and 0 in facts.static_argnums:  # another jax.jit around it may have no options within
                of_class: Any = function.__func__
                traced = of_class.trace(function.__self__, *arguments, **keywords)
                return TracedCall(traced, traced.out_info)
            statics = {"static_argnums": call.static_numbers, "static_argnames": call.static_names}
            jitted = jax.jit(partial(function), **statics)
        elif facts and not within_jit:
            jitted = function
        else:
            jitted = jax.jit(function if facts else _Unchanging(function))
        traced = jitted.trace(*arguments, **keywords)
        return TracedCall(traced, traced.out_info)
    except SettingsError:
        raise
    except Exception as error:  # of JAX, or of the user's function
        said = " ".join(str(error).split())[:_SHOWN]
        count = len(arguments) + len(keywords)
        given = f"{count} argument{'' if count == 1 else 's'}"
        problem = f"source: {name} cannot be traced with {given}"
        remedy = _OUTERMOST if said.startswith("`compiler_options` can only be passed") else _REMEDY
        raise SettingsError(f"{problem} ({type(error).__name__}: {said}). {remedy}") from error
