"""Output of benchmarks: Markdown tables, the environment, and the JSON object of the last line."""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.core.artifacts import commit
from fastslow.core.memory import machine_cores
from fastslow_programs.compiler.device import processor

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
RESULTS = Path(__file__).resolve().parents[1] / "results"


def table(rows: list[dict]) -> str:
    """Return rows of equal keys as a Markdown table."""
    return pd.DataFrame(rows).to_markdown(index=False, tablefmt="github", disable_numparse=True)


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Return ``mean (minimum to maximum)`` as text, empty for no values."""
    if not len(values):
        return ""
    return f"{np.mean(values):.3f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def cells(row: dict) -> dict:
    """Return a table row whose floats have three digits."""
    return {key: f"{value:.3f}" if isinstance(value, float) else value for key, value in row.items()}


def environment(threads: int = 1, device: str = "cpu") -> dict:
    """Return commit, versions and machine of a measurement.

    Args:
        threads: Threads of the measured code.
        device: ``cpu`` or ``cuda``.
    """
    if device == "cuda":
        import torch

        device = torch.cuda.get_device_name()
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "cpu": processor(),
        "cores": machine_cores(),
        "threads": threads,
        "device": device,
    }


def keeping_results(run: Callable[[argparse.Namespace, Path], None], options: argparse.Namespace) -> int:
    """Run a benchmark that keeps its trainings in ``benchmarks/results`` and return the exit status.

    With ``--quick`` the folder is a temporary one.
    """
    if options.quick:
        with tempfile.TemporaryDirectory() as place:
            run(options, Path(place))
    else:
        run(options, RESULTS)
    return 0


def in_process(script: str, *arguments: str, **environment: str) -> dict:
    """Run a script with the present and further arguments in a process of its own.

    Args:
        script: Its file.
        arguments: Arguments to append.
        environment: Variables to set, such as ``ONE_THREAD``.

    Returns:
        The JSON object of its last line.

    Raises:
        subprocess.CalledProcessError: Its exit status is not 0.
    """
    command = [sys.executable, str(Path(script).resolve()), *sys.argv[1:], *arguments]
    run = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **environment}
    )
    return json.loads(run.stdout.splitlines()[-1])


def finish(result: dict) -> None:
    """Print every figure as one JSON object, the last line of a benchmark."""
    print(json.dumps(_rounded(result)), flush=True)


def _rounded(value):
    """Round floats to five significant digits."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
