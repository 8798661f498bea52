"""Bytes that a training holds, and giving freed memory back to the operating system."""

import ctypes
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from inspect import unwrap
from typing import Generic, TypeVar

import numpy as np
import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LEAST_SLACK = 1 << 29  # half of it cost a fifth of the time of a step
_SETTLING = 10  # first steps, which show what steps take
_OFTEN = 2  # steps from one return to the next that are too few


def resident_bytes() -> int:
    """Return the memory that this process holds; 0 where the system does not say."""
    try:
        # without a buffer and without decoding: it is asked after every step
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return 0


def held_bytes(value: object) -> int:
    """Return the bytes of all arrays and tensors in an object; one that occurs twice is counted twice."""
    if hasattr(value, "untyped_storage"):  # a torch tensor, also on a GPU
        return int(value.untyped_storage().nbytes())
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(held_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(held_bytes, value))
    return held_bytes(vars(value)) if hasattr(value, "__dict__") and not callable(value) else 0


class FreedMemory:
    """Keeps freed blocks for the next step, and returns them once they outgrow what the steps use.

    glibc keeps freed blocks, and where every step has other sizes it finds few of them again: a training
    that uses some MB grows to GB. Returned blocks cost page faults when they are asked for again, up to half
    of the time of a step. So after a step the process holds at most ``slack`` more than right after the last
    return. Elsewhere (macOS, musl) nothing is done.

    Args:
        slack: Bytes above what was held after the last return; by default 512 MB or, where steps take more,
            1.25 times what one of the first ten steps took, at most ``most``. It rises by a quarter where two
            steps in a row exceed it, as larger graphs do.
        most: Maximum of a slack that is learned, in bytes.
    """

    def __init__(self, slack: int | None = None, most: int = 1 << 30):
        self._slack = slack or min(_LEAST_SLACK, most)
        self._learns = slack is None
        self._most = most
        libc = ctypes.CDLL(None)
        self._trim = getattr(libc, "malloc_trim", None)
        if self._trim:
            # setting one ends glibc's own adjusting, by which blocks of 32 MB are returned at every step
            libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
            libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        self._base = resident_bytes()
        self._steps = 0
        self._returned = -_OFTEN

    def after_step(self) -> None:
        """Return freed blocks if more is held than the bound; call it where little is in use."""
        if not self._trim:
            return
        held = resident_bytes() - self._base
        self._steps += 1
        often = held > self._slack and self._steps - self._returned < _OFTEN
        if self._learns and (often or self._steps <= _SETTLING):
            taken = self._slack if often else held
            self._slack = max(self._slack, min(taken + taken // 4, self._most))
        if held > self._slack:
            self._trim(0)
            self._base = resident_bytes()
            self._returned = self._steps


_Value = TypeVar("_Value")


class BoundedCache(Generic[_Value]):
    """Keeps what was used last, up to ``max_bytes`` in total; threads may share it."""

    def __init__(self, max_bytes: int):
        self.max_bytes, self.held_bytes = max_bytes, 0
        self._values: OrderedDict[Hashable, tuple[_Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], _Value]) -> _Value:
        """Return the value of a key, made where it is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
        value = make()
        size = held_bytes(value)
        with self._lock:
            if key not in self._values and size <= self.max_bytes:
                self._values[key] = value, size
                self.held_bytes += size
                while self.held_bytes > self.max_bytes:
                    _, (_, freed) = self._values.popitem(last=False)
                    self.held_bytes -= freed
        return value


def prefetch(items: Iterable[_Value]) -> Iterator[_Value]:
    """Yield items in order, each drawn in a thread while the caller has the one before.

    An exception is raised at its item's turn. A process would have its own copy of what items are made of.
    """
    items = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as worker:
        coming = worker.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = worker.submit(next, items, end)
            yield item


class AdamW(torch.optim.AdamW):
    """Torch's own, without the wrappers that import its compiler, for two seconds, to be left alone by it."""

    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    load_state_dict = unwrap(torch.optim.AdamW.load_state_dict)
    state_dict = unwrap(torch.optim.AdamW.state_dict)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))
    step.hooked = True  # type: ignore[attr-defined]  # torch's profiler is not told of every step
