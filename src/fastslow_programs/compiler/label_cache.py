"""The cache of labels: a SQLite file of JSON records, each with its checksum."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fastslow.core.errors import DataError, StorageError
from fastslow.core.files import digest


class LabelCache:
    """Records by key; several processes may read and write at the same time. It is to be closed.

    Raises:
        DataError: The file has another kind.
        StorageError: It cannot be opened or written.
    """

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        with self._explained():
            # it waits where another run writes
            self._connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        self.close = self._connection.close
        try:
            with self._explained():
                columns = "key TEXT PRIMARY KEY, record TEXT NOT NULL"
                self._connection.execute(f"CREATE TABLE IF NOT EXISTS labels ({columns})")
        except DataError:
            self.close()
            raise

    def read(self, key: str) -> dict | None:
        """Return the record of a key, None without one.

        Raises:
            DataError: It is not as it was written, or the file is damaged.
        """
        remedy = f"Delete the file, or this record (DELETE FROM labels WHERE key = '{key}'): it is made again"
        try:
            row = self._connection.execute("SELECT record FROM labels WHERE key = ?", (key,)).fetchone()
            record = json.loads(row[0]) if row else {}
            # a record of commit 9576e91e or before has no checksum
            if record.pop("checksum", digest(record)) != digest(record):
                raise ValueError("its checksum does not match")
        except (ValueError, TypeError, AttributeError, RecursionError, sqlite3.DatabaseError) as error:
            raise DataError(self._path, f"the record {key[:12]} is damaged ({error})", remedy) from None
        return record if row else None

    def write(self, key: str, record: dict) -> None:
        """Keep a record, in place of one that the key has; other processes read it from now on.

        Args:
            key: Digest of what was compiled, and how.
            record: Values that JSON can hold. A checksum is added.

        Raises:
            StorageError: The file cannot be written.
            DataError: The file is not a cache of labels.
        """
        text = json.dumps(record | {"checksum": digest(record)})
        with self._explained():
            self._connection.execute("INSERT OR REPLACE INTO labels VALUES (?, ?)", (key, text))

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn an error of SQLite into one with file and remedy."""
        try:
            yield
        except sqlite3.OperationalError as error:  # of the disk, not of what the file holds
            problem = f"the cache of labels cannot be opened or written ({error})"
            raise StorageError(self._path, problem, "Free space, or choose another folder") from None
        except sqlite3.DatabaseError as error:
            problem = f"is not a cache of labels ({error})"
            raise DataError(self._path, problem, "Delete it, or choose another folder") from None


def open_cache(path: Path) -> contextlib.closing[LabelCache]:
    """Open a cache, made if it is not there; errors are as for :class:`LabelCache`."""
    return contextlib.closing(LabelCache(path))
