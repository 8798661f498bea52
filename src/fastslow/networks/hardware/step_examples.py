"""Examples of an epoch, made one ahead; where memory runs out, a step is taken again on fewer configurations.

A loss compares the configurations of a graph with each other, so a step cannot be split into smaller ones of
equal gradient. Instead it uses a random part of its configurations, and so do all later steps. Where memory
does not run out, nothing is different.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

import numpy as np

from fastslow.networks.hardware.out_of_memory import Shrinking, ran_out_of_memory

Drawn = tuple[str, np.ndarray, int | None]
_Example = TypeVar("_Example")
Item = TypeVar("Item")


def prefetch(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items in order, each drawn in a thread while the caller has the one before.

    A process would have its own copy of what the items are made of.

    Args:
        items: Drawn one at a time; an exception is raised at its item's turn.
    """
    items, end = iter(items), object()
    with ThreadPoolExecutor(1) as worker:
        coming = worker.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = worker.submit(next, items, end)
            yield item


class StepExamples(Generic[_Example]):
    """The examples of an epoch, step by step: :meth:`begin` a step, then iterate.

    Iterated again, it yields the same step on as many configurations as fit by then.

    Args:
        make: Makes an example of a graph's name, the positions of its configurations and a seed.
        drawn: The examples to make, in order.
        fits: Maximum number of configurations of a graph.
        seed: Seed of the configurations that are kept of a graph with more.
    """

    def __init__(
        self,
        make: Callable[[Drawn], _Example],
        drawn: Sequence[Drawn],
        fits: Shrinking,
        seed: Sequence[int],
    ):
        self._make, self._fits, self._seed = make, fits, seed
        # no method of this object: in a cycle with it, the thread of prefetch would end at any time, anywhere
        self._drawn, self._ahead = iter(drawn), prefetch(map(partial(_try, make, fits, seed), drawn))
        self.begin(0)

    def begin(self, count: int) -> None:
        """Begin the step of the next ``count`` examples."""
        self._step, self._coming = list(islice(self._drawn, count)), islice(self._ahead, count)
        self._again = False

    def __iter__(self) -> Iterator[_Example]:
        """Yield the examples of the step, each made when it is asked for, or ahead.

        Raises:
            MemoryError: Memory ran out while an example was made.
        """
        if self._again:
            deque(self._coming, maxlen=0)  # were made for the failed attempt
        self._again, size = True, self._fits.size
        for item in self._step:
            made, example = next(self._coming, (math.inf, None))
            if made > size:  # before memory ran out
                made, example = size, self._make(_cut(item, size, self._seed))
            if example is None:
                raise MemoryError("while the example was made")
            yield example


def _try(
    make: Callable[[Drawn], _Example], fits: Shrinking, seed: Sequence[int], item: Drawn
) -> tuple[int, _Example | None]:
    """Return the size that an example was made for, and the example; None where memory ran out."""
    size = fits.size
    try:
        return size, make(_cut(item, size, seed))
    except (MemoryError, RuntimeError) as error:
        if not ran_out_of_memory(error):
            raise
        return size, None


def _cut(item: Drawn, size: int, seed: Sequence[int]) -> Drawn:
    """Return the item with a random part of its configurations, where it has more than ``size``."""
    name, configs, own = item
    if len(configs) <= size:
        return item
    return name, np.random.default_rng(seed).choice(configs, size, replace=False), own
