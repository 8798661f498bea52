"""Strict settings: a setting is used or refused, never ignored.

Each stage has one subclass of :class:`Config`. A field declares its type, default and range, and the sentence
under it says what it does; ``help()``, ``--help`` and the notebooks' comments all come from there.
"""

import ast
import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fastslow.core.artifacts import Artifact
from fastslow.core.errors import ConfigError
from fastslow.core.paths import PROJECT as PROJECT
from fastslow.core.paths import resolve as resolve

# ranges by type, so that a subclass which changes a default keeps the range
Positive = Annotated[int, Ge(1)]
NonNegative = Annotated[int, Ge(0)]
AtLeastTwo = Annotated[int, Ge(2)]
Count = Annotated[int, Ge(0), Le(4096)]  # of seeds or processes
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
Fraction = Annotated[float, Gt(0), Le(1)]
FractionBelowOne = Annotated[float, Ge(0), Lt(1)]

_LARGEST = 2**31 - 1  # of a whole number: what LightGBM and others hold in 32 bits
_LONGEST = 4096  # characters of a text: the longest path
_PLAIN = (bool, int, float, str, list, tuple, dict, types.NoneType)
_BOUNDS = {"ge": "{} or more", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
_UNKEYED = {"key": False}


def unkeyed(default: Any) -> Any:
    """Declare a field excluded from the cache key: it affects location or speed only."""
    return Field(default, json_schema_extra=_UNKEYED)


class Setting(NamedTuple):
    """One field as documentation shows it.

    Args:
        name: Name of the field.
        kind: Name of its type.
        default: Default value.
        allowed: Range or choices in words; empty where every value of the type is accepted.
        sentence: What it does, with unit and when to change it.
    """

    name: str
    kind: str
    default: Any
    allowed: str
    sentence: str


class Config(BaseModel):
    """Base class of the settings of every stage: fields of int, float, str, bool, list and dict.

    Types are strict (an int is accepted for a float), unknown names are refused, instances are immutable.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )
    renamed: ClassVar[Mapping[str, str]] = {}
    """Fields that were called otherwise before: old name to new name, for the error message."""
    main: ClassVar[tuple[str, ...]] = ()
    """Fields that people change most, which documentation shows first."""

    def __init__(self, **settings: Any):
        for name, value in settings.items():
            _refuse_absurd(name, value)
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise ConfigError(self._explain(error.errors()[0])) from None
        self.check()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Append every field to the docstring, so that ``help()`` shows them."""
        fields = "\n".join(
            f"    {s.name} ({s.kind}, default {s.default!r}{s.allowed and ', '}{s.allowed}): {s.sentence}"
            for s in cls.describe()
        )
        cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n\nArgs:\n{fields}\n"

    def check(self) -> None:
        """Raise :class:`ConfigError` where fields do not fit together."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise ConfigError(f"{name}: settings are immutable; use config.replace({name}=...)")

    @classmethod
    def describe(cls) -> list[Setting]:
        """Return the main fields, then the others as declared; one with a new default keeps its sentence."""
        fields = [(name, cls.model_fields[name]) for name in dict.fromkeys((*cls.main, *cls.model_fields))]
        return [
            Setting(n, _kind(f).__name__, f.get_default(), _allowed(f), cls._sentence(n)) for n, f in fields
        ]

    @classmethod
    def from_notebook(cls, variables: Mapping[str, Any]) -> Self:
        """Return the settings that a notebook's parameters cells declare.

        papermill injects a misspelt parameter as a variable and only logs a warning; here it is refused.
        Variables of later cells are no settings, so the cell that calls this can be run again.

        Args:
            variables: The notebook's ``globals()``.

        Raises:
            ConfigError: A parameters cell declares something that is not a setting, or a value is refused.
        """
        return cls(**_declared(variables, set(cls.model_fields)))

    @classmethod
    def from_texts(
        cls, texts: Sequence[str], fixed: Mapping[str, Any] | None = None, first: str = ""
    ) -> Self:
        """Return the settings of a command line.

        Args:
            texts: Each ``NAME=VALUE``, the value a Python literal (``1e-3``, ``True``) or a string. Those
                with a dotted name are settings of steps and are collected in the field ``set``.
            fixed: Settings that are given already; giving one again is refused.
            first: Fields whose values may come first without their names, separated by spaces.

        Raises:
            ConfigError: A text is of another form, a setting is given twice, or a value is refused.
        """
        settings, dotted = dict(fixed or {}), []
        for place, text in enumerate(texts):
            name, equals, value = text.partition("=")
            if place < len(first.split()) and name not in cls.model_fields:
                name, equals, value = first.split()[place], "=", text
            if not equals or not name:
                raise ConfigError(f"{text!r}: a setting is given as NAME=VALUE (for example seed=1)")
            if "." in name and "set" in cls.model_fields:
                dotted.append(text)
                continue
            if name in settings:
                raise ConfigError(f"{name}: is given twice, as {settings[name]!r} and {value!r}")
            field = cls.model_fields.get(name)
            settings[name] = value if field and _kind(field) is str else parse_value(value)
        return cls(**settings, **({"set": dotted} if dotted else {}))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, checked again."""
        return type(self)(**{**self.asdict(), **changes})

    def asdict(self) -> dict[str, Any]:
        """Return the settings as plain values, for a manifest."""
        return self.model_dump()

    def artifact(self) -> Artifact:
        """Return the folder that the step of these settings writes, with what its content depends on."""
        raise TypeError(f"{type(self).__name__} writes no folder")

    def identity(self) -> dict[str, Any]:
        """Return the settings that change the result: all but those declared with :func:`unkeyed`."""
        fields = type(self).model_fields
        return {
            name: value for name, value in self.asdict().items() if fields[name].json_schema_extra != _UNKEYED
        }

    def require(self, condition: bool, field: str, wanted: str) -> None:
        """Refuse a field's value where a condition does not hold; ``wanted`` says what it must be."""
        if not condition:
            raise ConfigError(f"{field}: {getattr(self, field)!r} is not {wanted}")

    @classmethod
    def _sentence(cls, name: str) -> str:
        fields = (base.model_fields.get(name) for base in cls.__mro__ if issubclass(base, Config))
        return next((" ".join(f.description.split()) for f in fields if f and f.description), "")

    @classmethod
    def _explain(cls, error: ErrorDetails) -> str:
        """Put one of pydantic's errors into a sentence that names the field and the remedy."""
        name, value = str(error["loc"][0]), error["input"]
        if error["type"] == "extra_forbidden":
            return f"{name}: no such setting of {cls.__name__}; {cls._hint(name)}"
        field = cls.model_fields[name]
        if len(error["loc"]) > 1:  # an element of a list
            (wanted,) = get_args(field.annotation)
            return f"{name}: {value!r} in the list is {type(value).__name__}, {wanted.__name__} wanted"
        allowed, kind = _allowed(field), _kind(field)
        if type(value) is kind or (kind is float and type(value) is int):
            return f"{name}: {value!r} is not {allowed or 'a finite number'}"
        example = f"(for example {name}={field.get_default()!r})"
        return f"{name}: {value!r} is {type(value).__name__}, {kind.__name__} wanted {example}"

    @classmethod
    def _hint(cls, name: str) -> str:
        if name in cls.renamed:
            return f"it is called {cls.renamed[name]!r} now"
        near = difflib.get_close_matches(name, cls.model_fields, 1)
        return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(cls.model_fields)}"


def _refuse_absurd(name: str, value: Any) -> None:
    """Refuse what no setting can be: numbers that overflow in libraries, texts that are no path or name."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ConfigError(f"{name}: a number of {len(bin(value)) - 2} bits, at most {_LARGEST} wanted")
    for text in (value, *value) if isinstance(value, list) else (value,):
        if isinstance(text, str) and (len(text) > _LONGEST or not text.isprintable()):
            remedy = f"a printable text of at most {_LONGEST} characters wanted"
            raise ConfigError(f"{name}: {text[:60]!r} has {len(text)} characters, {remedy}")


def _kind(field: FieldInfo) -> type:
    """Return the type of a field; that of its choices for a ``Literal``, ``list`` for ``list[str]``."""
    origin = get_origin(field.annotation)
    return type(get_args(field.annotation)[0]) if origin is Literal else origin or field.annotation


def _allowed(field: FieldInfo) -> str:
    """Return a field's range or choices in words."""
    if get_origin(field.annotation) is Literal:
        return f"one of {', '.join(map(str, get_args(field.annotation)))}"
    bounds = [
        text.format(value)
        for constraint in field.metadata
        for name, text in _BOUNDS.items()
        if (value := getattr(constraint, name, None)) is not None
    ]
    return ", ".join(bounds)


def _declared(variables: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """Return what a notebook's parameters cells assign, each name with its latest value.

    IPython keeps the source of every cell that ran in ``In``. A parameters cell holds assignments alone,
    without a call, to a known setting or under papermill's heading for injected parameters. Its values are
    taken from the source, as a later cell may use the name for something else. Without ``In`` every plain
    variable counts.
    """
    if "In" not in variables:
        return {
            name: value
            for name, value in variables.items()
            if not name.startswith("_") and name != "Out" and type(value) in _PLAIN
        }
    declared: dict[str, Any] = {}
    for source in variables["In"]:
        assigned = dict(_assigned(source, variables))
        if source.lstrip().startswith("# Parameters") or known & {*assigned}:
            declared |= assigned
    return declared


def _assigned(source: str, variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names and values that a cell of assignments assigns; none where it does anything else."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return
    plain = all(
        isinstance(s, (ast.Assign, ast.AnnAssign)) and not any(isinstance(n, ast.Call) for n in ast.walk(s))
        for s in statements
    )
    if plain:
        for statement in statements:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for name in (target.id for target in targets if isinstance(target, ast.Name)):
                try:
                    yield name, ast.literal_eval(statement.value)
                except ValueError:  # an expression, such as 2 * 10
                    yield name, variables[name]


def parse_value(text: str) -> Any:
    """Return a setting's value as typed: a Python literal (``1e-3``, ``True``) or, failing that, a string."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # the last two: too many brackets
        return text
