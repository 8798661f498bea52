"""A call on a worker of a Dask cluster: the process it runs in, and what must agree with the sender.

The process has the code of that moment, the sender's folder, a share of the machine's cores, and a GPU only
where the call asked for one. It ends when the call is cancelled or the worker is lost.
"""

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from fastslow.core.errors import FastslowError
from fastslow.core.files import file_digest
from fastslow.core.isolated import end_with_parent
from fastslow.core.memory import STEP_CORES, STEP_MEMORY, allowed_cores, machine_cores
from fastslow.core.settings import PROJECT

GPU, MEMORY = "GPU", "MEMORY"
"""Names of the Dask resources for a GPU and for bytes of memory."""
_USABLE = 0.9  # share of a worker's memory that its calls together may plan with
_COMPUTING = ("numpy", "pandas", "scipy", "scikit-learn", "torch", "lightgbm")  # what results come from
_PACKAGES = (*_COMPUTING, "dask", "distributed")
_PYTHON = "python"
_LOOK_SECONDS = 0.2  # between two looks at whether a call has ended or was cancelled
_CHILD = "from fastslow.core.cluster.worker import serve; serve()"
_TAIL = 20  # lines of a died process's output that are shown


class ClusterError(FastslowError):
    """A call on a worker failed or cannot run there; the message names the worker and the remedy."""


class Call(NamedTuple):
    """A call with all that a worker needs to execute it as the machine that sent it would."""

    pickled: bytes  # the function and its arguments; unpickled only after the code was compared
    label: str  # name of the call in messages
    identity: dict[str, str]  # what code_identity() must return on the worker
    home: str  # folder of data, features and runs
    witness: str  # a file of the sender in it, to notice a folder that is not shared
    topic: str  # Dask's topic on which the worker says that the call has started
    gpu: bool  # whether it may use the worker's GPU
    memory: int  # bytes that it asked for, 0 where it asked for none
    slots: dict[str, int]  # number of calls that run in parallel by host, of all workers there


def code_identity() -> dict[str, str]:
    """Return versions and the digests of what steps run, sources and notebooks; machines must agree."""
    files = [*PROJECT.glob("src/fastslow/**/*.py"), *PROJECT.glob("notebooks/*.ipynb")]
    versions = {name: version(name).partition("+")[0] for name in _PACKAGES}  # torch +cpu and +cu130 agree
    python = {_PYTHON: ".".join(map(str, sys.version_info[:2]))}
    return python | versions | {str(f.relative_to(PROJECT)): file_digest(f)[:16] for f in sorted(files)}


def list_folders(home: Path) -> None:
    """List the run folders: a network file system then looks again for files that were not there before."""
    for stem in ("features", "runs"):
        deque((Path(home) / stem).glob("*/*/*"), maxlen=0)


def run_call(call: Call) -> tuple[Any, str]:
    """Run a call in a child process of a worker; return its result and what it printed."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()
    host = socket.gethostname()
    worker.log_event(call.topic, {"key": key, "label": call.label, "host": host})
    with tempfile.TemporaryDirectory(prefix="fastslow-") as folder:
        answer = Path(folder) / "answer"
        log = Path(folder) / "log"
        with open(log, "wb") as printed:
            process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, str(answer), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_environment(call, worker)},
            )
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin:
                pickle.dump(tuple(call), process.stdin)
            while process.poll() is None:
                task = worker.state.tasks.get(key)
                if task is None or task.state != "executing":
                    raise ClusterError(f"{call.label}: cancelled")
                time.sleep(_LOOK_SECONDS)
        finally:
            process.kill()
            process.wait()
        said = log.read_text(errors="replace")
        if not answer.is_file():
            raise ClusterError(_died(call.label, host, process.returncode, said))
        done, value = pickle.loads(answer.read_bytes())
    if not done:
        raise ClusterError(value)
    return value, said


def _died(label: str, host: str, status: int, said: str) -> str:
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    if status == -signal.SIGKILL:
        how += "; where memory ran out, give a worker more of it or fewer slots"
    tail = "".join(f"\n  {line}" for line in said.splitlines()[-_TAIL:])
    return f"{label}: its process on {host} ended with {how}{tail}"


def _environment(call: Call, worker: Any) -> dict[str, str]:
    """Return the environment of a call: folder, share of cores and memory, a GPU if it asked for one."""
    cores = machine_cores()
    here = worker.state.nthreads
    # a restricted set of cores (a SLURM job) is this worker's alone
    slots = here if allowed_cores() < (os.cpu_count() or 1) else max(here, call.slots.get(worker.ip, 0))
    threads = str(max(1, cores // slots))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # Dask's nanny sets them to 1
    environment = {"FASTSLOW_HOME": call.home, STEP_CORES: threads, **dict.fromkeys(names, threads)}
    # what the worker declares, or else Dask's limit: its part of the machine's memory
    has = worker.state.total_resources.get(MEMORY) or worker.memory_manager.memory_limit
    if has:
        environment[STEP_MEMORY] = str(max(call.memory, int(has * _USABLE) // here))
    return environment if call.gpu else {**environment, "CUDA_VISIBLE_DEVICES": ""}


def serve() -> None:
    """Run the call on stdin and write its answer to a file: the main function of a worker's process."""
    answer = Path(sys.argv[1])
    parent = int(sys.argv[2])
    end_with_parent(parent)
    call = Call(*pickle.load(sys.stdin.buffer))
    try:
        _require_same(call, f"{call.label}: worker {socket.gethostname()}")
        list_folders(Path(call.home))
        function, args = pickle.loads(call.pickled)
        said = True, function(*args)
    except FastslowError as error:
        said = False, str(error)
    answer.write_bytes(pickle.dumps(said))


def _require_same(call: Call, who: str) -> None:
    """Refuse code, versions or a folder other than the sender's."""
    here = code_identity()
    there = call.identity
    differ = [name for name in sorted({*here, *there}) if here.get(name) != there.get(name)]
    if differ:
        versions = {_PYTHON, *_PACKAGES}
        named = [f"{n} {here.get(n)} instead of {there.get(n)}" if n in versions else n for n in differ[:4]]
        more = f" and {len(differ) - 4} more" if len(differ) > 4 else ""
        problem = f"{who} has other code in {PROJECT}: {', '.join(named)}{more}"
        raise ClusterError(f"{problem}. Bring all machines to the same checkout and environment")
    if not Path(call.witness).is_file():
        problem = f"{who} does not see {call.witness} of the machine that started the run"
        raise ClusterError(f"{problem}. Share that folder between all machines, under the same path")
