"""Workers that do not outlive what they work for, and executors that Ctrl-C ends."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import TypeVar

Pool = TypeVar("Pool", bound=Executor)

_PAUSE_SECONDS = 0.2


def end_with_parent(parent: int) -> None:
    """End this process as soon as its parent has ended, however it ended, whatever runs here.

    A killed process takes nobody along: its workers would hold their memory, and write, beside the next run.

    Args:
        parent: Process number of the parent, of which this process must be a child.
    """
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    # an orphan gets another parent, at once and not always number 1; a pipe would need the launcher's help
    while os.getppid() == parent:
        time.sleep(_PAUSE_SECONDS)
    os._exit(1)


@contextlib.contextmanager
def ended_by_interrupt(pool: Pool) -> Iterator[Pool]:
    """Give an executor and shut it down; after Ctrl-C calls that run are not waited for."""
    wait_for_them = True
    try:
        yield pool
    except KeyboardInterrupt:
        wait_for_them = False
        raise
    finally:
        pool.shutdown(wait=wait_for_them, cancel_futures=True)
