"""Archives from the network: downloads that are resumed."""

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import requests
import urllib3.exceptions
from tqdm import tqdm

from fastslow.core.errors import DataError
from fastslow.core.input_files import is_there
from fastslow.core.progress import progress
from fastslow.kaggle.api_process import why_unreachable
from fastslow.kaggle.credentials import scrub

T = TypeVar("T")
CHUNK = 1 << 20
_TIMEOUT_S = 60.0
_TRIES = 8  # in a row without a new byte
_POOR_TRIES = 50  # in a row that together bring less than a chunk
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses that a later request may not get
BYTES = {"unit": "B", "unit_scale": True}  # of a progress bar


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
    """Return how many bytes of a download are on disk already, whole or in part; see :func:`fetch`."""
    return _size(target) or _size(_part(target))


def fetch(url: str, target: Path) -> None:
    """Download a file, resuming an earlier attempt.

    The part on disk (``<target>.part``) is continued where it is not longer than the server's file. The
    target appears when its size is right; unpacking finds one that changed on the server in between.

    Raises:
        DataError: The server does not have the file or does not send its size, or the part or the target is
            no file. The connection was lost eight times in a row without a new byte, or fifty times
            without a new megabyte; then the part stays for the next call.
    """
    part = _part(target)
    is_there(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with progress(desc=target.name, **BYTES) as bar:
        _persist(url, lambda: _receive(url, part, bar), lambda: _size(part))
    os.replace(part, target)


def _request(method: str, url: str, headers: dict[str, str]) -> requests.Response:
    """Send a request for a file as it is stored; an error status but 416 raises ``requests.HTTPError``."""
    headers = {"Accept-Encoding": "identity", **headers}
    options = {"headers": headers, "stream": True, "timeout": _TIMEOUT_S, "allow_redirects": True}
    answer = requests.request(method, url, **options)
    if answer.status_code != 416:  # no byte follows the part
        answer.raise_for_status()
    return answer


def _receive(url: str, part: Path, bar: tqdm) -> None:
    """Send one request: append to the part, or write it anew where the server sends the whole file."""
    start = _size(part)
    with _request("GET", url, {"Range": f"bytes={start}-"} if start else {}) as answer:
        span = re.fullmatch(r"bytes (\d+|\*)(?:-\d+)?/(\d+)", answer.headers.get("Content-Range", ""))
        if answer.status_code == 416 and span and int(span[2]) == start:  # it was whole
            return
        if answer.status_code == 416 or (answer.status_code == 206 and (not span or span[1] != str(start))):
            part.unlink(missing_ok=True)  # so that the next request starts at the beginning
            raise ConnectionError("the file on the server has changed")
        start, size = (start, int(span[2])) if answer.status_code == 206 else (0, _length(url, answer))
        bar.total, bar.initial, bar.n = size, start, start
        with open(part, "ab") as sink:
            sink.truncate(start)
            while chunk := answer.raw.read1(CHUNK):  # read() and iter_content drop the bytes before a loss
                sink.write(chunk)
                bar.update(len(chunk))
    if _size(part) != size:
        raise ConnectionError(f"closed after {_size(part):,} of {size:,} bytes")


def _length(url: str, answer: requests.Response) -> int:
    length = answer.headers.get("Content-Length", "")
    if not (length.isascii() and length.isdecimal()):
        remedy = "Check the address, or a proxy in between"
        raise DataError(_shown(url), "the server does not send its size", remedy)
    return int(length)


def _persist(url: str, attempt: Callable[[], T], received: Callable[[], int]) -> T:
    """Repeat an attempt until it succeeds; stop after eight failures in a row without a new byte.

    A new byte is one beyond all that was ever there: a download begins again where the server's file changes.
    urllib3's ``Retry`` covers neither a connection lost inside a body nor a count that progress resets.
    """
    failures = 0
    poor = 0
    most = received()
    chunk_began = most
    while True:
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
            if reason := why_unreachable(error):
                said = reason
                if not received():
                    remedy = "Check the network and the proxy (https_proxy), and run it again"
                    raise DataError(_shown(url), reason, remedy) from None
            size = received()
            failures = 1 if size > most else failures + 1
            most = max(most, size)
            poor += 1
            if most >= chunk_began + CHUNK:
                chunk_began = most
                poor = 0
            if failures == _TRIES or poor == _POOR_TRIES:
                gain = "a new byte" if failures == _TRIES else "a new megabyte"
                problem = f"failed {max(failures, poor)} times in a row without {gain} ({said})"
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


def _size(path: Path) -> int:
    return path.stat().st_size if is_there(path) else 0
