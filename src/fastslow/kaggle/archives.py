"""Archives from the network: downloads that are resumed."""

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

import requests
import urllib3.exceptions
from pydantic import NonNegativeInt, StringConstraints
from tqdm import tqdm

from fastslow.core.errors import DataError
from fastslow.core.files import write_json
from fastslow.core.progress import progress
from fastslow.core.records import Record, read_record
from fastslow.kaggle.credentials import scrub

T = TypeVar("T")
CHUNK = 1 << 20
_TIMEOUT_S = 60.0
_TRIES = 8  # in a row without a new byte; any progress resets the count
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses that a later request may not get
BYTES = {"unit": "B", "unit_scale": True}  # of a progress bar


class _Known(Record):
    """The version of the remote file that a part belongs to: its size, and its ETag or date."""

    size: NonNegativeInt
    validator: Annotated[str, StringConstraints(pattern=r"^([!-~][ -~]*)?$")]


def require_space(folder: Path, size: int, purpose: str) -> None:
    """Check that a disk has room for ``size`` bytes and 2 %, before anything is written.

    Raises:
        DataError: Less is free; the message names the folder and the purpose.
    """
    free = shutil.disk_usage(folder).free
    if free < 1.02 * size:
        problem = f"needs {tqdm.format_sizeof(size, 'B')}, {tqdm.format_sizeof(free, 'B')} are free"
        remedy = "Free some space, choose another root, or fewer collections or splits"
        raise DataError(folder, f"{purpose} {problem}", remedy)


def remote_size(url: str) -> int:
    """Return the size of a file on a web server in bytes, by a HEAD request; errors as :func:`fetch`."""

    def ask() -> int:
        with _request("HEAD", url, {}) as answer:
            return _length(url, answer)

    return _persist(url, ask, lambda: 0)


def local_size(target: Path) -> int:
    """Return how many bytes of a download are on disk already, whole or in part."""
    return _size(target) or _size(_part(target))


def fetch(url: str, target: Path) -> None:
    """Download a file, resuming an earlier attempt.

    The part on disk (``<target>.part``) is continued only if the server still has the same file: same size,
    and same ETag or Last-Modified where it sends one. The target appears when its size is right.

    Args:
        url: Address of the file, ``http`` or ``https``.
        target: Path to write.

    Raises:
        DataError: The server does not have the file or does not send its size, or the connection was lost
            eight times in a row without a new byte; the part stays for the next call.
    """
    part = _part(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with progress(desc=target.name, **BYTES) as bar:
        _persist(url, lambda: _receive(url, part, bar), lambda: _size(part))
    os.replace(part, target)
    _stamp(part).unlink()


def _request(method: str, url: str, headers: dict[str, str]) -> requests.Response:
    """Send a request for a file as it is stored; an error status but 416 raises ``requests.HTTPError``."""
    headers = {"Accept-Encoding": "identity", **headers}
    options = {"headers": headers, "stream": True, "timeout": _TIMEOUT_S, "allow_redirects": True}
    answer = requests.request(method, url, **options)
    if answer.status_code != 416:  # the part is longer than the file
        answer.raise_for_status()
    return answer


def _receive(url: str, part: Path, bar: tqdm) -> None:
    """Send one request: append to the part, or rewrite it where the server has another file."""
    known, headers, start = _known(part), {}, 0
    if known:
        # of a part that is already whole, the last byte is requested again, which confirms it
        start = max(min(_size(part), known["size"] - 1), 0)
        headers = {"Range": f"bytes={start}-"}
        headers |= {"If-Range": known["validator"]} if known["validator"] else {}
    with _request("GET", url, headers) as answer:
        if answer.status_code == 416 or (answer.status_code == 206 and not _continues(answer, known, start)):
            _stamp(part).unlink(missing_ok=True)  # so that the next request starts at the beginning
            raise ConnectionError("the file on the server has changed")
        if answer.status_code != 206:
            known, start = {"size": _length(url, answer), "validator": _validator(answer)}, 0
            part.unlink(missing_ok=True)
            write_json(_stamp(part), known)
        bar.total, bar.initial, bar.n = known["size"], start, start
        with open(part, "ab") as sink:
            sink.truncate(start)
            while chunk := answer.raw.read1(CHUNK):  # read() and iter_content drop the bytes before a loss
                sink.write(chunk)
                bar.update(len(chunk))
    if _size(part) != known["size"]:
        raise ConnectionError(f"closed after {_size(part):,} of {known['size']:,} bytes")


def _known(part: Path) -> dict | None:
    """Read which version a part belongs to; None where that is not known, so that it starts anew."""
    if not (part.exists() and _stamp(part).exists()):
        return None
    try:
        return read_record(_stamp(part), _Known, "It is downloaded anew")
    except DataError as error:
        print(error, file=sys.stderr)
        return None


def _continues(answer: requests.Response, known: dict | None, start: int) -> bool:
    """Return whether a partial answer continues the part: its place, the whole size, the file's identity."""
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
    same = bool(known) and span is not None and (int(span[1]), int(span[2])) == (start, known["size"])
    return same and _validator(answer) == known["validator"]


def _validator(answer: requests.Response) -> str:
    """Return the identity of the file's version: its strong ETag (If-Range takes no weak one) or its date."""
    etag = answer.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified", "")


def _length(url: str, answer: requests.Response) -> int:
    length = answer.headers.get("Content-Length", "")
    if not (length.isascii() and length.isdecimal()):
        remedy = "Check the address, or a proxy in between"
        raise DataError(_shown(url), "the server does not send its size", remedy)
    return int(length)


def _persist(url: str, attempt: Callable[[], T], received: Callable[[], int]) -> T:
    """Repeat an attempt until it succeeds; stop after eight failures in a row without a new byte.

    urllib3's ``Retry`` covers neither a connection lost inside a body nor a count that progress resets.
    """
    failures = 0
    while True:
        before = received()
        try:
            return attempt()
        except DataError:
            raise
        # ValueError: an address that requests or urllib cannot read, perhaps of a redirection
        except (
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            ConnectionError,
            ValueError,
        ) as error:
            answer = getattr(error, "response", None)
            # requests' messages quote the path, which may be a key
            said = scrub(str(error).replace(url, _shown(url)).replace(urlsplit(url).path, "/..."))
            if answer is not None and answer.status_code not in _TRANSIENT:
                said = f"the server answers {answer.status_code} {answer.reason}"
                raise DataError(_shown(url), said, "Check the address") from None
            if isinstance(error, ValueError):  # requests' errors for a malformed address
                raise DataError(_shown(url), said, "Check the address") from None
            failures = 1 if received() > before else failures + 1
            if failures == _TRIES:
                problem = f"failed {failures} times in a row without a new byte ({said})"
                raise DataError(_shown(url), problem, "Run it again: it resumes where it stopped") from None
            pause = min(2.0 ** (failures - 1), 60.0)
            print(f"{_shown(url)}: {said}. Trying again in {pause:.0f} s", file=sys.stderr, flush=True)
            time.sleep(pause)


def _shown(url: str) -> str:
    """Return an address without what may hold a secret: only scheme, host and the name of the file."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/.../{parts.path.rpartition('/')[2]}"


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _stamp(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
