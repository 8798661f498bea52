"""A decorator that searches the static parameters of a function when it is first called.

The form is tune-jax's. A search belongs to the shapes and types of the arguments, to the code that JAX lowers
for them, and to the device. What it found is kept as a study, and read again by later processes.
"""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastslow.core.errors import DataError, SettingsError, with_article
from fastslow.core.files import digest, read_json
from fastslow.core.settings import resolve
from fastslow_programs.compiler.device import device_identity, require_jax
from fastslow_programs.compiler.signature import array_text
from fastslow_programs.compiler.tracing import Call, Leaves, jit_facts
from fastslow_programs.compiler.tuned import TUNED
from fastslow_programs.program.program_settings import clean_name
from fastslow_programs.program.user_program import FunctionSource
from fastslow_programs.tuning.evaluators import serialised
from fastslow_programs.tuning.result import BEST, write_result
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import target_of_space
from fastslow_programs.tuning.tune import OtherCode, complete_study
from fastslow_programs.tuning.user_space import UserSpace, are_same

SWITCH = "FASTSLOW_TUNE"
"""Environment variable: ``0`` leaves every decorated function at its default."""
_EXAMPLE = "name parameters with their options, such as @fastslow.tuned(tile=[16, 32])"
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def tuned(
    function: Callable | None = None,
    /,
    *,
    constraints: Sequence[str] = (),
    evaluations: int = 24,
    out: str | Path = "data/converted",
    **choices: Sequence[bool | int | float | str],
) -> Callable[..., Any]:
    """Return a decorator that searches static parameters of a JAX function on this machine.

    At the first call with arguments of given shapes and types it searches, or reads what was found before.
    Afterwards it runs the function with the best values. It works under ``jax.jit``, ``jax.grad`` and
    ``jax.vmap``: then the search draws values of the arguments. A call that names one of the parameters has
    no search. ``FASTSLOW_TUNE=0`` leaves the default. A method, or a function of what ``jax.jit`` does not
    take, such as a module with its activation, is compiled within the caller's ``jax.jit`` only::

        @fastslow.tuned(tile=[16, 32, 64], unroll=[1, 2, 4])
        def product(x, w, tile=32, unroll=1): ...

    Args:
        function: A function to decorate at once, in place of a decorator.
        constraints: Expressions of the parameters that must be true, such as ``"tile * unroll <= 128"``.
        evaluations: Configurations that are measured, half of them to confirm the fastest.
        out: Folder under which the studies are kept. The default is in the repository or FASTSLOW_HOME; any
            other relative path starts at the working folder.
        **choices: The options of each parameter. The default is the function's, or else the first option.

    Raises:
        SettingsError: No parameter is named, the function has no such parameter, its own ``jax.jit`` does not
            call it static, options are no list of plain values, or the function's default is none of them.
        DataError: Constraints are wrong, or no configuration runs.
    """
    if function is not None and not callable(function):
        given = f"{with_article(type(function).__name__)} is given, a function is wanted"
        raise SettingsError("function", f"{given}; {_EXAMPLE}")
    if not isinstance(out, str | Path):
        raise SettingsError("out", f"{with_article(type(out).__name__)} is no path")
    _check_choices(choices, constraints)
    settings = TuneSettings(
        evaluator="device", evaluations=evaluations, run="none", data_root=str(Path(out).expanduser())
    ).from_working_folder("data_root")
    require_jax()

    def decorate(function: Callable) -> Callable:
        parameters = inspect.signature(function).parameters
        title = getattr(function, "__name__", type(function).__name__)
        default = {}
        for name in choices:
            if name not in parameters:
                raise SettingsError("choices", f"{title} has no parameter {name}")
            if parameters[name].kind not in _BY_NAME:
                kind = parameters[name].kind.description
                raise SettingsError("choices", f"{name} must be accepted by name; it is {kind}")
            value = parameters[name].default
            if value is inspect.Parameter.empty:
                continue
            if not any(are_same(value, option) for option in choices[name]):
                options = f"is not in {list(choices[name])}: add it"
                raise SettingsError("choices", f"{name}={value!r}, the default of {title}, {options}")
            default[name] = value
        facts = {
            "choices": {name: list(options) for name, options in choices.items()},
            "constraints": list(constraints),
            "default": default,
            "function": title,
        }
        search = _Search(function, facts, settings)

        @functools.wraps(function, updated=())  # what jax.jit keeps in a function is not this one's
        def run(*arguments: Any, **keywords: Any) -> Any:
            return search.run(*arguments, **keywords)

        return run

    return decorate if function is None else decorate(function)


def _check_choices(choices: dict[str, Any], constraints: Any) -> None:
    """Raise :class:`SettingsError` for options or constraints of a form that no search can read."""
    if not choices:
        raise SettingsError("choices", f"none given; {_EXAMPLE}")
    if not isinstance(constraints, list | tuple):
        raise SettingsError("constraints", f"{constraints!r} is no list; write [{str(constraints)!r}]")
    for name, options in choices.items():
        if isinstance(options, str) or not isinstance(options, Sequence) or not options:
            raise SettingsError(name, f"{options!r} is no list of options; {_EXAMPLE}")
        for option in options:
            if not isinstance(option, bool | int | float | str):
                plain = "a number, a text or a boolean"
                raise SettingsError(name, f"the option {option!r} is not {plain}; give its name or number")


class _Search:
    """The searches of one function, by shapes and types of its arguments."""

    def __init__(self, function: Callable, facts: dict[str, Any], settings: TuneSettings):
        import jax

        self._function = self._jitted = function
        if of_user := jit_facts(function):
            _require_static(facts["function"], [*facts["choices"]], of_user.static_argnames)
        else:
            self._jitted = jax.jit(function, static_argnames=tuple(facts["choices"]))
        self._facts = facts
        self._signature = inspect.signature(function)
        rest = [p for name, p in self._signature.parameters.items() if name not in facts["choices"]]
        self._searched = self._signature.replace(parameters=rest)  # what a call that is searched may have
        self._settings = settings
        self._best: dict[str, dict[str, Any]] = {}
        _ = UserSpace(Path(facts["function"]), facts).space  # refused where it is written

    def run(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function with the best values of its parameters."""
        bound = self._signature.bind_partial(*arguments, **keywords)
        named = bound.arguments.keys()
        choices = self._facts["choices"]
        if os.environ.get(SWITCH) == "0" or named & choices.keys():
            needed = choices.keys() - self._facts["default"].keys() - named
            values = {name: choices[name][0] for name in needed}
            self._signature.bind(*arguments, **keywords, **values)  # as below
            return self._compiled(bound.arguments)(*arguments, **keywords, **values)
        self._searched.bind(*arguments, **keywords)  # raises a TypeError where one is missing
        arguments = bound.args  # so that an argument by its name has no search of its own
        keywords = bound.kwargs
        function = self._compiled(bound.arguments)
        leaves = Call(function, arguments, keywords).leaves()
        arrays = {path: array_text(leaf) for path, leaf in leaves.arrays.items()}
        key = digest([arrays, {path: repr(value) for path, value in leaves.static.items()}, str(leaves.tree)])
        if key not in self._best:
            self._best[key] = self._search(function, _shapes(leaves))
        return function(*arguments, **keywords, **self._best[key])

    def _compiled(self, given: Mapping[str, Any]) -> Callable:
        """Return the function compiled, or as it is where it is given what ``jax.jit`` does not take.

        That is the object of a method, for example: compiled for it, later changes of it would be lost.
        """
        rest = {name: value for name, value in given.items() if name not in self._facts["choices"]}
        is_plain = bool(Leaves.of((), rest).static) and not jit_facts(self._function)
        return self._function if is_plain else self._jitted

    def _search(self, function: Callable, call: tuple[tuple, dict[str, Any]]) -> dict[str, Any]:
        arguments, keywords = call

        def of_values(**values: Any) -> Call:
            if jit_facts(function):
                return Call(function, arguments, keywords | values)
            return Call(functools.partial(function, **values), arguments, keywords)

        described = UserSpace(Path(self._facts["function"]), self._facts, of_values)
        default = described.lower(described.space.default, 0)
        code = default.module.SerializeToString(deterministic=True).hex()
        name = f"{clean_name(self._facts['function'])}-{digest([self._facts, code, device_identity()])}"
        values = None
        number = 0
        while values is None:  # the default's code is in the name, that of the others is not
            number += 1
            numbered = name if number == 1 else f"{name}-{number}"
            settings = self._settings.replace(name=numbered).of(FunctionSource(Path(numbered), numbered))
            values = _best_values(settings, described)
        return values


def _best_values(settings: TuneSettings, described: UserSpace) -> dict[str, Any] | None:
    """Return the best values of a study, searched where it has none; None where its code differs."""
    folder = resolve(settings.folder)
    if not (folder / BEST).exists():
        try:
            write_result(complete_study(settings, target_of_space(settings, described)))
        except OtherCode:
            return None
        return read_json(folder / BEST)["values"]
    values = read_json(folder / BEST)["values"]
    try:
        here = serialised(described.lower(described.codes(values), settings.seed).module)
    except DataError:  # the function refuses what it took
        return None
    best = folder / TUNED
    return values if not best.exists() or best.read_bytes() == here else None


def _require_static(title: str, names: Sequence[str], static: Sequence[str]) -> None:
    """Raise :class:`SettingsError` where the ``jax.jit`` of a function does not call a parameter static."""
    for name in names:
        if name not in static:
            remedy = f"add it: jax.jit(..., static_argnames={names})"
            raise SettingsError("choices", f"{name} is not static in the jax.jit of {title}; {remedy}")


def _shapes(leaves: Leaves) -> tuple[tuple, dict[str, Any]]:
    """Return arguments and keywords of which the traced arrays are shapes and types."""
    import jax

    arrays = [
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if isinstance(leaf, jax.core.Tracer) else leaf
        for leaf in leaves.arrays.values()
    ]
    return leaves.with_arrays(arrays)
