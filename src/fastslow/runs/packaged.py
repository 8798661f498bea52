"""The models in the package: a finished run in one archive, so that a first ranking needs no training.

``benchmarks/common/pack_models.py`` writes the archive and its card. The archive holds the run's own files,
byte for byte: manifests, weights, scalers, trees. It is unpacked once, into a cache folder, and read as any
other run is, each file compared with the checksum in its manifest.
"""

import contextlib
import functools
import lzma
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from fastslow.core.errors import DataError, StorageError
from fastslow.core.files import file_digest, writer_lock

FOLDER = Path(__file__).resolve().parents[2] / "fastslow_programs" / "models"
"""Folder of the archive, which the package that ranks programs brings."""
ARCHIVE = "models.tar.xz"
_PREFIX = "models-"
_AGAIN = "Install fastslow again, or name a run of your own (run=, RUN=)"


def packaged_models() -> Path:
    """Return the folder of the models in the package, unpacked into a cache folder where they are not yet.

    The cache folder is ``$XDG_CACHE_HOME/fastslow``, by default ``~/.cache/fastslow``; where it cannot be
    written, a temporary one of this process.

    Raises:
        FileNotFoundError: The package has no models.
        DataError: The archive is damaged.
        StorageError: No folder can be written.
    """
    archive = FOLDER / ARCHIVE
    name = f"{_PREFIX}{file_digest(archive)[:12]}"
    for cache in _caches():
        with contextlib.suppress(OSError, StorageError):
            if (cache / name).is_dir():
                return cache / name
            cache.mkdir(parents=True, exist_ok=True)
            with writer_lock(cache):
                return _unpack(archive, cache / name)
    raise StorageError(cache, "cannot be written", "Set XDG_CACHE_HOME to a folder that can")


def describe_packaged(runs: Path, manifest: Mapping) -> str:
    """Return a description of a folder of runs that holds the models in the package; empty for another."""
    if not re.fullmatch(_PREFIX + "[0-9a-f]{12}", runs.name):
        return ""
    return f"the models in the package, trained on the compiler's estimates (commit {manifest['commit']})"


def _caches() -> Iterator[Path]:
    with contextlib.suppress(RuntimeError):  # there is no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fastslow"
    yield Path(_temporary().name)


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory:
    """Return a temporary folder of this process, which is removed at its end."""
    return tempfile.TemporaryDirectory(prefix="fastslow-")


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive, whole or not at all, after a process that was first or was killed meanwhile."""
    if folder.is_dir():
        return folder
    for abandoned in folder.parent.glob(f".{_PREFIX}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=folder.parent))
    try:
        with tarfile.open(archive, "r:xz") as opened:
            opened.extractall(temporary, filter="data")
        temporary.chmod(0o755)
        os.rename(temporary, folder)
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise DataError(archive, f"is damaged ({error})", _AGAIN) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder
