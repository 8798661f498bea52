"""Record of data and preset of a folder of runs (``runs/NAME/run.json``), and the use of its models."""

import contextlib
from pathlib import Path

from fastslow.core.artifacts import MANIFEST
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import write_json
from fastslow.core.records import Record, read_record
from fastslow.core.settings import PLAY

RECORD = "run.json"
SMOKE = "smoke"
"""The preset with next to no training, and the default name of its run."""


class _Run(Record):
    data: str
    preset: str


def record_run(folder: Path, data: str, preset: str) -> None:
    """Write down which data and preset a folder of runs is started with; an equal record stays as it is.

    Raises:
        SettingsError: The folder is for notebooks that are run by hand, or a notebook wrote a model into it.
    """
    if (folder / MANIFEST).is_file():
        raise SettingsError(f"name: runs/{folder.name} holds a single model; give this run another NAME")
    if folder.name == PLAY:
        raise SettingsError(f"name: notebooks run by hand write to runs/{PLAY}; give this run another NAME")
    path, facts = folder / RECORD, {"data": data, "preset": preset}
    with contextlib.suppress(DataError):  # missing or broken: written anew
        if _read(path) == facts:
            return
    write_json(path, facts)


def is_rehearsal(folder: Path) -> bool:
    """Return whether a folder of runs holds models of the preset ``smoke`` or of notebooks run by hand.

    Raises:
        DataError: The record is broken.
    """
    record = folder / RECORD
    preset = _read(record)["preset"] if record.is_file() else folder.name
    return folder.name == PLAY or preset == SMOKE


def _read(path: Path) -> dict:
    return read_record(path, _Run, "Delete it and run `make submit` again: it is written anew")
