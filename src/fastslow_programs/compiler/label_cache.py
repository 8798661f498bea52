"""The cache of labels: a SQLite file of JSON records, each with its checksum."""

import contextlib
import json
import sqlite3
from pathlib import Path

from fastslow.core.errors import DataError
from fastslow.core.files import digest


class LabelCache:
    """Records by key; several processes may read and write at the same time. It is to be closed.

    Raises:
        DataError: The file has another kind.
    """

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # it waits where another run writes
        self._path = path
        self._connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        self.close = self._connection.close
        try:
            columns = "key TEXT PRIMARY KEY, record TEXT NOT NULL"
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS labels ({columns})")
        except sqlite3.DatabaseError as error:
            self.close()
            problem = f"is not a cache of labels ({error})"
            raise DataError(path, problem, "Delete it, or choose another folder") from None

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
                raise ValueError("its checksum is another one")
        except (ValueError, TypeError, AttributeError, RecursionError, sqlite3.DatabaseError) as error:
            raise DataError(self._path, f"the record {key[:12]} is damaged ({error})", remedy) from None
        return record if row else None

    def write(self, key: str, record: dict) -> None:
        """Keep a record."""
        text = json.dumps(record | {"checksum": digest(record)})
        self._connection.execute("INSERT OR REPLACE INTO labels VALUES (?, ?)", (key, text))


def open_cache(path: Path) -> contextlib.closing[LabelCache]:
    """Open a cache, made if it is not there; errors are as for :class:`LabelCache`."""
    return contextlib.closing(LabelCache(path))
