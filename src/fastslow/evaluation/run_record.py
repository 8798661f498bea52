"""Record of the command that makes a folder of runs (``runs/NAME/run.json``), and the use of its models."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastslow.core.artifacts import MANIFEST
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import write_json
from fastslow.core.records import Record, read_record
from fastslow.core.settings import PLAY

RECORD = "run.json"
PICTURES = "comparisons"  # folder in runs/ of the plots of `fastslow compare`
PLACED = "placement"  # folder in runs/ of the results of `fastslow place`
SMOKE = "smoke"
"""The preset with next to no training, and the default name of its run."""


class _Run(Record):
    data: str
    preset: str
    settings: dict[str, Any] = {}  # a record of a former version has none
    chosen: dict[str, Any] = {}
    used: float = 0.0


def record_run(
    folder: Path,
    data: str,
    preset: str,
    settings: Mapping[str, Any],
    chosen: Mapping[str, Any] | None,
    used: float = 0.0,
) -> None:
    """Write down what a folder of runs is started with; an equal record stays as it is.

    Args:
        folder: The folder.
        data: Folder that holds ``npz_all/``.
        preset: Name of the preset.
        settings: The settings of the command that decide what it makes, a step's by its dotted name.
        chosen: Settings that a budget of hours chose, likewise; None where there is none.
        used: Seconds of the budget that were used before an interruption, where nothing is chosen yet.

    Raises:
        SettingsError: A notebook that was run by hand wrote a model into the folder.
    """
    if (folder / MANIFEST).is_file():
        raise SettingsError("name", f"runs/{folder.name} holds a single model; give this run another NAME")
    facts: dict[str, Any] = {"data": data, "preset": preset, "settings": dict(settings)}
    if chosen is not None:
        facts["chosen"] = dict(chosen)
    elif used:
        facts["used"] = used
    with contextlib.suppress(DataError):  # broken: written anew
        if read_run_record(folder) == facts:
            return
    write_json(folder / RECORD, facts)


def read_run_record(folder: Path) -> dict:
    """Read what a folder of runs was started with, see :func:`record_run`; nothing where it has no record.

    Raises:
        DataError: The record is broken.
    """
    again = "Delete it and run `make submit` again: it is written anew"
    return read_record(folder / RECORD, _Run, again) if (folder / RECORD).is_file() else {}


def is_rehearsal(folder: Path) -> bool:
    """Return whether a folder of runs holds models of the preset ``smoke`` or of notebooks run by hand.

    Raises:
        DataError: The record is broken.
    """
    preset = read_run_record(folder).get("preset", folder.name)
    return folder.name == PLAY or preset == SMOKE
