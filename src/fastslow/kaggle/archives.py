"""Archives from the network: a download that resumes, and unpacking that never leaves its folder."""

import contextlib
import http.client
import os
import re
import shutil
import ssl
import stat
import struct
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, TypeVar

from tqdm.auto import tqdm

from fastslow.core.errors import DataError
from fastslow.core.files import read_json, write_json

T = TypeVar("T")
_CHUNK = 1 << 20
_TIMEOUT_S = 60.0
_TRIES = 8  # In a row without a new byte; any progress starts the count afresh.
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses that a later request may not get.
_LOST = (ConnectionError, TimeoutError, http.client.HTTPException, urllib.error.URLError, ssl.SSLError)


class Member(NamedTuple):
    """One entry of an archive: its path there, its unpacked size in bytes, what it is, how to read it."""

    name: str
    size: int
    is_file: bool
    is_folder: bool
    open: Callable[[], IO[bytes]]


def require_space(folder: Path, size: int, purpose: str) -> None:
    """Stop before a disk runs full.

    Args:
        folder: A folder on that disk.
        size: Bytes needed.
        purpose: What for, to say so.

    Raises:
        DataError: Less than ``size`` bytes and 2 % are free.
    """
    free = shutil.disk_usage(folder).free
    if free < 1.02 * size:
        raise DataError(
            folder,
            f"{purpose} needs {tqdm.format_sizeof(size, 'B')}, {tqdm.format_sizeof(free, 'B')} are free",
            "Free some space, choose another --root, or take fewer --collections or --splits",
        )


def remote_size(url: str) -> int:
    """Size of a file on a web server in bytes, asked with HEAD; errors as :func:`download`."""

    def ask() -> int:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            return _length(url, answer)

    return _persist(url, ask, lambda: 0)


def local_size(target: Path) -> int:
    """How many bytes of a download are on disk already, whole or in part."""
    return _size(target) or _size(_part(target))


def download(url: str, target: Path) -> None:
    """Download a file, going on where an earlier attempt stopped.

    The part on disk (``<target>.part``) is continued only if the server still has the same file: same size,
    and same ETag or Last-Modified where it sends one. The target appears when its size is right.

    Raises:
        DataError: The server does not have the file or does not tell its size, or the connection was lost
            eight times in a row without a new byte; the part stays for the next run.
    """
    part = _part(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _bar(target.name) as bar:
        _persist(url, lambda: _receive(url, part, bar), lambda: _size(part))
    os.replace(part, target)
    _stamp(part).unlink()


def unpack(archive: Path, folder: Path, place: Callable[[str], str | None]) -> None:
    """Unpack the wanted members of a tar (uncompressed) or zip.

    Args:
        archive: The archive; what is not called ``.zip`` is taken for a tar.
        folder: Where the files go.
        place: From a member's path to the path under ``folder``, or None to leave the member out.

    Raises:
        DataError: The archive is broken or cut off, the disk is too small, or any member, wanted or not,
            points out of the folder, or is a link or a device.
    """
    with _refuse_broken(archive), _open(archive) as members:
        for member in members:
            _refuse_unsafe(archive, member)
        wanted = [
            (folder / path, member) for member in members if member.is_file and (path := place(member.name))
        ]
        size = sum(member.size for _, member in wanted)
        folder.mkdir(parents=True, exist_ok=True)
        require_space(folder, size, f"unpacking {archive.name}")
        with _bar(f"unpack {archive.name}", size) as bar:
            for path, member in wanted:
                path.parent.mkdir(parents=True, exist_ok=True)
                with member.open() as source, open(path, "wb") as sink:
                    while chunk := source.read(_CHUNK):
                        sink.write(chunk)
                        bar.update(len(chunk))
                if path.stat().st_size != member.size:
                    raise EOFError(f"{member.name} is cut off")


def _receive(url: str, part: Path, bar: tqdm) -> None:
    """One request: append to the part, or write it anew where the server has another file."""
    known = read_json(_stamp(part)) if part.exists() and _stamp(part).exists() else None
    request = urllib.request.Request(url)
    if known:
        # Of a part that is already whole the last byte is asked for again, which confirms it.
        start = max(min(_size(part), known["size"] - 1), 0)
        request.add_header("Range", f"bytes={start}-")
        if known["validator"]:
            request.add_header("If-Range", known["validator"])
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            if answer.status == 206 and _same(answer, known, start):
                size = known["size"]
            elif answer.status == 206:
                _stamp(part).unlink()
                raise ConnectionError("the file on the server has changed")
            else:
                start, size = 0, _length(url, answer)
                part.unlink(missing_ok=True)
                write_json(_stamp(part), {"size": size, "validator": _validator(answer)})
            bar.total, bar.initial, bar.n = size, start, start
            with open(part, "ab") as sink:
                sink.truncate(start)
                while chunk := answer.read(_CHUNK):
                    sink.write(chunk)
                    bar.update(len(chunk))
    except urllib.error.HTTPError as error:
        if error.code == 416:
            _stamp(part).unlink(missing_ok=True)
            raise ConnectionError("the file on the server has changed") from error
        raise
    if _size(part) != size:
        raise ConnectionError(f"closed after {_size(part):,} of {size:,} bytes")


def _same(answer, known: dict, start: int) -> bool:
    """Whether a partial answer continues the part: its place, the whole size, and the file's identity."""
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
    return (
        span is not None
        and (int(span[1]), int(span[2])) == (start, known["size"])
        and _validator(answer) == known["validator"]
    )


def _validator(answer) -> str:
    """What identifies the file's version: a strong ETag (a weak one may not be used here), else its date."""
    etag = answer.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified", "")


def _length(url: str, answer) -> int:
    length = answer.headers.get("Content-Length", "")
    if not length.isdigit():
        raise DataError(url, "the server does not tell its size", "Check the address, or a proxy in between")
    return int(length)


def _persist(url: str, attempt: Callable[[], T], progress: Callable[[], int]) -> T:
    """Try until it works; give up after eight losses in a row without progress (in bytes)."""
    failures = 0
    while True:
        before = progress()
        try:
            return attempt()
        except _LOST as error:
            if isinstance(error, urllib.error.HTTPError) and error.code not in _PASSING:
                problem = f"the server answers {error.code} {error.reason}"
                raise DataError(url, problem, "Check the address") from error
            failures = 1 if progress() > before else failures + 1
            if failures == _TRIES:
                problem = f"failed {failures} times in a row without a new byte ({error})"
                raise DataError(url, problem, "Run it again: it goes on where it stopped") from error
            time.sleep(min(2.0 ** (failures - 1), 60.0))


def _bar(name: str, size: int | None = None) -> tqdm:
    """A bar that counts bytes; in a log, a line every half minute instead of ten a second."""
    pause_s = 0.1 if sys.stderr.isatty() else 30.0
    return tqdm(
        desc=name, total=size, unit="B", unit_scale=True, mininterval=pause_s, maxinterval=2 * pause_s
    )


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _stamp(part: Path) -> Path:
    """Beside a part: which version of the remote file it belongs to."""
    return part.with_name(f"{part.name}.json")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextlib.contextmanager
def _open(archive: Path) -> Iterator[list[Member]]:
    """The members of a tar or zip, readable inside the block."""
    if archive.suffix == ".zip":  # A look inside misleads: the last npz of a tar makes it look like a zip.
        with zipfile.ZipFile(archive) as opened:
            yield [_zip_member(opened, info) for info in opened.infolist()]
    else:
        with tarfile.open(archive, "r:") as opened:
            infos = opened.getmembers()
            with open(archive, "rb") as raw:  # A damaged header looks to tarfile like the end.
                raw.seek(opened.offset)
                if raw.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    raise EOFError(f"it breaks off after {len(infos)} members")
            yield [
                Member(info.name, info.size, info.isreg(), info.isdir(), partial(opened.extractfile, info))
                for info in infos
            ]


def _zip_member(opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    kind = stat.S_IFMT(info.external_attr >> 16)  # 0 where the packer noted none.
    is_file = not info.is_dir() and kind in (0, stat.S_IFREG)
    is_folder = info.is_dir() and kind in (0, stat.S_IFDIR)
    return Member(info.filename, info.file_size, is_file, is_folder, partial(opened.open, info))


def _refuse_unsafe(archive: Path, member: Member) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or re.match("[A-Za-z]:", member.name):
        problem = "points out of the folder"
    elif not (member.is_file or member.is_folder):
        problem = "is a link or a device"
    else:
        return
    raise DataError(
        archive, f"member {member.name!r} {problem}", "Nothing was unpacked; do not trust this archive"
    )


@contextlib.contextmanager
def _refuse_broken(archive: Path) -> Iterator[None]:
    """Whatever a broken archive raises becomes one error that names it."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, struct.error) as error:
        raise DataError(archive, f"broken archive ({error})", "Delete it and run it again") from error
