"""Parts of a benchmark that are kept in a file, so that an interrupted run resumes."""

import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np

from common import report
from fastslow.core.files import digest, file_digest, read_json, write_json
from fastslow.core.source import source_digest


def kept_parts(script: str, options: Namespace, run: Path | None = None) -> "Kept":
    """Return the parts of a script in ``benchmarks/results``; with ``--quick`` none are kept.

    The file is another one where the code that the script reaches differs, its options or the run.

    Args:
        script: Path of the script.
        options: Its command line.
        run: Folder of the run that it reads, if any.
    """
    if options.quick:
        return Kept(None)
    path = Path(script).resolve()
    code = source_digest(f"{path.stem}:main", path.parent)
    given = sorted((name, str(value)) for name, value in vars(options).items())
    made = [file_digest(manifest) for manifest in sorted(run.glob("*/manifest.json"))] if run else []
    return Kept(report.RESULTS / f"{path.stem}-{digest([code, given, made])}.json")


class Kept:
    """Results by part, written after each part.

    Args:
        path: The JSON file; None to keep nothing.
    """

    def __init__(self, path: Path | None):
        self._path = path
        self._parts = read_json(path) if path and path.is_file() else {}

    def part(self, name: str, make: Callable[[], object]):
        """Return a part, which consists of JSON types; make it if it is not kept."""
        if name not in self._parts:
            self._parts[name] = make()
            if self._path:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_json(self._path, self._parts)
        return self._parts[name]

    def rows(self, section: str, names: list[str], make: Callable[[str], dict]) -> list[dict]:
        """Return a row of a table for each name, printed as it is there; None where not finite."""
        found = []
        for name in names:
            found.append(self.part(f"{section} {name}", lambda name=name: finite(make(name))))
            print(found[-1], file=sys.stderr, flush=True)
        return found


def finite(value):
    """Return a value for JSON, which has no word for infinity: None where a number is not finite."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
