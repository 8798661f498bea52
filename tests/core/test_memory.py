"""The cores that a process may use, also in a container."""

import os
import re
import shutil
from pathlib import Path

import fastslow
from fastslow import cli
from fastslow.core import memory
from helpers.cases import cases

V1 = "3:cpuset:/\n2:name=systemd:/\n1:cpu:/job\n"
V1_TOGETHER = "4:memory:/slurm/job\n3:cpu,cpuacct:/\n"


@cases(
    "groups, files, cores",
    [
        ("", {}, 64),
        ("0::/", {"cpu.max": "max 100000"}, 64),
        ("0::/", {"cpu.max": "200000 100000"}, 2),
        ("0::/docker/of-the-host", {"cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/", {"cpu.max": "10000 100000"}, 1),
        ("0::/", {"cpu.max": "9900000 100000"}, 64),
        ("0::/", {"cpu.max": ""}, 64),
        ("0::/slurm/job", {"slurm/job/cpu.max": "max 100000", "slurm/cpu.max": "300000 100000"}, 3),
        ("0::/other", {"slurm/cpu.max": "300000 100000"}, 64),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        (V1, {"cpu/job/cpu.cfs_quota_us": "400000", "cpu/job/cpu.cfs_period_us": "100000"}, 4),
        (V1_TOGETHER, {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        (V1, {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "0"}, 64),
    ],
)
def test_a_process_has_the_cores_of_its_share(groups, files, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(memory.os, "sched_getaffinity", lambda _: range(64), raising=False)
    _write_groups(groups, files, tmp_path, monkeypatch)
    assert memory.machine_cores() == cores
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cli._limit_threads()
    assert os.environ.pop("OMP_NUM_THREADS", "64") == str(cores)


@cases(
    "groups, files",
    [
        ("0::/", {"memory.max": "5000"}),
        ("0::/slurm/job", {"slurm/job/memory.max": "max", "slurm/memory.max": "5000"}),
        (V1_TOGETHER, {"memory/slurm/job/memory.limit_in_bytes": "5000"}),
        (
            V1_TOGETHER,
            {"memory/memory.limit_in_bytes": "5000", "memory/slurm/memory.limit_in_bytes": str(2**63)},
        ),
    ],
)
def test_a_process_has_the_memory_of_its_groups(groups, files, tmp_path, monkeypatch):
    _write_groups(groups, files, tmp_path, monkeypatch)
    machine_memory = memory.machine_memory.__wrapped__  # not what was read before
    assert machine_memory() == 5000
    _write_groups(groups, dict.fromkeys(files, "max"), tmp_path, monkeypatch)
    assert machine_memory() > 5000


def _write_groups(groups, files, folder, monkeypatch):
    shutil.rmtree(folder / "cgroup", ignore_errors=True)
    for name, text in files.items():
        (folder / "cgroup" / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / "cgroup" / name).write_text(f"{text}\n")
    (folder / "of the process").write_text(groups)
    monkeypatch.setattr(memory, "_GROUPS", folder / "cgroup")
    monkeypatch.setattr(memory, "_IN_GROUPS", folder / "of the process")


def test_cores_are_counted_in_one_place():
    """Whoever counts the machine's cores himself starts too many threads in a container."""
    counts = re.compile(r"\.(cpu_count|sched_getaffinity|process_cpu_count)\b")
    modules = Path(fastslow.__file__).parents[1].rglob("*.py")
    used_in = {path.name for path in modules if counts.search(path.read_text())}
    assert used_in == {"memory.py", "worker.py"}, "a worker asks whether its cores are its alone"
