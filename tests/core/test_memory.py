"""Freed memory is kept for reuse below a bound, and returned beyond it."""

import ast
import ctypes
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

import fastslow
from fastslow.core import memory
from helpers.cases import cases

MB = 1 << 20
STEPS = """
import numpy as np
from fastslow.core.memory import FreedMemory, resident_bytes

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
print(held_after_step(20), held_after_step(200), *[held_after_step(n % 25) for n in range(500)])
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="no glibc")
def test_freed_blocks_are_kept_up_to_a_bound_over_500_steps():
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, check=True)
    few, many, *later = map(int, done.stdout.split())
    assert few >= 30  # kept, so that the next step need not ask for them
    assert many < 20  # 400 MB were freed: returned
    assert max(later) <= many + 64


@dataclass(frozen=True)
class _Part:
    array: np.ndarray
    others: list


def test_held_bytes_counts_what_is_inside():
    part = _Part(np.zeros((2, 3), np.int32), [torch.zeros(5), {"a": np.zeros(3, np.uint8)}, "text", 7, None])
    assert memory.held_bytes(part) == 24 + 20 + 3
    assert memory.held_bytes(sparse.csr_array(np.eye(4))) >= 4 * 8


@cases(
    "files, cores",
    [
        ({}, 64),
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.max": "200000 100000"}, 2),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "10000 100000"}, 1),
        ({"cpu.max": "9900000 100000"}, 64),
        ({"cpu.max": ""}, 64),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ({"cpu,cpuacct/cpu.cfs_quota_us": "300000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "0"}, 64),
    ],
)
def test_a_container_has_the_cores_of_its_share(files, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(memory.os, "sched_getaffinity", lambda _: range(64), raising=False)
    monkeypatch.setattr(memory, "_CPU_MAX", tmp_path / "cpu.max")
    quotas = [[tmp_path / path.relative_to("/sys/fs/cgroup") for path in pair] for pair in memory._CPU_QUOTAS]
    monkeypatch.setattr(memory, "_CPU_QUOTAS", quotas)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert memory.machine_cores() == cores
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    memory.limit_threads()
    assert os.environ.pop("OMP_NUM_THREADS", "64") == str(cores)
    for path in tmp_path.rglob("*us"):
        path.unlink()
    (tmp_path / "cpu.max").unlink(missing_ok=True)


def test_cores_are_counted_in_one_place():
    """Whoever counts the machine's cores himself starts too many threads in a container."""
    for path in Path(fastslow.__file__).parents[1].rglob("*.py"):
        used = {
            node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
        }
        if path.name not in ("memory.py", "worker.py"):  # a worker asks whether its cores are its alone
            assert not used & {"cpu_count", "sched_getaffinity", "process_cpu_count"}, path
