"""What the next step needs, prepared in a thread while the present one computes."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def prefetch(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items in order, each drawn in a thread while the caller has the one before.

    A process would have its own copy of what the items are made of.

    Args:
        items: Drawn one at a time; an exception is raised at its item's turn.
    """
    items = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as worker:
        coming = worker.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = worker.submit(next, items, end)
            yield item
