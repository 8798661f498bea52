"""Strict settings: a setting is used or refused, never ignored.

Each stage has one subclass of :class:`Settings`. A field declares its type, default and range. The sentence
under it explains it; ``help()``, ``--help`` and the notebooks' comments all come from there.
"""

import ast
import difflib
import errno
import importlib.util
import math
import os
import re
import stat
import textwrap
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from numbers import Integral, Number
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Self, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from fastslow.core.artifacts import Artifact
from fastslow.core.errors import SettingsError, explain_storage, with_article
from fastslow.core.setting_fields import (
    Setting,
    allowed_of,
    choices_of,
    is_allowed,
    kind_of,
    nearest,
    refuse_absurd,
    sentences_of,
)

_KINDS: dict[Any, str] = {
    bool: "a truth value",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    tuple: "a tuple",
    dict: "a dict",
}
_NOTEBOOK_WIDTH = 95  # characters of an output that a page of 1,000 pixels shows without a break
_CHECKOUT = Path(__file__).resolve().parents[3]
PROJECT = _CHECKOUT if (_CHECKOUT / "pyproject.toml").is_file() else Path.cwd()
"""The repository; of a package that was installed without it, the working folder."""


def resolve(path: str) -> Path:
    """Return a path of the settings; relative ones start at the repository, wherever the notebook runs.

    Where there is no repository, since the package was installed from a wheel, at the working folder.

    The environment variable ``FASTSLOW_HOME`` names another folder for ``data/``, ``features/``, ``runs/``
    and ``submissions/``: on a larger disk, or for a test that must not touch the repository.

    Raises:
        SettingsError: The path starts with ``~`` and a user that there is not, or ``FASTSLOW_HOME`` is none.
    """
    return _home(os.environ.get("FASTSLOW_HOME", "")) / _expanded(path)


def _expanded(path: str) -> Path:
    """Return a path that may start with ``~``; SettingsError where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise SettingsError(f"{path}: there is no such user's home; write the whole path") from None


def path_text(name: str, path: Any) -> str:
    """Return a path that was given in Python as text; SettingsError of the argument where it is none."""
    if not isinstance(path, str | Path):
        raise SettingsError(name, f"{with_article(type(path).__name__)} is no path")
    return str(path)


def find_data(root: str) -> Path:
    """Return a data root that is read: as :func:`resolve` has it, else the repository's, with the sample.

    Raises:
        SettingsError: As for :func:`resolve`.
        StorageError: No file can have this name.
    """
    in_repository = PROJECT / _expanded(root)
    at_home = resolve(root)
    with explain_storage(at_home):
        return in_repository if in_repository.exists() and not at_home.exists() else at_home


def find_typed(path: str) -> Path:
    """Return the path that a user typed: in the working folder, or what :func:`find_data` has in its place.

    Errors as for :func:`find_data`.
    """
    here = Path.cwd() / _expanded(path)
    with explain_storage(here):
        is_here = here.exists() or here.is_symlink()  # a broken link is named as one
    if path and is_here:
        return here
    elsewhere = find_data(path)
    with explain_storage(elsewhere):
        return here if path and not elsewhere.exists() else elsewhere


@lru_cache(1)
def _home(named: str) -> Path:
    """Return the folder that relative paths start at, once it can be one."""
    try:
        home = PROJECT / Path(named).expanduser()
        if named.isspace() or not named.isprintable():
            raise ValueError("a name of blanks or of characters that no terminal shows")
        if not stat.S_ISDIR(os.stat(home).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except FileNotFoundError:
        pass  # it is made when something is written
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(f"FASTSLOW_HOME: {named[:80]!r} is no folder ({reason}); set it to one") from None
    return home


def _split_commas(names: Any) -> Any:
    """Return the list of names that a command line gives as one string with commas."""
    return names.split(",") if isinstance(names, str) else names


Names = Annotated[list[str], BeforeValidator(_split_commas)]

# ranges by type, so that a subclass which changes a default keeps the range
Positive = Annotated[int, Ge(1)]
NonNegative = Annotated[int, Ge(0)]
AtLeastTwo = Annotated[int, Ge(2)]
Count = Annotated[int, Ge(0), Le(4096)]  # of seeds or processes
Threads = Annotated[int, Ge(0), Le(1024)]  # of one machine, or its processes
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
FractionBelowOne = Annotated[float, Ge(0), Lt(1)]

Unread = Mapping[str, tuple[str, str]]
"""Fields that are not read, each with the choice that does not read it and what to do, in words."""

_PLAIN = (Number, str, list, PurePath)  # what people give a setting; results of cells are of other types
_ODD = (tuple, dict, types.NoneType)
_ALIKE = 0.75  # similarity of a misspelt name
_DEEPEST = 255  # folders of a path: they are made one within another
PLAY = "play"
"""Name of the run that notebooks write when they are run by hand: ``runs/play``, ``features/play``."""


def unkeyed(default: Any, decisive: bool = False) -> Any:
    """Declare a field excluded from the cache key.

    Args:
        default: Its default.
        decisive: Whether it decides what is made all the same, as the inputs or the end show: a run records
            it. Any other affects location or speed only.
    """
    return Field(default, json_schema_extra={"key": False, "decisive": decisive})


class UnknownSetting(SettingsError):
    """There is no setting of this name.

    Args:
        name: The name.
        owner: Name of the settings class that has none such.
        hint: What may have been meant.
    """

    def __init__(self, name: str, owner: str, hint: str):
        super().__init__(name, f"no such setting of {owner}; {hint}")
        self._facts = name, owner, hint

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), self._facts

    def named(self, path: str) -> SettingsError:
        """Return the same error of a typed path, which names the class already."""
        return SettingsError(path, f"no such setting; {self._facts[2]}")


class Settings(BaseModel):
    """Base class of the settings of every stage: fields of int, float, str, bool, list and dict.

    Types are strict (an int is accepted for a float), unknown names raise an error, instances are immutable.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )
    main: ClassVar[tuple[str, ...]] = ()
    """Fields that people change most: documentation shows them first, a notebook's parameters cell only them.
    Empty: all of them."""
    group_title: ClassVar[str] = ""
    """Title of the group of the fields that a class declares, for a class that groups fields by role."""

    def __init__(self, **settings: Any):
        for name, value in settings.items():
            if not name.isprintable():  # bytes that are no UTF-8, of which pydantic loses the name
                raise UnknownSetting(ascii(name)[1:-1], type(self).__name__, self._hint(name))
            refuse_absurd(name, value)
            if isinstance(value, str) and value.count("/") > _DEEPEST:
                problem = f"names {value.count('/')} folders one in another, at most {_DEEPEST} wanted"
                raise SettingsError(name, problem)
            if isinstance(value, Integral) and not isinstance(value, bool):
                settings[name] = int(value)  # a whole number of NumPy
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise self._explain(error.errors()[0]) from None
        self.require_defaults(self.unread())
        self.check()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Append every field to the docstring, so that ``help()`` shows them."""
        fields = "\n".join(
            f"    {s.name} ({s.kind}, default {s.default!r}{s.allowed and ', '}{s.allowed}): {s.sentence}"
            for s in cls.describe()
        )
        cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n\nArgs:\n{fields}\n"

    def unread(self) -> Unread:
        """Return the fields that these settings do not read: they must have their default.

        It may be asked before values are checked, see :meth:`unread_of`.
        """
        return {}

    @classmethod
    def unread_of(cls, settings: Mapping[str, Any]) -> Unread:
        """Return the fields that :meth:`unread` would return for these values.

        Args:
            settings: Values by field, not checked; other fields have their defaults.
        """
        return cls.model_construct(**settings).unread()

    def require_defaults(self, unread: Unread) -> None:
        """Refuse fields that are not read and have another value than their default.

        Raises:
            SettingsError: There is one.
        """
        for name, (why, remedy) in unread.items():
            value = getattr(self, name)
            field = type(self).model_fields[name]
            default = field.get_default()
            if value != default:
                leave = f"leave it at {default!r}" if is_allowed(field) else "leave it out"
                raise SettingsError(name, f"{value!r} has no effect {why}; {leave}, or {remedy}")

    def check(self) -> None:
        """Raise :class:`SettingsError` where fields do not fit together."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise SettingsError(name, f"settings are immutable; use settings.replace({name}=...)")

    @classmethod
    def describe(cls) -> list[Setting]:
        """Return the main fields, then the others by group; one with a new default keeps its sentence."""
        others = [name for name in cls.model_fields if name not in cls.main]
        options = {name for base in cls.__mro__ if is_dataclass(base) for name in base.__dataclass_fields__}
        others.sort(key=lambda name: name in options)  # of the science, after the folders of the step
        groups = {name: cls._group(name) if cls.main else "" for name in others}
        titles = [*dict.fromkeys(groups.values())]
        others.sort(key=lambda name: titles.index(groups[name]))
        return [
            Setting(
                name,
                kind_of(field).__name__,
                field.get_default() if is_allowed(field) else None,
                allowed_of(field),
                cls._sentence(name),
                groups.get(name, ""),
            )
            for name in (*cls.main, *others)
            for field in [cls.model_fields[name]]
        ]

    @classmethod
    def from_variables(cls, variables: dict[str, Any]) -> Self:
        """Return the settings in a notebook's variables: the variable ``epochs`` is the setting ``epochs``.

        A variable of another name is an error where papermill injected it, or where the name looks like a
        misspelt setting. A printed line names all other numbers, texts and lists, which are no settings.

        Args:
            variables: The notebook's ``globals()``.

        Raises:
            SettingsError: A variable is no setting, or a value is not allowed.
        """
        known = {"In", "Out", *cls.model_fields}
        for value in variables.values():
            if isinstance(value, type) and issubclass(value, Settings):  # other settings beside these
                known |= {*value.model_fields}
        others = {name: v for name, v in variables.items() if name not in known and not name.startswith("_")}
        injected = _injected(variables)
        for name, value in others.items():
            if name in injected or (isinstance(value, (*_PLAIN, *_ODD)) and cls._resembles(name)):
                remedy = f"Correct its name and run that cell again, or type del {name}"
                raise UnknownSetting(name, cls.__name__, f"{cls._hint(name)}. {remedy}")
        if unused := [name for name, value in others.items() if isinstance(value, _PLAIN)]:
            print(f"no settings of {cls.__name__}, not used: {', '.join(unused)}")
        return cls(**{name: variables[name] for name in cls.model_fields if name in variables})

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the settings in a notebook, with lines that end between two of them."""
        lines = textwrap.wrap(repr(self), _NOTEBOOK_WIDTH, break_long_words=False, break_on_hyphens=False)
        printer.text("\n".join(lines))

    def check_typed(self) -> None:
        """Refuse a file that was typed and is not there, before the libraries of a command are imported."""

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        fixed: Mapping[str, Any] | None = None,
        first: str = "",
        dashed: Sequence[str] = (),
    ) -> Self:
        """Return the settings of a command line.

        Args:
            texts: Each ``NAME=VALUE``, the value a Python literal (``1e-3``, ``True``) or a string. Those
                with a dotted name are settings of steps and are collected in the field ``set``.
            fixed: Settings that are given already; giving one again is an error.
            first: Fields whose values may come first without their names, separated by spaces; ``FIELD...``
                is a list of any length.
            dashed: The texts that were given as options (``--NAME VALUE``): they are never such a value.

        Raises:
            SettingsError: A text has another form, a setting is given twice, or a value is not allowed.
        """
        settings = dict(fixed or {})
        dotted = []
        if first.endswith("..."):
            count = next((n for n, text in enumerate(texts) if cls._is_setting(text)), len(texts))
            settings |= {first.removesuffix("..."): [*texts[:count]]} if count else {}
            texts, first = texts[count:], ""
        for place, text in enumerate(texts):
            name, equals, value = text.partition("=")
            if text in dashed and name not in cls.model_fields and "." not in name:
                raise SettingsError(f"--{name}: no such setting; {cls._hint(name)}")
            if place < len(first.split()) and not cls._is_setting(text):
                name, equals, value = first.split()[place], "=", text
            if not equals or not name:
                raise SettingsError(f"{text!r}: a setting is given as NAME=VALUE (for example seed=1)")
            if "." in name and "set" in cls.model_fields:
                dotted.append(text)
                continue
            if fixed and name in fixed:
                raise SettingsError(name, f"this command sets it to {fixed[name]!r} itself; leave it out")
            if name in settings:
                raise SettingsError(name, f"is given twice, as {settings[name]!r} and {value!r}")
            field = cls.model_fields.get(name)
            settings[name] = value if field and kind_of(field) is str else parse_value(value)
        if dotted and "set" in settings:
            remedy = "give each setting of a step as a word of its own"
            raise SettingsError("set", f"is given twice, as {settings['set']!r} and {dotted[0]}; {remedy}")
        if dotted:
            settings["set"] = dotted
        try:
            return cls(**settings)
        except UnknownSetting as error:  # a command is no class to its user
            raise error.named(error.name) from None

    @classmethod
    def _is_setting(cls, text: str) -> bool:
        """Return whether a word gives a setting, perhaps a misspelt one, and is no file of that name."""
        name, equals, _ = text.partition("=")
        if name in cls.model_fields:
            return True
        return bool(equals) and name.isidentifier() and not resolve(text).exists()

    def from_working_folder(self, *fields: str) -> Self:
        """Return settings whose paths start at the working folder where a user typed them.

        Args:
            *fields: Names of fields that are paths; one that has its default stays, and so does a ``run``
                that is no folder here: it starts at the repository.
        """
        values = {name: getattr(self, name) for name in fields}
        typed = {n: value for n, value in values.items() if value != type(self).model_fields[n].default}
        paths = {n: Path(value) for n, value in typed.items() if n != "run" or Path(value).is_dir()}
        return self.replace(**{name: str(path.expanduser().absolute()) for name, path in paths.items()})

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, checked again.

        Args:
            **changes: New values by name of the field.

        Raises:
            SettingsError: There is no such field, or it does not take the value.
        """
        return type(self)(**{**self.model_dump(exclude_unset=True), **changes})

    def asdict(self) -> dict[str, Any]:
        """Return the settings as plain values, for a manifest."""
        return self.model_dump()

    def artifact(self) -> Artifact:
        """Return the folder that the step of these settings writes, with what its content depends on."""
        raise TypeError(f"{type(self).__name__} writes no folder")

    def identity(self) -> dict[str, Any]:
        """Return the settings that change the result, by name: those read and not :func:`unkeyed`."""
        values = self.asdict()
        unread = self.unread()
        return {name: values[name] for name in self.keyed() if name not in unread}

    @classmethod
    def keyed(cls) -> list[str]:
        """Return the names of the fields that are not :func:`unkeyed`."""
        return cls._declared("key")

    @classmethod
    def decisive(cls) -> list[str]:
        """Return the names of the fields that decide what is made: all keyed ones, and some others."""
        return cls._declared("decisive")

    @classmethod
    def _declared(cls, fact: str) -> list[str]:
        """Return the names of the fields of which :func:`unkeyed` does not deny this."""
        extras = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
        return [name for name, extra in extras.items() if not isinstance(extra, dict) or extra[fact]]

    def require(self, condition: bool, field: str, allowed: str) -> None:
        """Raise an error for a field where a condition does not hold.

        Args:
            condition: What must hold.
            field: Name of the field.
            allowed: Its values in words, after "is not", such as ``a positive number``.

        Raises:
            SettingsError: The condition does not hold.
        """
        if not condition:
            raise SettingsError(field, f"{getattr(self, field)!r} is not {allowed}")

    @classmethod
    def _group(cls, name: str) -> str:
        """Return the title of the class that declares a field first, or ``more``."""
        owners = [base for base in cls.__mro__ if name in base.__dict__.get("__annotations__", {})]
        return vars(owners[-1]).get("group_title", "") or "more"

    @classmethod
    def _sentence(cls, name: str) -> str:
        for base in cls.__mro__:
            if issubclass(base, Settings):
                field = base.model_fields.get(name)
                if field and field.description:
                    return " ".join(field.description.split())
            elif is_dataclass(base) and name in sentences_of(base):
                return sentences_of(base)[name]
        return ""

    @classmethod
    def _explain(cls, error: ErrorDetails) -> SettingsError:
        """Put one of pydantic's errors into words that name the field and the remedy."""
        name = str(error["loc"][0])
        value = error["input"]
        if error["type"] == "extra_forbidden":
            return UnknownSetting(name, cls.__name__, cls._hint(name))
        field = cls.model_fields[name]
        if len(error["loc"]) > 1:  # an element of a list
            (element,) = get_args(field.annotation)
            found = "not finite" if element is type(value) is float else _words(type(value))
            return SettingsError(name, f"{value!r} in the list is {found}, {_words(element)} wanted")
        allowed = allowed_of(field)
        kind = kind_of(field)
        if type(value) is kind or (kind is float and type(value) is int):
            finite = not isinstance(value, float) or math.isfinite(value)
            expected = allowed if allowed and finite else "a finite number"
            return SettingsError(name, f"{value!r} is not {expected}{nearest(value, choices_of(field))}")
        if kind is float and _is_infinite(value):
            return SettingsError(name, f"{value} is not a finite number{allowed and f' {allowed}'}")
        example = allowed or f"for example {[value] if kind is list else field.get_default()!r}"
        problem = f"{value!r} is {_words(type(value))}, {_words(kind)} wanted ({example})"
        return SettingsError(name, problem)

    @classmethod
    def _resembles(cls, name: str) -> bool:
        """Return whether a name may be meant for a setting: it is few letters off."""
        return bool(difflib.get_close_matches(name, cls.model_fields, 1, _ALIKE))

    @classmethod
    def _hint(cls, name: str) -> str:
        near = nearest(name, cls.model_fields).removeprefix("; ")
        return near or f"known are {', '.join(cls.model_fields)}"


def _injected(variables: Mapping[str, Any]) -> set[str]:
    """Return the names that papermill injected, in a cell that it heads with a comment of its own."""
    cells = [cell for cell in variables.get("In", ()) if cell.startswith("# Parameters\n")]
    return {name for cell in cells for name in re.findall(r"^(\w+) = ", cell, re.MULTILINE)}


def _words(kind: Any) -> str:
    """Return what a user calls a type."""
    return _KINDS.get(kind, str(kind.__name__))


def _is_infinite(value: Any) -> bool:
    """Return whether a text is ``inf`` or ``nan``, which are no literals of Python."""
    try:
        return isinstance(value, str) and not math.isfinite(float(value))
    except ValueError:
        return False


def parse_value(text: str) -> Any:
    """Return a setting's value as typed: a Python literal (``1e-3``, ``True``) or, failing that, a string."""
    try:
        ast.literal_eval(f"({text})")  # a comment, which is no part of the value, would hide the bracket
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # the last: too many brackets
        return text


def require_package(name: str, extra: str) -> None:
    """Refuse to go on without a package of an extra: at the beginning, not after minutes.

    Args:
        name: The package, as it is imported.
        extra: The extra of ``pyproject.toml`` that installs it.

    Raises:
        SettingsError: It is not installed.
    """
    if importlib.util.find_spec(name) is None:
        raise SettingsError(f"{name} is not installed: .venv/bin/pip install -e '.[{extra}]'")
