"""Memory and cores that processes and steps may use."""

import math
import os
from functools import cache
from pathlib import Path

STEP_MEMORY = "FASTSLOW_STEP_MEMORY"
"""Environment variable: bytes that one step may hold, as the workflow planned them."""
STEP_CORES = "FASTSLOW_STEP_CORES"
"""Environment variable: cores that one step may keep busy, as the workflow planned them."""
_GROUPS = Path("/sys/fs/cgroup")
_IN_GROUPS = Path("/proc/self/cgroup")  # lines such as 4:cpu,cpuacct:/slice (cgroup v1) and 0::/slice (v2)


@cache  # it is asked for every chunk of a file
def machine_memory() -> int:
    """Return the bytes of memory that this machine has, or the container or job that this process is in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = _limits("memory.max") + _limits("memory.limit_in_bytes")
    return min([total, *(int(limit) for (limit,) in limits if limit.isdigit())])


def machine_cores() -> int:
    """Return the cores that this process may use: those allowed, of a container its share, rounded up."""
    quota = _container_cores()
    return min(allowed_cores(), max(1, math.ceil(quota))) if quota else allowed_cores()


def allowed_cores() -> int:
    """Return the number of cores that the scheduler lets this process run on."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _container_cores() -> float:
    """Return how many cores' time the container or job (cgroup) has; 0 where it has no limit."""
    limits = _limits("cpu.max", words=2) + _limits("cpu.cfs_quota_us", "cpu.cfs_period_us", words=2)
    numbers = [limit for limit in limits if all(word.isdigit() for word in limit)]  # "max" and -1: none
    shares = [int(quota) / int(period) for quota, period in numbers if int(period)]
    return min(shares, default=0.0)


def _limits(*names: str, words: int = 1) -> list[list[str]]:
    """Return what files say in each control group that this process is in, and in the groups around it."""
    groups = _IN_GROUPS.read_text().splitlines() if _IN_GROUPS.is_file() else []
    folders = []
    for line in groups:
        _, controllers, group = line.split(":", 2)
        for below in (Path(group), *Path(group).parents):
            folders += [_GROUPS / name / below.relative_to("/") for name in controllers.split(",")]
    texts = [[f / name for name in names] for f in folders if all((f / name).is_file() for name in names)]
    said = [" ".join(path.read_text() for path in paths).split() for paths in texts]
    return [limit for limit in said if len(limit) == words]


def _planned(name: str) -> int:
    planned = os.environ.get(name, "")
    return int(planned) if planned.isdigit() else 0


def step_cores() -> int:
    """Return the cores that a step may keep busy: as planned, else all."""
    return _planned(STEP_CORES) or machine_cores()


def step_memory() -> int:
    """Return the bytes that a step may hold: as planned, else half of the machine's."""
    return _planned(STEP_MEMORY) or machine_memory() // 2
