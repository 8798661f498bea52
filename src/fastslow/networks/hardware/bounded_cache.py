"""A cache with an overall bound in bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class BoundedCache(Generic[_Value]):
    """Keeps what was used last, up to a number of bytes in total; threads may share it.

    Args:
        max_bytes: Bound on the sum of the sizes; a value that is larger alone is not kept.
        size_of: Bytes that a value holds.
    """

    def __init__(self, max_bytes: int, size_of: Callable[[_Value], int]):
        self.max_bytes, self._size_of = max_bytes, size_of
        self._values: OrderedDict[Hashable, tuple[_Value, int]] = OrderedDict()
        self._lock = threading.RLock()
        self.held_bytes = 0

    def __len__(self) -> int:
        """Return the number of values that are kept."""
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], _Value]) -> _Value:
        """Return the value of a key, made where it is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
        value = make()
        size = self._size_of(value)
        with self._lock:
            if key not in self._values and size <= self.max_bytes:
                self._values[key] = value, size
                self.held_bytes += size
                while self.held_bytes > self.max_bytes:
                    _, (_, freed) = self._values.popitem(last=False)
                    self.held_bytes -= freed
        return value
