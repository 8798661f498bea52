"""Four devices on this machine, for a process that has not imported JAX."""

import os

FOUR_DEVICES = {
    "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4",
    "JAX_PLATFORMS": "cpu",
}
"""Variables of its environment, beside the flags of all tests."""
