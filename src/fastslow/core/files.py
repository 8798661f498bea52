"""Files that are whole or absent: atomic writes, JSON, digests, one writer at a time."""

import contextlib
import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from fastslow.core.errors import DataError


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path`` that is renamed to it when the block ends without an error.

    A reader sees the old file or the whole new one, never a part.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value) -> None:
    """Write JSON atomically, keys in the order given."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n")


def read_json(path: Path):
    """Read a JSON file.

    Raises:
        DataError: The file is missing or is not JSON.
    """
    try:
        return json.loads(Path(path).read_text())
    except FileNotFoundError:
        raise DataError(path, "no such file", "Run the step that writes it first") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(path, f"not JSON ({error})", "Delete it and run the step again") from None


def digest(value) -> str:
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

    The lock is the operating system's: it goes when its holder ends, however it ends.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder}: another run is writing here; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
