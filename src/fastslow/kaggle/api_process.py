"""Call the kaggle package in a process of its own: importing it authenticates, and it prints to stdout."""

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from fastslow.core.progress import LOG_SECONDS
from fastslow.kaggle.credentials import scrub

_IDLE_S = 600.0  # kaggle itself repeats a lost upload for six minutes without printing anything
_NOISY = ("VERBOSE", "VERBOSE_OUTPUT")  # they make kaggle print its requests, credentials included


class CallError(RuntimeError):
    """A call of the kaggle package failed; the message holds no credentials.

    Args:
        kind: ``credentials`` (none, or refused), ``http`` (the server answered with an error status),
            ``network`` (no answer, or an incomplete one), ``file`` (another error of the operating system),
            ``package`` (kaggle is missing or lacks the method) or ``other``.
        message: What the exception says.
        status: HTTP status, None except for ``http``.
    """

    def __init__(self, kind: str, message: str, status: int | None = None):
        super().__init__(message)
        self.kind, self.status = kind, status


def call(method: str, echo: bool = False, **arguments: Any) -> Any:
    """Call a method of ``kaggle.api.kaggle_api_extended.KaggleApi`` and return its result.

    A call that prints nothing for ten minutes is stopped.

    Args:
        method: Name of the method, such as ``competition_submissions``.
        echo: Pass what kaggle prints (a progress bar) on to stderr, without credentials.
        **arguments: Keyword arguments of the method.

    Returns:
        The result as JSON values; an object of kaggle's as a dict with the service's own keys.

    Raises:
        CallError: The method raised an exception, the process was stopped, or it ended without an answer.
    """
    request = json.dumps([method, arguments])
    command = [sys.executable, "-P", "-m", "fastslow.kaggle.api_call", request]
    environment = {name: value for name, value in os.environ.items() if name not in _NOISY}
    environment |= {"PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"}
    if not sys.stderr.isatty():  # kaggle's own bar would flood a log
        environment |= {"TQDM_MININTERVAL": f"{LOG_SECONDS}", "TQDM_MAXINTERVAL": f"{LOG_SECONDS}"}
    printed = []
    with tempfile.TemporaryFile() as answer:
        with _process(command, environment, answer) as process:
            for piece in _pieces(process):
                printed.append(scrub(piece))
                if echo:
                    print(printed[-1], end="", file=sys.stderr, flush=True)
        answer.seek(0)
        text = answer.read()
    if not text:
        lines = "".join(printed).split("\n")
        said = " / ".join(line.strip() for line in lines if line.strip()) or "it printed nothing"
        raise CallError("other", f"ended with status {process.returncode}: {said[-500:]}")
    value = json.loads(text)
    if "error" in value:
        raise CallError(value["error"]["kind"], scrub(value["error"]["message"]), value["error"]["status"])
    return value["result"]


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str], answer: IO) -> Iterator[subprocess.Popen]:
    """Start a process that does not outlive the block, however the block ends."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=answer, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            yield process
            process.wait()
        finally:
            if process.poll() is None:
                process.kill()


def _pieces(process: subprocess.Popen) -> Iterator[str]:
    """Yield what a process prints to stderr, cut after each line feed or carriage return.

    Raises:
        CallError: It printed nothing for too long.
    """
    buffer = b""
    while select.select([process.stderr], [], [], _IDLE_S)[0]:
        chunk = os.read(process.stderr.fileno(), 65536)
        *whole, buffer = re.split(rb"(?<=[\r\n])", buffer + chunk)
        if not chunk:
            whole.append(buffer)
        yield from (piece.decode(errors="replace") for piece in whole)
        if not chunk:
            return
    raise CallError("network", f"timed out: kaggle printed nothing for {_IDLE_S:.0f} s")
