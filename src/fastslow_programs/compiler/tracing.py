"""Trace a function, with an error of our own where JAX refuses it."""

from collections.abc import Callable, Sequence
from typing import Any

from fastslow.core.errors import SettingsError

_REMEDY = (
    "Give each argument that the function takes: an array, a jax.ShapeDtypeStruct, or a tree of them. "
    "Make an argument that decides what is computed static: jax.jit(function, static_argnums=...)"
)
_SHOWN = 300  # characters of JAX's message


def is_staged(value: Any) -> bool:
    """Return whether a value is what JAX made of a function: a Traced, a Lowered or an Exported."""
    import jax
    import jax.export

    return isinstance(value, (jax.stages.Traced, jax.stages.Lowered, jax.export.Exported))


def static_numbers(function: Callable, arguments: Sequence) -> list[int]:
    """Return the positions of the arguments that the user's own ``jax.jit`` calls static."""
    facts = getattr(function, "_jit_info", None)
    return sorted(number % len(arguments) for number in facts.static_argnums) if facts and arguments else []


def trace(function: Callable, arguments: Sequence, within_jit: bool = False) -> Any:
    """Return a function traced by ``jax.jit``, as a ``jax.stages.Traced``.

    Args:
        function: A function, or one that the user's ``jax.jit`` made.
        arguments: Its arguments.
        within_jit: Trace the user's ``jax.jit`` within another one, which keeps what it would donate or leave
            out. Static arguments allow no such thing.

    Raises:
        SettingsError: JAX cannot trace it with these arguments, or it is compiled already.
    """
    import jax

    name = getattr(function, "__name__", type(function).__name__)
    if isinstance(function, jax.stages.Compiled):
        raise SettingsError("source", f"{name} is compiled already; give the function, or its .trace(...)")
    within_jit = within_jit and not static_numbers(function, arguments)
    try:
        jitted = function if hasattr(function, "trace") and not within_jit else jax.jit(function)
        return jitted.trace(*arguments)
    except Exception as error:  # of JAX, or of the user's function
        said = " ".join(str(error).split())[:_SHOWN]
        problem = f"source: {name} cannot be traced with {len(arguments)} arguments"
        raise SettingsError(f"{problem} ({type(error).__name__}: {said}). {_REMEDY}") from error
