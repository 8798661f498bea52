"""Where the CPU seconds of make submit go.

``python benchmarks/submit_seconds.py [--quick]``. The sample competition is run from nothing in a new
folder. Each of its processes looks every 10 ms of CPU time at the functions that its main thread is in. A
row counts the time in which a function of its files was among them; other threads work for the main thread.
``--quick`` runs the preset smoke.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from common import report
from common.command_line import run_main
from common.options import make_parser
from fastslow.core.settings import PROJECT

TABLE = {"hours": 0.2, "needs": ("fastslow",)}
SAMPLED = Path(__file__).resolve().parent / "common" / "sampled"
PHASES = {
    "start of processes: imports": ("<frozen importlib",),
    "fingerprints of the code": ("fastslow/core/source.py",),
    "networks: scores on valid, predictions": (
        "fastslow/networks/training/validation.py",
        "networks/training/train.py:predict",
        "networks/predict/dataset.py:predict",
    ),
    "networks: states of configurations": ("networks/predict/dataset.py", "networks/states/config_states.py"),
    "networks: steps of training": ("fastslow/networks/training/train.py",),
    "rankers: tables": ("fastslow/rankers/table.py",),
    "rankers: scores on valid, predictions": ("rankers/fit.py:predict", "steps/ranker.py:predict"),
    "rankers: trees": ("fastslow/rankers/",),
    "figures, pages": (
        "/matplotlib/",
        "core/figures.py",
        "evaluation/plots.py",
        "fastslow/views/",
        "/nbconvert/",
    ),
    "data files: reading, checks": (
        "competition/reader.py",
        "competition/schema.py",
        "competition/rules/",
        "competition/data_quality.py",
    ),
    "ensembles, trivial rules": ("fastslow/ensemble/", "steps/ensemble.py", "steps/trained_ensemble.py"),
    "features: values": ("fastslow/features/",),
    "features: files": ("steps/features.py", "runs/features_folder.py"),
    "submission, its checks and record": ("steps/submission.py", "fastslow/evaluation/"),
    "notebooks: papermill, Jupyter": (
        "/papermill/",
        "/nbclient/",
        "/ipykernel/",
        "/jupyter_client/",
        "/asyncio/",
    ),
}
"""By row, parts of its functions' ``file:function``; a stack counts for the first row that it matches."""
OTHERS = "others"


def phase_of(stack: str) -> str:
    """Return the row of a stack, which holds ``file:function`` of each frame in a line of its own."""
    for phase, parts in PHASES.items():
        if any(part in stack for part in parts):
            return phase
    return OTHERS


def rows_of(seconds: dict[str, float]) -> Iterable[dict]:
    """Return the rows of the table from the CPU seconds by stack, the most first."""
    by_phase: dict[str, float] = defaultdict(float)
    for stack, taken in seconds.items():
        by_phase[phase_of(stack)] += taken
    whole = sum(by_phase.values())
    for phase in sorted(by_phase, key=by_phase.__getitem__, reverse=True):
        yield {"what": phase, "CPU s": f"{by_phase[phase]:.1f}", "share": f"{by_phase[phase] / whole:.2f}"}
    yield {"what": "all", "CPU s": f"{whole:.1f}", "share": "1.00"}


def run_sampled(command: Sequence[str], samples: Path, **environment: str) -> dict[str, float]:
    """Run a command of Python and return the CPU seconds of its processes by stack.

    Args:
        command: The command.
        samples: Folder for the files of the processes, without another one.
        **environment: Further variables of the environment.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    paths = [str(SAMPLED), str(PROJECT / "src")]
    variables = {"PYTHONPATH": os.pathsep.join(paths), "FASTSLOW_SAMPLES": str(samples), **environment}
    run = {"env": os.environ | variables, "stdout": subprocess.DEVNULL, "cwd": PROJECT}
    subprocess.run(command, check=True, **run)
    seconds: dict[str, float] = defaultdict(float)
    for path in samples.glob("*.json"):
        for stack, taken in json.loads(path.read_text()).items():
            seconds[stack] += taken
    return seconds


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = make_parser(__doc__.splitlines()[0]).parse_args(arguments)
    command = [sys.executable, "-m", "fastslow", "submit"]
    if options.quick:
        command.append("preset=smoke")
    with tempfile.TemporaryDirectory() as samples, tempfile.TemporaryDirectory() as home:
        rows = list(rows_of(run_sampled(command, Path(samples), FASTSLOW_HOME=home)))
    print("\nCPU seconds of `make submit`, without the set-up\n")
    print(report.table(rows))
    report.finish({"environment": report.environment(), "rows": rows})
    return 0


if __name__ == "__main__":
    run_main(main)
