"""Artifacts: folders that one step writes, whole or absent, with a manifest and a fingerprint."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastslow.core.errors import DataError, StorageError, counted, explain_storage
from fastslow.core.files import digest, file_digest, remove_abandoned, write_json, writer_lock
from fastslow.core.input_files import check_regular
from fastslow.core.records import FileName, Record, read_record
from fastslow.core.source import source_digests

MANIFEST = "manifest.json"
STOPPED = "stopped"
CHECKSUM = "checksum"
"""Key of a manifest: digest of all its other keys."""
LARGE_BYTES = 16 << 20
"""A file from this size on is not read again where size and time of change are those recorded."""
_AGAIN = "Delete it and run the step that makes it again"
_CHANGED = "changed after it was written"
_MOST_NAMED = 3  # changed modules that are named, and values of a list


class _Stopped(Record):
    """Where a limit of time ended a training."""

    after: str
    hours: float


class _Manifest(Record):
    """Keys that every manifest has."""

    fingerprint: str
    settings: dict[str, Any]
    inputs: dict[str, Any]
    outputs: dict[FileName, Any] | list[Any] | None = None  # a list, of nothing: made again
    stopped: _Stopped | None = None


def commit() -> str:
    """Return the git commit of this code, with ``+`` if the tree differs from it; ``unknown`` outside git."""
    describe = ("describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+")
    command = ["git", "-C", str(Path(__file__).parent), *describe]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the manifest of a folder with a checksum of itself, so that reading an edited one is an error."""
    facts = json.loads(json.dumps(dict(facts)))  # as it is read again: keys are texts
    write_json(Path(folder) / MANIFEST, {**facts, CHECKSUM: digest(facts)})


def how_to_make(folder: Path, target: str, notebook: str) -> str:
    """Return the advice for a missing folder, with the ``NAME`` of ``features/NAME`` or ``runs/NAME``.

    Args:
        folder: The folder.
        target: Target of ``make`` that writes such a folder.
        notebook: The notebook that writes one, in words.
    """
    command, homes = f"make {target}", Path(folder).absolute().parents
    if len(homes) > 1 and homes[1].name in ("features", "runs"):
        command += f" NAME={shlex.quote(homes[0].name)}` and the run's DATA and settings"
    else:
        command += "`"
    return f"Make it with `{command}, or {notebook}, or name another folder"


def read_manifest(folder: Path, remedy: str = "Run the step that makes it") -> dict[str, Any]:
    """Read the manifest of a finished artifact; ``remedy`` is the advice of the error, how to make it.

    Raises:
        DataError: The folder is missing or was never finished, or its manifest lacks a key or was edited.
    """
    path = Path(folder) / MANIFEST
    with explain_storage(folder):
        is_finished = path.is_file()
    if not is_finished:
        unfinished = Path(folder).is_dir()
        problem = f"not finished (it has no {MANIFEST})" if unfinished else "no such folder"
        raise DataError(folder, problem, remedy)
    manifest = read_record(path, _Manifest, _AGAIN)
    if problem := _altered(manifest):
        raise DataError(path, problem, _AGAIN)
    return manifest


def _altered(manifest: Mapping[str, Any]) -> str:
    """Return how a manifest is not as :func:`write_manifest` wrote it; empty where it is."""
    if CHECKSUM not in manifest:
        return "has no checksum of itself"
    facts = {key: value for key, value in manifest.items() if key != CHECKSUM}
    return "" if digest(facts) == manifest[CHECKSUM] else _CHANGED


def finished_file(folder: Path, name: str, remedy: str, manifest: Mapping[str, Any] | None = None) -> Path:
    """Return the path of a file of a finished folder, after a check that it is as its step wrote it.

    Weights and trees are read by libraries that trust them; an edited ``model.txt`` ends LightGBM.

    Args:
        folder: The folder.
        name: Name of the file in it.
        remedy: Advice for the message.
        manifest: The folder's manifest, where it was read already.

    Raises:
        DataError: The folder is not finished, or the file is lost, not listed, or was changed.
    """
    path = Path(folder) / name
    outputs = (manifest or read_manifest(folder)).get("outputs")
    facts = outputs.get(name) if isinstance(outputs, dict) else None
    check_regular(path)
    if problem := _compare(path, facts or {}):
        raise DataError(path, problem, remedy)
    return path


@dataclass(frozen=True)
class Artifact:
    """A folder that one step writes, and what its content depends on.

    Its manifest is the last file written, so a folder without one never counts as done. It holds a checksum
    of every file made and of itself: what is lost or was changed afterwards is made again.
    """

    folder: Path
    settings: Mapping[str, Any]  # those that change its bytes
    inputs: Mapping[str, str]  # fingerprint of each input by name
    entry: str = ""
    """Function that makes the content, as ``package.module:function``, whose source counts too, see
    :mod:`fastslow.core.source`. Empty for what no code of this package makes."""
    products: tuple[Path, ...] = ()  # files that the step writes elsewhere; without them it is not current
    records: tuple[Path, ...] = ()  # files beside them that later steps add to: there, with whatever content
    parts: tuple["Artifact", ...] = ()  # written by the step as well, each finished before this one
    hours: float = 0.0
    """Limit of the time that its making takes; 0 has none. What a limit ended is current under no larger
    one."""

    @property
    def fingerprint(self) -> str:
        """Digest of settings, inputs and code together."""
        return digest({"settings": dict(self.settings), "inputs": dict(self.inputs), "code": self.code})

    @property
    def code(self) -> dict[str, str]:
        """Digest of the source that makes the content, by module."""
        return source_digests(self.entry) if self.entry else {}

    def is_current(self) -> bool:
        """Whether it and its parts were finished with these settings, inputs and code, files undamaged."""
        manifest = self._stored()
        if manifest is None:
            return False
        stopped = manifest.get(STOPPED) or {}
        if manifest["fingerprint"] != self._finished_as(stopped) or self._outgrown(stopped):
            return False
        if not all(path.is_file() for path in (*self.products, *self.records)):
            return False
        return not self.damaged() and all(part.is_current() for part in self.parts)

    def _finished_as(self, stopped: Mapping[str, Any]) -> str:
        """Return the fingerprint of the folder once it is finished, by where its time was over."""
        return digest([self.fingerprint, dict(stopped)]) if stopped else self.fingerprint

    def _outgrown(self, stopped: Mapping[str, Any]) -> bool:
        """Return whether the limit that ended the making of the folder is smaller than today's."""
        return bool(stopped) and not 0 < self.hours <= stopped["hours"]

    def damaged(self) -> dict[str, str]:
        """Return files that are not as they were written, relative to the folder: what is wrong with each."""
        manifest = self._stored()
        if manifest is None:
            return {}
        if not isinstance(manifest.get("outputs"), dict):
            return {MANIFEST: "lists no files, as earlier versions did"}
        problems = {name: _compare(self.folder / name, facts) for name, facts in manifest["outputs"].items()}
        problems[MANIFEST] = _altered(manifest)
        return {name: problem for name, problem in problems.items() if problem}

    def changes(self) -> list[str]:
        """Return the differences from the finished folder, a line each; none if it was never finished."""
        manifest = self._stored()
        if manifest is None:
            return []

        def differing(key: str, now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
            before = manifest.get(key)
            if not isinstance(before, dict):
                before = {}
            both = ((name, before.get(name), now.get(name)) for name in sorted({*before, *now}))
            return [(name, old, new) for name, old, new in both if old != new]

        settings = differing("settings", self.settings)
        code = differing("code", self.code)
        lines = [f"{name}: {_shown(old)} -> {_shown(new)}" for name, old, new in settings]
        if self._outgrown(stopped := manifest.get(STOPPED) or {}):
            limit = f"{self.hours:g}" if self.hours else "no limit"
            lines.append(f"hours: {stopped['hours']:g} -> {limit}; it stopped after {stopped['after']}")
        changed = [name for name, *_ in differing("inputs", self.inputs)]
        changed += _modules([name.removeprefix("fastslow.") for name, *_ in code])
        if changed:
            lines.append(f"{', '.join(changed)} changed")
        lines += [f"{name}: {problem}" for name, problem in self.damaged().items()]
        # what changed for all parts is in the list already
        return lines or [f"{part.folder.name}: {change}" for part in self.parts for change in part.changes()]

    def _stored(self) -> dict[str, Any] | None:
        """Return the manifest as it is there, edited or not; None where there is none or it lacks a key."""
        try:
            return read_record(self.folder / MANIFEST, _Manifest, _AGAIN)
        except StorageError:
            raise
        except DataError:
            return None

    @contextlib.contextmanager
    def building(self) -> Iterator[bool]:
        """Lock the folder for writing and yield whether its content must be made; :meth:`finish` comes last.

        Where it is out of date, its manifest goes first, then the manifests of its parts and its damaged
        files. Temporary files of killed runs are removed.

        Raises:
            DataError: The folder, or a part's, holds the finished work of another step; nothing is removed.
        """
        folders = [self.folder, *sorted(part.folder for part in self.parts)]  # always in the same order
        with contextlib.ExitStack() as locks:
            for folder in folders:
                locks.enter_context(writer_lock(folder))
            for artifact in (self, *self.parts):
                artifact._require_same_step()
            for folder in folders:
                remove_abandoned(folder)
            for path in self.products:  # a user may have named this folder, with others below it
                remove_abandoned(path.parent, ".*")
            current = self.is_current()
            if not current:
                self._discard()
            yield not current

    def _require_same_step(self) -> None:
        """Raise DataError where another step of ours has finished the folder: its work would be lost."""
        stored = self._stored()
        if stored is None or not stored.get("code"):
            return
        held = stored["settings"]
        if _step_of(held) != _step_of(self.settings):
            of = f" ({held.get('model') or 'made'} of {held['collection']})" if "collection" in held else ""
            problem = f"holds the finished work of another step{of}, which would be lost"
            raise DataError(self.folder, problem, "Give another folder, or delete this one first")

    def _discard(self) -> None:
        """Remove the manifests, and what is damaged: a builder that keeps whole files must not keep it."""
        with explain_storage(self.folder):
            for artifact in (self, *self.parts):
                for name in map(Path, artifact.damaged()):
                    inside = not name.is_absolute() and os.pardir not in name.parts
                    if inside and not (artifact.folder / name).is_dir():
                        (artifact.folder / name).unlink(missing_ok=True)
                (artifact.folder / MANIFEST).unlink(missing_ok=True)

    def finish(self, outputs: Iterable[str | Path] = (), stopped: str = "", **facts: Any) -> None:
        """Write the manifest: what the folder was made from, by which code, outputs, and further facts.

        ``stopped`` tells after what the limit ``hours`` ended the making (``epoch 10 of 60``).
        """
        files = [self.folder / output for output in outputs] + list(self.products)
        over = {STOPPED: {"after": stopped, "hours": self.hours}} if stopped else {}
        manifest = {
            "fingerprint": self._finished_as(over.get(STOPPED, {})),
            "settings": dict(self.settings),
            "inputs": dict(self.inputs),
            "code": self.code,
            "commit": commit(),
            "python": sys.version.split()[0],
            "versions": {name: version(name) for name in ("numpy", "torch", "lightgbm")},
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            **over,
            **facts,
            "outputs": {
                os.path.relpath(path, self.folder): {
                    "sha256": file_digest(path),
                    "bytes": path.stat().st_size,
                    "changed_ns": path.stat().st_mtime_ns,
                }
                for path in files
            },
        }
        write_manifest(self.folder, manifest)


def _step_of(settings: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return the mark of a step: its model, and whether it writes one collection."""
    return settings.get("model"), "collection" in settings


def _shown(value: Any) -> str:
    """Return the value of a setting as text; of a long list its length."""
    return f"{len(value)} values" if isinstance(value, list) and len(value) > _MOST_NAMED else repr(value)


def _modules(names: list[str]) -> list[str]:
    """Return changed modules in words: each by its file, or of many how many of which packages."""
    if len(names) <= _MOST_NAMED:
        return [f"{name.replace('.', '/')}.py" for name in names]
    packages = sorted({name.partition(".")[0] for name in names})
    return [f"code of {counted(len(names), 'module')} in {', '.join(packages)}"]


def _compare(path: Path, facts: Mapping[str, Any]) -> str:
    """Return how a file differs from what a manifest records of it; empty where it does not."""
    try:
        check_regular(path)
        state = path.stat()
        same = state.st_size == facts["bytes"]
        if not same or state.st_size < LARGE_BYTES or state.st_mtime_ns != facts["changed_ns"]:
            same = same and file_digest(path) == facts["sha256"]
        return "" if same else _CHANGED
    except FileNotFoundError:
        return "lost"
    except DataError as error:
        return str(error.args[1])
    except (KeyError, TypeError):
        return "has no checksum"
