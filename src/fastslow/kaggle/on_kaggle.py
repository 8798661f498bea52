"""A run inside a Kaggle notebook: install what is missing, find the data, train, write ``submission.csv``.

``notebooks/90_on_kaggle.ipynb`` calls it. This module imports nothing that Kaggle's image may lack, since
:func:`install` comes first.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastslow.core.errors import FastslowError, SettingsError
from fastslow.core.files import atomic_path

REPOSITORY = Path(__file__).resolve().parents[3]
_DEPTHS = ("*", "*/*", "*/*/*", "*/*/*/*")  # input/NAME, or since 2026 input/datasets/OWNER/NAME, and in it
_SHOWN = 5  # last lines of pip
_FEATURES_LINK = re.compile(r'<a href="\.\./features/[^"]*">([^<]*)</a>')
_ONLY_PRINT = ("all", "h", "help", "plan")  # with one of them the command succeeds and makes nothing


def install(root: str | Path) -> None:
    """Install the packages that fastslow needs and this Python lacks, and let new processes find fastslow.

    With wheels attached (a folder of ``.whl`` files anywhere under ``input``) pip asks no index unless one is
    missing. fastslow itself is used from where it is attached, which may be read-only.

    Args:
        root: Folder that holds ``input`` and ``working``, on Kaggle ``/kaggle``.

    Raises:
        FastslowError: pip failed; the message has its last lines.
    """
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    run_notebooks = [line for line in project["optional-dependencies"]["notebooks"] if "jupyter>" not in line]
    names = [line.partition(">")[0] for line in run_notebooks]  # any release: this notebook runs in one
    needed = [*project["dependencies"], *names]
    wheels = sorted({path.parent for path in _attached(root, "*.whl")})
    links = [f"--find-links={folder}" for folder in wheels]
    sources = [["--no-index", *links], links] if wheels else [[]]  # the index only for what is not attached
    for source in sources:
        command = [sys.executable, "-m", "pip", "install", "--quiet", *source, *needed]
        done = subprocess.run(command, capture_output=True, text=True)
        if not done.returncode:
            break
    else:
        said = "\n".join(done.stderr.strip().splitlines()[-_SHOWN:])
        remedy = (
            "Switch on the internet of this notebook, or attach a dataset with the wheels that are missing"
        )
        raise FastslowError(f"pip could not install what fastslow needs. {remedy}. pip said:\n{said}")
    paths = [str(REPOSITORY / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def _attached(root: str | Path, name: str) -> Iterator[Path]:
    """Yield what is attached to the notebook under a name, which may be a pattern."""
    for depth in _DEPTHS:
        yield from sorted(Path(root, "input").glob(f"{depth}/{name}"))


def train_here(root: str | Path, name: str, hours: float = 0.0, settings: str = "") -> Path:
    """Train on the attached competition, and write ``working/submission.csv``.

    The run is in ``working`` too: ``runs/NAME``, its record in ``submissions``, and ``features/NAME`` until
    it is complete. A further call resumes it.

    Args:
        root: Folder that holds ``input`` and ``working``, on Kaggle ``/kaggle``.
        name: Name of the run.
        hours: Hours that it may take; 0 for any number.
        settings: Further settings of ``fastslow submission``, as typed in a shell.

    Returns:
        The CSV.

    Raises:
        SettingsError: A setting makes the command print something instead of a CSV.
        FastslowError: The competition's data are not attached, or the run failed. A CSV that the run had
            made before is in place.
    """
    given = shlex.split(settings)
    printing = [word for word in given if _only_prints(word)]
    if printing:
        problem = f"{printing[0]} only prints, and this notebook trains"
        raise SettingsError("settings", f"{problem}; leave it out here, and type it with `fastslow submit`")
    folders = [path for path in _attached(root, "npz_all") if not path.resolve().is_relative_to(REPOSITORY)]
    data = next((path.parent for path in folders), None)  # not the sample, which comes with the code
    if data is None:
        remedy = "Attach the data of the competition Google - Fast or Slow? (Add Input) and accept its rules"
        raise FastslowError(f"no npz_all under {root}/input. {remedy}")
    working = Path(root, "working").resolve()
    limit = [f"hours={hours:g}"] if hours else []
    typed = [f"data={data}", f"name={name}", *limit, *given]
    command = [sys.executable, "-m", "fastslow", "submission", *typed]
    status = _run(command, working)
    made = working / "submissions" / f"{name}.csv"
    csv = working / "submission.csv"
    if made.is_file():  # after a failure too: a run with a budget begins with a CSV of ridge regression
        with atomic_path(csv) as temporary:
            shutil.copy(made, temporary)
    if status:
        raise FastslowError(f"the run ended with status {status}; the lines above name the reason")
    shutil.rmtree(working / "features" / name)  # gigabytes, which Kaggle would keep with the CSV
    _unlink_features(working / "submissions" / f"{name}.html")
    return csv


def _unlink_features(page: Path) -> None:
    """Leave of the links of a submission's page to notebooks of features, which are removed, the words."""
    text = _FEATURES_LINK.sub(r"\1", page.read_text())
    with atomic_path(page) as temporary:
        temporary.write_text(text)


def _only_prints(word: str) -> bool:
    """Return whether a word of the command makes it print and make nothing, as ``plan=False`` does not."""
    name, _, value = word.partition("=")
    return name.lstrip("-") in _ONLY_PRINT and value != "False"


def _run(command: Sequence[str], home: Path) -> int:
    """Run a command whose files are under a home, and print its output; return its status."""
    environment = {**os.environ, "FASTSLOW_HOME": str(home)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
    return process.returncode
