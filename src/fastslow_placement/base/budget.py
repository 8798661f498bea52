"""A limit of time that several stages share."""

import time
from collections.abc import Callable


def unlimited() -> bool:
    """Return that there is time for more."""
    return True


class Budget:
    """Seconds from now on; each stage gets a share of what is left when it begins.

    Args:
        seconds: The limit; infinite for none.
        clock: What gives the time in seconds; by default the CPU time of this process.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.process_time):
        self._clock, self._end = clock, clock() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left, 0 or more."""
        return max(self._end - self._clock(), 0.0)

    def share(self, part: float = 1.0) -> Callable[[], bool]:
        """Return what says whether a part, 0 to 1, of what is left now is still left."""
        end = self._clock() + part * self.left
        return lambda: self._clock() < end
