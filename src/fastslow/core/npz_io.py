"""Read arrays of npz files; whatever is wrong with a file becomes a DataError."""

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from fastslow.core.errors import DataError, explain_storage
from fastslow.core.files import atomic_path, digest
from fastslow.core.input_files import check_regular
from fastslow.core.memory import machine_memory

CHUNK_BYTES = 8_000_000
MAX_ARRAY_BYTES = 1 << 30
"""Largest array that is read whole: 40 times the largest of the competition (43,614 nodes x 140 float32)."""
_MAX_HEADER_BYTES = 16_384  # numpy's own limit of a header's text is 10,000 characters
_MAX_RATIO = 1032  # of deflate, https://www.zlib.net/zlib_tech.html
# what zipfile, its decompressors and numpy raise when they meet bytes that nobody wrote
_BUILTIN = (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, OverflowError, SyntaxError)
_UNREADABLE: tuple[Any, ...] = (*_BUILTIN, tokenize.TokenError, struct.error, zlib.error, zipfile.BadZipFile)


@dataclass(frozen=True)
class Header:
    """Shape and type of one array in an npz file, and whether its bytes run column by column."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran_order: bool


@contextmanager
def readable(path: Path, remedy: str, missing: str = "") -> Iterator[None]:
    """Turn any error of reading the broken array file ``path`` in this block into a DataError.

    ``remedy`` is the advice of the error, ``missing`` where there is no such file, if it differs.
    """
    try:
        with explain_storage(path):
            yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(path, "no such file", missing or remedy) from None
    except MemoryError:
        raise DataError(path, "does not fit into memory", "Run fewer steps at a time (JOBS=1)") from None
    except _UNREADABLE as error:
        said = " ".join(str(error).split())[:200]  # zipfile quotes the whole file where a length is damaged
        raise DataError(path, f"cannot be read ({type(error).__name__}: {said})", remedy) from error


@contextmanager
def _opened(path: Path, remedy: str = "") -> Iterator[zipfile.ZipFile]:
    check_regular(path)
    published = "npz_all" in Path(path).absolute().parts
    again = "delete it and run `make data` again" if published else "write or copy it again"
    missing = remedy or ("Run `make data` again" if published else f"Check its name, or {again}")
    remedy = remedy or f"The file is truncated or corrupt: {again}"
    with readable(path, remedy, missing), zipfile.ZipFile(path) as archive:
        name, times = Counter(archive.namelist()).most_common(1)[0] if archive.namelist() else ("", 1)
        if times > 1:
            raise DataError(path, f"{name} is in it {times} times, and it is unclear which counts", remedy)
        if archive.namelist() and not _keys(archive):
            raise DataError(path, "is a zip archive without arrays, no npz file", "Unpack it")
        yield archive


def _keys(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of the arrays; other files do not count, nor copies that macOS packs beside each."""
    names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
    return [name.removesuffix(".npy") for name in names if name.endswith(".npy")]


@contextmanager
def _member(archive: zipfile.ZipFile, key: str) -> Iterator[tuple[IO[bytes], Header]]:
    """Yield the stream of an array's bytes after its header, and the header.

    Header, zip directory and the bytes on disk must agree: no memory is asked for that the file cannot fill,
    and reading all rows reads all bytes, which is when the checksum is compared.
    """
    info = archive.getinfo(f"{key}.npy")
    ratios = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _MAX_RATIO}
    if info.compress_type not in ratios:
        raise ValueError(f"{key} is compressed otherwise than numpy does it")
    if info.file_size > ratios[info.compress_type] * info.compress_size:
        raise ValueError(f"{key} claims {info.file_size} bytes, packed into {info.compress_size}")
    with archive.open(info) as member:
        header, header_bytes = _read_header(member)
        if not header.dtype.itemsize or min(header.shape, default=0) < 0:
            raise ValueError(f"{key} has by its header type {header.dtype} and shape {header.shape}")
        size = header_bytes + math.prod(header.shape) * header.dtype.itemsize
        if size != info.file_size and not header.dtype.hasobject:
            raise ValueError(f"{key} has {info.file_size} bytes, by its header {size}")
        yield member, header


def _read_header(member: IO[bytes]) -> tuple[Header, int]:
    """Read the header of an array and its size in bytes, and leave the stream behind it."""
    start = member.read(npy.MAGIC_LEN)
    if npy.read_magic(io.BytesIO(start)) == (1, 0):
        length = struct.Struct("<H")
        read = npy.read_array_header_1_0
    else:
        length = struct.Struct("<I")
        read = npy.read_array_header_2_0
    size = member.read(length.size)
    (text,) = length.unpack(size)
    if text > _MAX_HEADER_BYTES:
        raise ValueError(f"a header of {text:,} bytes")
    return _parse_header(read, size + member.read(text)), len(start) + len(size) + text


@lru_cache(1024)  # a features folder of tile holds 22 arrays a kernel, of few shapes
def _parse_header(read: Callable[..., Any], text: bytes) -> Header:
    shape, fortran_order, dtype = read(io.BytesIO(text))
    return Header(shape, dtype, fortran_order)


def read_headers(path: Path, whole: bool = False) -> dict[str, Header]:
    """Return shape and type of every array in an npz file, without reading the arrays.

    With ``whole`` all bytes are read once, which compares their numbers and checksums.

    Raises:
        DataError: The file is missing or not an npz.
    """
    headers = {}
    with _opened(path) as archive:
        for key in _keys(archive):
            with _member(archive, key) as (member, header):
                headers[key] = header
                while whole and member.read(CHUNK_BYTES):
                    pass
    return headers


def file_fingerprint(path: Path) -> str:
    """Return a digest of the file's content, from sizes and checksums in its zip directory.

    Raises:
        DataError: The file is missing or is no zip.
    """
    with _opened(path) as archive:
        return digest([(info.filename, info.file_size, info.CRC) for info in archive.infolist()])


def check_memory(path: Path, needed: int, what: str) -> None:
    """Refuse a file where ``what``, the subject of the message, needs more bytes than this machine has.

    Raises:
        DataError: The machine, or the container or job that this process is in, has less memory.
    """
    if needed > (memory := machine_memory()):
        problem = f"{what} needs {needed / 1e9:.1f} GB of memory, this machine has {memory / 1e9:.1f} GB"
        raise DataError(path, problem, "Read it on a machine with more memory")


def read_arrays(path: Path, keys: Iterable[str] | None = None, remedy: str = "") -> dict[str, np.ndarray]:
    """Read whole arrays of an npz file.

    Args:
        path: The file.
        keys: Names of the arrays; by default all.
        remedy: Advice for a broken file, for the message.

    Returns:
        The arrays by name, in the order of ``keys``.

    Raises:
        DataError: The file is missing or broken, or lacks one of the keys, or an array is too large.
    """
    arrays = {}
    with _opened(path, remedy) as archive:
        for key in _keys(archive) if keys is None else keys:
            with _member(archive, key) as (member, header):
                size = math.prod(header.shape) * header.dtype.itemsize
                if size > MAX_ARRAY_BYTES:
                    raise ValueError(f"{key} has {size:,} bytes, at most {MAX_ARRAY_BYTES:,} are read whole")
                arrays[key] = _read_whole(member, header)
    return arrays


def _read_whole(member: IO[bytes], header: Header) -> np.ndarray:
    """Read the array behind a header; numpy itself would parse the header a second time."""
    if header.dtype.hasobject:
        raise ValueError("it holds Python objects")
    flat = np.empty(math.prod(header.shape), header.dtype)
    raw = flat.view(np.uint8)
    for start in range(0, len(raw), CHUNK_BYTES):
        part = raw[start : start + CHUNK_BYTES]
        part[:] = np.frombuffer(member.read(len(part)), np.uint8, len(part))
    return flat.reshape(header.shape, order="F" if header.fortran_order else "C")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an npz file atomically."""
    with atomic_path(path) as temporary, open(temporary, "wb") as handle:
        np.savez(handle, **arrays)  # type: ignore[arg-type]  # numpy types its options alone


def stream_rows(path: Path, key: str, chunk_bytes: int = CHUNK_BYTES) -> Iterator[np.ndarray]:
    """Yield an array of an npz file in chunks of whole rows, never holding all of it.

    Args:
        path: The npz file.
        key: Array name; its bytes must be in C order.
        chunk_bytes: Upper end of a chunk's size (at least one row is read).

    Yields:
        ``(n, ...)`` consecutive rows of the array, n at least 1, of the file's type.

    Raises:
        DataError: The file is missing or broken, lacks the key, or holds it column by column.
    """
    with _opened(path) as archive, _member(archive, key) as (member, header):
        if header.fortran_order:
            raise DataError(path, f"{key} is stored column by column", "Save it with numpy.ascontiguousarray")
        rows, *row = header.shape
        row_bytes = math.prod(row) * header.dtype.itemsize
        step = max(1, chunk_bytes // max(1, row_bytes))
        for start in range(0, rows, step):
            count = min(step, rows - start)
            buffer = member.read(count * row_bytes)
            yield np.frombuffer(buffer, header.dtype, count * math.prod(row)).reshape(count, *row)
