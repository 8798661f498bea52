"""Memory and cores that processes and steps may use, and giving freed memory back to the system."""

import ctypes
import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

STEP_MEMORY = "FASTSLOW_STEP_MEMORY"
"""Environment variable: bytes that one step may hold, as the workflow planned them."""
STEP_CORES = "FASTSLOW_STEP_CORES"
"""Environment variable: cores that one step may keep busy, as the workflow planned them."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")  # cgroup v2: quota and period in microseconds, or max
_CPU_QUOTAS = tuple(  # cgroup v1: the same in two files; -1 for no quota
    tuple(Path("/sys/fs/cgroup", folder, f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    for folder in ("cpu", "cpu,cpuacct")
)
_LEAST_SLACK = 1 << 29  # half of it cost a fifth of the time of a step
_SETTLING = 10  # first steps, which show what steps take
_OFTEN = 2  # steps from one return to the next that are too few


def machine_memory() -> int:
    """Return the bytes of memory that this machine, or the container, has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in map(Path, _CGROUP_LIMITS):
        text = path.read_text().strip() if path.is_file() else ""
        if text.isdigit():
            total = min(total, int(text))
    return total


def machine_cores() -> int:
    """Return the number of cores that this process may use: those allowed, and no more than its container.

    A container's share of time is rounded up: 1.5 cores are two.
    """
    quota = _container_cores()
    return min(allowed_cores(), max(1, math.ceil(quota))) if quota else allowed_cores()


def allowed_cores() -> int:
    """Return the number of cores that the scheduler lets this process run on."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def limit_threads() -> None:
    """Let libraries that are imported later start as many threads as there are usable cores.

    They count the machine's cores and know nothing of a container's share of time, in which more threads wait
    for one another. A number that the user has set stays, and nothing is set where there is no such share.
    """
    if machine_cores() < allowed_cores():
        os.environ.setdefault("OMP_NUM_THREADS", str(machine_cores()))


def _container_cores() -> float:
    """Return how many cores' time the container (cgroup) has; 0 where it has no limit."""
    texts = [path.read_text().split() for path in (_CPU_MAX,) if path.is_file()]
    for paths in _CPU_QUOTAS:
        if all(path.is_file() for path in paths):
            texts.append([path.read_text().strip() for path in paths])
    shares = [
        int(text[0]) / int(text[1])
        for text in texts
        if len(text) == 2 and text[0].isdigit() and text[1].isdigit() and int(text[1])
    ]
    return min(shares, default=0.0)


def _planned(name: str) -> int:
    planned = os.environ.get(name, "")
    return int(planned) if planned.isdigit() else 0


def step_cores() -> int:
    """Return the cores that a step may keep busy: as planned, else all."""
    return _planned(STEP_CORES) or machine_cores()


def step_memory() -> int:
    """Return the bytes that a step may hold: as planned, else half of the machine's."""
    return _planned(STEP_MEMORY) or machine_memory() // 2


def resident_bytes() -> int:
    """Return the memory that this process holds; 0 where the system does not say."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.is_file() else 0


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
            1.25 times what one of the first ten steps took, at most a quarter of :func:`step_memory`. It
            rises by a quarter where two steps in a row exceed it, as larger graphs do.
    """

    def __init__(self, slack: int | None = None):
        self._slack = slack or min(_LEAST_SLACK, step_memory() // 4)
        self._learns = slack is None
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
            self._slack = max(self._slack, min(taken + taken // 4, step_memory() // 4))
        if held > self._slack:
            self.release()

    def release(self) -> None:
        """Return freed blocks now."""
        if self._trim:
            self._trim(0)
            self._base = resident_bytes()
            self._returned = self._steps
