"""The devices of this machine that JAX finds: CPU, GPU or TPU."""

import contextlib
import glob
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from pathlib import Path

from fastslow.core.errors import SettingsError
from fastslow.core.memory import machine_cores

ROUNDS = 15
"""Times that each configuration of a batch is run, in random order."""
_TPU_FILES = ("/dev/accel*", "/dev/vfio/[0-9]*")


def require_jax() -> None:
    """Raise :class:`SettingsError` that names what to install if JAX is not installed.

    Where it is and there is no TPU, it is kept from libtpu, which the TPU compiler brings and which prints
    lines of errors there. A choice of the user's (``JAX_PLATFORMS``) stays, and so do other devices.
    """
    if importlib.util.find_spec("jax") is None:
        raise SettingsError("jax is not installed, but a function needs it: pip install -e '.[device]'")
    others = importlib.util.find_spec("jax_plugins")  # a GPU's, for example
    if importlib.util.find_spec("libtpu") and not (others or _may_have_tpu()):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        if (jax := sys.modules.get("jax")) and not jax.config.jax_platforms:  # it read the environment before
            jax.config.update("jax_platforms", "cpu")


def _may_have_tpu() -> bool:
    """Return whether this machine may have a TPU: a device file of one, or what Cloud TPU sets."""
    named = {"TPU_NAME", "TPU_WORKER_ID", "COLAB_TPU_ADDR"} & {*os.environ}
    return bool(named or any(glob.glob(pattern) for pattern in _TPU_FILES))


def device_name() -> str:
    """Return the kind of the first device of this machine, such as ``cpu`` or ``NVIDIA H100``."""
    require_jax()
    import jax

    return jax.local_devices()[0].device_kind


def platform_name() -> str:
    """Return the platform of this machine's first device as JAX names it: ``cpu``, ``gpu`` or ``tpu``."""
    require_jax()
    import jax

    return jax.local_devices()[0].platform


def processor() -> str:
    """Return the model of this machine's processor, as far as the operating system names it."""
    with contextlib.suppress(OSError):  # there is no such file but on Linux
        if model := re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()):
            return model[1]
    return platform.processor() or platform.machine()


def device_identity() -> str:
    """Return the device, compiler, flags and rounds of a measurement as one text."""
    device = device_name()
    if device == "cpu":
        device = f"{processor()}, {machine_cores()} cores"
    flags = " ".join(os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"))
    return f"device {device}, jaxlib {importlib.metadata.version('jaxlib')}, {ROUNDS} rounds {flags}".strip()
