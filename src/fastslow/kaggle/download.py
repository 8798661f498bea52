"""The real competition's data (``make data``): download, check, unpack; what is complete is left alone.

Two sources: the kaggle CLI (one zip with everything, needs credentials) and Google's public tar files (one
a split, no account). The machine this was written on has no network: both were tried against a loopback
server only, Kaggle's with the real CLI. Not tried: the two real hosts, their speed, their true sizes, and
the folders inside Kaggle's zip, which is why a member's place is told by the ``npz/...`` part of its path.
"""

import argparse
import errno
import os
import re
import shutil
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fastslow.competition.catalog import COLLECTIONS, SPLITS, Collection, get_collection
from fastslow.core.errors import ConfigError, DataError
from fastslow.core.files import writer_lock
from fastslow.kaggle import archives, client

GOOGLE_URL = "https://download.tensorflow.org/data/tpu_graphs/v0/"
SOURCES = ("auto", "kaggle", "google")
SAMPLE_SUBMISSION = "sample_submission.csv"
FILE_COUNTS = {  # Programs of each collection in train, valid and test.
    "tile:xla": (5709, 676, 844),
    "layout:xla:default": (61, 7, 8),
    "layout:xla:random": (69, 7, 8),
    "layout:nlp:default": (198, 20, 17),
    "layout:nlp:random": (207, 20, 17),
}
_MEMBER = re.compile(r"(?:^|/)npz/((?:tile|layout)/.+)/([^/.][^/]*\.npz)")
_SCRATCH = ".unpacking-"


class Split(NamedTuple):
    """One split of one collection: a folder of npz files, and one of Google's tar files."""

    collection: Collection
    name: str

    def __str__(self) -> str:
        return f"{self.collection.name} {self.name}"

    @property
    def count(self) -> int:
        """How many npz files it has."""
        return FILE_COUNTS[self.collection.name][SPLITS.index(self.name)]

    @property
    def archive(self) -> str:
        """Name of Google's tar file."""
        return f"npz_{self.collection.name.replace(':', '_')}_{self.name}.tar"

    @property
    def path(self) -> str:
        """Its folder inside every archive, below ``npz/``."""
        return f"{self.collection.name.replace(':', '/')}/{self.name}"

    def folder(self, root: Path) -> Path:
        """Its folder under a data root."""
        return self.collection.folder(root, self.name)

    def present(self, root: Path) -> int:
        """How many of its npz files are there."""
        return sum(1 for _ in self.folder(root).glob("*.npz"))


def fetch(
    root: Path,
    source: str = "auto",
    splits: Iterable[str] = SPLITS,
    collections: Iterable[str] = tuple(FILE_COUNTS),
    keep: bool = False,
    base_url: str = GOOGLE_URL,
) -> list[Path]:
    """Download and unpack what is missing of the competition's data under ``root/npz_all/npz/``.

    A split is complete when its folder holds as many npz files as the competition has; folders appear
    whole, after every check. An interrupted run is continued by the next one.

    Args:
        root: Data root, for example ``data/raw``.
        source: ``kaggle`` (the CLI, one zip with everything), ``google`` (one tar a split), or ``auto``:
            Kaggle where there are credentials, Google otherwise.
        splits: Any of ``train``, ``valid``, ``test``.
        collections: Names or slugs of collections.
        keep: Keep the archives in ``root/archives/`` after unpacking them.
        base_url: Where Google's tar files are.

    Returns:
        The folders that are new.

    Raises:
        ConfigError: An unknown source, split or collection.
        DataError: Too little disk, a lost connection, a wrong size or count, a broken or unsafe archive.
        KaggleError: The kaggle CLI failed.
    """
    wanted = _wanted(source, splits, collections)
    root = Path(root)
    try:
        with writer_lock(root):
            for left_over in root.glob(f"{_SCRATCH}*"):
                shutil.rmtree(left_over)
            missing = [split for split in wanted if _is_missing(root, split)]
            if missing and (source == "kaggle" or source == "auto" and _has_kaggle(root)):
                _from_kaggle(root, missing, keep)
            elif missing:
                _from_google(root, missing, keep, base_url)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DataError(root, "the disk is full", "Free some space and run it again: it goes on") from error
    return [split.folder(root) for split in missing]


def _wanted(source: str, splits: Iterable[str], collections: Iterable[str]) -> list[Split]:
    if source not in SOURCES:
        raise ConfigError(f"source: {source!r} is none of {', '.join(SOURCES)}")
    names = [get_collection(name).name for name in collections]
    for name in splits:
        if name not in SPLITS:
            raise ConfigError(f"splits: {name!r} is none of {', '.join(SPLITS)}")
    return [Split(c, name) for c in COLLECTIONS if c.name in names for name in SPLITS if name in splits]


def _is_missing(root: Path, split: Split) -> bool:
    if split.present(root) > split.count:
        raise DataError(
            split.folder(root),
            f"holds {split.present(root)} npz files, the competition has {split.count}",
            "Move the folder away and run it again",
        )
    return split.present(root) < split.count


def _kaggle_zip(root: Path) -> Path:
    return root / "archives" / f"{client.COMPETITION}.zip"


def _has_kaggle(root: Path) -> bool:
    """Whether Kaggle's zip is there or can be asked for."""
    return _kaggle_zip(root).exists() or client.credentials() is not None


def _from_kaggle(root: Path, missing: list[Split], keep: bool) -> None:
    archive = _kaggle_zip(root)
    if not archive.exists():
        print(f"From Kaggle: one zip with everything, {len(missing)} splits of it missing here", flush=True)
        part = archive.parent / "part"  # The CLI gives a zip its name before it is whole.
        os.replace(client.download(part), archive)
        part.rmdir()
    _install(archive, root, missing)
    _discard(archive, keep)


def _from_google(root: Path, missing: list[Split], keep: bool, base_url: str) -> None:
    urls = {split: f"{base_url.rstrip('/')}/{split.archive}" for split in missing}
    targets = {split: root / "archives" / split.archive for split in missing}
    sizes = [_size(urls[split], targets[split]) for split in missing]
    here, total = sum(map(archives.local_size, targets.values())), sum(sizes)
    print(f"From Google: {len(missing)} tar files, {total - here:,} bytes to download", flush=True)
    # A tar's content is as large as the tar, which is deleted before the next one comes, or kept.
    archives.require_space(root, total + (total if keep else max(sizes)) - here, "the data")
    for split in missing:
        if not targets[split].exists():
            archives.download(urls[split], targets[split])
        _install(targets[split], root, [split])
        _discard(targets[split], keep)


def _size(url: str, target: Path) -> int:
    return target.stat().st_size if target.exists() else archives.remote_size(url)


def _discard(archive: Path, keep: bool) -> None:
    if not keep:
        archive.unlink()
        if not any(archive.parent.iterdir()):
            archive.parent.rmdir()


def _install(archive: Path, root: Path, splits: list[Split]) -> None:
    """Unpack beside the data, check, then give the folders their names."""
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=root) as name:
        scratch = Path(name)
        archives.unpack(archive, scratch, partial(_place, {split.path for split in splits}))
        for split in splits:
            _check(archive, scratch, split)
        for split in splits:
            _move(split.folder(scratch), split.folder(root))
        if (scratch / SAMPLE_SUBMISSION).exists():
            os.replace(scratch / SAMPLE_SUBMISSION, root / SAMPLE_SUBMISSION)
    for split in splits:
        _is_missing(root, split)  # A folder that already held files of other names is refused here.


def _place(paths: set[str], member: str) -> str | None:
    """Where a member belongs under the data root, whatever folders the archive puts before ``npz/``."""
    if PurePosixPath(member).name == SAMPLE_SUBMISSION:
        return SAMPLE_SUBMISSION
    parts = _MEMBER.search(member)
    return f"npz_all/npz/{parts[1]}/{parts[2]}" if parts and parts[1] in paths else None


def _check(archive: Path, scratch: Path, split: Split) -> None:
    if split.present(scratch) != split.count:
        problem = f"holds {split.present(scratch)} npz files of {split}, the competition has {split.count}"
        raise DataError(archive, problem, "Delete it and run it again")
    for path in split.folder(scratch).glob("*.npz"):
        try:
            with zipfile.ZipFile(path) as opened:
                readable = "config_runtime.npy" in opened.namelist()
        except (zipfile.BadZipFile, struct.error, RuntimeError):
            readable = False
        if not readable:
            raise DataError(
                archive, f"{split}/{path.name} in it is not readable", "Delete it and run it again"
            )


def _move(source: Path, target: Path) -> None:
    """Rename a folder; where the target exists with some of the files, rename file by file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        os.rename(source, target)
        return
    for path in source.iterdir():
        os.replace(path, target / path.name)


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    about = "Download, check and unpack the competition's data; what is complete is left alone."
    parser = argparse.ArgumentParser(prog="python -m fastslow.download", description=about)
    parser.add_argument("--root", default="data/raw", help="data root (default: %(default)s)")
    parser.add_argument(
        "--source", choices=SOURCES, default="auto", help="auto: Kaggle with credentials, else Google"
    )
    names = [collection.name for collection in COLLECTIONS]
    parser.add_argument(
        "--collections", nargs="+", default=names, metavar="NAME", help=f"of {' '.join(names)}"
    )
    parser.add_argument("--splits", nargs="+", default=SPLITS, choices=SPLITS, help="default: all three")
    parser.add_argument("--keep", action="store_true", help="keep the archives in ROOT/archives")
    parser.add_argument("--base-url", default=GOOGLE_URL, help="of Google's tar files (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        new = fetch(
            options.root, options.source, options.splits, options.collections, options.keep, options.base_url
        )
    except (ConfigError, DataError, client.KaggleError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130
    print("\n".join(f"new: {folder}" for folder in new) or f"{options.root}: everything asked for is there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
