"""Memory and cores that processes and steps may use."""

import math
import os
from pathlib import Path

STEP_MEMORY = "FASTSLOW_STEP_MEMORY"
"""Environment variable: bytes that one step may hold, as the workflow planned them."""
STEP_CORES = "FASTSLOW_STEP_CORES"
"""Environment variable: cores that one step may keep busy, as the workflow planned them."""
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")  # cgroup v2: quota and period in microseconds, or max
_CPU_QUOTAS = tuple(  # cgroup v1: the same in two files; -1 for no quota
    tuple(Path("/sys/fs/cgroup", folder, f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    for folder in ("cpu", "cpu,cpuacct")
)


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
