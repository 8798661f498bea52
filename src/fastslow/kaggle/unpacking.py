"""Unpacking of archives that nobody vouches for: it never leaves its folder, and its size is bounded."""

import contextlib
import errno
import re
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from tqdm.utils import CallbackIOWrapper

from fastslow.core.errors import DataError, counted
from fastslow.core.input_files import check_regular
from fastslow.core.progress import progress
from fastslow.core.records import FileName, is_valid
from fastslow.kaggle.archives import BYTES, CHUNK, require_space

ArchiveMember = tuple[tarfile.TarInfo, Callable[[], IO[bytes]]]
"""An entry of a tar or zip, and how to open its content."""
MAX_MEMBERS = 100_000  # the competition's zip has some 14,000
MAX_MEMBER_BYTES = 2 << 30  # of one file; the largest that is known has 0.05 GB
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_SIGN_IN = "Sign in to the network, proxy or site in a browser, delete the file and run it again"
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, struct.error)


def unpack(archive: Path, folder: Path, place: Callable[[str], str | None]) -> None:
    """Unpack selected members of an uncompressed tar or a zip.

    Args:
        archive: The archive; a zip if its name ends in ``.zip``, else a tar.
        folder: Folder for the files.
        place: Maps a member's path to the path under ``folder``, or to None to skip the member.

    Raises:
        DataError: The archive is broken or truncated, the disk is too small, or any member, selected or not,
            points out of the folder, or is a link or a device.
    """
    check_regular(archive)
    try:
        with _open(archive) as members:
            for member, _ in members:
                _refuse_unsafe(archive, folder, member)
            _write(archive, folder, members, place)
    except (*_BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a place before the file's beginning
            raise
        if _is_web_page(archive):
            raise DataError(
                archive, "is a web page, such as a sign-in page, and no archive", _SIGN_IN
            ) from None
        raise DataError(archive, f"broken archive ({error})", "Delete it and run it again") from error


def _is_web_page(path: Path) -> bool:
    with open(path, "rb") as file:
        start = file.read(1000).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return start.startswith((b"<!doctype", b"<html"))


def _write(
    archive: Path, folder: Path, members: list[ArchiveMember], place: Callable[[str], str | None]
) -> None:
    selected = [
        (folder / path, member, open_member)
        for member, open_member in members
        if member.isreg() and (path := place(member.name))
    ]
    size = sum(member.size for _, member, _ in selected)
    folder.mkdir(parents=True, exist_ok=True)
    require_space(folder, size, f"unpacking {archive.name}")
    with progress(desc=f"unpack {archive.name}", total=size, **BYTES) as bar:
        for target, member, open_member in selected:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_member() as source, open(target, "wb") as sink:
                shutil.copyfileobj(CallbackIOWrapper(bar.update, source), sink, CHUNK)
            if target.stat().st_size != member.size:
                raise EOFError(f"{member.name} is truncated")


@contextlib.contextmanager
def _open(archive: Path) -> Iterator[list[ArchiveMember]]:
    """Give the members of a tar or zip, readable inside the block."""
    if archive.suffix == ".zip":  # not by content: the last npz of a tar makes it look like a zip
        with zipfile.ZipFile(archive) as opened:
            _refuse_many(len(opened.infolist()))
            if any(info.compress_type not in _PACKED for info in opened.infolist()):
                raise zipfile.BadZipFile("it is compressed otherwise than by deflate")
            yield [(_tar_info(info), partial(opened.open, info)) for info in opened.infolist()]
    else:
        with tarfile.open(archive, "r:") as opened:
            infos = []
            for info in opened:
                infos.append(info)
                _refuse_many(len(infos))
            with open(archive, "rb") as raw:  # tarfile takes a damaged header for the end
                raw.seek(opened.offset)
                if raw.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    raise EOFError(f"it is truncated after {counted(len(infos), 'member')}")
            yield [(info, partial(opened.extractfile, info)) for info in infos]


def _refuse_many(members: int) -> None:
    if members > MAX_MEMBERS:
        raise tarfile.TarError(f"it has more than {MAX_MEMBERS:,} members")


def _tar_info(info: zipfile.ZipInfo) -> tarfile.TarInfo:
    """Return a zip's member as one of a tar, so that both pass the same filter."""
    member = tarfile.TarInfo(info.filename.replace("\\", "/"))  # as some programs of Windows write it
    member.size = info.file_size
    expected = stat.S_IFDIR if member.name.endswith("/") else stat.S_IFREG
    kind = stat.S_IFMT(info.external_attr >> 16) or expected  # 0: not recorded
    member.type = {stat.S_IFREG: tarfile.REGTYPE, stat.S_IFDIR: tarfile.DIRTYPE}.get(kind, tarfile.SYMTYPE)
    return member


def _refuse_unsafe(archive: Path, folder: Path, member: tarfile.TarInfo) -> None:
    """Refuse what tarfile's data filter refuses or renames, and also every link and paths of Windows."""
    try:
        named = is_valid(FileName, member.name)
        inside = named and tarfile.data_filter(member, folder).name == member.name
    except tarfile.FilterError:
        inside = False
    if not named:
        problem = "has a name that no file can have"
    elif member.size > MAX_MEMBER_BYTES:
        problem = f"has {member.size:,} bytes, at most {MAX_MEMBER_BYTES:,} are unpacked"
    elif not (member.isreg() or member.isdir()):
        problem = "is a link or a device"
    elif not inside or re.search(r"\\|^[A-Za-z]:", member.name):
        problem = "points out of the folder"
    else:
        return
    raise DataError(
        archive, f"member {member.name[:80]!r} {problem}", "Nothing was unpacked; do not trust this archive"
    )
