"""Artifacts: folders that one step writes, whole or absent, with a manifest and a fingerprint."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from fastslow.core.errors import DataError
from fastslow.core.files import digest, read_json, write_json, writer_lock
from fastslow.core.source import source_digests

MANIFEST = "manifest.json"


def commit() -> str:
    """Return the git commit of this code, with ``+`` if the tree differs from it; ``unknown`` outside git."""
    here = Path(__file__).parent
    try:
        command = ["git", "-C", str(here), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def read_manifest(folder: Path) -> dict:
    """Read the manifest of a finished artifact.

    Raises:
        DataError: The folder is missing or was never finished, or its manifest is no JSON object.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise DataError(folder, "not finished (it has no manifest.json)", "Run the step that makes it again")
    manifest = read_json(path)
    if not isinstance(manifest, dict):
        problem = f"a JSON object is wanted, not {type(manifest).__name__}"
        raise DataError(path, problem, "Delete it and run the step that makes it again")
    return manifest


@dataclass(frozen=True)
class Artifact:
    """A folder that one step writes, and what its content depends on.

    Its manifest is the last file written, so a folder without one never counts as done.

    Args:
        folder: The folder.
        settings: The settings that change its bytes.
        inputs: Fingerprint of each input by name.
        entry: Function that makes the content, as ``package.module:function``; the content depends on its
            source, see :mod:`fastslow.core.source`. Empty for what no code of this package makes.
        products: Files that the step writes elsewhere; without them it is not current.
        parts: Artifacts that the step writes as well, each finished by itself before this one.
    """

    folder: Path
    settings: Mapping
    inputs: Mapping[str, str]
    entry: str = ""
    products: tuple[Path, ...] = ()
    parts: tuple["Artifact", ...] = ()

    @property
    def fingerprint(self) -> str:
        """Digest of settings, inputs and code together."""
        return digest({"settings": dict(self.settings), "inputs": dict(self.inputs), "code": self.code})

    @property
    def code(self) -> dict[str, str]:
        """Digest of the source that makes the content, by module."""
        return source_digests(self.entry) if self.entry else {}

    def is_current(self) -> bool:
        """Whether the folder and each of its parts were finished with these settings, inputs and code."""
        path = self.folder / MANIFEST
        there = all(p.is_file() for p in (path, *self.products))
        own = there and read_json(path).get("fingerprint") == self.fingerprint
        return own and all(part.is_current() for part in self.parts)

    def changes(self) -> list[str]:
        """Return what differs from the finished folder, one line each; nothing if it was never finished."""
        if not (self.folder / MANIFEST).is_file():
            return []
        manifest = read_manifest(self.folder)
        own = [
            f"{key}: {had.get(key)!r} -> {wanted.get(key)!r}"
            for had, wanted in ((manifest["settings"], self.settings), (manifest["inputs"], self.inputs))
            for key in sorted({*had, *wanted})
            if had.get(key) != wanted.get(key)
        ]
        had = manifest.get("code", {})
        changed = [name for name in sorted({*had, *self.code}) if had.get(name) != self.code.get(name)]
        own += [f"code of {', '.join(changed)} changed"] if changed else []
        # what changed for all parts is in the list already
        parts = (f"{part.folder.name}: {change}" for part in self.parts for change in part.changes())
        return own or list(parts)

    @contextlib.contextmanager
    def building(self) -> Iterator[bool]:
        """Lock the folder for writing and yield whether its content must be made.

        Where it is out of date its manifest goes first, and those of its parts. The caller's last act is
        :meth:`finish`.

        Yields:
            False where the folder is current.
        """
        folders = [self.folder, *sorted(part.folder for part in self.parts)]  # always in the same order
        with contextlib.ExitStack() as locks:
            for folder in folders:
                locks.enter_context(writer_lock(folder))
            current = self.is_current()
            if not current:
                for folder in folders:
                    (folder / MANIFEST).unlink(missing_ok=True)
            yield not current

    def finish(self, **facts) -> None:
        """Write the manifest: what the folder was made from, by which code, and further facts."""
        manifest = {
            "fingerprint": self.fingerprint,
            "settings": dict(self.settings),
            "inputs": dict(self.inputs),
            "code": self.code,
            "commit": commit(),
            "python": sys.version.split()[0],
            "versions": {name: version(name) for name in ("numpy", "torch", "lightgbm")},
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            **facts,
        }
        write_json(self.folder / MANIFEST, manifest)
