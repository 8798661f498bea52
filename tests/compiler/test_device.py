"""What JAX finds on this machine."""

import importlib.util
import os
import subprocess
import sys
from fnmatch import fnmatch

import pytest

from fastslow_programs.compiler import device
from helpers.cases import cases


@cases(
    "variables, files, plugin, platform",
    [
        ({}, [], False, "cpu"),
        ({"JAX_PLATFORMS": "tpu"}, [], False, "tpu"),
        ({"JAX_PLATFORMS": ""}, [], False, ""),
        ({"TPU_NAME": "mine"}, [], False, None),
        ({}, ["/dev/accel0"], False, None),
        ({}, [], True, None),
    ],
)
def test_jax_is_kept_from_libtpu_where_no_tpu_can_be(variables, files, plugin, platform, monkeypatch):
    installed = {"jax", "libtpu", *["jax_plugins"] * plugin}
    monkeypatch.setattr(device.importlib.util, "find_spec", lambda name: name in installed or None)
    monkeypatch.setattr(device.glob, "glob", lambda pattern: [f for f in files if fnmatch(f, pattern)])
    for name in ("JAX_PLATFORMS", "TPU_NAME", "TPU_WORKER_ID", "COLAB_TPU_ADDR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    device.require_jax()
    assert os.environ.pop("JAX_PLATFORMS", None) == platform


@cases("imported", ["", "import jax", "import jax; jax.numpy"])
@pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason="needs the compiler's extra")
def test_jax_says_nothing_of_a_tpu_that_is_not_there(imported):
    script = f"{imported}\nfrom fastslow_programs.compiler.device import device_name; print(device_name())"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "TPU_"))}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("cpu\n", "") or device._may_have_tpu()
