"""Workers end with the process they work for."""

import signal
import subprocess
import sys
import time

import psutil

from helpers.cases import cases

WORKERS = """
import os, sys, time
import joblib
from fastslow.core.processes import end_with_parent

def work(seconds):
    os.write(1, f"{os.getpid()}\\n".encode())  # in one piece: both share the pipe
    time.sleep(seconds)

if __name__ == "__main__":
    leash = {"initializer": end_with_parent, "initargs": (os.getpid(),)}
    joblib.Parallel(n_jobs=2, **leash)([joblib.delayed(work)(60)] * 2)
"""


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "too late"
        time.sleep(0.05)


@cases("number", [signal.SIGKILL, signal.SIGINT])
def test_busy_workers_end_with_their_parent(tmp_path, number):
    script = tmp_path / "script.py"
    script.write_text(WORKERS)
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        workers = [psutil.Process(int(parent.stdout.readline())) for _ in range(2)]
        parent.send_signal(number)
        parent.wait(20)
    wait_until(lambda: not any(w.is_running() and w.status() != psutil.STATUS_ZOMBIE for w in workers))


def test_a_process_of_a_dead_parent_ends_at_once():
    code = (
        "import time; from fastslow.core.processes import end_with_parent; end_with_parent(0); time.sleep(60)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=20, check=False).returncode == 1
