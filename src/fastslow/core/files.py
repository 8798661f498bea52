"""Files that are whole or absent: atomic writes, JSON, digests, one writer at a time."""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastslow.core.errors import DataError, StorageError, explain_storage
from fastslow.core.input_files import MAX_TEXT_BYTES, check_regular, read_text

_ON_A_DISK = "Set FASTSLOW_HOME, or the setting that names it, to a folder on a disk"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp(\..*)?")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path`` that is renamed to it when the block ends without an error.

    A reader sees the old file or the whole new one, never a part, also after a power failure. The temporary
    file is locked while its owner lives; the block writes into this very file. A process removes what killed
    ones left in a folder when it first writes there, see :func:`remove_abandoned`.
    A link stays one: the file that it leads to is written. A DataError of the temporary file names ``path``.

    Raises:
        StorageError: The operating system refuses the file: disk full, read-only, no permission; or what has
            its name is no regular file.
    """
    path = Path(path)
    with explain_storage(path):
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        with _folder_for(target, path):
            _refuse_what_is_no_file(path)
            _clear(target.parent)
            try:
                temporary, owner = _own_temporary(target)
            except FileNotFoundError:  # in a file system such as /proc
                raise StorageError(path, "no file can be made there", _ON_A_DISK) from None
            except OSError as error:
                error.filename = str(path)  # in place of the temporary one
                raise
            try:
                yield temporary
                os.fsync(owner)  # or a power failure could leave the new name with an empty file
                os.replace(temporary, target)
            except DataError as error:  # of content that was checked before it had its name
                if error.args[0] == temporary:
                    error.args = (path, *error.args[1:])
                raise
            finally:
                temporary.unlink(missing_ok=True)
                os.close(owner)


def check_writable(path: Path) -> None:
    """Refuse a path at which no file can be made, before the work whose result it is to hold; make nothing.

    Raises:
        StorageError: It is a folder or a device, or its folder is a file or not writable. A file system that
            makes no files, such as /proc, is found when the result is written.
    """
    folder = _nearest(path.parent)
    if not folder.is_dir():
        raise StorageError(path, f"{folder} is no folder", "Name another folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(path, f"{folder} is not writable", _ON_A_DISK)
    _refuse_what_is_no_file(path)


@contextlib.contextmanager
def _folder_for(target: Path, typed: Path) -> Iterator[None]:
    """Make the folder of a file and those above it; after an error remove those that are still empty."""
    missing = [folder for folder in target.parents if not folder.exists()]
    try:
        _make_folder(target.parent, typed)
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # another process has written into it
            for folder in missing:
                folder.rmdir()
        raise


def _make_folder(folder: Path, typed: Path) -> None:
    """Make a folder and those above it; an error names the path that was typed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:  # of a file system such as /proc
        raise StorageError(typed, "no folder can be made there", _ON_A_DISK) from None
    except (FileExistsError, NotADirectoryError):
        file = _nearest(folder)
        problem = "is a file, a folder is wanted" if file == typed else f"{file} is no folder"
        raise StorageError(typed, problem, "Name another folder") from None


def _nearest(folder: Path) -> Path:
    """Return a folder, or the nearest above it, that is there; it may be a file in the place of a folder."""
    return next(above for above in (folder, *folder.parents) if os.path.lexists(above))


def _refuse_what_is_no_file(path: Path) -> None:
    """Refuse an output in the place of a device, a folder or a pipe, which a rename would replace."""
    try:
        check_regular(path)
    except DataError as error:
        raise StorageError(path, error.args[1], "Name a new file, or one to be replaced") from None


def _own_temporary(path: Path) -> tuple[Path, int]:
    """Create a temporary file beside a path; return it with the descriptor that holds its lock."""
    while True:
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp{path.suffix}")
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        if _lock_now(descriptor) and _is_at(temporary, descriptor):
            return temporary, descriptor
        os.close(descriptor)  # another process took it for abandoned before it was locked


def _lock_now(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether a path still leads to an open file."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


@functools.cache
def _clear(folder: Path) -> None:
    """Remove what killed processes left in a folder, once per process: some hold thousands of files."""
    with contextlib.suppress(StorageError, OSError):  # what may not be removed hinders no file beside it
        remove_abandoned(folder, ".*")


def remove_abandoned(folder: Path, pattern: str = "**/.*") -> None:
    """Remove temporary files that :func:`atomic_path` made below a folder and whose owner has ended.

    An owner that lives, on this machine or another one, holds the lock of its file. A file that this user may
    not write stays. ``pattern`` limits the search, by default to hidden files of the folder and all below.
    """
    for path in Path(folder).glob(pattern):
        if not (_TEMPORARY.fullmatch(path.name) and os.access(path, os.W_OK)):
            continue
        with contextlib.suppress(FileNotFoundError), explain_storage(path):
            descriptor = os.open(path, os.O_RDWR)
            try:
                if _lock_now(descriptor) and _is_at(path, descriptor):
                    path.unlink()
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def only_warned() -> Iterator[None]:
    """Print an error of a file in this block as a warning: of something without which a result stands."""
    try:
        yield
    except BrokenPipeError:  # of what is printed
        raise
    except (DataError, OSError) as error:
        print(f"warning: {error}", file=sys.stderr)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, keys in the order given."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file; DataError where it is missing or not JSON."""
    remedy, missing = "Delete it and run the step again", "Run the step that writes it first"
    return parse_json(path, read_text(path, remedy, MAX_TEXT_BYTES, missing), remedy)


def parse_json(path: Path, text: str, remedy: str) -> Any:
    """Return the JSON value of a file's text; ``remedy`` is the advice of an error.

    Raises:
        DataError: It is no JSON, too deep, or holds a number of thousands of digits, half a character, or a
            key twice.
    """
    try:
        value = json.loads(text, object_pairs_hook=lambda pairs: _distinct(path, pairs, remedy))
        if _SURROGATE.search(text):  # a lone one cannot be written again
            json.dumps(value, ensure_ascii=False).encode()
    except DataError:
        raise
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"not JSON ({error})", remedy) from None
    return value


def _distinct(path: Path, pairs: list[tuple[str, Any]], remedy: str) -> dict[str, Any]:
    """Return the object of these pairs; DataError where it is unclear which value of a key counts."""
    value: dict[str, Any] = {}
    for key, entry in pairs:
        if key in value:
            raise DataError(path, f"has the key {key!r} twice, and it is unclear which counts", remedy)
        value[key] = entry
    return value


def digest(value: Any) -> str:
    """Return 16 hexadecimal digits of SHA-256 over a JSON-serialisable value, independent of key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@contextlib.contextmanager
def writer_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time write a folder; a second one prints a line and waits.

    The operating system releases the lock when its holder ends, even after a crash.

    Raises:
        StorageError: The folder cannot be written, or its file system has no locks.
    """
    folder = Path(folder)
    with contextlib.ExitStack() as stack:
        with explain_storage(folder):
            _make_folder(folder, folder)
            handle = stack.enter_context(open(folder / ".lock", "a"))
            if not _lock_now(handle.fileno()):
                print(f"{folder}: another run is writing here; waiting for it", file=sys.stderr, flush=True)
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
