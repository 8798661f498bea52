"""Freed memory of steps whose sizes change is returned beyond a bound, and kept for reuse below it."""

import ctypes
import subprocess
import sys

import pytest

from fastslow.core import memory

SLACK = 32 << 20
STEPS = """
import sys
import numpy as np
from fastslow.core.memory import FreedMemory, resident_bytes
from fastslow.networks.prefetch import prefetch

slack, trims = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
freed = FreedMemory(slack)
before, after, kept = resident_bytes(), [], []

def step(size):  # blocks of changing sizes, and small ones between them that stay a while
    blocks = [np.ones(int(size * share)) for share in rng.uniform(0.1, 1, 12)]
    kept.append(np.ones(300))
    del kept[:-2000]
    return blocks

for blocks in prefetch(step, 2 ** rng.uniform(10, 16, 2000) * np.repeat([8, 1], [50, 1950])):
    copies = [block + 1 for block in blocks]
    del blocks, copies
    if trims:
        freed.after_step()
    after.append(resident_bytes() - before)
print(max(after) >> 20, max(after[100:]) >> 20)
"""


def megabytes(trims: bool) -> tuple[int, int]:
    """What 2,000 steps, the first 50 of them large, leave held at most; and without the first 100."""
    command = [sys.executable, "-c", STEPS, str(SLACK), str(int(trims))]
    return tuple(map(int, subprocess.run(command, capture_output=True, check=True).stdout.split()))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="no glibc")
def test_memory_of_changing_steps_is_flat():
    held, later = megabytes(trims=True)
    bound = (SLACK >> 20) + 24  # two steps of 12 blocks of 0.5 MB are in use beside the slack
    assert later <= bound and held <= bound + 48
    assert megabytes(trims=False)[1] > bound  # else this could not fail


def test_the_planned_memory_of_a_step_counts(monkeypatch):
    monkeypatch.setenv(memory.STEP_MEMORY, str(3 << 30))
    assert memory.step_memory() == 3 << 30
    monkeypatch.setenv(memory.STEP_MEMORY, "")
    assert memory.step_memory() == memory.machine_memory() // 2 > 0
