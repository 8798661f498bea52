"""A notebook for Kaggle's own GPUs: this code in an archive inside it, its metadata, and the push.

Tested against a loopback stub of Kaggle's API; nothing here was run on Kaggle itself.
"""

import base64
import gzip
import io
import json
import shlex
import tarfile
from pathlib import Path

import nbformat

from fastslow.core.errors import SettingsError
from fastslow.core.files import atomic_path, write_json
from fastslow.core.settings import PROJECT, Count, Settings, resolve
from fastslow.kaggle.api_process import COMPETITION, CallError, KaggleError, call
from fastslow.kaggle.credentials import credentials, scrub

METADATA = "kernel-metadata.json"
NOTEBOOK = "fastslow.ipynb"
NOBODY = "INSERT_KAGGLE_USERNAME_HERE"
_PACKED = ("src/fastslow/**/*.py", "notebooks/*.ipynb", "pyproject.toml", "requirements.txt", "LICENSE")
_ABOUT = """# Fast or slow

Trains and predicts with the code of the archive below, then copies the submission, the runs and their scores
into the output. Run it with a GPU (*Accelerator: GPU T4 x2*); the competition's data are attached.
"""
_UNPACK = """import base64, glob, io, os, shutil, subprocess, sys, tarfile

INPUT, WORKING, SCRATCH = "/kaggle/input", "/kaggle/working", "/kaggle/tmp"  # the output holds 20 GB at most
ARCHIVE = "{archive}"
code = f"{{SCRATCH}}/code"
with tarfile.open(fileobj=io.BytesIO(base64.b64decode(ARCHIVE))) as archive:
    archive.extractall(code, filter="data")
"""
_RUN = """command = {command!r}
environment = {{**os.environ, "FASTSLOW_HOME": f"{{SCRATCH}}/home", "PYTHONPATH": f"{{code}}/src"}}
install = [sys.executable, "-m", "pip", "install", "-q", "-r", f"{{code}}/requirements.txt"]
subprocess.run(install, check=True)  # only what the image lacks; needs the internet to be switched on
found = [path for depth in ("*", "*/*", "*/*/*") for path in glob.glob(f"{{INPUT}}/{{depth}}/npz_all")]
data = os.path.dirname(found[0])
subprocess.run([sys.executable, "-m", "fastslow", *command, f"data={{data}}"], env=environment, check=True)
"""
_KEEP = """for name in ("runs", "submissions"):
    shutil.copytree(f"{SCRATCH}/home/{name}", f"{WORKING}/{name}", dirs_exist_ok=True)
shutil.copy(f"{SCRATCH}/home/submissions/kaggle.csv", f"{WORKING}/submission.csv")
"""


class KernelSettings(Settings):
    """Settings of the notebook for Kaggle's GPUs and of the run in it."""

    user: str = ""
    """Name of your Kaggle account, as in the address of your profile; that of the credentials if empty."""
    title: str = "fastslow"
    """Title of the notebook at Kaggle, five characters or more."""
    folder: str = "submissions/kernel"
    """Folder to write: the notebook and ``kernel-metadata.json``."""
    accelerator: str = "NvidiaTeslaT4"
    """Kaggle's name of the machine: ``NvidiaTeslaT4`` (two GPUs) or ``NvidiaTeslaP100`` (one)."""
    push: bool = True
    """Push it where there are Kaggle credentials; otherwise it is only written."""
    preset: str = "kaggle"
    """Preset of the run."""
    seeds: Count = 1
    """Seeds of each model; a session ends after 12 hours."""
    jobs: Count = 0
    """Maximum number of notebooks that run in parallel; 0 for as many as memory, cores and GPUs allow."""
    set: list[str] = []
    """Settings of steps, each ``SECTION.NAME=VALUE``."""

    def check(self) -> None:
        """Check the title: Kaggle makes the notebook's address from it."""
        super().check()
        self.require(len(self.title) >= 5 and bool(_slug(self.title)), "title", "five characters or more")

    def command(self) -> list[str]:
        """Return the words after ``python -m fastslow`` that run in the notebook, but for the data."""
        chosen = [f"{name}={getattr(self, name)}" for name in ("preset", "seeds", "jobs")]
        return ["submission", "name=kaggle", *chosen, *self.set]


def make_kernel(settings: KernelSettings) -> None:
    """Write the notebook and its metadata; push both where there are credentials, else say what to type.

    Raises:
        SettingsError: A setting is wrong.
        KaggleError: Kaggle refused the notebook or could not be reached.
    """
    folder, known = resolve(settings.folder), credentials() is not None
    pushes, user = known and settings.push, settings.user
    if pushes and not user and not (user := _call("get_config_value", name="username")):
        raise SettingsError("user: the Kaggle credentials do not say whose they are; give user=NAME")
    user = user or NOBODY
    with atomic_path(folder / NOTEBOOK) as temporary:
        nbformat.write(kernel_notebook(settings), temporary)
    write_json(folder / METADATA, kernel_metadata(settings, user))
    size = (folder / NOTEBOOK).stat().st_size / 1e6
    print(f"{folder}: the notebook ({size:.2f} MB, with this code in it) and {METADATA}")
    if not pushes:
        why = "no Kaggle credentials" if not known else "push=False"
        todo = "" if user != NOBODY else f" write your Kaggle name for {NOBODY} in {METADATA},\nthen"
        print(f"not pushed: {why}. Once you have them (kaggle.com > Settings > API),{todo} type")
        print(f"  .venv/bin/kaggle kernels push -p {shlex.quote(str(folder))}   (or `make kernel` again)")
        return
    pushed = _push(folder)
    name = f"{user}/{_slug(settings.title)}"
    print(f"pushed: version {pushed.get('versionNumber')} runs at {pushed.get('url')}")
    print(f"state:  .venv/bin/kaggle kernels status {name}\noutput: .venv/bin/kaggle kernels output {name}")


def kernel_metadata(settings: KernelSettings, user: str) -> dict:
    """Return what ``kernel-metadata.json`` holds, as the kaggle package documents it."""
    return {
        "id": f"{user}/{_slug(settings.title)}",
        "title": settings.title,
        "code_file": NOTEBOOK,
        "language": "python",
        "kernel_type": "notebook",
        "is_private": True,
        "enable_gpu": True,
        "enable_tpu": False,
        "enable_internet": True,
        "machine_shape": settings.accelerator,
        "dataset_sources": [],
        "competition_sources": [COMPETITION],
        "kernel_sources": [],
        "model_sources": [],
    }


def kernel_notebook(settings: KernelSettings) -> nbformat.NotebookNode:
    """Return the notebook: this code as an archive, the run, and what is kept of it."""
    archive = base64.b64encode(pack_code()).decode()
    sources = [_UNPACK.format(archive=archive), _RUN.format(command=settings.command()), _KEEP]
    cells = [nbformat.v4.new_code_cell(source.strip()) for source in sources]
    cells.insert(0, nbformat.v4.new_markdown_cell(_ABOUT.strip()))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same notebook for the same code
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def pack_code() -> bytes:
    """Return a tar.gz of the code and the notebooks, the same bytes for the same files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(path for pattern in _PACKED for path in PROJECT.glob(pattern)):
            entry = tarfile.TarInfo(str(path.relative_to(PROJECT)))
            entry.size = path.stat().st_size
            with open(path, "rb") as content:
                archive.addfile(entry, content)
    return gzip.compress(packed.getvalue(), mtime=0)


def _slug(title: str) -> str:
    """Return the last part of the address that Kaggle gives to a title of plain words."""
    return "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in title.lower()).split())


def _push(folder: Path) -> dict:
    answer = _call("kernels_push", folder=str(folder))
    refused = {name: value for name, value in answer.items() if name.startswith("invalid") and value}
    if answer.get("error") or refused:
        said = scrub(answer.get("error") or json.dumps(refused))
        raise KaggleError(f"Kaggle did not take the notebook as it is ({said})", f"Mend {folder / METADATA}")
    return answer


def _call(method: str, **arguments):
    try:
        return call(method, **arguments)
    except CallError as error:
        remedy = "Check the credentials, and that your account may use GPUs (a phone number is confirmed)"
        raise KaggleError(f"Kaggle refused {method} ({scrub(error.said)})", remedy, error.transient) from None
