"""Progress bars that stay readable in a terminal, a notebook and a log file."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

Report = Callable[[int, float], None]
"""Called after every boosting iteration with its number and the latest valid score."""
LOG_SECONDS = 10.0  # a file gets a line this often, a terminal four times a second


def progress(iterable: Iterable[Any] | None = None, **options: Any) -> tqdm:
    """Return a tqdm bar with the options of ``tqdm`` that does not flood a log."""
    interval = 0.25 if sys.stderr.isatty() else LOG_SECONDS
    return tqdm(iterable, mininterval=interval, maxinterval=interval, dynamic_ncols=True, **options)


@contextmanager
def boosting_progress(rounds: int, title: str) -> Iterator[Report]:
    """Show a bar over boosting iterations.

    Args:
        rounds: Number of iterations.
        title: Text before the bar.

    Yields:
        The function to call after each iteration.
    """
    with progress(total=rounds, desc=title, unit="round") as bar:

        def report(_: int, valid: float) -> None:
            bar.update()
            bar.set_postfix(valid=f"{valid:.3f}", refresh=False)

        yield report
