"""Input files are regular files: no pipe is waited for, and no device fills the memory."""

import codecs
import errno
import os
import re
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
SMALL_BYTES = 1 << 23
"""Largest file that a user writes: credentials, a table of measured runtimes."""
_UTF_16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE


def unpacked_name(path: Path) -> str:
    """Return the name that a packed file has after unpacking."""
    return re.sub(r"\.(gz|bz2|xz)$", "", path.name)


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
        problem = "its name holds a NUL byte or an invalid character"
        raise DataError(ascii(str(path)), problem, "Rename the file") from None
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


def read_text(path: Path, remedy: str, max_bytes: int = SMALL_BYTES, missing: str = "") -> str:
    """Return the text of a file from outside, see :func:`decode`.

    ``remedy`` is the advice where it is no text or missing, ``missing`` where that has another.

    Raises:
        DataError: As for :func:`read_bytes`, or it is no text.
    """
    try:
        return decode(read_bytes(path, missing or remedy, max_bytes))
    except UnicodeDecodeError as error:
        raise DataError(path, f"is no UTF-8 text (byte {error.start})", remedy) from None


def read_bytes(path: Path, missing: str, max_bytes: int) -> bytes:
    """Return the content of a file from outside; ``missing`` is the advice where there is none.

    Raises:
        DataError: As for :func:`check_regular`, or it is missing.
    """
    check_regular(path, max_bytes)
    try:
        with open(path, "rb") as file:
            # what grows meanwhile is cut off; a buffer of the largest size would be made for every file
            return file.read(min(max_bytes, os.fstat(file.fileno()).st_size))
    except FileNotFoundError:
        raise DataError(path, "no such file", missing) from None
    except OSError as error:
        if explained := storage_error(error, path):
            raise explained from None
        raise


def decode(data: bytes) -> str:
    """Return the text of UTF-8, or of UTF-16 that begins with its mark, as Windows' PowerShell writes it."""
    return data.decode("utf-16" if data.startswith(_UTF_16) else "utf-8-sig")
