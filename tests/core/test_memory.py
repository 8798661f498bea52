"""The cores that a process may use, also in a container."""

import ast
import os
from pathlib import Path

import fastslow
from fastslow import cli
from fastslow.core import memory
from helpers.cases import cases


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
    cli._limit_threads()
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
