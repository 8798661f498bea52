"""Progress bars that stay readable in a terminal, a notebook and a log file."""

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tqdm import tqdm

from fastslow.core.errors import counted

LOG_SECONDS = 10.0  # a file gets a line this often, a terminal four times a second
TICK_SECONDS = 5.0
NOTEBOOK_SECONDS = 3.0  # a step that is shorter needs no bar in a notebook


class _Bar(tqdm):  # type: ignore[misc]  # tqdm has no types
    """A bar that does not show a score which is not known yet."""

    def set_postfix(self, ordered_dict: Any = None, refresh: bool = True, **scores: Any) -> None:
        """Show scores after the bar, but none that is ``nan``."""
        values = {**dict(ordered_dict or {}), **scores}
        known = {name: value for name, value in values.items() if str(value) != "nan"}
        super().set_postfix(known, refresh=refresh)


def progress(iterable: Iterable[Any] | None = None, **options: Any) -> tqdm:
    """Return a tqdm bar with the options of ``tqdm`` that does not flood a log.

    A notebook shows what is written to ``stderr`` on red, as an error: there the bar is in its other output.
    """
    if _in_notebook():
        options = {"file": sys.stdout, "delay": NOTEBOOK_SECONDS, **options}
    interval = 0.25 if sys.stderr.isatty() else LOG_SECONDS
    return _Bar(iterable, mininterval=interval, maxinterval=interval, dynamic_ncols=True, **options)


def _in_notebook() -> bool:
    """Return whether the output of this process is a notebook's."""
    return type(sys.stdout).__module__.startswith("ipykernel")


@contextlib.contextmanager
def ticking(bar: tqdm) -> Iterator[tqdm]:
    """Show a bar every few seconds, with the time so far, also while its first step takes minutes."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(TICK_SECONDS):
            bar.refresh()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield bar
    finally:
        ended.set()
        thread.join()


def name_score(collections: Sequence[str]) -> str:
    """Return the name that a progress bar gives to the valid score of these collections."""
    if len(collections) == 1:
        return f"valid {collections[0]}"
    return f"valid, mean of {counted(len(collections), 'collection')}"
