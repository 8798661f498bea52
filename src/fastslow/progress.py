"""Progress bars that stay readable in a terminal, a notebook and a log file."""

import sys

from tqdm import tqdm

LOG_SECONDS = 10.0  # a file gets a line this often, a terminal four times a second


def progress(iterable=None, **options) -> tqdm:
    """A tqdm bar that does not flood a log.

    Args:
        iterable: What to go through, if any.
        **options: As ``tqdm``: ``total``, ``desc``, ``unit``, ``initial``.
    """
    interval = 0.25 if sys.stderr.isatty() else LOG_SECONDS
    return tqdm(iterable, mininterval=interval, maxinterval=interval, dynamic_ncols=True, **options)
