"""Progress bars that stay readable in a terminal, a notebook and a log file."""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

LOG_SECONDS = 10.0  # a file gets a line this often, a terminal four times a second


def progress(iterable: Iterable[Any] | None = None, **options: Any) -> tqdm:
    """Return a tqdm bar with the options of ``tqdm`` that does not flood a log."""
    interval = 0.25 if sys.stderr.isatty() else LOG_SECONDS
    return tqdm(iterable, mininterval=interval, maxinterval=interval, dynamic_ncols=True, **options)
