"""Download, check and unpack the real competition's data; a complete part stays as it is.

Two sources: Kaggle through its package (one zip with everything, needs credentials) and Google's public tar
files (one per split, no account). Both were tested against a loopback server only; the folders inside
Kaggle's zip are not known, which is why a member is identified by the ``npz/...`` part of its path.
"""

import os
import re
import shutil
import tempfile
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from fastslow.competition.catalog import (
    COLLECTIONS,
    COMPETITION,
    TEST,
    TRAIN,
    VALID,
    Collection,
    get_collection,
)
from fastslow.competition.row_order import releases_in_words
from fastslow.competition.schema import check_schema
from fastslow.competition.submission_csv import SAMPLE
from fastslow.core.errors import DataError, SettingsError, explain_storage
from fastslow.core.files import writer_lock
from fastslow.core.input_files import is_there
from fastslow.core.npz_io import read_headers
from fastslow.core.settings import Names, Settings, resolve
from fastslow.kaggle import archives, client
from fastslow.kaggle.provenance import GOOGLE, KAGGLE, PROVENANCE, record_provenance, warn_of_release
from fastslow.kaggle.unpacking import unpack

GOOGLE_URL = "https://download.tensorflow.org/data/tpu_graphs/v0/"
COMPETITION_SPLITS = (TRAIN, VALID, TEST)  # of the competition
FILE_COUNTS = {  # programs of each collection in each of them
    "tile:xla": (5709, 676, 844),
    "layout:xla:default": (61, 7, 8),
    "layout:xla:random": (69, 7, 8),
    "layout:nlp:default": (198, 20, 17),
    "layout:nlp:random": (207, 20, 17),
}
_MEMBER = re.compile(r"(?:^|/)npz/((?:tile|layout)/.+)/([^/.][^/]*\.npz)")
_SCRATCH = ".unpacking-"
_ADDRESS = re.compile(r"https?://([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?(/[^\s?#@]*)?", re.ASCII)


class DownloadSettings(Settings):
    """Settings of a download of the real competition: its parts, its source and its folder."""

    root: str = "data/raw"
    """Folder for the data; a relative one is under FASTSLOW_HOME, by default the repository."""

    source: Literal["auto", "kaggle", "google"] = "auto"
    """Kaggle (one zip with everything, needs credentials), Google (one tar per split, no account), or auto:
    Kaggle where there are credentials or its zip, else Google."""

    collections: Names = [collection.name for collection in COLLECTIONS]
    """Collections to download, separated by commas on a command line, such as tile:xla,layout:nlp:random."""

    splits: Names = [*COMPETITION_SPLITS]
    """Splits to download, any of train, valid and test."""

    keep_archives: bool = False
    """Keep the archives in archives/ under the root after unpacking them: the space of the data once more."""

    base_url: str = GOOGLE_URL
    """Address of the folder of Google's tar files; change it for a mirror."""

    def check(self) -> None:
        """Check the names of collections and splits, and the form of the address.

        Raises:
            SettingsError: A collection or split does not exist, or ``base_url`` is no address of a folder.
        """
        try:
            for name in self.collections:
                get_collection(name)
        except SettingsError as error:
            raise error.named("collections") from None
        for name in self.splits:
            if name not in COMPETITION_SPLITS:
                raise SettingsError("splits", f"{name!r} is none of {', '.join(COMPETITION_SPLITS)}")
        if not _ADDRESS.fullmatch(self.base_url):
            raise SettingsError(
                "base_url",
                "wanted is http://HOST/FOLDER or https://HOST/FOLDER, without user, password, query"
                " and fragment; write user and password into ~/.netrc",  # the value may hold them: not shown
            )


class SplitFiles(NamedTuple):
    """One split of one collection: a folder of npz files, and one of Google's tar files."""

    collection: Collection
    name: str

    def __str__(self) -> str:
        return f"{self.collection.name} {self.name}"

    @property
    def count(self) -> int:
        """Number of npz files that the split has in the competition."""
        return FILE_COUNTS[self.collection.name][COMPETITION_SPLITS.index(self.name)]

    @property
    def archive(self) -> str:
        """Name of Google's tar file."""
        return f"npz_{self.collection.name.replace(':', '_')}_{self.name}.tar"

    @property
    def path(self) -> str:
        """Its folder inside every archive, below ``npz/``."""
        return f"{self.collection.name.replace(':', '/')}/{self.name}"

    def folder(self, root: Path) -> Path:
        """Return its folder under a data root."""
        return self.collection.folder(root, self.name)

    def present(self, root: Path) -> int:
        """Return how many of its npz files are under a data root."""
        return sum(1 for _ in self.folder(root).glob("*.npz"))


def download(settings: DownloadSettings) -> list[Path]:
    """Download and unpack the missing part of the competition's data under ``root/npz_all/npz/``.

    A split is complete when its folder holds as many npz files as the competition has; folders appear
    whole, after every check. An interrupted run is resumed by the next one.

    Returns:
        The new folders, in the order of collections; empty where everything was there.

    Raises:
        DataError: Too little disk, a lost connection, a wrong size or count, a broken or unsafe archive.
        KaggleError: The kaggle package failed, or Kaggle refused.
    """
    root = resolve(settings.root)
    collections = {get_collection(name) for name in settings.collections}
    selected = [
        SplitFiles(c, s)
        for c in COLLECTIONS
        if c in collections
        for s in COMPETITION_SPLITS
        if s in settings.splits
    ]
    with explain_storage(root), writer_lock(root):
        for left_over in root.glob(f"{_SCRATCH}*"):
            shutil.rmtree(left_over)
        missing = [split for split in selected if _is_missing(root, split)]
        kaggle = is_there(_kaggle_zip(root)) or client.credentials() is not None
        from_kaggle = settings.source == "kaggle" or (settings.source == "auto" and kaggle)
        if missing and from_kaggle:
            _from_kaggle(root, missing, settings.keep_archives)
        elif missing:
            _from_google(root, missing, settings.keep_archives, settings.base_url)
        if missing or not (root / PROVENANCE).exists():
            record_provenance(root, KAGGLE if from_kaggle else GOOGLE, map(str, missing))
            print(releases_in_words(root), end="", flush=True)
            if doubt := warn_of_release(root):
                print(f"warning: {doubt}", flush=True)
    new = [split.folder(root) for split in missing]
    print("\n".join(f"new: {folder}" for folder in new) or f"{root}: the data is complete", flush=True)
    return new


def _is_missing(root: Path, split: SplitFiles) -> bool:
    if (present := split.present(root)) > split.count:
        problem = f"holds {present} npz files, the competition has {split.count}"
        raise DataError(split.folder(root), problem, "Move the folder away and run it again")
    return present < split.count


def _kaggle_zip(root: Path) -> Path:
    return root / "archives" / f"{COMPETITION}.zip"


def _from_kaggle(root: Path, missing: list[SplitFiles], keep: bool) -> None:
    archive = _kaggle_zip(root)
    if not is_there(archive):
        print(f"From Kaggle: one zip with everything; {len(missing)} splits are missing here", flush=True)
        part = archive.parent / "part"  # kaggle gives a zip its name before it is whole
        os.replace(client.download_archive(part), archive)
        part.rmdir()
    _install(archive, root, missing, keep)


def _from_google(root: Path, missing: list[SplitFiles], keep: bool, base_url: str) -> None:
    urls = {split: f"{base_url.rstrip('/')}/{split.archive}" for split in missing}
    targets = {split: root / "archives" / split.archive for split in missing}
    sizes = [
        target.stat().st_size if is_there(target) else archives.remote_size(urls[split])
        for split, target in targets.items()
    ]
    here = sum(map(archives.local_size, targets.values()))
    total = sum(sizes)
    print(f"From Google: {len(missing)} tar files, {total - here:,} bytes to download", flush=True)
    # a tar's content is as large as the tar, which is deleted before the next download, or kept
    archives.require_space(root, total + (total if keep else max(sizes)) - here, "the data")
    for split, target in targets.items():
        if not is_there(target):
            archives.fetch(urls[split], target)
        _install(target, root, [split], keep)


def _install(archive: Path, root: Path, splits: list[SplitFiles], keep: bool) -> None:
    """Unpack into a scratch folder beside the data, check, rename; delete the archive unless it is kept."""
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=root) as name:
        scratch = Path(name)
        unpack(archive, scratch, partial(_place, {split.path for split in splits}))
        for split in splits:
            _check(archive, scratch, split)
        for split in splits:
            _move(split.folder(scratch), split.folder(root))
        if (scratch / SAMPLE).exists() and archive == _kaggle_zip(root):  # Google's tars hold none
            os.replace(scratch / SAMPLE, root / SAMPLE)
    for split in splits:
        _is_missing(root, split)  # refuses a folder that already held files of other names
    if not keep:
        archive.unlink()
        if not any(archive.parent.iterdir()):
            archive.parent.rmdir()


def _place(paths: set[str], member: str) -> str | None:
    """Return a member's path under the data root, whatever folders the archive puts before ``npz/``."""
    if PurePosixPath(member).name == SAMPLE:
        return SAMPLE
    parts = _MEMBER.search(member)
    return f"npz_all/npz/{parts[1]}/{parts[2]}" if parts and parts[1] in paths else None


def _check(archive: Path, scratch: Path, split: SplitFiles) -> None:
    """Check the number of a split's files, and that each is an npz of its kind, down to the last byte."""
    if (present := split.present(scratch)) != split.count:
        problem = f"holds {present} npz files of {split}, the competition has {split.count}"
        raise DataError(archive, problem, "Delete it and run it again")
    for path in split.folder(scratch).glob("*.npz"):
        try:
            check_schema(path, split.collection.kind, read_headers(path, whole=True))
        except DataError as error:
            problem = f"{split}/{path.name} in it: {error.args[1]}"
            raise DataError(archive, problem, "Delete it and run it again") from None


def _move(source: Path, target: Path) -> None:
    """Rename a folder; where the target exists with some of the files, rename file by file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        os.rename(source, target)
        return
    for path in source.iterdir():
        os.replace(path, target / path.name)
