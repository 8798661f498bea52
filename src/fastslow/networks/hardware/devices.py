"""Device and floating-point precision of a network, from the setting ``device``."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from fastslow.core.errors import FastslowError, SettingsError

BFLOAT16_CAPABILITY = 8, 0  # Ampere; Kaggle's T4 (7.5) and P100 (6.0) have float16 alone


def pick_device(name: str) -> torch.device:
    """Return the device that a setting names.

    Args:
        name: ``auto`` (a GPU where there is one), ``cpu``, ``cuda`` (torch's current GPU) or ``cuda:N``.

    Raises:
        SettingsError: The GPU is not there; the message lists the devices that torch finds.
    """
    available = torch.cuda.is_available()
    count = torch.cuda.device_count()
    if name == "auto":
        name = "cuda" if available else "cpu"
    kind, _, index = name.partition(":")
    if kind == "cuda" and not (available and int(index or 0) < count):
        reported = f"torch.cuda.is_available() is {available}, torch.cuda.device_count() is {count}"
        usable = f"one of cuda:0 to cuda:{count - 1}" if available else "a CUDA build of torch and a driver"
        raise SettingsError(
            f"device: {name!r} is not there ({reported}, torch {torch.__version__}); "
            f"use 'auto' or 'cpu', or {usable}"
        )
    return torch.device(kind, int(index)) if index else torch.device(kind)


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
    """Return the context in which a network runs in the precision of its device."""
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


class OutOfMemory(FastslowError):
    """A training needs more memory than there is."""


@contextlib.contextmanager
def explain_memory() -> Iterator[None]:
    """Raise an :class:`OutOfMemory` that names the settings to lower where memory runs out."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not ran_out_of_memory(error):
            raise
        lower = "lower configs_per_step, hidden_channels, num_layers or the hops of the features"
        raise OutOfMemory(f"memory ran out: {lower}, or take JOBS=1") from None


class Shrinking:
    """Runs work on batches of a size that is halved when memory runs out; the size stays for what follows.

    Args:
        size: Size to start with.
        what: Name of the things that ``size`` counts, for the one message.
    """

    def __init__(self, size: int, what: str):
        self.size, self._what, self._said = size, what, False

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
            print(f"memory ran out: continuing with {self._what} {self.size}, or fewer", file=sys.stderr)
            self._said = True
