"""Device and floating-point precision of a network, from the setting ``device``."""

import sys
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch

from fastslow.core.errors import SettingsError

BFLOAT16_CAPABILITY = 8, 0  # Ampere; Kaggle's T4 (7.5) has float16 alone
_OTHER_GPU = "on Kaggle choose the accelerator GPU T4 x2, whose GPUs torch can use"


def pick_device(name: str) -> torch.device:
    """Return the device that a setting names.

    Args:
        name: ``auto`` (a GPU where there is one that torch can use), ``cpu``, ``cuda`` (torch's current GPU)
            or ``cuda:N``.

    Raises:
        SettingsError: The GPU is not there, and the message lists the devices that torch finds; or torch
            cannot compute on it.
    """
    available = torch.cuda.is_available()
    count = torch.cuda.device_count()
    if name == "auto":
        if not available or _warn_of_unusable():
            return torch.device("cpu")
        name = "cuda"
    kind, _, index = name.partition(":")
    if kind == "cuda" and not (available and int(index or 0) < count):
        reported = f"torch.cuda.is_available() is {available}, torch.cuda.device_count() is {count}"
        usable = f"one of cuda:0 to cuda:{count - 1}" if available else "a CUDA build of torch and a driver"
        raise SettingsError(
            "device",
            f"{name!r} is not there ({reported}, torch {torch.__version__}); "
            f"use 'auto' or 'cpu', or {usable}",
        )
    if kind == "cuda" and (reason := why_unusable(int(index) if index else None)):
        raise SettingsError(
            "device", f"{name!r} cannot be used: {reason}; use 'auto' or 'cpu', or {_OTHER_GPU}"
        )
    return torch.device(kind, int(index)) if index else torch.device(kind)


@cache
def why_unusable(index: int | None = None) -> str:
    """Return why torch cannot compute on a GPU; empty where it can.

    A GPU is there for torch even where this build has no code for it (a P100 with builds from 2025 on): then
    every operation fails, so one is run.

    Args:
        index: Number of the GPU; None for torch's current one.
    """
    device = torch.device("cuda", index) if index is not None else torch.device("cuda")
    try:
        torch.ones(2, device=device).sum().item()
    except torch.cuda.OutOfMemoryError:
        return ""  # it is used by others
    except RuntimeError as error:
        said = str(error).partition("\n")[0]
        major, minor = torch.cuda.get_device_capability(device)
        built = " ".join(torch.cuda.get_arch_list())
        return (
            f"torch {torch.__version__}, built for {built}, cannot compute on the GPU "
            f"{torch.cuda.get_device_name(device)} of compute capability {major}.{minor} ({said})"
        )
    return ""


@cache
def _warn_of_unusable() -> bool:
    """Return whether torch's current GPU cannot be used, and say so once."""
    reason = why_unusable()
    if reason:
        print(f"device: {reason}; the CPU computes. To use a GPU, {_OTHER_GPU}", file=sys.stderr, flush=True)
    return bool(reason)


def usable_gpus() -> list[str]:
    """Return the names of this machine's GPUs; empty where there is none.

    Raises:
        SettingsError: torch cannot compute on one of them, such as Kaggle's P100.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index in range(count):
        if reason := why_unusable(index):
            raise SettingsError("accelerator", f"{reason}; {_OTHER_GPU}")
    return [torch.cuda.get_device_name(index) for index in range(count)]


def pick_precision(device: torch.device) -> torch.dtype:
    """Return the type in which a network's matrix products are computed.

    float32 on a CPU, bfloat16 on a GPU that has it, float16 on an older one. Parameters, norms, sums over
    nodes and the head stay in float32 or float64 everywhere.
    """
    if device.type != "cuda":
        return torch.float32
    return (
        torch.bfloat16 if torch.cuda.get_device_capability(device) >= BFLOAT16_CAPABILITY else torch.float16
    )


def seed_generator(device: torch.device, seed: int) -> None:
    """Seed the generator that dropout on a device draws from.

    ``torch.manual_seed`` also keeps a stack trace for GPUs that are not in use, which takes a millisecond.
    """
    (torch.default_generator if device.type == "cpu" else torch).manual_seed(seed)


def autocast(device: torch.device) -> torch.autocast:
    """Return the context in which a network runs in its device's precision, see :func:`pick_precision`."""
    precision = pick_precision(device)
    return torch.autocast(device.type, precision, enabled=precision is not torch.float32)


def loss_scaler(device: torch.device) -> torch.amp.GradScaler:
    """Return a loss scaler that keeps float16 gradients from underflow (arXiv 1710.03740); else a no-op."""
    return torch.amp.GradScaler(device.type, enabled=pick_precision(device) is torch.float16)


Result = TypeVar("Result")
_SAYS = ("can't allocate memory", "out of memory")  # RuntimeErrors of torch's CPU and CUDA allocators


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on a CPU or on a GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _SAYS)


class Shrinking:
    """Runs work on so many configurations together as memory holds; the number stays for what follows.

    Args:
        size: Number of configurations to start with; it is halved whenever memory runs out.
    """

    def __init__(self, size: int):
        self.size = size
        self._said = False

    def run(self, work: Callable[[int], Result]) -> Result:
        """Return ``work(size)``; where memory runs out, halve the size and call it again.

        Args:
            work: Takes the size, 2 or more.

        Raises:
            Exception: An error of ``work`` with another reason, or memory runs out at size 2.
        """
        while True:
            try:
                return work(self.size)
            except (MemoryError, RuntimeError) as error:
                if not ran_out_of_memory(error) or self.size <= 2:
                    raise
            self._shrink()  # here what the failed attempt held is freed

    def _shrink(self) -> None:
        self.size = max(2, self.size // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if not self._said:
            print(f"memory ran out: continuing with configs_together {self.size}, or fewer", file=sys.stderr)
            self._said = True
