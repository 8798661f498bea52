"""One field of the settings as messages and documentation show it."""

import ast
import difflib
import inspect
import textwrap
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic.fields import FieldInfo

from fastslow.core.errors import SettingsError

_LARGEST = 2**31 - 1  # of a whole number: what LightGBM and others hold in 32 bits
_LONGEST = 4096  # characters of a text: the longest path
_BOUNDS = {"ge": "{} or more", "gt": "above {}", "le": "at most {}", "lt": "below {}"}


class Setting(NamedTuple):
    """One field as documentation shows it.

    Args:
        name: Name of the field.
        kind: Name of its type.
        default: Default value; None where it means that there is none.
        allowed: Range or choices in words; empty where every value of the type is accepted.
        sentence: Its effect, with its unit and the reason to change it.
        group: Title of its group; empty for a main field.
    """

    name: str
    kind: str
    default: Any
    allowed: str
    sentence: str
    group: str = ""


def kind_of(field: FieldInfo) -> Any:
    """Return the type of a field: of a ``Literal`` the type of its choices, of ``list[str]`` ``list``."""
    origin = get_origin(field.annotation)
    return type(get_args(field.annotation)[0]) if origin is Literal else origin or field.annotation


def choices_of(field: FieldInfo) -> tuple[Any, ...]:
    """Return the choices of a ``Literal``; none for another type."""
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def allowed_of(field: FieldInfo) -> str:
    """Return a field's range or choices in words."""
    if choices := choices_of(field):
        return f"one of {', '.join(str(choice) for choice in choices if choice != '')}"
    bounds = [
        text.format(value)
        for constraint in field.metadata
        for name, text in _BOUNDS.items()
        if (value := getattr(constraint, name, None)) is not None
    ]
    return ", ".join(bounds)


def is_allowed(field: FieldInfo) -> bool:
    """Return whether the default of a field is in its range: one that is not means that there is none."""
    above = [constraint.gt for constraint in field.metadata if hasattr(constraint, "gt")]
    return all(field.get_default() > bound for bound in above)


def nearest(text: Any, known: Iterable[Any]) -> str:
    """Return ``; did you mean 'epochs'?`` for the most similar of ``known``, empty where none is similar."""
    near = difflib.get_close_matches(str(text), [*map(str, known)], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def refuse_absurd(name: str, value: Any) -> None:
    """Refuse what no setting can be: numbers that overflow in libraries, texts that are no path or name."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise SettingsError(name, f"a number of {len(bin(value)) - 2} bits, at most {_LARGEST} wanted")
    for text in (value, *value) if isinstance(value, list) else (value,):
        if isinstance(text, str) and (len(text) > _LONGEST or not text.isprintable()):
            remedy = f"a printable text of at most {_LONGEST} characters wanted"
            raise SettingsError(name, f"{text[:60]!r} has {len(text)} characters, {remedy}")


@cache
def sentences_of(cls: type) -> dict[str, str]:
    """Return the sentence below each field that a class declares, by the field's name."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(definition, ast.ClassDef)
    sentences = {}
    for field, below in pairwise(definition.body):
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Constant):
            sentences[ast.unparse(field.target)] = " ".join(str(text.value).split())
    return sentences
