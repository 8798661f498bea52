"""Input files are regular files: no pipe is waited for, and no device fills the memory."""

import errno
import os
import stat
from pathlib import Path

from fastslow.core.errors import DataError, storage_error

_IN_PLACE = "Put the file itself in its place"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
MAX_TEXT_BYTES = 1 << 28
"""Largest text file that is read whole: a submission has 32 MB, a record or manifest less than 1 MB."""


def check_regular(path: Path, max_bytes: int | None = None) -> None:
    """Refuse what is no regular file, before it is opened; links are followed.

    A missing file passes, as opening it raises the error. A file that is read whole has ``max_bytes``.

    Raises:
        DataError: It is a folder, a pipe, a socket or a device, or larger than allowed; no file can have
            this name, or the operating system refuses to look.
    """
    try:
        status = os.stat(path)
    except ValueError:
        raise DataError(ascii(str(path)), "is no name of a file", "Take out what is no character") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DataError(path, "is a link that leads to itself", _IN_PLACE) from None
        if explained := storage_error(error, path):
            raise explained from None
        return
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
        raise DataError(path, f"is {kind}, a file is wanted", _IN_PLACE)
    if max_bytes is not None and status.st_size > max_bytes:
        problem = f"has {status.st_size:,} bytes, at most {max_bytes:,} are read"
        raise DataError(path, problem, "Check where the file comes from")


def is_there(path: Path, max_bytes: int | None = None) -> bool:
    """Return whether an optional file is there: only a name that is not taken counts as absent.

    Raises:
        DataError: As for :func:`check_regular`, or it is a link that leads nowhere.
    """
    if not os.path.lexists(path):
        return False
    check_regular(path, max_bytes)
    if not os.path.exists(path):
        raise DataError(path, "is a link that leads nowhere", _IN_PLACE)
    return True
