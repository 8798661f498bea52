"""What the TPU compiler said before, in committed files: ``make sample`` looks there before it compiles.

The folder of a version of the compiler, such as ``data/compiled/0.0.51``, has text files in xz:
``labels_00.xz`` and so on, and ``programs_00.xz`` and so on. A line is a key of 16 hexadecimal digits, a
space and a value in JSON; keys ascend. A key is the begin of the key in the cache of labels.
"""

import base64
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import lzma
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path, writer_lock
from fastslow.core.isolated import CRASHED
from fastslow_programs.compiler.compile_pool import (
    NOT_TRIED,
    REFUSED,
    Labeller,
    Task,
    layout_label,
    program_before_layout,
)
from fastslow_programs.compiler.libtpu import TOPOLOGIES

MOST = {"labels": 10_000, "programs": 40}
"""Values of a file, so that it has at most 250 kB. Tile candidates, which would take more, are not kept."""

_NAMES = {layout_label: "labels", program_before_layout: "programs"}
_LINE = re.compile(r"([0-9a-f]{16}) (.+)")
_REMEDY = "Restore it (git checkout), or delete it: what it holds is then compiled again"
_ABSENT = "it is not in data/compiled, and libtpu is not installed: pip install -e '.[compiler]'"


def read_values(folder: Path, name: str) -> dict[str, Any]:
    """Return all values by key.

    Raises:
        DataError: A file is damaged, its keys do not ascend, or a file before it has one of them.
    """
    found: dict[str, Any] = {}
    for path in sorted(folder.glob(f"{name}_*.xz")):
        own = _read_file(path)
        if again := len(found.keys() & own.keys()):
            raise DataError(path, f"repeats {again} keys of the files before it", _REMEDY)
        found |= own
    return found


def _read_file(path: Path) -> dict[str, Any]:
    try:
        *lines, rest = lzma.decompress(path.read_bytes()).decode().split("\n")
        pairs = [match.groups() for line in lines if (match := _LINE.fullmatch(line))]
        keys = [key for key, _ in pairs]
        if rest or len(keys) < len(lines):
            raise ValueError("a line is not a key and a value")
        if keys != sorted(set(keys)):
            raise ValueError("its keys do not ascend")
        return {key: json.loads(value) for key, value in pairs}
    except (lzma.LZMAError, ValueError) as error:
        raise DataError(path, f"is damaged ({error})", _REMEDY) from None


def add_values(folder: Path, name: str, new: Mapping[str, Any]) -> None:
    """Add values by key to the last file, and to further ones where it is full; known keys keep their values.

    One run at a time reads and writes, so nothing is lost. Errors are as for :func:`read_values`.
    """
    with writer_lock(folder):
        known, paths = read_values(folder, name), sorted(folder.glob(f"{name}_*.xz"))
        lines = [(key, value) for key, value in new.items() if key not in known]
        if lines and paths:
            lines = [*_read_file(paths[-1]).items(), *lines]
        for number, start in enumerate(range(0, len(lines), MOST[name]), max(0, len(paths) - 1)):
            own = sorted(lines[start : start + MOST[name]], key=lambda line: line[0])
            text = "".join(f"{key} {json.dumps(value, ensure_ascii=False)}\n" for key, value in own)
            with atomic_path(folder / f"{name}_{number:02}.xz") as temporary:
                temporary.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def _value(record: dict) -> Any:
    """Return what to keep of a task's record: cycles, layouts and module, or a failure; None for nothing."""
    if "failure" in record:  # kept where it depends on the program alone
        return record["failure"] if record["failure"] in (CRASHED, REFUSED) else None
    if "cycles" in record:
        return record["cycles"]
    return [record["layouts"], base64.b64decode(record["module"]).decode("latin-1")]


def _record(value: Any) -> dict:
    """Return the record of a kept value."""
    if isinstance(value, str):
        return {"failure": value, "message": "so it did before"}
    if isinstance(value, int):
        return {"cycles": value}
    layouts, module = value
    return {"layouts": layouts, "module": base64.b64encode(module.encode("latin-1")).decode()}


def is_installed() -> bool:
    """Return whether libtpu, the compiler, is installed."""
    return importlib.util.find_spec("libtpu") is not None


def compiler_version(root: Path) -> str:
    """Return the version of libtpu; where it is not installed, the newest that has a folder in ``root``."""
    if is_installed():
        return importlib.metadata.version("libtpu")
    return max((path.name for path in root.glob("*.*.*")), key=lambda name: (len(name), name), default="none")


@contextlib.contextmanager
def known_first(
    root: Path, cache: Path, *, generation: str, task: Task = layout_label, **limits: Any
) -> Iterator[Callable[..., list[dict]]]:
    """Yield what :meth:`Labeller.workers` yields, but it compiles only what is not kept, and keeps it.

    Where libtpu is not installed, what is not kept is not tried.

    Args:
        root: Folder of the versions' folders.
        cache: As for :class:`Labeller`, which takes the other arguments, too.
        generation: Likewise.
        task: Likewise.
        **limits: Likewise.
    """
    name, version = _NAMES.get(task, ""), compiler_version(root)
    identity = f"{task.__name__} {version} {TOPOLOGIES[generation]}".encode()
    known = read_values(root / version, name) if name else {}
    with contextlib.ExitStack() as stack:
        compiled = _not_tried
        if is_installed():
            labeller = Labeller(cache, generation=generation, task=task, **limits)
            compiled = stack.enter_context(labeller.workers())

        def label(modules: list[bytes], title: str = "compiling") -> list[dict]:
            """Return the record of each module."""
            keys = [hashlib.sha256(identity + b"\0" + module).hexdigest()[:16] for module in modules]
            missing = {key: m for key, m in zip(keys, modules, strict=True) if key not in known}
            found = dict(zip(missing, compiled([*missing.values()], title), strict=True))
            if name and missing:
                values = {key: _value(record) for key, record in found.items()}
                add_values(root / version, name, {k: v for k, v in values.items() if v is not None})
            return [found[key] if key in found else _record(known[key]) for key in keys]

        yield label


def _not_tried(modules: list[bytes], title: str) -> list[dict]:
    return [{"failure": NOT_TRIED, "message": _ABSENT} for _ in modules]
