"""A spy on settings: what a whole command reads of them, and what it neither reads nor refuses."""

import sys
from contextlib import contextmanager
from unittest import mock

from fastslow.core.errors import SettingsError
from fastslow.core.settings import Settings

CHECKS = {"__init__", "check", "unread", "unread_by_source", "require_defaults", "replace"}
CHANGED = {
    "kernel": "other",
    "name": "other",
    "cache": None,
    "evaluator": "",
    "strategy": "random",
    "run": "elsewhere",
    "evaluations": 24,
    "budget_seconds": 600.0,
    "batch": 3,
    "command": "other",
    "confirm": 0.25,
    "repeats": 2,
    "seconds": 60.0,
    "attempts": 4,
    "processes": 2,
    "generation": "v4",
    "data_root": "other",
    "seed": 5,
    "collection": "layout:nlp:random",
    "options": "auto",
    "space": "options",
    "label": None,
    "configs": 7,
    "devices": 3,
    "memory": 1e9,
    "epochs": 1,
    "samples": 3,
    "search": 7,
    "device": "v5e",
}
"""Another value than the default of each setting; None for one that is True or False."""


def is_check(code):
    """Return whether code checks settings, which is no use of them."""
    return code.co_name in CHECKS and code.co_filename.endswith("settings.py")


@contextmanager
def settings_read():
    """Give a set of names that has, at the end, every setting that was read, but for checks."""
    read = set()

    def spy(self, name):
        frame = sys._getframe(1)
        while frame and not is_check(frame.f_code):
            frame = frame.f_back
        if frame is None:
            read.add(name)
        return object.__getattribute__(self, name)

    with mock.patch.object(Settings, "__getattribute__", spy, create=True):
        yield read


def ignored(settings, read, refuse=None, ignore=()):
    """Return the settings that were not read, and that may have another value without a word.

    Args:
        settings: Those that were given.
        read: What was read of them.
        refuse: Called with settings that have another value; it raises where a check of the command does.
        ignore: Names of settings that say where files are.
    """
    silent = []
    for name in sorted({*type(settings).model_fields} - read - {"source", *ignore}):
        value = CHANGED[name]
        try:
            changed = settings.replace(**{name: not getattr(settings, name) if value is None else value})
            if refuse:
                refuse(changed)
        except SettingsError as error:
            assert name in str(error)
            continue
        silent.append(name)
    return silent
