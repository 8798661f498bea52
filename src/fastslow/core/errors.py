"""Errors that a user can mend: the message names what is wrong and the remedy."""

import contextlib
import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

Kind = TypeVar("Kind")
_LISTED = 3  # names of a list that a message has


def printable(text: str) -> str:
    r"""Return a text that can be printed: bytes in a file's name that are no UTF-8 as ``\udcff``."""
    return text.encode(errors="backslashreplace").decode()


def listed(names: Sequence[str]) -> str:
    """Return the first names of a list and how many more there are: ``a, b, c and 221 more``."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


def counted(number: int, noun: str) -> str:
    """Return a number of things as text: ``1 program``, ``1,965 programs``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def with_article(name: str) -> str:
    """Return a name after its article, as it is spoken: ``an add``, ``a dot``, ``an rng``."""
    return f"an {name}" if name.startswith((*"aeio", "fft", "nd", "rng")) else f"a {name}"


class FastslowError(Exception):
    """Base class: the command line and notebooks print the message without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class SettingsError(FastslowError, ValueError):
    """A setting is unknown, of the wrong type, or out of range; the message names it.

    Args:
        name: Name of the setting. Where no single one is at fault, the whole message.
        problem: What is wrong with its value, and the remedy.
    """

    def __init__(self, name: str, problem: str = ""):
        super().__init__(name, problem)  # as given: pickle makes the error again from them

    @property
    def name(self) -> str:
        """Name of the setting; empty where no single one is at fault."""
        return str(self.args[0]) if self.args[1] else ""

    def __str__(self) -> str:
        return ": ".join(filter(None, self.args))

    def named(self, path: str) -> "SettingsError":
        """Return the same error of the path that a user typed for the setting."""
        return SettingsError(path, self.args[1])


def check_options(options: Any) -> None:
    """Refuse options of another type, range (``Annotated``) or choice (``Literal``) than their dataclass has.

    Raises:
        SettingsError: One has another; it is named. A whole number of NumPy is one.
    """
    for field in fields(options):
        value = getattr(options, field.name)
        number = int(value) if type(value) is not bool and isinstance(value, Integral) else value
        try:
            _validator(field.type).validate_python(number)  # type: ignore[arg-type]  # all are hashable
        except ValidationError as error:
            raise SettingsError(field.name, f"{value!r}: {error.errors()[0]['msg']}") from None


@cache
def _validator(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False))


def registered(registry: Mapping[str, Kind], option: str, name: str) -> Kind:
    """Return the entry of a registry, entries by name, for the value ``name`` of an ``option``.

    Raises:
        SettingsError: The registry has no such entry.
    """
    if name not in registry:
        raise SettingsError(option, f"{name!r} is none of {', '.join(registry)}")
    return registry[name]


class DataError(FastslowError, ValueError):
    """A file is missing, broken, or does not fit its neighbours; the message names it and the remedy."""

    def __init__(self, path: object, problem: str, remedy: str):
        super().__init__(path, problem, remedy)  # as given: pickle makes the error again from them

    def __str__(self) -> str:
        return printable("{}: {}. {}".format(*self.args))


_RESUME = "then type the same command: it resumes"
_LARGER = f"Free space, or set FASTSLOW_HOME to a folder on a larger disk; {_RESUME}"
_WRITABLE = f"Make it writable for you, or set FASTSLOW_HOME to a folder that is; {_RESUME}"
_OWNER = f"Change its owner or mode, or its folder's; {_RESUME}"
_DRIVE = f"Check the (network) drive and mount it again; {_RESUME}"
_LOCAL = "Set FASTSLOW_HOME to a folder on a local disk"
_OPEN_FILES = f"Raise the limit (ulimit -n 65536) or run fewer notebooks at a time (JOBS=1); {_RESUME}"
_REMEDIES = {
    errno.ENOSPC: ("the disk is full", _LARGER),
    errno.EDQUOT: ("the disk quota is used up", _LARGER),
    errno.EFBIG: ("the file would be larger than the file system or `ulimit -f` allows", _LARGER),
    errno.EROFS: ("the file system is read-only", _WRITABLE),
    errno.EACCES: ("permission denied", _OWNER),
    errno.EPERM: ("operation not permitted", _OWNER),
    errno.ESTALE: ("the network drive lost this file (stale file handle)", _DRIVE),
    errno.EIO: ("the drive reports an input/output error", _DRIVE),
    errno.ENOTCONN: ("the network drive is not connected", _DRIVE),
    errno.ETIMEDOUT: ("the network drive does not answer", _DRIVE),
    errno.ENOLCK: ("the file system has no locks", _LOCAL),
    errno.ENOTSUP: ("the file system has no locks", _LOCAL),
    errno.EMFILE: ("too many open files in this process", _OPEN_FILES),
    errno.ENFILE: ("too many open files on this machine", _OPEN_FILES),
    errno.ENOTDIR: ("a file is in the place of a folder", "Rename or delete that file"),
    errno.EISDIR: ("a folder is in the place of a file", "Rename or delete that folder"),
    errno.ENAMETOOLONG: ("the name is too long", "Choose a shorter one"),
}


class StorageError(DataError):
    """The operating system refuses to read or write a file; what is in it may be sound."""


def storage_error(error: OSError, path: str | Path = "") -> StorageError | None:
    """Return an operating system's error with its remedy; None for one that is no refusal (a missing file).

    ``path`` is the file or folder where the error does not name it (a full disk does not).
    """
    if error.errno not in _REMEDIES:
        return None
    return StorageError(error.filename or path, *_REMEDIES[error.errno])


@contextlib.contextmanager
def explain_storage(path: str | Path) -> Iterator[None]:
    """Turn an error of the operating system in this block, about the file ``path``, into a StorageError."""
    try:
        yield
    except OSError as error:
        if explained := storage_error(error, path):
            raise explained from error
        raise
