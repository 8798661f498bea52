"""The command line in a fork of this process: without the five seconds that importing it takes every time."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from fastslow import cli  # noqa: F401  what a fork must find imported
from fastslow.workflow import run  # noqa: F401

_PAUSE = 0.02


class ForkedCommand:
    """``fastslow WORDS`` in a process of its own, with the part of :class:`subprocess.Popen` needed here.

    Args:
        words: The command line.
        environment: All variables of its environment.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]):
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  open as long as this object lives
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            self._become(words, environment)

    def _become(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        status = 1
        try:
            for stream in (1, 2):
                os.dup2(self._said.fileno(), stream)
            sys.stdout, sys.stderr = (os.fdopen(stream, "w", closefd=False) for stream in (1, 2))
            os.environ.clear()
            os.environ.update(environment)
            status = cli.main([*words])
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def __enter__(self) -> "ForkedCommand":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for its end."""
        self.communicate()

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def communicate(self, timeout: float = float("inf")) -> tuple[str, None]:
        """Wait for its end and return what it said.

        Raises:
            subprocess.TimeoutExpired: It runs longer than so many seconds.
        """
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("fastslow", timeout)
            time.sleep(_PAUSE)
        self._said.seek(0)
        return self._said.read().decode(errors="replace"), None

    def send_signal(self, number: int) -> None:
        """Send it a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)
