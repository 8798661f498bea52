"""Strict settings: a setting is used or refused, never ignored."""

import ast
import dataclasses
import difflib
import os
import types
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from fastslow.core.artifacts import Artifact
from fastslow.core.errors import ConfigError

PROJECT = Path(__file__).resolve().parents[3]

T = TypeVar("T", bound="Config")
_PLAIN = (bool, int, float, str, list, tuple, dict, types.NoneType)
_IPYTHON = ("In", "Out")


def resolve(path: str) -> Path:
    """A path of the settings: relative ones start at the repository, wherever the notebook runs.

    The environment variable ``FASTSLOW_HOME`` names another folder for ``data/``, ``features/``, ``runs/``
    and ``submissions/``: a larger disk, or a test that must leave the repository alone.
    """
    return PROJECT / os.environ.get("FASTSLOW_HOME", "") / Path(path).expanduser()


def elsewhere(default):
    """A field that says where or how fast, not what: it does not change the bytes of the result."""
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata={"elsewhere": True})
    return dataclasses.field(default=default, metadata={"elsewhere": True})


@dataclasses.dataclass(frozen=True)
class Config:
    """Base of every stage's settings: a frozen dataclass of int, float, str, bool, list and dict fields.

    A subclass describes each field in its ``Args`` section, with unit and when to change it, and
    checks ranges in :meth:`check`.
    """

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, kind = getattr(self, field.name), field.type
            if kind is float and type(value) is int:
                object.__setattr__(self, field.name, float(value))
            elif type(value) is not kind:
                raise ConfigError(
                    f"{field.name}: {value!r} is {type(value).__name__}, {kind.__name__} wanted"
                    f" (for example {field.name}={field.default!r})"
                )
        self.check()

    def check(self) -> None:
        """Raise :class:`ConfigError` where a value is out of range."""

    @classmethod
    def of(cls: type[T], settings: Mapping) -> T:
        """Settings from a mapping; an unknown name is refused and the nearest known one is named."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in settings:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise ConfigError(f"{name}: no such setting of {cls.__name__}; {hint}")
        return cls(**settings)

    @classmethod
    def of_notebook(cls: type[T], variables: Mapping) -> T:
        """Settings from a notebook's ``globals()``, right after its parameters cell.

        papermill injects a misspelt parameter as a variable and only logs a warning; here it is
        refused, because every plain variable must be a setting.
        """
        plain = {
            name: value
            for name, value in variables.items()
            if not name.startswith("_") and name not in _IPYTHON and type(value) in _PLAIN
        }
        return cls.of(plain)

    def asdict(self) -> dict:
        """The settings as plain values, for a manifest."""
        return dataclasses.asdict(self)

    def artifact(self) -> Artifact:
        """The folder that the step of these settings writes, with what its content depends on."""
        raise TypeError(f"{type(self).__name__} writes no folder")

    def identity(self) -> dict:
        """The settings that change the result, without those of :func:`elsewhere`."""
        hidden = {field.name for field in dataclasses.fields(self) if field.metadata.get("elsewhere")}
        return {name: value for name, value in self.asdict().items() if name not in hidden}

    def require(self, condition: bool, field: str, wanted: str) -> None:
        """Refuse a field's value unless the condition holds; ``wanted`` says what it must be."""
        if not condition:
            raise ConfigError(f"{field}: {getattr(self, field)!r} is not {wanted}")


def parse_value(text: str):
    """A setting's value as typed: a Python literal (``1e-3``, ``True``) or, failing that, a string."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def parse_settings(texts: list[str]) -> dict:
    """Settings of a command line, each typed as NAME=VALUE.

    Raises:
        ConfigError: One is of another form.
    """
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{text!r}: a setting is given as NAME=VALUE (for example seed=1)")
        settings[name] = parse_value(value)
    return settings
