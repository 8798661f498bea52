"""Preparing what comes next while the present is worked on."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def prefetch(make: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """``make(item)`` of each item in turn; the next one is made in a thread while the caller has the present.

    Args:
        make: Runs in the thread, one call at a time; what it raises is raised at its item's turn.
        items: What to make it from.
    """
    with ThreadPoolExecutor(1) as worker:
        coming = (worker.submit(make, item) for item in items)
        for present, _ in pairwise(chain(coming, [None])):
            yield present.result()
