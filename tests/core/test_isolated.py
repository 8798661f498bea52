"""Calls in processes of their own: what each end of a process becomes, and that none is left behind."""

import errno
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from pathlib import Path

import psutil
import pytest
from pebble.pool.process import PoolManager

from fastslow.core.errors import StorageError
from fastslow.core.isolated import (
    CRASHED,
    OUT_OF_MEMORY,
    TIMED_OUT,
    Killed,
    Workers,
    call_isolated,
    end_with_parent,
    run_command,
)
from helpers import isolated_calls as calls
from helpers.cases import cases
from helpers.forked_workers import forked  # noqa: F401 (fixture)

UNGUARDED = """
import sys
sys.path[:0] = [{tests!r}]
from fastslow.core.isolated import call_isolated
from helpers import isolated_calls
print("main")
call_isolated(isolated_calls.{call}, *{arguments!r})
"""


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "too late"
        time.sleep(0.05)


def all_ended(processes):
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def unguarded(call, *arguments):
    return UNGUARDED.format(tests=str(Path(calls.__file__).parents[1]), call=call, arguments=arguments)


@pytest.fixture(scope="module")
def workers():
    with Workers(memory=1 << 30) as warm:
        yield warm


@cases("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_where_no_semaphore_can_be_made_the_place_is_named(number, monkeypatch):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    synchronize = import_module("joblib.externals.loky.backend.synchronize")
    monkeypatch.setattr(synchronize.SemLock, "__init__", refuse)
    with pytest.raises(StorageError, match=r"^/dev/shm: no process can be started: .* Mount it writable"):
        call_isolated(calls.value, 5)


def test_a_value_comes_from_another_process_that_stays_warm(workers):
    (five, one), (six, other) = workers.call(calls.value, 5), workers.call(calls.value, 6)
    assert (five, six) == (5, 6) and one == other != os.getpid()


@cases("call, error", [("fail", KeyError), ("wait_in_vain", TimeoutError)])
def test_an_error_of_the_function_is_raised_with_its_traceback(workers, call, error):
    with pytest.raises(error, match="of its own") as caught:
        workers.call(getattr(calls, call), seconds=60)
    assert f"in {call}" in str(caught.value.__cause__)


ENDS = {
    "sleep": (TIMED_OUT, "it took longer than 0.5 s"),
    "allocate": (OUT_OF_MEMORY, "it needed more than the memory limit"),
    "throw": (OUT_OF_MEMORY, "its process ended with SIGABRT: .*std::bad_alloc"),
    "be_killed": (OUT_OF_MEMORY, "its process ended with SIGKILL: it printed nothing"),
    "segfault": (CRASHED, "its process ended with SIGSEGV"),
    "abort": (CRASHED, "its process ended with SIGABRT: F1121 .*Check failed: rank == 4$"),
    "leave": (CRASHED, "its process ended with status 3: bye$"),
}


@cases("call", ENDS)
def test_each_end_of_a_process_is_told_and_the_next_call_works(workers, call):
    kind, message = ENDS[call]
    with pytest.raises(Killed, match=message) as caught:
        workers.call(getattr(calls, call), seconds=0.5 if call == "sleep" else 60)
    assert caught.value.kind == kind
    assert workers.call(calls.value)[0] == 3


@pytest.fixture
def breaking(monkeypatch):
    """A function that breaks the next pools whose process ends, as if its first word was not heard."""
    original = PoolManager.find_expired_task
    breaks = []

    def find_expired_task(self, process):
        if breaks:
            raise breaks.pop()
        return original(self, process)

    monkeypatch.setattr(PoolManager, "find_expired_task", find_expired_task)
    return lambda pools: breaks.extend(BrokenProcessPool("All workers expired") for _ in range(pools))


@pytest.mark.usefixtures("forked")
def test_a_pool_that_breaks_is_opened_again(breaking):
    with Workers() as workers:
        breaking(1)
        with pytest.raises(Killed, match="its process ended with SIGSEGV"):
            workers.call(calls.segfault)
        assert workers.call(calls.value)[0] == 3
        breaking(2)
        answers = dict(workers.each(calls.leave_or_not, {leaves: [leaves] for leaves in (True, False)}))
        assert answers.pop(True).kind == CRASHED and answers == {False: "stayed"}
        breaking(3)
        with pytest.raises(Killed, match="its process ended as soon as it was called") as caught:
            workers.call(calls.segfault)
        assert caught.value.kind == CRASHED and workers.call(calls.value)[0] == 3


@pytest.mark.usefixtures("forked")
def test_many_calls_come_as_they_end_and_a_crash_is_tried_again(tmp_path):
    with Workers(2, calls=3) as workers:
        found = dict(workers.each(calls.value, {key: (key,) for key in range(8)}))
        assert [number for number, _ in found.values()] == [*found] and sorted(found) == [*range(8)]
        assert len({process for _, process in found.values()}) > 2, "a process is replaced after three calls"
        meeting = str(tmp_path / "meeting")
        waiting = {"last": ("wait_for", meeting), "first": ("touch", meeting)}
        assert [*workers.each(calls.play, waiting)] == [("first", "first"), ("last", "second")]
        (first,) = workers.each(calls.crash_once, {"key": [str(tmp_path / "one")]})
        assert first[1].kind == CRASHED
        again = workers.each(calls.crash_once, {"key": [str(tmp_path / "two")]}, attempts=2)
        assert [*again] == [("key", "well")]


def test_a_process_that_cannot_start_is_said():
    said = "does not start: (.|\n)*libtpu.so: cannot open"
    with Workers(start=(calls.refuse_to_start,)) as workers, pytest.raises(Killed, match=said):
        [*workers.each(calls.value, {n: () for n in range(50)})]


def test_what_is_printed_is_heard_and_silence_ends_it():
    heard = []
    with pytest.raises(Killed, match="it printed nothing for 1 s") as caught:
        call_isolated(calls.talk, hear=heard.append, silence=1.0)
    assert caught.value.kind == TIMED_OUT and heard == ["one\r", "two ü\n"]


def test_a_command_ends_with_all_that_it_left_behind(tmp_path):
    words = ["sh", "-c", "sleep 600 & echo $! > pid; echo out; echo err >&2; exit 4"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert call_isolated(run_command, words) == (4, "out", "err")
    with pytest.raises(FileNotFoundError):
        run_command(["no such program"])
    assert not psutil.pid_exists(pid := int((tmp_path / "pid").read_text())) or all_ended(
        [psutil.Process(pid)]
    )


def test_a_script_without_a_guard_is_not_run_again():
    said = subprocess.run([sys.executable, "-"], input=unguarded("value"), capture_output=True, text=True)
    assert (said.returncode, said.stdout) == (0, "main\n"), said.stderr


@cases("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_call_ends_with_its_parent_and_so_does_all_that_it_started(tmp_path, number):
    """Nor does the folder of its temporary files stay."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", unguarded("report", str(tmp_path))],
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(temporary)},
    ) as parent:
        wait_until(lambda: (tmp_path / "command").is_file() and (tmp_path / "command").read_text())
        pids = [int(word) for name in ("worker", "command") for word in (tmp_path / name).read_text().split()]
        assert len(pids) == 4
        processes = [psutil.Process(pid) for pid in pids]
        assert any(temporary.iterdir())
        parent.send_signal(number)
        parent.wait(20)
    wait_until(lambda: all_ended(processes))
    assert not any(temporary.iterdir())


def test_a_process_of_a_dead_parent_ends_at_once():
    code = f"import time; from {end_with_parent.__module__} import end_with_parent; end_with_parent(0)"
    assert subprocess.run([sys.executable, "-c", f"{code}; time.sleep(60)"], timeout=20).returncode == 1
