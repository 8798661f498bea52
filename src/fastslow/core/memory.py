"""Memory and cores that a step may use."""

import os
from pathlib import Path

STEP_MEMORY = "FASTSLOW_STEP_MEMORY"
"""Environment variable: bytes that one step may hold, as the workflow planned them."""
STEP_CORES = "FASTSLOW_STEP_CORES"
"""Environment variable: cores that one step may keep busy, as the workflow planned them."""
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int:
    """Return the bytes of memory that this machine, or the container, has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in map(Path, _CGROUP_LIMITS):
        text = path.read_text().strip() if path.is_file() else ""
        if text.isdigit():
            total = min(total, int(text))
    return total


def machine_cores() -> int:
    """Return the number of cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _planned(name: str) -> int:
    planned = os.environ.get(name, "")
    return int(planned) if planned.isdigit() else 0


def step_cores() -> int:
    """Return the cores that a step may keep busy: as planned, else all."""
    return _planned(STEP_CORES) or machine_cores()


def step_memory() -> int:
    """Return the bytes that a step may hold: as planned, else half of the machine's."""
    return _planned(STEP_MEMORY) or machine_memory() // 2
