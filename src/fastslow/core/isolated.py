"""Processes of their own for what may crash, hang, or take all memory; and what ends every process of ours.

A call gives its value, raises its own error, or raises :class:`Killed`. Its process, and all that it started,
ends with the call or the workers, and with the process that asked for it, however that one ends. It does not
run the main module again, so scripts need no guard.
"""

import contextlib
import functools
import io
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Self, TypeVar

from fastslow.core.errors import StorageError

Key = TypeVar("Key")
Pool = TypeVar("Pool", bound=Executor)

TIMED_OUT, OUT_OF_MEMORY, CRASHED = "timed out", "out of memory", "crashed"
"""Causes that end the process of a call; the first two depend on the machine."""
_MEMORY_SIGNS = ("bad_alloc", "Cannot allocate memory", "MemoryError", "mmap error: 12", "out of memory")
_STACK_TRACE = ("@", "PC:", "https://symbolize")  # lines of XLA's
_SEMAPHORES = "/dev/shm"
_MOUNT = "Mount it writable and with space (docker run --shm-size=64m), then type the same command"
_START_SECONDS = 300.0
_PAUSE_SECONDS = 0.2
# tries of a call in pools that break: pebble's does where a process ends before its first word was heard
_POOLS = 3

_log = Path(os.devnull)  # of this process, where it is a worker
_groups: set[int] = set()  # process groups that it started


class Killed(RuntimeError):
    """The process of a call ended before it returned.

    Args:
        kind: :data:`TIMED_OUT`, :data:`OUT_OF_MEMORY` or :data:`CRASHED`.
        message: Description of the end, with the last lines that it printed.
    """

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


def call_isolated(function: Callable[..., Any], *args: Any, memory: int = 0, **limits: Any) -> Any:
    """Return ``function(*args)``, called in a process of its own.

    Args:
        function: A function of a module; what it prints is not shown.
        *args: Its arguments, of a few megabytes at most.
        memory: Limit of the process's data segment in bytes; 0 for none.
        **limits: ``seconds``, ``hear`` and ``silence``, see :meth:`Workers.call`.

    Raises:
        Killed: The process ended before the function returned.
        Exception: The function's own, with the traceback of its process.
    """
    with Workers(memory=memory) as workers:
        return workers.call(function, *args, **limits)


class Workers:
    """Processes that stay warm between calls; use it as a context, whose end ends them.

    Args:
        processes: Number of processes.
        memory: Limit of the data segment of each in bytes; 0 for none.
        calls: Number of calls after which a process is replaced; 0 for never.
        start: The first call of each process: a function of a module, and its arguments.
    """

    def __init__(self, processes: int = 1, memory: int = 0, calls: int = 0, start: Sequence[Any] = ()):
        self._options: dict[str, Any] = {"max_workers": processes, "max_tasks": calls}
        self._memory, self._first = memory, start

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self._folder.cleanup()

    def _open(self) -> None:
        from joblib.externals.loky.backend import get_context  # spawns without the main module
        from pebble import ProcessPool

        self._pool: Any = ProcessPool(
            **self._options,
            initializer=_start,
            initargs=(os.getpid(), self._folder.name, self._memory, self._first),
            context=get_context("loky"),
        )

    def _close(self) -> None:
        self._pool.stop()
        self._pool.join()

    def call(
        self,
        function: Callable[..., Any],
        *args: Any,
        seconds: float | None = None,
        hear: Callable[[str], None] | None = None,
        silence: float | None = None,
    ) -> Any:
        """Return ``function(*args)``, called in one of the processes.

        Args:
            function: A function of a module; what it prints is not shown.
            *args: Its arguments, of a few megabytes at most.
            seconds: Time limit; None for none.
            hear: Receives what the only process prints, piece by piece, each up to a line feed or carriage
                return.
            silence: How many seconds the function may print nothing; None for any number.

        Raises:
            Killed: The process ended before the function returned.
            Exception: The function's own, with the traceback of its process.
        """
        for _ in range(_POOLS):
            self._require_start()
            with contextlib.suppress(BrokenProcessPool):
                future = self._schedule(function, args, seconds)
                if hear:
                    for piece in self._pieces(future, silence):
                        hear(piece)
                return self._result(future)
        raise self._broken()

    def each(
        self,
        function: Callable[..., Any],
        calls: Mapping[Key, Sequence[Any]],
        seconds: float | None = None,
        attempts: int = 1,
        again: Callable[[Any], bool] = lambda answer: isinstance(answer, Killed) and answer.kind == CRASHED,
    ) -> Iterator[tuple[Key, Any]]:
        """Yield the key of each call, and its value or :class:`Killed`, in the order of completion.

        Args:
            function: A function of a module.
            calls: Arguments by key.
            seconds: Time limit of one call; None for none.
            attempts: Number of attempts at a call that fails.
            again: Tells from a value, or from :class:`Killed`, whether the call has failed.

        Raises:
            Killed: No process starts.
            Exception: A call's own.
        """
        pending = calls
        for attempt in range(attempts):
            failed = {}
            for key, answer in self._answers(function, pending, seconds):
                if attempt + 1 < attempts and again(answer):
                    failed[key] = calls[key]
                else:
                    yield key, answer
            pending = failed

    def _answers(
        self, function: Callable[..., Any], calls: Mapping[Key, Sequence[Any]], seconds: float | None
    ) -> Iterator[tuple[Key, Any]]:
        """Yield the key of each call, and its value or :class:`Killed`; of a pool that broke, of the next."""
        pending = dict(calls)
        for _ in range(_POOLS):
            if not pending:
                return
            self._require_start()
            futures: dict[Future[Any], Key] = {}
            try:
                for key, args in pending.items():
                    futures[self._schedule(function, args, seconds)] = key
                for future in as_completed(futures):
                    try:
                        answer = self._result(future)
                    except Killed as error:
                        answer = error
                    del pending[futures[future]]
                    yield futures[future], answer
            except BrokenProcessPool:
                continue
            finally:
                for future in futures:
                    future.cancel()
        for key in pending:
            yield key, self._broken()

    def _require_start(self) -> None:
        """Open the pool again where it broke; raise if a process ends while it starts: calls might wait."""
        try:
            ready = self._schedule(_ready)
        except BrokenProcessPool:
            self._close()
            self._open()
            ready = self._schedule(_ready)
        try:
            self._result(ready, _START_SECONDS)
        except BrokenProcessPool:
            raise self._broken("its process does not start") from None

    def _broken(self, problem: str = "its process ended as soon as it was called") -> Killed:
        said = _last_words(self._newest_log())
        return Killed(CRASHED, f"{problem}: {said or 'it printed nothing'}")

    def _newest_log(self) -> Path:
        logs = Path(self._folder.name).glob("*.log")
        return max(logs, key=lambda log: log.stat().st_mtime, default=Path(os.devnull))

    def _schedule(
        self, function: Callable[..., Any], args: Sequence[Any] = (), seconds: float | None = None
    ) -> Future[Any]:
        try:
            future: Future[Any] = self._pool.schedule(function, args=args, timeout=seconds)
        except OSError as error:
            if error.filename or not _makes_semaphores(error):
                raise
            problem = f"no process can be started: no semaphore can be made there ({error.strerror})"
            raise StorageError(_SEMAPHORES, problem, _MOUNT) from None
        except RuntimeError as error:  # the pool broke under an earlier call
            raise BrokenProcessPool(str(error)) from None
        return future

    def _result(self, future: Future[Any], seconds: float | None = None) -> Any:
        from pebble import ProcessExpired

        try:
            return future.result(seconds)
        except TimeoutError as error:
            if error.__cause__:  # the function's own: pebble's has none
                raise
            limit = error.args[1] if error.args else seconds
            raise Killed(TIMED_OUT, f"it took longer than {limit:g} s") from None
        except MemoryError:
            raise Killed(OUT_OF_MEMORY, "it needed more than the memory limit") from None
        except ProcessExpired as error:
            said = _last_words(Path(self._folder.name, f"{error.pid}.log"))
            code = error.exitcode
            # the kernel kills a process with SIGKILL when memory runs out
            memory = code == -signal.SIGKILL or any(sign in said for sign in _MEMORY_SIGNS)
            how = signal.Signals(-code).name if code < 0 else f"status {code}"
            message = f"its process ended with {how}: {said or 'it printed nothing'}"
            raise Killed(OUT_OF_MEMORY if memory else CRASHED, message) from None

    def _pieces(self, future: Future[Any], silence: float | None) -> Iterator[str]:
        """Yield what the only process prints until its call has ended."""
        log = self._newest_log()
        rest = b""
        heard = time.monotonic()
        with log.open("rb") as stream:
            while True:
                ended = bool(wait([future], _PAUSE_SECONDS).done)  # asked before it is read for the last time
                chunk = stream.read()
                *whole, rest = re.split(rb"(?<=[\r\n])", rest + chunk)
                yield from (piece.decode(errors="replace") for piece in [*whole, *[rest] * ended])
                if ended:
                    return
                if chunk:
                    heard = time.monotonic()
                elif silence is not None and time.monotonic() - heard > silence:
                    raise Killed(TIMED_OUT, f"it printed nothing for {silence:g} s")


def run_command(words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command line, a call for a worker: it ends with the worker, with all that it started.

    Returns:
        Its exit status, and the ends of stdout and stderr.

    Raises:
        OSError: It does not start.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(words, stdout=out, stderr=err, process_group=0)
        _groups.add(process.pid)
        try:
            status = process.wait()
        finally:
            _end_groups()  # also what it left behind
        return status, _end_of(out), _end_of(err)


def own_log() -> Path:
    """Return the file that receives what this process prints, where it is a worker."""
    return _log


def end_with_parent(parent: int, end: Callable[[], object] = lambda: os._exit(1)) -> None:
    """End this process as soon as its parent, of this number, has ended, whatever runs here.

    Workers of a killed process would hold their memory, and write, beside the next run.
    """

    def watch() -> None:
        # an orphan gets another parent, at once and not always number 1
        while os.getppid() == parent:
            time.sleep(_PAUSE_SECONDS)
        end()

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def ended_by_interrupt(pool: Pool) -> Iterator[Pool]:
    """Shut the pool down on exit; on KeyboardInterrupt do not wait for running calls."""
    wait_for_them = True
    try:
        yield pool
    except KeyboardInterrupt:
        wait_for_them = False
        raise
    finally:
        pool.shutdown(wait=wait_for_them, cancel_futures=True)


def _start(parent: int, folder: str, memory: int, first: Sequence[Any]) -> None:
    """Make this process a worker: the leader of a group that ends with it, with limits and a log."""
    global _log
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a Ctrl-C of the terminal does not reach this session
    signal.signal(signal.SIGTERM, lambda *_: _end_all())
    end_with_parent(parent, functools.partial(_end_orphan, folder))
    tempfile.tempdir = folder  # files of a killed call are removed with the workers' folder
    _log = Path(folder, f"{os.getpid()}.log")
    with _log.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    # unbuffered: what is printed before a crash is heard, also without PYTHONUNBUFFERED
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw: Any = io.FileIO(number, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    if first:
        function, *args = first
        function(*args)


def _makes_semaphores(error: OSError) -> bool:
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code.co_filename.endswith("synchronize.py") for frame, _ in frames)


def _ready() -> None:
    """Do nothing: a process that calls this has started."""


def _end_groups() -> None:
    while _groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(_groups.pop(), signal.SIGKILL)


def _end_all() -> None:
    _end_groups()
    os.killpg(0, signal.SIGKILL)


def _end_orphan(folder: str) -> None:
    """Remove the folder that a killed parent left, and end this worker with all that it started."""
    # in this order: once its command is ended the call returns, and with it this process ends
    shutil.rmtree(folder, ignore_errors=True)
    _end_all()


def _last_words(log: Path) -> str:
    """Return the end of a log, without stack traces; the last lines before an abort are its explanation."""
    text = log.read_bytes()[-20_000:].decode(errors="replace") if log.exists() else ""
    lines = [line for line in text.splitlines() if not line.strip().startswith(_STACK_TRACE)]
    return "\n".join(lines)[-1000:].strip()


def _end_of(stream: Any) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - 20_000))
    return str(stream.read().decode(errors="replace").strip())
