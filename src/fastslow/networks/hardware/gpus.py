"""The GPUs that torch finds, and why it cannot compute on one."""

import sys
from functools import cache

import torch

from fastslow.core.errors import SettingsError

_OTHER_GPU = "on Kaggle choose the accelerator GPU T4 x2, whose GPUs torch can use"


def require_gpu(name: str) -> None:
    """Refuse a GPU that is not there, or that torch cannot compute on.

    Args:
        name: ``cuda`` (torch's current GPU) or ``cuda:N``.

    Raises:
        SettingsError: The message has what torch finds, and what to use.
    """
    available = torch.cuda.is_available()
    count = torch.cuda.device_count()
    index = torch.device(name).index
    if not available or (index or 0) >= count:
        reported = f"torch.cuda.is_available() is {available}, torch.cuda.device_count() is {count}"
        usable = f"one of cuda:0 to cuda:{count - 1}" if available else "a CUDA build of torch and a driver"
        raise SettingsError(
            "device",
            f"{name!r} is not there ({reported}, torch {torch.__version__}); "
            f"use 'auto' or 'cpu', or {usable}",
        )
    if reason := why_unusable(index):
        raise SettingsError(
            "device", f"{name!r} cannot be used: {reason}; use 'auto' or 'cpu', or {_OTHER_GPU}"
        )


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
def warn_of_unusable() -> bool:
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
