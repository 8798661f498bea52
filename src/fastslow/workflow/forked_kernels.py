"""Jupyter kernels that are forked from a process that has imported the libraries: a start takes no seconds.

That process imports next to no code of fastslow, so a kernel has the code that is on disk when it starts.
"""

import contextlib
import gc
import importlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import LocalProvisioner

from fastslow.core.isolated import end_with_parent
from fastslow.core.source import read_ahead

_LIBRARIES = (
    "ipykernel.kernelapp",
    "ipykernel.debugger",
    "matplotlib.pyplot",
    "pandas",
    "lightgbm",
    "torch",
    "tqdm.auto",
    "pydantic.main",
    "google.protobuf.descriptor_pb2",
)
ENTRIES = (
    "fastslow.steps.features:build_features",
    "fastslow.steps.network:train_gnn",
    "fastslow.steps.ranker:train_ranker",
    "fastslow.steps.ensemble:build_ensemble",
    "fastslow.steps.submission:make_submission",
)
"""Functions that notebooks call; each Jupyter kernel computes fingerprints of the source that they reach."""
FEWER = "where memory ran out, run fewer notebooks at a time (JOBS=1)"
"""Remedy where a process was killed, which may be of any other cause."""
_FORKS = sys.platform == "linux"
# what a process that is started here runs first, before imports that take seconds
_LEASH = (
    f"import sys; from {end_with_parent.__module__} import end_with_parent;"
    "end_with_parent(int(sys.argv.pop(1)));"
)
_LAUNCH = f"{_LEASH} from ipykernel.kernelapp import launch_new_instance; launch_new_instance()"
_SERVE = f"{_LEASH} from {__name__} import fork_kernels; fork_kernels(int(sys.argv[1]))"
_WATCH = "--IPKernelApp.exec_lines=__import__('{module}', fromlist='x').end_with_parent({parent})"


class ForkedKernel(LocalProvisioner):
    """Starts the kernel of a notebook; on Linux alone by a fork, which libraries of macOS do not survive.

    The first one of a process imports what it needs itself: to import all libraries takes longer.
    """

    async def launch_kernel(self, cmd: list[str], **options: Any) -> KernelConnectionInfo:
        """Start the kernel, which ends with this process; return how to reach it."""
        if cmd[:3] != [sys.executable, "-m", "ipykernel_launcher"]:  # of another kernelspec
            watch = _WATCH.format(module=end_with_parent.__module__, parent=os.getpid())
            return await super().launch_kernel([*cmd, watch], **options)
        if not next(_started) or not _FORKS:
            return await super().launch_kernel(_leashed(_LAUNCH, *cmd[3:]), **options)
        self.cwd = options.get("cwd") or os.getcwd()
        self.process = _Forked(_fork(cmd[3:], options["env"], self.cwd))
        self.pid = self.pgid = self.process.pid
        return self.connection_info


class _Forked:
    """A process that another one has forked, with what the provisioner asks of a ``Popen``."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int):
        self.pid = pid

    def poll(self) -> int | None:
        return None if os.path.exists(f"/proc/{self.pid}") else 1

    wait = poll  # it is asked after the end alone

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _leashed(code: str, *arguments: str) -> list[str]:
    """Return the command line of Python code that begins with ``_LEASH``."""
    return [sys.executable, "-c", code, str(os.getpid()), *arguments]


_started = itertools.count()  # numbers of this process's kernels
_servers: dict[str, tuple[Any, Any]] = {}  # process and its lines, by the number of threads
_lock = threading.Lock()


def _fork(arguments: list[str], environment: dict[str, str], folder: str) -> int:
    """Return the number of a new process that is a kernel.

    Raises:
        RuntimeError: The libraries cannot be imported, or the process that imported them was killed.
    """
    threads = environment.get("OMP_NUM_THREADS", "")  # libraries read it when they are imported
    with _lock:
        if threads not in _servers or _servers[threads][0].poll() is not None:
            _servers[threads] = _start_server(environment)
        process, lines = _servers[threads]
        with contextlib.suppress(ConnectionError):  # it ended without reading the line
            print(json.dumps([arguments, environment, folder]), file=lines, flush=True)
            if answer := lines.readline():
                return int(answer)
        status = process.wait()
        raise RuntimeError(f"the process that forks kernels ended with status {status}; {FEWER}")


def _start_server(environment: dict[str, str]) -> tuple[Any, Any]:
    ours, theirs = socket.socketpair()
    with theirs:
        words = _leashed(_SERVE, str(theirs.fileno()))
        apart: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
        process = subprocess.Popen(words, env=environment, pass_fds=[theirs.fileno()], **apart)
    return process, ours.makefile("rw")


def fork_kernels(number: int) -> None:
    """Fork a kernel for each line of a socket, until the process at its other end has ended.

    Args:
        number: File descriptor of the socket. A line holds the kernel's arguments, its environment and its
            folder; the answer is the number of the process.
    """
    # as ipykernel does, which is too late for a matplotlib that is imported
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    for library in _LIBRARIES:
        importlib.import_module(library)
    read_ahead(ENTRIES)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no kernel that has ended stays as a zombie
    server = os.getpid()
    with socket.socket(fileno=number) as link, link.makefile("rw") as lines:
        for order in lines:
            if not (kernel := os.fork()):
                arguments, environment, folder = json.loads(order)
                break
            print(kernel, file=lines, flush=True)
        else:
            return
    os.setsid()
    end_with_parent(server)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.modules["ipykernel.kernelapp"].launch_new_instance(argv=arguments)
