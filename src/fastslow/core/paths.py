"""Where the paths of the settings start."""

import errno
import os
import stat
from functools import lru_cache
from pathlib import Path

from fastslow.core.errors import SettingsError

PROJECT = Path(__file__).resolve().parents[3]


def resolve(path: str) -> Path:
    """Return a path of the settings; relative ones start at the repository, wherever the notebook runs.

    The environment variable ``FASTSLOW_HOME`` names another folder for ``data/``, ``features/``, ``runs/``
    and ``submissions/``: a larger disk, or a test that must leave the repository alone.

    Raises:
        SettingsError: The path starts with ``~`` and a user that there is not, or ``FASTSLOW_HOME`` is none.
    """
    try:
        return _home(os.environ.get("FASTSLOW_HOME", "")) / Path(path).expanduser()
    except RuntimeError:
        raise SettingsError(f"{path}: there is no such user's home; write the whole path") from None


@lru_cache(1)
def _home(named: str) -> Path:
    """Return the folder that relative paths start at, once it can be one."""
    try:
        if not stat.S_ISDIR(os.stat(PROJECT / named).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except FileNotFoundError:
        pass  # it is made when something is written
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(f"FASTSLOW_HOME: {named[:80]!r} is no folder ({reason}); set it to one") from None
    return PROJECT / named
