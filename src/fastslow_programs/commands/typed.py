"""What the commands for a program of yours share: paths as they were typed, and facts as they are printed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from fastslow.core.settings import Settings

_WIDTH = 26  # of a fact's name
Own = TypeVar("Own", bound=Settings)


def with_absolute_paths(settings: Own, *fields: str) -> Own:
    """Return settings whose paths start at the working folder where a user typed them.

    Args:
        settings: The settings.
        *fields: Names of fields that are paths; one that has its default stays, and so does a ``run`` that is
            no folder here: it starts at the repository.
    """
    typed = {
        name: value
        for name in fields
        if (value := getattr(settings, name)) != type(settings).model_fields[name].default
        and (name != "run" or Path(value).is_dir())
    }
    return settings.replace(**{name: str(Path(path).expanduser().absolute()) for name, path in typed.items()})


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print one fact a line, the values below each other."""
    for name, value in facts.items():
        print(f"{name:{_WIDTH}} {value}")
