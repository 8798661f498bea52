"""One network trained by several processes of this machine: started as torchrun does, joined, and locked."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from fastslow.core.artifacts import Artifact
from fastslow.core.errors import FastslowError, SettingsError, counted
from fastslow.core.isolated import end_with_parent
from fastslow.networks.hardware.devices import pick_device
from fastslow.networks.hardware.distributed import from_first
from fastslow.steps.network_settings import TrainSettings

_TIMEOUT = timedelta(days=1)  # torchrun itself notices a process that died; the others may wait for a lock
_LAUNCHER = (  # torchrun, which ends with the process that started it
    "import sys; from fastslow.core.isolated import end_with_parent; end_with_parent(int(sys.argv.pop(1)));"
    "from torch.distributed.run import main; main()"
)
_RANK = (
    "from fastslow.steps.network_processes import run_as_rank;"
    "from fastslow.steps.network import train_gnn; run_as_rank(train_gnn)"
)
_ERROR = "error: "
_TAIL = 20  # lines that are shown of processes that ended without a reason


class RankError(FastslowError):
    """A process of a training ended; the same command resumes after the last checkpoint."""


def launched() -> bool:
    """Return whether torchrun started this process as one of several.

    Raises:
        SettingsError: A variable that torchrun sets is no number.
    """
    return _of_torchrun("WORLD_SIZE", 1) > 1


def is_first() -> bool:
    """Return whether this is the first process of torchrun's, or the only one, joined or not.

    Raises:
        SettingsError: A variable that torchrun sets is no number.
    """
    return _of_torchrun("RANK", 0) == 0


def _of_torchrun(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not (text.isascii() and text.isdecimal()):
        raise SettingsError(name, f"{text!r} is no number; torchrun sets this variable, else unset it")
    return int(text)


def own_device(device: torch.device) -> torch.device:
    """Return the device of this process: of several on a machine, each takes a GPU of its own.

    Raises:
        SettingsError: One GPU is named, or there are fewer than processes.
    """
    if device.type != "cuda" or not launched():
        return device
    local = int(os.environ["LOCAL_RANK"])
    count = torch.cuda.device_count()
    if device.index is not None or local >= count:
        there = f"{os.environ['LOCAL_WORLD_SIZE']} processes on this machine, {counted(count, 'GPU')}"
        raise SettingsError(
            "device", f"{str(device)!r} does not suit {there}; use 'auto', and a GPU for each"
        )
    return torch.device("cuda", local)


@contextlib.contextmanager
def joined(settings: TrainSettings) -> Iterator[None]:
    """Join the processes that torchrun started, over NCCL where they train on GPUs, else over gloo.

    Raises:
        SettingsError: There are more processes than GPUs or graphs of a step, or the loss compares graphs.
    """
    if not launched() or distributed.is_initialized():
        yield
        return
    settings.require_shares(int(os.environ["WORLD_SIZE"]))
    end_with_parent(os.getppid())
    device = own_device(pick_device(settings.device))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_TIMEOUT)
    try:
        yield
    finally:
        distributed.destroy_process_group()


@contextlib.contextmanager
def building(artifact: Artifact) -> Iterator[bool]:
    """Lock an artifact in the first process; yield in all of them whether its content must be made."""
    with contextlib.ExitStack() as stack:
        yield from_first(lambda: stack.enter_context(artifact.building()))


def launch(settings: TrainSettings) -> None:
    """Train in the configured number of processes on this machine, as torchrun does, and print their output.

    Raises:
        RankError: One of them ended with an error; the message is its own.
    """
    threads = str(max(1, torch.get_num_threads() // settings.processes))
    command = [sys.executable, "-c", _LAUNCHER, str(os.getpid()), "--standalone", "--no-python"]
    command += ["--nproc-per-node", str(settings.processes), sys.executable, "-c", _RANK]
    command += [json.dumps(settings.asdict())]
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": threads},
        text=True,
    ) as process:
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line)
        except BaseException:  # Ctrl-C too; it is raised again
            process.terminate()  # torchrun ends its processes
            raise
    if process.returncode:
        reason = next((line[len(_ERROR) :].rstrip() for line in lines if line.startswith(_ERROR)), None)
        tail = "".join(f"\n  {line.rstrip()}" for line in lines[-_TAIL:])
        raise RankError(reason or f"a process of the training ended; run the same command to resume{tail}")


def run_as_rank(train_gnn: Callable[[TrainSettings], Any]) -> None:
    """Train with the settings of the command line: the main function of a launched process."""
    try:
        train_gnn(TrainSettings(**json.loads(sys.argv[1])))
    except FastslowError as error:
        print(f"{_ERROR}{error}", flush=True)
        sys.exit(1)
