"""Workers that do not outlive what they work for, and executors that Ctrl-C ends."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import TypeVar

Pool = TypeVar("Pool", bound=Executor)

_PAUSE_SECONDS = 0.2
_LOOPBACK, _LOOPBACK_SECONDS = "127.0.0.1", 5.0


def end_with_parent(parent: int) -> None:
    """End this process as soon as its parent, of this number, has ended, whatever runs here.

    Workers of a killed process would hold their memory, and write, beside the next run.
    """

    def watch() -> None:
        # an orphan gets another parent, at once and not always number 1
        while os.getppid() == parent:
            time.sleep(_PAUSE_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def check_loopback() -> None:
    """Raise RuntimeError where this machine cannot reach itself, as notebooks and their kernels must."""
    try:
        with socket.create_server((_LOOPBACK, 0)) as server:
            socket.create_connection(server.getsockname(), _LOOPBACK_SECONDS).close()
    except OSError as error:
        problem = f"this machine does not reach itself at {_LOOPBACK} ({error})"
        raise RuntimeError(f"{problem}; bring it up: ip link set lo up") from None


@contextlib.contextmanager
def ended_by_interrupt(pool: Pool) -> Iterator[Pool]:
    """Shut the pool down on exit; on KeyboardInterrupt do not wait for running calls."""
    wait_for_them = True
    try:
        yield pool
    except KeyboardInterrupt:
        wait_for_them = False
        raise
    finally:
        pool.shutdown(wait=wait_for_them, cancel_futures=True)
