"""Predict fewer configurations at a time when memory runs out; name what to lower when a training does."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from fastslow.core.errors import FastslowError

Result = TypeVar("Result")
_SAYS = ("can't allocate memory", "out of memory")  # RuntimeErrors of torch's CPU and CUDA allocators


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on a CPU or on a GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _SAYS)


class OutOfMemory(FastslowError):
    """A training needs more memory than there is."""


@contextlib.contextmanager
def explain_memory() -> Iterator[None]:
    """Raise an :class:`OutOfMemory` that names the settings to lower where memory runs out."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not ran_out_of_memory(error):
            raise
        lower = "lower configs_per_step, hidden_channels, num_layers or the hops of the features"
        raise OutOfMemory(f"memory ran out: {lower}, or take JOBS=1") from None


class Shrinking:
    """Runs work on batches of a size that is halved when memory runs out; the size stays for what follows.

    Args:
        size: Size to start with.
        what: Name of the things that ``size`` counts, for the one message.
    """

    def __init__(self, size: int, what: str):
        self.size, self._what, self._said = size, what, False

    def run(self, work: Callable[[int], Result]) -> Result:
        """Return ``work(size)``; where memory runs out, halve the size and call it again.

        Args:
            work: Takes the size, 2 or more.

        Raises:
            Exception: An error of ``work`` with another reason, or memory runs out at size 2.
        """
        while True:
            try:
                return work(self.size)
            except (MemoryError, RuntimeError) as error:
                if not ran_out_of_memory(error) or self.size <= 2:
                    raise
            self._shrink()  # here what the failed attempt held is freed

    def _shrink(self) -> None:
        self.size = max(2, self.size // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if not self._said:
            print(f"memory ran out: continuing with {self._what} {self.size}, or fewer", file=sys.stderr)
            self._said = True
