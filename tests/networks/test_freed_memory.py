"""Freed memory is kept for reuse below a bound, and returned beyond it."""

import ctypes
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import sparse

from fastslow.networks.hardware import memory

MB = 1 << 20
STEPS = """
import numpy as np
from fastslow.networks.hardware.memory import FreedMemory, resident_bytes

MB = 1 << 20
freed = FreedMemory(64 * MB)
before = resident_bytes()

def held_after_step(blocks):  # blocks of 2 MB, a small one that stays after each
    large, small = [], []
    for _ in range(blocks):
        large.append(np.ones(MB // 4))
        small.append(np.ones(10))
    kept.append(small)
    del large
    freed.after_step()
    return (resident_bytes() - before) // MB

kept = []
print(held_after_step(20), held_after_step(200), *[held_after_step(60 * (n % 3)) for n in range(12)])
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="no glibc")
def test_freed_blocks_are_kept_up_to_a_bound_at_every_step():
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, check=True)
    few, many, *later = map(int, done.stdout.split())
    assert few >= 30  # kept, so that the next step need not ask for them
    assert many < 20  # 400 MB were freed: returned
    assert max(later) <= many + 64  # some free up to 240 MB


@dataclass(frozen=True)
class _Part:
    array: np.ndarray
    others: list


def test_held_bytes_counts_what_is_inside():
    part = _Part(np.zeros((2, 3), np.int32), [torch.zeros(5), {"a": np.zeros(3, np.uint8)}, "text", 7, None])
    assert memory.held_bytes(part) == 24 + 20 + 3
    assert memory.held_bytes(sparse.csr_array(np.eye(4))) >= 4 * 8
