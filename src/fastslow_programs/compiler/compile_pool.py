"""Label many programs with the TPU compiler: worker processes with limits, and a cache of every result.

Labels are the compiler's estimated cycles, not measured time.
"""

import base64
import contextlib
import hashlib
import json
import math
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from fastslow.core.errors import SettingsError
from fastslow.core.processes import end_with_parent
from fastslow.core.progress import progress
from fastslow_programs.compiler.cycle_estimates import estimate
from fastslow_programs.compiler.label_cache import (
    CyclesRecord,
    KernelsRecord,
    LabelRecord,
    ModuleRecord,
    open_cache,
)
from fastslow_programs.compiler.libtpu import Compiler, CompilerError, topology_of
from fastslow_programs.compiler.tile_log import LOGGING, read_candidates

REFUSED, CRASHED, TIMED_OUT, OUT_OF_MEMORY = "refused", "crashed", "timed out", "out of memory"
"""Kinds of failure; the last two depend on the machine and are not cached."""
NOT_TRIED = "not tried"
"""Failure of a program that is not in the cache after the deadline."""

_OUT_OF_MEMORY_SIGNS = (
    "bad_alloc",
    "Cannot allocate memory",
    "MemoryError",
    "mmap error: 12",
    "out of memory",
)

_STACK_TRACE = ("@", "PC:", "https://symbolize")


def layout_label(compiler: Compiler, module: bytes, log: Path) -> dict:
    """Return the estimate of one program: ``cycles``, ``estimated`` and ``without_estimate`` instructions."""
    return vars(estimate(compiler.compile(module)))


def tile_label(compiler: Compiler, module: bytes, log: Path) -> dict:
    """Return the tile candidates of every fused kernel of one program.

    ``kernels`` maps the name of a fusion to its ``chosen`` cycles and its ``candidates``, a list of [kernel
    bounds, output bounds, cycles]; ``module`` is the serialised optimised module in base64.
    """
    start = log.stat().st_size
    optimized = compiler.compile(module)
    with log.open(errors="replace") as lines:
        lines.seek(start)
        kernels = read_candidates(lines)
    return {
        "kernels": {
            name: {
                "chosen": kernel.chosen,
                "candidates": sorted([*tile, cycles] for tile, cycles in kernel.cycles.items()),
            }
            for name, kernel in kernels.items()
        },
        "module": base64.b64encode(optimized.SerializeToString(deterministic=True)).decode(),
    }


def program_before_layout(compiler: Compiler, module: bytes, log: Path) -> dict:
    """Return ``module``, the serialised program before layout assignment in base64, and ``layouts``.

    These are the compiler's own, see :meth:`fastslow_programs.compiler.libtpu.Compiler.layout_assignment`.
    """
    before, layouts = compiler.layout_assignment(module)
    code = base64.b64encode(before.SerializeToString(deterministic=True)).decode()
    return {"module": code, "layouts": layouts}


Task = Callable[[Compiler, bytes, Path], dict]

_RECORDS = {layout_label: CyclesRecord, tile_label: KernelsRecord, program_before_layout: ModuleRecord}

_worker: tuple[Compiler, Path]  # of a worker process


def _start_worker(
    generation: str, environment: dict[str, str], memory: int, folder: str, compiler: type[Compiler]
) -> None:
    global _worker
    end_with_parent(multiprocessing.parent_process().pid)
    os.environ.update(environment)
    tempfile.tempdir = folder  # files of a killed compile are removed with the run's folder
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    log = Path(folder, f"{os.getpid()}.log")
    # the compiler logs to the process's stderr; the last lines before an abort are the only explanation
    with log.open("ab") as stream:
        os.dup2(stream.fileno(), sys.stderr.fileno())
    _worker = compiler(generation), log


def _ready() -> None:
    """Do nothing: a worker that runs this has started."""


def _work(task: Task, module: bytes) -> dict:
    compiler, log = _worker
    start = time.perf_counter()
    try:
        result = task(compiler, module, log)
    except CompilerError as error:
        result = {"failure": REFUSED, "message": str(error)}
    return result | {"seconds": round(time.perf_counter() - start, 3)}


@dataclass(frozen=True)
class Labeller:
    """A task of the TPU compiler, applied to many programs in parallel.

    Use it as ``with labeller.workers() as label: records = label(modules)``.

    Args:
        cache: SQLite file with the results, keyed by content of the program, task, compiler version and
            topology. Several runs may share it.
        generation: TPU generation to compile for, one of
        :data:`fastslow_programs.compiler.libtpu.TOPOLOGIES`.
        task: What to do with a program: :func:`layout_label`, :func:`tile_label` or
            :func:`program_before_layout`.
        processes: Worker processes; 0 for one per core.
        seconds: Time limit of one compile.
        memory: Limit of a worker's data segment in bytes; 0 for none.
        attempts: How often to try a program that crashes the compiler.
        compiler: Class of the compiler; every worker creates one instance.
        deadline: Time, as of ``time.monotonic``, after which programs are no longer compiled, only looked up.
    """

    cache: Path
    generation: str = "v3"
    task: Task = layout_label
    processes: int = 0
    seconds: float = 120.0
    memory: int = 6 << 30
    attempts: int = 2
    compiler: type[Compiler] = Compiler
    deadline: float = math.inf

    @contextlib.contextmanager
    def workers(self):
        """Start the workers and yield a function from a list of serialised modules to their records.

        A record is what the task returns plus ``compiler``, ``topology`` and ``seconds``; or it has
        ``failure``, one of the kinds of this module, and ``message``. Every result is cached as soon as it is
        there, so an interrupted run resumes where it stopped.

        Raises:
            SettingsError: libtpu is not installed, the generation is unknown, or a worker cannot start.
            DataError: The cache is not a file of this kind, or a record in it is damaged.
        """
        from pebble import ProcessPool

        identity = f"{self.task.__name__} {self.compiler.version()} {topology_of(self.generation)}"
        environment = LOGGING if self.task is tile_label else {}
        with tempfile.TemporaryDirectory() as folder, open_cache(self.cache) as cache:
            pool = ProcessPool(
                max_workers=self.processes or os.cpu_count() or 1,
                max_tasks=200,  # the compiler never frees its memory
                initializer=_start_worker,
                initargs=(self.generation, environment, self.memory, folder, self.compiler),
                context=multiprocessing.get_context("spawn"),
            )

            def label(modules: list[bytes], title: str = "compiling") -> list[dict]:
                """Return the record of each module, compiling those that are not in the cache.

                An empty title shows no progress bar.
                """
                keys = [hashlib.sha256(identity.encode() + b"\0" + module).hexdigest() for module in modules]
                wanted = _RECORDS.get(self.task, LabelRecord)
                records = {key: cache.read(key, wanted) for key in keys}
                missing = {key: m for key, m in zip(keys, modules, strict=True) if records[key] is None}
                if time.monotonic() > self.deadline:
                    late = {"failure": NOT_TRIED, "message": "the time given was over"}
                    records |= dict.fromkeys(missing, late)
                    missing = {}
                if missing:
                    _require_workers(pool, Path(folder))
                for key, record in self._compile(pool, missing, Path(folder), title):
                    text = json.dumps(record)
                    records[key] = json.loads(text)  # as the next run will read it from the cache
                    if record.get("failure") not in (TIMED_OUT, OUT_OF_MEMORY):
                        cache.write(key, text)
                return [records[key] for key in keys]

            try:
                yield label
            finally:
                pool.stop()
                pool.join()

    def _compile(self, pool, modules: dict[str, bytes], folder: Path, title: str) -> Iterator:
        """Yield (key, record) of every module, in the order of completion."""
        origin = {
            "compiler": f"libtpu {self.compiler.version()}",
            "topology": topology_of(self.generation),
        }
        silent = not modules or not title
        with progress(total=len(modules), desc=title, unit="compile", disable=silent) as bar:
            pending = list(modules)
            for attempt in range(self.attempts):
                futures = {
                    pool.schedule(_work, args=(self.task, modules[key]), timeout=self.seconds): key
                    for key in pending
                }
                pending = []
                for future in as_completed(futures):
                    key = futures[future]
                    record = _result(future, folder)
                    if record.get("failure") == CRASHED and attempt + 1 < self.attempts:
                        pending.append(key)
                        continue
                    bar.update()
                    yield key, record | origin


def _require_workers(pool, folder: Path) -> None:
    """Raise if workers end while they start: tasks of such a pool might never return."""
    try:
        pool.schedule(_ready).result()
    except BrokenProcessPool:
        logs = sorted(folder.glob("*.log"), key=lambda log: log.stat().st_mtime)
        said = _last_words(logs[-1]) if logs else "it wrote no message"
        raise SettingsError(f"the compiler does not start, possibly for lack of memory: {said}") from None


def _result(future, folder: Path) -> dict:
    from pebble import ProcessExpired

    try:
        return future.result()
    except FutureTimeoutError:
        return {"failure": TIMED_OUT, "message": "the compile took longer than the time limit"}
    except MemoryError:
        return {"failure": OUT_OF_MEMORY, "message": "the compile needed more than the memory limit"}
    except ProcessExpired as error:
        said = _last_words(folder / f"{error.pid}.log")
        # the kernel kills a process with SIGKILL when memory runs out
        memory = error.exitcode == -signal.SIGKILL or any(sign in said for sign in _OUT_OF_MEMORY_SIGNS)
        message = f"the compiler's process ended with {error.exitcode}: {said}"
        return {"failure": OUT_OF_MEMORY if memory else CRASHED, "message": message}


def _last_words(log: Path) -> str:
    """Return the end of a worker's log, without stack traces."""
    text = log.read_bytes()[-20_000:].decode(errors="replace") if log.exists() else ""
    lines = [line for line in text.splitlines() if not line.strip().startswith(_STACK_TRACE)]
    return "\n".join(lines)[-1000:].strip()
