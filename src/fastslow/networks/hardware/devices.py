"""Device and floating-point precision of a network, from the setting ``device``."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch

from fastslow.networks.hardware import gpus

BFLOAT16_CAPABILITY = 8, 0  # Ampere; Kaggle's T4 (7.5) has float16 alone


def pick_device(name: str) -> torch.device:
    """Return the device that a setting names.

    Args:
        name: ``auto`` (a GPU where there is one that torch can use), ``cpu``, ``cuda`` (torch's current GPU)
            or ``cuda:N``.

    Raises:
        SettingsError: The GPU is not there, or torch cannot compute on it.
    """
    if name == "auto":
        usable = torch.cuda.is_available() and not gpus.warn_of_unusable()
        name = "cuda" if usable else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        gpus.require_gpu(name)
    return device


def pick_precision(device: torch.device) -> torch.dtype:
    """Return the type in which a network's matrix products are computed.

    float32 on a CPU, bfloat16 on a GPU that has it, float16 on an older one. Parameters, norms, sums over
    nodes and the head stay in float32 or float64 everywhere.
    """
    if device.type != "cuda":
        return torch.float32
    has_bfloat16 = torch.cuda.get_device_capability(device) >= BFLOAT16_CAPABILITY
    return torch.bfloat16 if has_bfloat16 else torch.float16


def seed_generator(device: torch.device, seed: int) -> None:
    """Seed the generator that dropout on a device draws from.

    ``torch.manual_seed`` also keeps a stack trace for GPUs that are not in use, which takes a millisecond.
    """
    (torch.default_generator if device.type == "cpu" else torch).manual_seed(seed)


def autocast(device: torch.device) -> AbstractContextManager:
    """Return the context in which a network runs in its device's precision, see :func:`pick_precision`."""
    precision = pick_precision(device)
    return nullcontext() if precision is torch.float32 else torch.autocast(device.type, precision)


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
    """Runs work on so many configurations together as memory holds; the number stays for what follows."""

    def __init__(self, size: int):
        self.size = size

    def run(self, work: Callable[[int], Result]) -> Result:
        """Return ``work(size)``; where memory runs out, halve the size, to 2 at least, and call it again.

        Raises:
            Exception: An error of ``work`` with another reason, or memory runs out at size 2.
        """
        while True:
            try:
                return work(self.size)
            except (MemoryError, RuntimeError) as error:
                if not ran_out_of_memory(error) or self.size <= 2:
                    raise
            self.size = max(2, self.size // 2)  # here what the failed attempt held is freed
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            print(f"memory ran out: continuing with configs_together {self.size}", file=sys.stderr)
