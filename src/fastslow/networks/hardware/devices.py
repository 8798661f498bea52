"""Device and floating-point precision of a network, from the setting ``device``."""

import torch

from fastslow.core.errors import SettingsError

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
