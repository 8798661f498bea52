"""Preparing the next item in a thread while the caller works on the current one."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetch(make: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield ``make(item)`` of each item in order, computed one item ahead in a thread.

    A DataLoader worker would be a process of its own, with its own copy of the cached graphs.

    Args:
        make: Runs in the thread, one call at a time; an exception is raised at its item's turn.
        items: What to call it with.
    """
    with ThreadPoolExecutor(1) as worker:
        submitted = (worker.submit(make, item) for item in items)
        for current, _ in pairwise(chain(submitted, [None])):
            yield current.result()
