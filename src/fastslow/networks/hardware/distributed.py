"""One network trained by several processes: torchrun's processes, each with a share of every step's graphs.

All processes hold the same weights. A step's gradients are summed over them before they are clipped, so the
result equals the result of one process up to the order of the sum. Graphs to predict are shared as well. The
first process writes. Without torchrun there is one process, and everything here does nothing.

Gradients are summed once, at the end of a step, rather than by ``DistributedDataParallel``: a step may have
fewer graphs than there are processes, and a network of this size has little to overlap.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed

from fastslow.core.artifacts import Artifact
from fastslow.core.errors import FastslowError, SettingsError
from fastslow.core.isolated import end_with_parent
from fastslow.networks.hardware.devices import pick_device
from fastslow.networks.settings.train_settings import TrainSettings

_TIMEOUT = timedelta(days=1)  # torchrun itself notices a process that died; the others may wait for a lock
_LAUNCHER = (  # torchrun, which ends with the process that started it
    "import sys; from fastslow.core.isolated import end_with_parent; end_with_parent(int(sys.argv.pop(1)));"
    "from torch.distributed.run import main; main()"
)
_RANK = (
    "from fastslow.networks.hardware.distributed import run_as_rank;"
    "from fastslow.networks.training.train import train; run_as_rank(train)"
)
_ERROR = "error: "
_TAIL = 20  # lines that are shown of processes that ended without a reason

_Value = TypeVar("_Value")


class RankError(FastslowError):
    """A process of a training ended; the same command resumes after the last checkpoint."""


def launched() -> bool:
    """Return whether torchrun started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first() -> bool:
    """Return whether this is the first process of torchrun's, or the only one, joined or not."""
    return int(os.environ.get("RANK", "0")) == 0


def rank() -> int:
    """Return this process's number, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


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


def own_device(device: torch.device) -> torch.device:
    """Return the device of this process: of several on a machine, each takes a GPU of its own.

    Raises:
        SettingsError: One GPU is named, or there are fewer than processes.
    """
    if device.type != "cuda" or not launched():
        return device
    local, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if device.index is not None or local >= count:
        found = f"{os.environ['LOCAL_WORLD_SIZE']} processes on this machine, {count} GPUs"
        raise SettingsError(
            "device", f"{str(device)!r} does not suit {found}; use 'auto', and a GPU for each"
        )
    return torch.device("cuda", local)


def share(items: Sequence[_Value]) -> Sequence[_Value]:
    """Return the items of this process: every n-th one, n the number of processes."""
    return items[rank() :: world_size()]


def merge(own: dict[str, _Value], names: Sequence[str]) -> dict[str, _Value]:
    """Return the entries of all processes in the order of ``names``; each gives its share's entries."""
    if world_size() == 1:
        return own
    parts: list[dict[str, _Value]] = [{} for _ in range(world_size())]
    distributed.all_gather_object(parts, own)
    together = {name: value for part in parts for name, value in part.items()}
    return {name: together[name] for name in names}


def from_first(make: Callable[[], _Value]) -> _Value:
    """Call a function in the first process alone and return its result in all of them."""
    if world_size() == 1:
        return make()
    box: list[Any] = [make() if rank() == 0 else None]
    distributed.broadcast_object_list(box)
    return box[0]


@contextlib.contextmanager
def building(artifact: Artifact) -> Iterator[bool]:
    """Lock an artifact in the first process; yield in all of them whether its content must be made."""
    with contextlib.ExitStack() as stack:
        yield from_first(lambda: stack.enter_context(artifact.building()))


def add_gradients(network: torch.nn.Module) -> None:
    """Replace every gradient by its sum over the processes; one that no process has stays ``None``."""
    if world_size() == 1:
        return
    parameters = [p for p in network.parameters() if p.requires_grad]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    known = torch.tensor([float(p.grad is not None) for p in parameters], device=parameters[0].device)
    together = torch.cat([*(g.flatten() for g in gradients), known])
    distributed.all_reduce(together)
    *pieces, known = together.split([*(g.numel() for g in gradients), len(parameters)])
    for parameter, piece, count in zip(parameters, pieces, known.tolist(), strict=True):
        parameter.grad = piece.view_as(parameter) if count else None


def mean_loss(losses: Sequence[torch.Tensor], device: torch.device) -> float:
    """Return the mean of the losses of all processes; one may have none."""
    own = torch.stack([*losses]) if losses else torch.zeros(0, device=device)
    if world_size() == 1:
        return float(own.mean())
    total = torch.stack([own.double().sum(), torch.tensor(float(len(losses)), device=device).double()])
    distributed.all_reduce(total)
    return float(total[0] / total[1])


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
        reason = next((line[len(_ERROR) :] for line in lines if line.startswith(_ERROR)), None)
        tail = "".join(f"\n  {line.rstrip()}" for line in lines[-_TAIL:])
        raise RankError(reason or f"a process of the training ended; run the same command to resume{tail}")


def run_as_rank(train: Callable[[TrainSettings], Any]) -> None:
    """Train with the settings of the command line: the main function of a launched process."""
    try:
        train(TrainSettings(**json.loads(sys.argv[1])))
    except FastslowError as error:
        print(f"{_ERROR}{error}", flush=True)
        sys.exit(1)
