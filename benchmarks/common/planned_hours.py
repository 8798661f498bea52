"""How long steps take side by side, by the plan of jobs of ``make submit``."""

import heapq
from collections.abc import Callable, Sequence

from fastslow.workflow.job_plan import share_cores


def amdahl(parallel: float) -> Callable[[int], float]:
    """Return the gain of a number of threads where this share of the work is divided among them."""
    return lambda threads: 1 / (1 - parallel + parallel / threads)


def planned_seconds(steps: Sequence[tuple[float, bool]], cores: int, gain: Callable[[int], float]) -> float:
    """Return the wall seconds of the steps of a stage where memory suffices for all that run at once.

    Args:
        steps: CPU seconds of each with one thread, and whether the plan takes it for long.
        cores: Cores of the machine.
        gain: How many times faster a step is with a number of threads than with one.
    """
    long = sum(is_long for _, is_long in steps)
    plan = share_cores(cores, cores, long, len(steps) - long)
    now, free, running = 0.0, cores, []
    for seconds, is_long in steps:
        own = plan.long if is_long else plan.short
        while own > free:
            now, freed = heapq.heappop(running)
            free += freed
        heapq.heappush(running, (now + seconds / gain(own), own))
        free -= own
    return max((end for end, _ in running), default=0.0)
