"""Parts of a benchmark that are kept in a file, so that an interrupted run resumes."""

from collections.abc import Callable
from pathlib import Path

from fastslow.core.files import read_json, write_json


class Kept:
    """Results by part, written as each is there.

    Args:
        path: The JSON file; None to keep nothing.
    """

    def __init__(self, path: Path | None):
        self._path = path
        self._parts = read_json(path) if path and path.is_file() else {}

    def part(self, name: str, make: Callable[[], object]):
        """Return a part, made where it is not kept; it consists of what JSON has."""
        if name not in self._parts:
            self._parts[name] = make()
            if self._path:
                write_json(self._path, self._parts)
        return self._parts[name]
