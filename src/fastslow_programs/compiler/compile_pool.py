"""Label many programs with the TPU compiler: worker processes with limits, and a cache of every result.

Labels are the compiler's estimated cycles, not measured time.
"""

import base64
import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fastslow.core.errors import SettingsError
from fastslow.core.isolated import OUT_OF_MEMORY, TIMED_OUT, Killed, Workers, own_log
from fastslow.core.memory import machine_cores
from fastslow.core.progress import progress, ticking
from fastslow_programs.compiler.cycle_estimates import estimate
from fastslow_programs.compiler.label_cache import open_cache
from fastslow_programs.compiler.libtpu import TOPOLOGIES, Compiler, CompilerError
from fastslow_programs.compiler.tile_log import LOGGING, read_candidates

REFUSED = "refused"
"""Failure of a program that the compiler refuses; the others are the kinds of :class:`Killed`."""
NOT_TRIED = "not tried"
"""Failure of a program that is not in the cache after the deadline."""
_CALLS = 200  # of a worker: the compiler never frees its memory


def layout_label(compiler: Compiler, module: bytes, log: Path) -> dict:
    """Return the estimate of one program: ``cycles``, ``estimated`` and ``without_estimate`` instructions.

    Args:
        compiler: The worker's compiler.
        module: The program, a serialised ``HloModuleProto``.
        log: File with what the compiler prints, which this task does not read.
    """
    return vars(estimate(compiler.compile(module)))


def tile_label(compiler: Compiler, module: bytes, log: Path) -> dict:
    """Return the tile candidates of every fused kernel of one program; arguments as :func:`layout_label`.

    The candidates are read from ``log``, the file with what the compiler prints.
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
    Arguments are as for :func:`layout_label`.
    """
    before, layouts = compiler.layout_assignment(module)
    code = base64.b64encode(before.SerializeToString(deterministic=True)).decode()
    return {"module": code, "layouts": layouts}


Task = Callable[[Compiler, bytes, Path], dict]

_compiler: Compiler  # of a worker process


def _start_worker(generation: str, environment: dict[str, str], compiler: type[Compiler]) -> None:
    global _compiler
    os.environ.update(environment)
    _compiler = compiler(generation)


def _work(task: Task, module: bytes) -> dict:
    start = time.perf_counter()
    try:
        result = task(_compiler, module, own_log())
    except CompilerError as error:
        result = {"failure": REFUSED, "message": str(error)}
    return result | {"seconds": round(time.perf_counter() - start, 3)}


def _flags() -> str:
    return os.environ.get("LIBTPU_INIT_ARGS", "")  # libtpu reads it where it starts, and estimates change


@dataclass(frozen=True)
class Labeller:
    """A task of the TPU compiler, applied to many programs in parallel.

    Use it as ``with labeller.workers() as label: records = label(modules)``.

    Args:
        cache: SQLite file with the results, keyed by content of the program, task, compiler version and
            topology. Several runs may share it.
        generation: TPU generation to compile for, one of
            :data:`fastslow_programs.compiler.libtpu.TOPOLOGIES`.
        task: The work on a program: :func:`layout_label`, :func:`tile_label` or
            :func:`program_before_layout`.
        processes: Worker processes; 0 for one per core.
        seconds: Time limit of one compile.
        memory: Limit of a worker's data segment in bytes; 0 for none.
        attempts: Number of attempts at a program that crashes the compiler.
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

    def identity(self) -> str:
        """Return compiler, TPU and flags, on which estimates depend; SettingsError without libtpu."""
        return f"compiler {self.generation} {self.compiler.version()} {_flags()}".strip()

    @contextlib.contextmanager
    def workers(self):
        """Start the workers and yield a function from a list of serialised modules to their records.

        A record is what the task returns plus ``compiler``, ``topology`` and ``seconds``; or it has
        ``failure`` (:data:`REFUSED`, :data:`NOT_TRIED` or a kind of :class:`Killed`) and ``message``. Every
        result is cached as soon as it is there, so an interrupted run resumes where it stopped.

        Raises:
            SettingsError: libtpu is not installed, or a worker cannot start.
            DataError: The cache is not a file of this kind, or a record in it is damaged.
        """
        topology = TOPOLOGIES[self.generation]
        identity = f"{self.task.__name__} {self.compiler.version()} {topology} {_flags()}".strip()
        environment = LOGGING if self.task is tile_label else {}
        workers = Workers(
            self.processes or machine_cores(),
            self.memory,
            calls=_CALLS,
            start=(_start_worker, self.generation, environment, self.compiler),
        )
        with workers, open_cache(self.cache) as cache:

            def label(modules: list[bytes], title: str = "compiling") -> list[dict]:
                """Return the record of each module, compiling those that are not in the cache.

                An empty title shows no progress bar.
                """
                keys = [hashlib.sha256(identity.encode() + b"\0" + module).hexdigest() for module in modules]
                records = {key: cache.read(key) for key in keys}
                missing = {key: m for key, m in zip(keys, modules, strict=True) if records[key] is None}
                if time.monotonic() > self.deadline:
                    late = {"failure": NOT_TRIED, "message": "the time given was over"}
                    records |= dict.fromkeys(missing, late)
                    missing = {}
                for key, record in self._compile(workers, missing, title):
                    records[key] = json.loads(json.dumps(record))  # as the next run reads it from the cache
                    if record.get("failure") not in (TIMED_OUT, OUT_OF_MEMORY):
                        cache.write(key, record)
                return [records[key] for key in keys]

            yield label

    def _compile(self, workers: Workers, modules: dict[str, bytes], title: str) -> Iterator:
        """Yield (key, record) of every module, in the order of completion."""
        origin = {"compiler": f"libtpu {self.compiler.version()}", "topology": TOPOLOGIES[self.generation]}
        silent = not modules or not title
        calls = {key: (self.task, module) for key, module in modules.items()}
        shown = progress(total=len(modules), desc=title, unit="compile", disable=silent)
        with shown as bar, ticking(bar):
            try:
                for key, record in workers.each(_work, calls, self.seconds, self.attempts):
                    bar.update()
                    if isinstance(record, Killed):
                        record = {"failure": record.kind, "message": str(record)}
                    yield key, record | origin
            except Killed as error:
                problem = "the compiler does not start, possibly for lack of memory"
                raise SettingsError(f"{problem}: {error}") from None
