"""Common parts of the commands that execute one notebook for a program of the user and print its result."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from fastslow.core.files import remove_abandoned
from fastslow.core.settings import PROJECT, Settings, resolve
from fastslow.workflow.run import run_step
from fastslow.workflow.steps import Step

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


def run_notebook(notebook: str, settings: Any) -> Path:
    """Execute a notebook of the repository, such as ``50_convert``, and return the folder that it wrote.

    Raises:
        StepError: The notebook failed; the message holds the cause and where the executed notebook is stored.
    """
    _, _, stage = notebook.partition("_")
    remove_abandoned(resolve(settings.folder).parent)  # of an interrupted run of another program
    run_step(Step(stage, PROJECT / "notebooks" / f"{notebook}.ipynb", settings))
    return resolve(settings.folder)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print one fact a line, the values below each other."""
    for name, value in facts.items():
        print(f"{name:{_WIDTH}} {value}")
