"""The cache of labels: a SQLite file of JSON records, checked by key when they are read."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Len
from pydantic import Field

from fastslow.core.errors import DataError
from fastslow.core.records import Record, check_record

Cycles = Annotated[int, Ge(0)]
Base64 = Annotated[str, Field(pattern="^[A-Za-z0-9+/]+={0,2}$")]


class LabelRecord(Record):
    """Keys that every record has: the compiler and the topology that it belongs to."""

    compiler: str
    topology: str


class FailureRecord(LabelRecord):
    """A program without a label: the kind of failure and its message."""

    failure: str
    message: str


class CyclesRecord(LabelRecord):
    """Estimated cycles of a program, and how many instructions have an estimate."""

    cycles: Cycles
    estimated: Cycles
    without_estimate: Cycles


class _Kernel(Record):
    chosen: Cycles | None
    candidates: list[Annotated[list[list[int] | int], Len(3, 3)]]


class KernelsRecord(LabelRecord):
    """The record of a program's fused kernels: tile candidates by kernel, and the optimised module."""

    kernels: dict[str, _Kernel]
    module: Base64


class ModuleRecord(LabelRecord):
    """A module before layout assignment, and the compiler's own layouts."""

    module: Base64
    layouts: dict[str, list[list[int]]]


class LabelCache:
    """Records by key; several processes may read and write at the same time."""

    def __init__(self, path: Path, connection: sqlite3.Connection):
        self._path, self._connection = path, connection

    def read(self, key: str, wanted: type[LabelRecord] = LabelRecord) -> dict | None:
        """Return the record of a key, None without one; ``wanted`` has the keys of one that is no failure.

        Raises:
            DataError: It is no JSON object with the keys that are wanted; or the file is damaged.
        """
        remedy = f"Delete the file, or this record (DELETE FROM labels WHERE key = '{key}'): it is made again"
        try:
            row = self._connection.execute("SELECT record FROM labels WHERE key = ?", (key,)).fetchone()
            value = json.loads(row[0]) if row else None
        except (ValueError, TypeError, RecursionError, sqlite3.DatabaseError) as error:
            raise DataError(self._path, f"the record {key[:12]} is damaged ({error})", remedy) from None
        if row is None:
            return None
        failed = isinstance(value, dict) and "failure" in value
        try:
            return check_record(self._path, value, FailureRecord if failed else wanted, remedy)
        except DataError as error:
            path, problem, _ = error.args
            raise DataError(path, f"the record {key[:12]}: {problem}", remedy) from None

    def write(self, key: str, text: str) -> None:
        """Keep a record, given as JSON."""
        self._connection.execute("INSERT OR REPLACE INTO labels VALUES (?, ?)", (key, text))


@contextlib.contextmanager
def open_cache(path: Path) -> Iterator[LabelCache]:
    """Open a cache, made if it is not there.

    Raises:
        DataError: The file has another kind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)  # another run may write
    with contextlib.closing(connection):
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS labels (key TEXT PRIMARY KEY, record TEXT NOT NULL)"
            )
        except sqlite3.DatabaseError as error:
            problem = f"is not a cache of labels ({error})"
            raise DataError(path, problem, "Delete it, or choose another folder") from None
        yield LabelCache(path, connection)
